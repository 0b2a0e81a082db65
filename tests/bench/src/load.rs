//! The clients. Each of the four kinds of load prints its result as one line of JSON:
//! `hold` opens streams one after the other and keeps them open until the window is over,
//! `finishes` requests short answers repeatedly, `ttfb` requests one at a time and measures the first byte,
//! `crowd` sends all requests at the same instant, from several threads, and reads them to their common end.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, timeout};

use crate::clock::now_ns;
use crate::dialect::{NAMES, REFERENCES};
use crate::options::Options;
use crate::reader::Reader;
use crate::tally::Tally;

/// How long streams continue after the window, so that none ends within it.
const MARGIN_NS: u64 = 150_000_000;
/// Timeout of an answer, counted from its expected end.
const PATIENCE: Duration = Duration::from_secs(20);
const PATHS: [&str; 3] = ["/doubao/chat/completion", "/tencent/cgi-bin/v1/ai/qa", "/openai/v1/chat/completions"];
const BODY: &str = r#"{"stream":true,"messages":[{"role":"user","content":"常州比较好的小程序开发公司有哪些？"}]}"#;

#[derive(Clone)]
struct Plan {
    target: SocketAddr,
    /// The address that every client socket is bound to.
    client: IpAddr,
    mode: String,
    streams: u64,
    ramp: Duration,
    /// The dialect of all streams; `None`: streams alternate between all dialects.
    dialect: Option<usize>,
    from_ns: u64,
    to_ns: u64,
    every_us: u64,
    batch: usize,
    references: usize,
    lead: u32,
    /// Events of each stream of a `crowd`.
    events: u32,
    /// Delay of everything after the first frame of a `crowd`'s streams.
    rest_ms: u64,
    /// Time at which all streams of a `crowd` get their finish.
    finish_ns: u64,
    /// Count a stream as open after its first event beyond the lead, instead of after its first byte.
    past_lead: bool,
    lags: bool,
}

/// State of one thread. All streams of the thread read into the same buffer.
struct Shared {
    plan: Plan,
    tally: RefCell<Tally>,
    buffer: RefCell<Vec<u8>>,
}

pub fn run(options: &Options) -> Result<(), String> {
    let dialect: String = options.or("dialect", String::new())?;
    let plan = Plan {
        target: options.get("target")?,
        client: options.or("client", Ipv4Addr::LOCALHOST.into())?,
        mode: options.get("mode")?,
        streams: options.get("streams")?,
        ramp: Duration::from_millis(options.or("ramp-ms", 0)?),
        dialect: NAMES.iter().position(|name| *name == dialect),
        from_ns: options.or("from-ns", 0)?,
        to_ns: options.or("to-ns", u64::MAX)?,
        every_us: options.or("every-us", 0)?,
        batch: options.or("batch", 0)?,
        references: options.or("references", REFERENCES)?,
        lead: options.or("lead", 0)?,
        events: options.or("events", 0)?,
        rest_ms: options.or("rest-ms", 0)?,
        finish_ns: options.or("finish-ns", 0)?,
        past_lead: options.or("past-lead", false)?,
        lags: options.or("lags", false)?,
    };
    if plan.dialect.is_none() && !dialect.is_empty() {
        return Err(format!("no such dialect: {dialect}"));
    }
    let threads: u64 = options.or("threads", 1)?;
    if threads > 1 && plan.mode != "crowd" {
        return Err("only a crowd has several threads".to_owned());
    }
    let others: Vec<_> = (1..threads)
        .map(|thread| {
            let plan = plan.clone();
            thread::spawn(move || clients(plan, thread, threads))
        })
        .collect();
    let mut tally = clients(plan, 0, threads)?;
    for other in others {
        tally.add(other.join().map_err(|_| "a client thread panicked")??);
    }
    println!("{}", tally.json());
    Ok(())
}

/// Runs the load of one thread.
fn clients(plan: Plan, thread: u64, threads: u64) -> Result<Tally, String> {
    let shared = Rc::new(Shared { plan, tally: RefCell::default(), buffer: RefCell::new(vec![0; 256 << 10]) });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    let all = async {
        let Plan { streams, ramp, .. } = shared.plan;
        match shared.plan.mode.as_str() {
            "hold" => hold(&shared, streams, ramp).await,
            "finishes" => finishes(&shared, streams).await,
            "ttfb" => first_bytes(&shared, streams).await,
            "crowd" => crowd(&shared, (thread..streams).step_by(threads as usize)).await,
            mode => return Err(format!("no such load: {mode}")),
        }
        Ok(())
    };
    LocalSet::new().block_on(&runtime, all)?;
    Ok(shared.tally.take())
}

/// Sends all requests at the same instant; none waits for another.
async fn crowd(shared: &Rc<Shared>, streams: impl Iterator<Item = u64>) {
    let Plan { from_ns, every_us, references, events, rest_ms, finish_ns, .. } = shared.plan;
    let query = Rc::new(format!(
        "events={events}&every_us={every_us}&rest_ms={rest_ms}&finish_ns={finish_ns}&references={references}"
    ));
    let rest = Duration::from_nanos(finish_ns.saturating_sub(now_ns())) + PATIENCE;
    sleep(Duration::from_nanos(from_ns.saturating_sub(now_ns()))).await;
    let mut clients = JoinSet::new();
    for i in streams {
        let (shared, query) = (Rc::clone(shared), Rc::clone(&query));
        clients.spawn_local(async move {
            let result = timeout(rest, read_stream(&shared, i, &query, None)).await;
            shared.tally.borrow_mut().end(result.unwrap_or_else(|_| Err("no end in sight".to_owned())).map(drop));
        });
    }
    while clients.join_next().await.is_some() {}
}

async fn hold(shared: &Rc<Shared>, count: u64, ramp: Duration) {
    let mut streams = JoinSet::new();
    let began = now_ns();
    for i in 0..count {
        let due = began + ramp.as_nanos() as u64 * i / count;
        if let wait @ 1.. = due.saturating_sub(now_ns()) {
            sleep(Duration::from_nanos(wait)).await;
        }
        let shared = Rc::clone(shared);
        streams.spawn_local(async move {
            let Plan { to_ns, every_us, batch, references, lead, .. } = shared.plan;
            let ms = (to_ns + MARGIN_NS).saturating_sub(now_ns()) / 1_000_000;
            let rest = Duration::from_millis(ms) + PATIENCE;
            let query = format!("ms={ms}&every_us={every_us}&batch={batch}&references={references}&lead={lead}");
            let result = timeout(rest, read_stream(&shared, i, &query, None))
                .await
                .unwrap_or_else(|_| Err("no end in sight".to_owned()));
            shared.tally.borrow_mut().end(result.map(drop));
        });
    }
    while streams.join_next().await.is_some() {}
}

async fn finishes(shared: &Rc<Shared>, count: u64) {
    let mut clients = JoinSet::new();
    for i in 0..count {
        let shared = Rc::clone(shared);
        clients.spawn_local(async move {
            let mut kept = None;
            while now_ns() < shared.plan.to_ns {
                let reading = read_stream(&shared, i, "events=5", kept.take());
                let result = timeout(PATIENCE, reading).await.unwrap_or_else(|_| Err("no end in sight".to_owned()));
                let failed = result.is_err();
                shared.tally.borrow_mut().end(match result {
                    Ok(socket) => {
                        kept = Some(socket);
                        Ok(())
                    }
                    Err(error) => Err(error),
                });
                if failed {
                    sleep(Duration::from_millis(50)).await;
                }
            }
        });
    }
    while clients.join_next().await.is_some() {}
}

async fn first_bytes(shared: &Rc<Shared>, count: u64) {
    for i in 0..count {
        let result = timeout(PATIENCE, read_stream(shared, i, "events=5", None)).await;
        shared.tally.borrow_mut().end(result.unwrap_or_else(|_| Err("no end in sight".to_owned())).map(drop));
        sleep(Duration::from_millis(2)).await;
    }
}

/// Sends a request and reads the answer to its end; returns the connection for the next request.
async fn read_stream(shared: &Shared, i: u64, query: &str, kept: Option<TcpStream>) -> Result<TcpStream, String> {
    shared.tally.borrow_mut().started += 1;
    let plan = &shared.plan;
    let began_ns = now_ns();
    let mut socket = match kept {
        Some(socket) => socket,
        None => connect(plan).await.map_err(|e| e.to_string())?,
    };
    let dialect = plan.dialect.unwrap_or(i as usize % NAMES.len());
    let request = format!(
        "POST {}?dialect={}&{query} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\naccept: text/event-stream\r\ncontent-length: {}\r\n\r\n{BODY}",
        PATHS[dialect],
        NAMES[dialect],
        plan.target,
        BODY.len()
    );
    // A crowd measures from connect, so that time in the listener's queue counts.
    let crowd = plan.mode == "crowd";
    let sent_ns = if crowd { began_ns } else { now_ns() };
    socket.write_all(request.as_bytes()).await.map_err(|e| e.to_string())?;
    if crowd {
        let mut tally = shared.tally.borrow_mut();
        tally.last_sent_ns = tally.last_sent_ns.max(now_ns().saturating_sub(plan.from_ns));
    }
    let mut reader = Reader::new();
    loop {
        socket.readable().await.map_err(|e| e.to_string())?;
        let mut buffer = shared.buffer.borrow_mut();
        let read = match socket.try_read(&mut buffer) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error.to_string()),
        };
        let now = now_ns();
        let in_window = (plan.from_ns..plan.to_ns).contains(&now);
        let mut tally = shared.tally.borrow_mut();
        let before = (reader.seen, reader.bytes);
        reader.feed(&buffer[..read], |stamp| {
            if plan.lags && in_window {
                tally.lags_ns.push(u32::try_from(now.saturating_sub(stamp)).unwrap_or(u32::MAX));
            }
        })?;
        let events = u64::from(reader.seen - before.0);
        tally.events += events;
        tally.bytes += reader.bytes - before.1;
        if before.1 == 0 && reader.bytes > 0 {
            tally.first_ns.push(now - sent_ns);
            tally.last_first_ns = tally.last_first_ns.max(now.saturating_sub(plan.from_ns));
        }
        let open = |seen: u32, bytes: u64| if plan.past_lead { seen > plan.lead } else { bytes > 0 };
        if !open(before.0, before.1) && open(reader.seen, reader.bytes) {
            tally.open += u64::from(now <= plan.from_ns);
        }
        if in_window {
            tally.window_events += events;
        }
        if read == 0 || reader.ended() {
            tally.cited += u64::from(reader.cited);
            tally.stored += u64::from(reader.stored);
            reader.verdict()?;
            if in_window {
                tally.window_finishes += 1;
                tally.window_stored += u64::from(reader.stored);
            }
            break;
        }
    }
    Ok(socket)
}

/// Connects from the client address. SO_REUSEADDR: ports of closed connections are reusable at once.
async fn connect(plan: &Plan) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_nodelay(true)?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::new(plan.client, 0))?;
    socket.connect(plan.target).await
}

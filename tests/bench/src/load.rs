//! The clients. Three kinds of load, each told as one line of JSON:
//! `hold` opens streams one after the other and keeps them all until the window is over,
//! `finishes` asks for short ones over and over, `ttfb` asks for one at a time and measures the first byte.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, timeout};

use crate::clock::now_ns;
use crate::dialect::{NAMES, REFERENCES};
use crate::options::Options;
use crate::reader::Reader;

/// How long streams go on after the window, so that none ends within it.
const MARGIN_NS: u64 = 150_000_000;
/// No answer takes longer than this after it should have ended.
const PATIENCE: Duration = Duration::from_secs(20);
const PATHS: [&str; 3] = ["/doubao/chat/completion", "/tencent/cgi-bin/v1/ai/qa", "/openai/v1/chat/completions"];
const BODY: &str = r#"{"stream":true,"messages":[{"role":"user","content":"常州比较好的小程序开发公司有哪些？"}]}"#;

#[derive(Clone)]
struct Plan {
    target: SocketAddr,
    from_ns: u64,
    to_ns: u64,
    every_us: u64,
    batch: usize,
    references: usize,
    lead: u32,
    /// A stream is open when its first byte has come, or with this when an event beyond the lead has.
    past_lead: bool,
    lags: bool,
}

#[derive(Default)]
struct Tally {
    started: u64,
    finished: u64,
    failed: u64,
    error: Option<String>,
    events: u64,
    window_events: u64,
    window_finishes: u64,
    window_stored: u64,
    bytes: u64,
    cited: u64,
    stored: u64,
    /// Streams that were open when the window began.
    open: u64,
    lags_ns: Vec<u32>,
    first_ns: Vec<u32>,
}

/// All is in one thread; so is the buffer that every stream reads into.
struct Shared {
    plan: Plan,
    tally: RefCell<Tally>,
    buffer: RefCell<Vec<u8>>,
}

pub fn run(options: &Options) -> Result<(), String> {
    let plan = Plan {
        target: options.get("target")?,
        from_ns: options.or("from-ns", 0)?,
        to_ns: options.or("to-ns", u64::MAX)?,
        every_us: options.or("every-us", 0)?,
        batch: options.or("batch", 0)?,
        references: options.or("references", REFERENCES)?,
        lead: options.or("lead", 0)?,
        past_lead: options.or("past-lead", false)?,
        lags: options.or("lags", false)?,
    };
    let count: u64 = options.get("streams")?;
    let ramp = Duration::from_millis(options.or("ramp-ms", 0)?);
    let mode: String = options.get("mode")?;
    let shared = Rc::new(Shared { plan, tally: RefCell::default(), buffer: RefCell::new(vec![0; 256 << 10]) });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    let all = async {
        match mode.as_str() {
            "hold" => hold(&shared, count, ramp).await,
            "finishes" => finishes(&shared, count).await,
            "ttfb" => first_bytes(&shared, count).await,
            _ => return Err(format!("no such load: {mode}")),
        }
        Ok(())
    };
    LocalSet::new().block_on(&runtime, all)?;
    println!("{}", shared.tally.borrow_mut().json());
    Ok(())
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
            let result = timeout(rest, one(&shared, i, &query, None))
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
                let asked = one(&shared, i, "events=5", kept.take());
                let result = timeout(PATIENCE, asked).await.unwrap_or_else(|_| Err("no end in sight".to_owned()));
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
        let result = timeout(PATIENCE, one(shared, i, "events=5", None)).await;
        shared.tally.borrow_mut().end(result.unwrap_or_else(|_| Err("no end in sight".to_owned())).map(drop));
        sleep(Duration::from_millis(2)).await;
    }
}

/// Asks and reads to the end; gives the connection for the next one.
async fn one(shared: &Shared, i: u64, query: &str, kept: Option<TcpStream>) -> Result<TcpStream, String> {
    shared.tally.borrow_mut().started += 1;
    let plan = &shared.plan;
    let mut socket = match kept {
        Some(socket) => socket,
        None => TcpStream::connect(plan.target).await.map_err(|e| e.to_string())?,
    };
    socket.set_nodelay(true).map_err(|e| e.to_string())?;
    let dialect = i as usize % NAMES.len();
    let request = format!(
        "POST {}?dialect={}&{query} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\naccept: text/event-stream\r\ncontent-length: {}\r\n\r\n{BODY}",
        PATHS[dialect],
        NAMES[dialect],
        plan.target,
        BODY.len()
    );
    let asked_ns = now_ns();
    socket.write_all(request.as_bytes()).await.map_err(|e| e.to_string())?;
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
            tally.first_ns.push(u32::try_from(now - asked_ns).unwrap_or(u32::MAX));
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

impl Tally {
    fn end(&mut self, result: Result<(), String>) {
        match result {
            Ok(()) => self.finished += 1,
            Err(error) => {
                self.failed += 1;
                self.error.get_or_insert(error);
            }
        }
    }

    fn json(&mut self) -> String {
        let error = self.error.as_ref().map_or("null".to_owned(), |error| format!("{error:?}"));
        format!(
            "{{\"started\":{},\"finished\":{},\"failed\":{},\"error\":{error},\"events\":{},\"bytes\":{},\"cited\":{},\"stored\":{},\
             \"open\":{},\"window_events\":{},\"window_finishes\":{},\"window_stored\":{},\"lag_us\":{},\"first_us\":{}}}",
            self.started,
            self.finished,
            self.failed,
            self.events,
            self.bytes,
            self.cited,
            self.stored,
            self.open,
            self.window_events,
            self.window_finishes,
            self.window_stored,
            quantiles(&mut self.lags_ns),
            quantiles(&mut self.first_ns),
        )
    }
}

/// In microseconds.
fn quantiles(values: &mut [u32]) -> String {
    values.sort_unstable();
    let at = |share: f64| {
        let index = ((values.len() as f64 * share) as usize).min(values.len().saturating_sub(1));
        f64::from(values.get(index).copied().unwrap_or(0)) / 1000.0
    };
    format!("{{\"p50\":{:.1},\"p99\":{:.1},\"p999\":{:.1},\"max\":{:.1}}}", at(0.5), at(0.99), at(0.999), at(1.0))
}

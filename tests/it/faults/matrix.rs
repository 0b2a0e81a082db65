//! Runs every line of the table with the real binary, a store on disk, and a faulty link.

use std::{
    fmt,
    path::Path,
    time::{Duration, Instant},
};

use citetap::{
    citation,
    replay::{Outcome, Script, Scripted, Step, Upstream},
};
use tokio::net::TcpStream;

use super::{
    link::{self, Direction, Fault},
    table::{Cell, Event, Link, Moment, PATIENCE, Record, Sees, TABLE, Upstream as Ends},
};
use crate::{
    net::{Client, ClientResponse, LIMIT, eventually, post, route, split, tencent, within},
    process::{Running, as_sent},
};

/// The promise is one second; a busy machine gets another.
const CANCELLED_WITHIN: Duration = Duration::from_secs(2);

/// One line over one client protocol.
struct Run {
    cell: &'static Cell,
    h2: bool,
    upstream: Upstream,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cell { link, moment, fault, .. } = self.cell;
        write!(f, "{fault:?} on the link {link:?} at {moment:?} over {}", if self.h2 { "h2" } else { "h1" })
    }
}

impl Moment {
    /// The text just before the fault: it cuts within a character.
    fn after(self) -> &'static [u8] {
        match self {
            Self::FirstByte => b"",
            Self::MidFrame => "今天北".as_bytes().split_last().unwrap().1,
            Self::Finish => b"\"is_stop\":tr",
        }
    }

    /// The frames of an answer up to the one with the fault, and the remaining ones.
    fn frames(self, id: &str) -> (String, String) {
        let text = tencent::text(id, "今天北京多云[1]，明天晴。");
        let all = [tencent::references(id, &[1, 2]), text, tencent::finish(id)];
        let (begun, rest) = all.split_at(match self {
            Self::FirstByte => 1,
            Self::MidFrame => 2,
            Self::Finish => 3,
        });
        (begun.concat(), rest.concat())
    }
}

impl Run {
    async fn new(cell: &'static Cell, h2: bool) -> Self {
        let name = Self::name(cell, h2);
        let (begun, rest) = cell.moment.frames(&name);
        let mut steps = vec![Step::Send(begun.into())];
        steps.push(match (cell.upstream, cell.link, cell.fault) {
            (Ends::Ended, ..) => Step::Send(rest.into()),
            // A stalled client is noticed only if there is more data than the sockets buffer.
            (_, Link::Client, Fault::Timeout) => Step::Bulk { len: 1 << 40, chunk: 16 * 1024 },
            // The upstream has more data, later.
            _ => Step::Pause(Duration::from_secs(60)),
        });
        let next = Script::sse(tencent::answer(&format!("{name}-next")));
        let scripts = vec![Scripted::new("/next", next), Scripted::new("/", Script::sse_steps(steps))];
        Self { cell, h2, upstream: Upstream::bind(scripts).await.unwrap() }
    }

    /// Path and message id of the line.
    fn name(cell: &Cell, h2: bool) -> String {
        let fault = format!("{:?}", cell.fault).to_lowercase();
        let fault = fault.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap();
        format!("{fault}-{}", if h2 { "h2" } else { "h1" })
    }

    fn break_at(&self, to: std::net::SocketAddr) -> link::Link {
        link::Link::new(to, Direction::Response, self.cell.fault, self.cell.moment.after())
    }

    /// The upstream's bytes, as far as the client can receive them.
    fn expected(&self) -> Vec<u8> {
        let (begun, rest) = self.cell.moment.frames(&Self::name(self.cell, self.h2));
        let all = (begun + &rest).into_bytes();
        if self.cell.sees == Sees::All {
            return all;
        }
        let after = self.cell.moment.after();
        let more = if let Fault::Limit(more) = self.cell.fault { more } else { 0 };
        let at = memchr::memmem::find(&all, after).unwrap() + after.len() + more;
        all[..at].to_vec()
    }

    async fn client(&self, addr: std::net::SocketAddr) -> Client {
        if self.h2 { Client::h2(addr).await } else { Client::h1(addr).await }
    }

    async fn drive(self, citetap: &Running, link: &link::Link) {
        let addr = if self.cell.link == Link::Client { link.addr } else { citetap.addr };
        let name = Self::name(self.cell, self.h2);
        let path = format!("/{name}");
        let began = Instant::now();
        if self.cell.sees == Sees::Refused {
            assert!(TcpStream::connect(addr).await.is_err(), "nobody listens");
        } else {
            let mut client = self.client(addr).await;
            let asking = async {
                let came = within("the client's end", self.ask(&mut client, &path)).await;
                (came, began.elapsed())
            };
            let ((came, took), ()) = tokio::join!(asking, self.is_cancelled_in_time(link));
            let (least, most) = self.cell.took;
            assert!(took >= least && took <= most, "it took {took:?}: {came:?}");
            self.check(came, citetap).await;
        }
        assert!(link.broke_at().is_some(), "the link broke");
        self.check_upstream().await;
        self.check_outcome(citetap, &name).await;
        let kept = self.check_record(citetap, &name).await;

        // The link works again.
        link.heal().await;
        let next = self.client(addr).await.send(post(&format!("{path}/next"), "{}")).await.whole().await;
        let (theirs, ours) = next.split();
        assert_eq!((next.error.as_deref(), ours.len()), (None, 1), "the next request: {}", next.text());
        assert!(theirs == tencent::answer(&format!("{name}-next")).into_bytes(), "the next request's bytes");
        assert!(ours[0].complete && ours[0].stored, "the next request's event: {:?}", ours[0]);
        assert_eq!(self.check_record(citetap, &name).await, kept, "the record changed");
    }

    async fn ask(&self, client: &mut Client, path: &str) -> Received {
        let response = tokio::select! {
            response = client.try_send(post(path, "{}")) => response,
            () = self.left_alone() => return Received::Silence(Vec::new()),
        };
        let Ok(mut response) = response else { return Received::Nothing };
        if response.status != 200 {
            return Received::Response(response);
        }
        let mut bytes = Vec::new();
        loop {
            let piece = tokio::select! {
                piece = response.piece() => piece,
                () = self.left_alone() => return Received::Silence(bytes),
            };
            match piece {
                Some(Ok(piece)) => bytes.extend_from_slice(&piece),
                Some(Err(error)) => return Received::Stream(bytes, Some(format!("{error:?}"))),
                None => return Received::Stream(bytes, None),
            }
        }
    }

    /// If silence is expected: the proxy has dropped the client without any further bytes.
    async fn left_alone(&self) {
        if self.cell.sees != Sees::Silence {
            std::future::pending().await
        }
        self.upstream.until(LIMIT, |upstream| upstream.cancelled() == 1).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }

    /// Compares the response with the line.
    async fn check(&self, came: Received, citetap: &Running) {
        let bytes = match (self.cell.sees, came) {
            (Sees::Problem(status, kind), Received::Response(response)) => {
                response.is_problem(status, kind).await;
                return;
            }
            (Sees::Nothing, Received::Nothing) => return,
            (Sees::All, Received::Stream(bytes, None))
            | (Sees::Cut, Received::Stream(bytes, Some(_)))
            | (Sees::Silence, Received::Silence(bytes)) => bytes,
            (_, came) => panic!("it was {came:?}"),
        };
        let (theirs, ours) = split(&bytes);
        let text = String::from_utf8_lossy(&bytes);
        if self.cell.moment == Moment::FirstByte && self.cell.sees == Sees::Silence {
            assert!(bytes.is_empty());
            return;
        }
        let expected = self.expected();
        // A reset may overtake earlier bytes, and an h2 client shows no partial DATA frame.
        let less = self.cell.fault == Fault::Reset || (self.h2 && self.cell.link == Link::Client);
        let less = less && self.cell.sees != Sees::All;
        let identical = if less { expected.starts_with(&theirs) } else { theirs == expected };
        assert!(identical, "{text}\nwas\n{}", String::from_utf8_lossy(&expected));
        let event = match &ours[..] {
            [] => Event::None,
            [one] if one.complete => Event::Final,
            [_] => Event::Partial,
            more => panic!("{} events: {text}", more.len()),
        };
        assert_eq!(event, self.cell.event, "{text}");
        let Some(one) = ours.into_iter().next() else { return };
        let (at, finish) = (text.find("event: citations").unwrap(), text.find("event:finish"));
        assert!(finish.is_none_or(|finish| at < finish), "not before the finish: {text}");
        assert!(one.stored, "{one:?}");
        let kept = record(citetap, &one.message_id).await.expect("it was reported as stored");
        assert_eq!(as_sent(kept), as_sent(one), "the event differs from the stored record");
    }

    /// A client that disconnects cancels its upstream.
    async fn is_cancelled_in_time(&self, link: &link::Link) {
        if (self.cell.link, self.cell.upstream) != (Link::Client, Ends::Cancelled) {
            return;
        }
        assert!(self.upstream.until(LIMIT, |upstream| upstream.cancelled() == 1).await, "the upstream is cancelled");
        if let Some(ended_at) = link.ended_at() {
            assert!(ended_at.elapsed() < CANCELLED_WITHIN, "the upstream continued for {:?}", ended_at.elapsed());
        }
    }

    async fn check_upstream(&self) {
        let ended = |upstream: &Upstream| match self.cell.upstream {
            Ends::NoRequest => upstream.request_count() == 0,
            Ends::Cancelled => upstream.requests()[0].outcome == Outcome::Cancelled,
            Ends::Ended => upstream.requests()[0].outcome == Outcome::Ended,
        };
        assert!(self.upstream.until(LIMIT, ended).await, "the upstream: {:?}", self.upstream.requests());
    }

    /// The end is also reported as expected.
    async fn check_outcome(&self, citetap: &Running, name: &str) {
        let of_route = format!("citetap_streams_ended_total{{route=\"{name}\",outcome=\"");
        let reported = eventually(|| async {
            let metrics = citetap.get("/metrics").await.whole().await.text();
            let lines = metrics.lines().filter_map(|line| line.strip_prefix(&of_route)?.split('"').next());
            let reported: Vec<_> = lines.map(str::to_owned).collect();
            (!reported.is_empty() || self.cell.outcome.is_empty()).then_some(reported)
        });
        assert_eq!(reported.await.expect("no outcome is reported").concat(), self.cell.outcome);
    }

    async fn check_record(&self, citetap: &Running, id: &str) -> Option<citation::Record> {
        let complete = match self.cell.record {
            Record::None => {
                assert_eq!(citetap.get(&format!("/citations/{id}")).await.status, 404);
                return None;
            }
            Record::Partial => false,
            Record::Complete => true,
        };
        let kept = eventually(|| record(citetap, id)).await.expect("a record");
        assert_eq!((kept.complete, kept.stored, kept.citations.len()), (complete, true, 2), "{kept:?}");
        Some(kept)
    }
}

/// The response that a client received.
enum Received {
    /// No response.
    Nothing,
    /// A response that is not a stream.
    Response(ClientResponse),
    /// Bytes and an abort, or a clean end.
    Stream(Vec<u8>, Option<String>),
    /// Bytes, and then neither more nor an end.
    Silence(Vec<u8>),
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => write!(f, "nothing"),
            Self::Response(response) => write!(f, "a {}", response.status),
            Self::Stream(bytes, None) => write!(f, "a clean end after {}", String::from_utf8_lossy(bytes)),
            Self::Stream(bytes, Some(error)) => write!(f, "{error} after {}", String::from_utf8_lossy(bytes)),
            Self::Silence(bytes) => write!(f, "silence after {}", String::from_utf8_lossy(bytes)),
        }
    }
}

async fn record(citetap: &Running, id: &str) -> Option<citation::Record> {
    let response = citetap.get(&format!("/citations/{id}")).await;
    if response.status == 200 { Some(serde_json::from_value(response.json().await).unwrap()) } else { None }
}

pub async fn serve(dir: &Path, routes: &str) -> Running {
    let patience = format!("\"{}ms\"", PATIENCE.as_millis());
    let toml = format!(
        "store = \"sqlite:c.db\"\n[timeouts]\nconnect = {patience}\nfirst_byte = {patience}\n\
         upstream_idle = {patience}\nclient_stall = {patience}\nheartbeat = \"200ms\"\n{routes}"
    );
    Running::serve(dir, &toml).await
}

/// Runs every fault of this link and moment in parallel behind one citetap.
async fn all(link: Link, moment: Moment) {
    let cells = TABLE.iter().filter(|cell| cell.link == link && cell.moment == moment);
    let mut runs = Vec::new();
    for cell in cells {
        runs.push(Run::new(cell, false).await);
        // An h2 connection exchanges other frames before its first response, so that byte cannot be recognized there.
        if (link, moment) != (Link::Client, Moment::FirstByte) {
            runs.push(Run::new(cell, true).await);
        }
    }
    let (mut routes, mut links) = (String::new(), Vec::new());
    for run in &runs {
        let broken = (link == Link::Upstream).then(|| run.break_at(run.upstream.addr()));
        let url = broken.as_ref().map_or_else(|| run.upstream.url(), link::Link::url);
        routes += &format!("{}provider = \"tencent\"\n", route(&Run::name(run.cell, run.h2), &url));
        links.push(broken);
    }
    let dir = tempfile::tempdir().unwrap();
    let citetap = serve(dir.path(), &routes).await;
    let citetap = std::sync::Arc::new(citetap);
    let mut driving = Vec::new();
    for (run, broken) in runs.into_iter().zip(links) {
        let (name, cell, citetap) = (run.to_string(), run.cell, std::sync::Arc::clone(&citetap));
        let broken = broken.unwrap_or_else(|| run.break_at(citetap.addr));
        driving.push((name, cell, tokio::spawn(async move { run.drive(&citetap, &broken).await })));
    }
    let mut failed = Vec::new();
    for (name, cell, drive) in driving {
        if let Err(error) = drive.await {
            let why = error.into_panic();
            let why = why.downcast_ref::<String>().cloned().or(why.downcast_ref::<&str>().map(|why| (*why).to_owned()));
            failed.push(format!("{name}\nexpected: {cell:?}\nbut: {}\n", why.unwrap_or_default()));
        }
    }
    assert!(failed.is_empty(), "{} failed\n\n{}", failed.len(), failed.join("\n"));
    unharmed(&citetap).await;
}

/// No stream is open and nothing panicked.
pub async fn unharmed(citetap: &Running) {
    let idle = eventually(|| async {
        let metrics = citetap.get("/metrics").await.whole().await.text();
        metrics.contains("citetap_streams_in_flight 0").then_some(metrics)
    });
    let metrics = idle.await.expect("no stream stays open");
    assert!(!metrics.contains("reason=\"panic\""), "{metrics}");
    let panics: Vec<_> = citetap.out().into_iter().filter(|line| line.contains("panicked")).collect();
    assert!(panics.is_empty() && citetap.err().is_empty(), "{panics:?} {:?}", citetap.err());
}

#[tokio::test]
async fn client_link_before_the_first_byte() {
    all(Link::Client, Moment::FirstByte).await;
}

#[tokio::test]
async fn client_link_in_mid_frame() {
    all(Link::Client, Moment::MidFrame).await;
}

#[tokio::test]
async fn client_link_at_the_finish() {
    all(Link::Client, Moment::Finish).await;
}

#[tokio::test]
async fn upstream_link_before_the_first_byte() {
    all(Link::Upstream, Moment::FirstByte).await;
}

#[tokio::test]
async fn upstream_link_in_mid_frame() {
    all(Link::Upstream, Moment::MidFrame).await;
}

#[tokio::test]
async fn upstream_link_at_the_finish() {
    all(Link::Upstream, Moment::Finish).await;
}

#[test]
fn table_has_every_cell_once() {
    let places = TABLE.iter().map(|cell| {
        let fault = std::mem::discriminant(&cell.fault);
        (cell.link as u8, cell.moment as u8, fault)
    });
    let different: std::collections::HashSet<_> = places.collect();
    assert_eq!(different.len(), 2 * 3 * 8);
}

//! Drives every line of the table: the real binary, a store on disk, and a link that breaks.

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
    link::{self, Fault, Way},
    table::{Cell, Event, Link, Moment, PATIENCE, Record, Sees, TABLE, Upstream as Ends},
};
use crate::{
    net::{Answer, Client, LIMIT, eventually, post, route, split, tencent, within},
    process::{Running, as_sent},
};

/// The promise is a second; a busy machine gets another.
const CANCELLED_WITHIN: Duration = Duration::from_secs(2);

/// One line, over one of the protocols that clients speak.
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
    /// What lies just before it: the text is cut within a character.
    fn after(self) -> &'static [u8] {
        match self {
            Self::FirstByte => b"",
            Self::MidFrame => "今天北".as_bytes().split_last().unwrap().1,
            Self::Finish => b"\"is_stop\":tr",
        }
    }

    /// The frames of an answer up to the one that it lies in, and the others.
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
            // A client that takes nothing is told only where there is more than the sockets hold.
            (_, Link::Client, Fault::Timeout) => Step::Bulk { len: 1 << 40, chunk: 16 * 1024 },
            // It has more to say, later.
            _ => Step::Pause(Duration::from_secs(60)),
        });
        let next = Script::sse(tencent::answer(&format!("{name}-next")));
        let scripts = vec![Scripted::new("/next", next), Scripted::new("/", Script::sse_steps(steps))];
        Self { cell, h2, upstream: Upstream::bind(scripts).await.unwrap() }
    }

    /// Of its route and its message.
    fn name(cell: &Cell, h2: bool) -> String {
        let fault = format!("{:?}", cell.fault).to_lowercase();
        let fault = fault.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap();
        format!("{fault}-{}", if h2 { "h2" } else { "h1" })
    }

    fn break_at(&self, to: std::net::SocketAddr) -> link::Link {
        link::Link::new(to, Way::Answer, self.cell.fault, self.cell.moment.after())
    }

    /// What the upstream sends, as far as the client can get it.
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
        assert!(link.struck().is_some(), "the link broke");
        self.check_upstream().await;
        self.check_told(citetap, &name).await;
        let kept = self.check_record(citetap, &name).await;

        // The link is whole again.
        link.heal().await;
        let next = self.client(addr).await.send(post(&format!("{path}/next"), "{}")).await.whole().await;
        let (theirs, ours) = next.split();
        assert_eq!((next.error.as_deref(), ours.len()), (None, 1), "the next request: {}", next.text());
        assert!(theirs == tencent::answer(&format!("{name}-next")).into_bytes(), "the next request's bytes");
        assert!(ours[0].complete && ours[0].stored, "the next request's event: {:?}", ours[0]);
        assert_eq!(self.check_record(citetap, &name).await, kept, "the record stays as it was");
    }

    async fn ask(&self, client: &mut Client, path: &str) -> Came {
        let answer = tokio::select! {
            answer = client.try_send(post(path, "{}")) => answer,
            () = self.left_alone() => return Came::Silence(Vec::new()),
        };
        let Ok(mut answer) = answer else { return Came::Nothing };
        if answer.status != 200 {
            return Came::Answer(answer);
        }
        let mut bytes = Vec::new();
        loop {
            let piece = tokio::select! {
                piece = answer.piece() => piece,
                () = self.left_alone() => return Came::Silence(bytes),
            };
            match piece {
                Some(Ok(piece)) => bytes.extend_from_slice(&piece),
                Some(Err(error)) => return Came::Stream(bytes, Some(format!("{error:?}"))),
                None => return Came::Stream(bytes, None),
            }
        }
    }

    /// Where silence is expected: the proxy has given the client up, and nothing came of it.
    async fn left_alone(&self) {
        if self.cell.sees != Sees::Silence {
            std::future::pending().await
        }
        self.upstream.until(LIMIT, |upstream| upstream.cancelled() == 1).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }

    /// What came is what the line says.
    async fn check(&self, came: Came, citetap: &Running) {
        let bytes = match (self.cell.sees, came) {
            (Sees::Problem(status, kind), Came::Answer(answer)) => {
                answer.is_problem(status, kind).await;
                return;
            }
            (Sees::Nothing, Came::Nothing) => return,
            (Sees::All, Came::Stream(bytes, None))
            | (Sees::Cut, Came::Stream(bytes, Some(_)))
            | (Sees::Silence, Came::Silence(bytes)) => bytes,
            (_, came) => panic!("it was {came:?}"),
        };
        let (theirs, ours) = split(&bytes);
        let text = String::from_utf8_lossy(&bytes);
        if self.cell.moment == Moment::FirstByte && self.cell.sees == Sees::Silence {
            assert!(bytes.is_empty());
            return;
        }
        let expected = self.expected();
        // A reset may overtake what was sent before it, and an h2 client shows no part of a DATA frame.
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
        let kept = record(citetap, &one.message_id).await.expect("it was told as stored");
        assert_eq!(as_sent(kept), as_sent(one), "what was told is what is kept");
    }

    /// A client that goes cancels its upstream.
    async fn is_cancelled_in_time(&self, link: &link::Link) {
        if (self.cell.link, self.cell.upstream) != (Link::Client, Ends::Cancelled) {
            return;
        }
        assert!(self.upstream.until(LIMIT, |upstream| upstream.cancelled() == 1).await, "the upstream is cancelled");
        if let Some(told) = link.told() {
            assert!(told.elapsed() < CANCELLED_WITHIN, "the upstream went on for {:?}", told.elapsed());
        }
    }

    async fn check_upstream(&self) {
        let ended = |upstream: &Upstream| match self.cell.upstream {
            Ends::NotAsked => upstream.request_count() == 0,
            Ends::Cancelled => upstream.requests()[0].outcome == Outcome::Cancelled,
            Ends::Ended => upstream.requests()[0].outcome == Outcome::Ended,
        };
        assert!(self.upstream.until(LIMIT, ended).await, "the upstream: {:?}", self.upstream.requests());
    }

    /// Nor is it told as another end than it was.
    async fn check_told(&self, citetap: &Running, name: &str) {
        let of_route = format!("citetap_streams_ended_total{{route=\"{name}\",outcome=\"");
        let told = eventually(|| async {
            let metrics = citetap.get("/metrics").await.whole().await.text();
            let lines = metrics.lines().filter_map(|line| line.strip_prefix(&of_route)?.split('"').next());
            let told: Vec<_> = lines.map(str::to_owned).collect();
            (!told.is_empty() || self.cell.told.is_empty()).then_some(told)
        });
        assert_eq!(told.await.expect("an end is told").concat(), self.cell.told);
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

/// What a client got.
enum Came {
    /// No answer.
    Nothing,
    /// Another one than a stream.
    Answer(Answer),
    /// Bytes and an abort, or a clean end.
    Stream(Vec<u8>, Option<String>),
    /// Bytes, and then neither more nor an end.
    Silence(Vec<u8>),
}

impl fmt::Debug for Came {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => write!(f, "nothing"),
            Self::Answer(answer) => write!(f, "a {}", answer.status),
            Self::Stream(bytes, None) => write!(f, "a clean end after {}", String::from_utf8_lossy(bytes)),
            Self::Stream(bytes, Some(error)) => write!(f, "{error} after {}", String::from_utf8_lossy(bytes)),
            Self::Silence(bytes) => write!(f, "silence after {}", String::from_utf8_lossy(bytes)),
        }
    }
}

async fn record(citetap: &Running, id: &str) -> Option<citation::Record> {
    let answer = citetap.get(&format!("/citations/{id}")).await;
    if answer.status == 200 { Some(serde_json::from_value(answer.json().await).unwrap()) } else { None }
}

pub async fn serve(dir: &Path, routes: &str) -> Running {
    let patience = format!("\"{}ms\"", PATIENCE.as_millis());
    let toml = format!(
        "store = \"sqlite:c.db\"\n[timeouts]\nconnect = {patience}\nfirst_byte = {patience}\n\
         upstream_idle = {patience}\nclient_stall = {patience}\nheartbeat = \"200ms\"\n{routes}"
    );
    Running::serve(dir, &toml).await
}

/// Every fault on this link at this moment, side by side behind one citetap.
async fn all(link: Link, moment: Moment) {
    let cells = TABLE.iter().filter(|cell| cell.link == link && cell.moment == moment);
    let mut runs = Vec::new();
    for cell in cells {
        runs.push(Run::new(cell, false).await);
        // Before its first answer an h2 connection says other things, so that byte is not to be told there.
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

/// No stream is left open, and nothing panicked.
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
fn the_table_has_every_cell_once() {
    let places = TABLE.iter().map(|cell| {
        let fault = std::mem::discriminant(&cell.fault);
        (cell.link as u8, cell.moment as u8, fault)
    });
    let different: std::collections::HashSet<_> = places.collect();
    assert_eq!(different.len(), 2 * 3 * 8);
}

//! A drain with two hundred open streams, and the records that the next process finds.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    time::{Duration, Instant},
};

use citetap::{
    citation::Record,
    replay::{Script, Scripted, Step, Upstream},
};
use futures_util::future::join_all;
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use crate::{
    net::{Client, ClientResponse, LIMIT, eventually, get, post, route, split, tencent},
    process::{Running, as_sent},
};

/// Half of them over HTTP/1.1, half over HTTP/2.
const STREAMS: usize = 200;
const DELAY: Duration = Duration::from_secs(1);
const GRACE: Duration = Duration::from_secs(3);
/// Time that the process may need beyond the grace period.
const MORE: Duration = Duration::from_secs(1);
const FOR_EVER: Duration = Duration::from_secs(600);

/// An id that is replaced in each answer.
const ID: &str = "e6f695cb53a23d7209929e749405c534";

/// The message of the client that reads nothing.
const STALLED: &str = "stalled";

fn begun() -> String {
    tencent::references(ID, &[1, 2]) + &tencent::text(ID, "第一句[1]。")
}

/// A stream that ends by itself within the grace period.
fn ends(after: Duration) -> Script {
    let steps = [Step::Send(begun().into()), Step::Pause(after), Step::Send(tencent::finish(ID).into())];
    Script::sse_steps(steps).with_fresh_ids()
}

/// A stream that stops in the middle of a frame.
fn stalls_in_frame() -> Script {
    let half = tencent::text(ID, "第二句").into_bytes();
    let half = bytes::Bytes::from(half).slice(..60);
    Script::sse_steps([Step::Send(begun().into()), Step::Send(half), Step::Pause(FOR_EVER)]).with_fresh_ids()
}

/// A stream that has sent its finish, so its event is out, and stays open.
fn lingers() -> Script {
    let stream = begun() + &tencent::finish(ID);
    Script::sse_steps([Step::Send(stream.into()), Step::Pause(FOR_EVER)]).with_fresh_ids()
}

struct Setup {
    upstream: Upstream,
    dir: tempfile::TempDir,
    toml: String,
}

impl Setup {
    async fn new(scripts: Vec<(&str, Script)>, toml: &str) -> Self {
        let scripts = scripts.into_iter().map(|(path, script)| Scripted::new(path, script)).collect();
        let upstream = Upstream::bind(scripts).await.unwrap();
        let toml =
            format!("store = \"sqlite:c.db\"\n{toml}\n{}provider = \"tencent\"\n", route("chat", &upstream.url()));
        Self { upstream, dir: tempfile::tempdir().unwrap(), toml }
    }

    async fn serve(&self) -> Running {
        Running::serve(self.dir.path(), &self.toml).await
    }

    /// Reads these records from the next process.
    async fn assert_stored(&self, reported: &[Record]) {
        let next = self.serve().await;
        let mut client = Client::h1(next.addr).await;
        for record in reported {
            let response = client.send(get(&format!("/citations/{}", record.message_id))).await;
            assert_eq!(response.status, 200, "{record:?}");
            let kept: Record = serde_json::from_value(response.json().await).unwrap();
            assert_eq!(as_sent(kept), as_sent(record.clone()));
        }
    }
}

/// An open stream and the bytes received so far.
struct Open {
    response: ClientResponse,
    so_far: String,
}

/// Opens this number of streams of a path and reads each up to `sign`.
async fn open(addr: SocketAddr, path: &str, count: usize, sign: &str) -> Vec<Open> {
    let read = async |mut response: ClientResponse| {
        assert_eq!(response.status, 200);
        let so_far = response.until(sign).await;
        Open { response, so_far }
    };
    let h1 = join_all((0..count / 2).map(async |_| read(Client::h1(addr).await.send(post(path, "{}")).await).await));
    let h2 = async {
        let mut client = Client::h2(addr).await;
        let mut all = Vec::new();
        for _ in 0..count.div_ceil(2) {
            all.push(client.send(post(path, "{}")).await);
        }
        join_all(all.into_iter().map(read)).await
    };
    let (mut all, h2) = tokio::join!(h1, h2);
    all.extend(h2);
    all
}

impl Open {
    /// The upstream's bytes with the replaced id, the only record, and whether the end was clean.
    async fn end(self) -> (String, Record, bool) {
        let rest = self.response.whole().await;
        let (theirs, mut ours) = split((self.so_far + &rest.text()).as_bytes());
        assert_eq!(ours.len(), 1, "{}", String::from_utf8_lossy(&theirs));
        (String::from_utf8(theirs).unwrap(), ours.remove(0), rest.error.is_none())
    }
}

fn of(id: &str, text: &str) -> String {
    text.replace(ID, id)
}

async fn refused(addr: SocketAddr) {
    let shut = eventually(|| async { TcpStream::connect(addr).await.is_err().then_some(()) }).await;
    assert!(shut.is_some(), "the listener is still open");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drain_lets_two_hundred_streams_finish_or_ends_them() {
    let toml = format!("[timeouts]\ndrain_delay = \"{}s\"\ndrain = \"{}s\"", DELAY.as_secs(), GRACE.as_secs());
    let flood =
        [Step::Send(tencent::references(STALLED, &[1, 2]).into()), Step::Bulk { len: 1 << 40, chunk: 64 << 10 }];
    let scripts = vec![
        ("/ends", ends(DELAY + Duration::from_secs(1))),
        ("/stands", stalls_in_frame()),
        ("/flood", Script::sse_steps(flood)),
        ("/silent", Script::hang()),
        ("/quick", Script::sse(tencent::answer(ID)).with_fresh_ids()),
    ];
    let setup = Setup::new(scripts, &toml).await;
    let mut running = setup.serve().await;
    let addr = running.addr;
    let standing = open(addr, "/chat/stands", STREAMS / 2, "第一句").await;
    // One client that reads nothing, one that has no response yet, and one idle connection.
    let mut stalled = TcpStream::connect(addr).await.unwrap();
    stalled.write_all(b"GET /chat/flood HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let silent = tokio::spawn(async move { Client::h1(addr).await.send(post("/chat/silent", "{}")).await });
    let mut idle = Client::h1(addr).await;
    assert_eq!(idle.send(get("/readyz")).await.whole().await.text(), "ready\n");
    let ending = open(addr, "/chat/ends", STREAMS / 2, "第一句").await;
    assert!(setup.upstream.until(LIMIT, |upstream| upstream.request_count() == STREAMS + 2).await);

    let signal = Instant::now();
    running.signal("TERM");
    // Load balancers see it first, and new requests are still served.
    let unready = eventually(|| async { (running.get("/readyz").await.status == 503).then_some(()) }).await;
    assert!(unready.is_some());
    assert_eq!(running.get("/healthz").await.status, 200);
    let (theirs, last, clean) = open(addr, "/chat/quick", 1, "第一句").await.remove(0).end().await;
    assert_eq!((theirs, clean), (of(&last.message_id, &tencent::answer(ID)), true));
    assert!(signal.elapsed() < DELAY, "too late to check: {:?}", signal.elapsed());
    refused(addr).await;

    let mut reported = vec![last];
    for (theirs, ours, clean) in join_all(ending.into_iter().map(Open::end)).await {
        assert!(clean && ours.complete && ours.stored, "{ours:?}");
        assert_eq!(theirs, of(&ours.message_id, &(begun() + &tencent::finish(ID))));
        reported.push(ours);
    }
    assert!(signal.elapsed() < DELAY + GRACE, "they ended by themselves: {:?}", signal.elapsed());
    for (theirs, ours, clean) in join_all(standing.into_iter().map(Open::end)).await {
        assert!(!clean && !ours.complete && ours.stored, "{ours:?}");
        assert_eq!(theirs, of(&ours.message_id, &begun()), "the partial frame is not relayed");
        reported.push(ours);
    }
    let response = silent.await.unwrap();
    response.is_problem(503, "draining").await;
    let status = running.ended(LIMIT).await;
    let took = signal.elapsed();
    assert_eq!(status.code(), Some(0));
    assert!(took >= DELAY + GRACE, "some needed all of it: {took:?}");
    assert!(took < DELAY + GRACE + MORE, "{took:?}: {:?}", running.out().split_off(running.out().len() - 5));
    assert_eq!(reported.iter().map(|record| &record.message_id).collect::<BTreeSet<_>>().len(), STREAMS + 1);
    setup.assert_stored(&reported).await;
    let next = setup.serve().await;
    let kept: Record = serde_json::from_value(next.get("/citations/stalled").await.json().await).unwrap();
    assert_eq!((kept.complete, kept.citations.len()), (false, 2), "the client that reads nothing has a record");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_signal_ends_two_hundred_streams_at_once() {
    let scripts = vec![("/stands", stalls_in_frame()), ("/lingers", lingers())];
    let setup = Setup::new(scripts, "[timeouts]\ndrain = \"60s\"").await;
    let mut running = setup.serve().await;
    let standing = open(running.addr, "/chat/stands", STREAMS / 2, "第一句").await;
    let lingering = open(running.addr, "/chat/lingers", STREAMS / 2, "event:finish").await;
    running.signal("TERM");
    running.logged("draining", 1).await;
    refused(running.addr).await;
    let signal = Instant::now();
    running.signal("INT");
    running.ended(LIMIT).await;
    let took = signal.elapsed();
    assert!(took < MORE, "{took:?}");

    let mut reported = Vec::new();
    for open in lingering {
        let (theirs, ours, clean) = open.end().await;
        assert!(!clean && ours.complete, "{ours:?}");
        assert_eq!(theirs, of(&ours.message_id, &(begun() + &tencent::finish(ID))));
        // A commit that exceeded the wait has `stored: false`.
        reported.extend(Some(ours).filter(|record| record.stored));
    }
    for open in standing {
        let rest = open.response.whole().await;
        assert!(rest.error.is_some(), "no clean end");
        // Every event is correct: `stored: true` only for committed records.
        reported.extend(split((open.so_far + &rest.text()).as_bytes()).1.into_iter().filter(|record| record.stored));
    }
    assert!(!reported.is_empty());
    setup.assert_stored(&reported).await;
}

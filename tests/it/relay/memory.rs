//! P7: memory stays flat, and backpressure of a client reaches its upstream. The proxy is a separate process, so that
//! only its memory is measured.

use std::time::{Duration, Instant};

use bytes::Bytes;
use citetap::replay::{Script, Scripted, Step, Upstream, body::BULK_FRAME};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::{
    net::{Client, ClientResponse, LIMIT, get, post, route, tencent},
    process::{Running, pause},
};

pub const MIB: u64 = 1024 * 1024;
/// The largest tapped frame while it grows and is copied, and the allocator's overhead.
const GROWTH: u64 = 12 * MIB;

pub struct Rig {
    pub upstream: Upstream,
    pub proxy: Running,
    before: u64,
    _dir: tempfile::TempDir,
}

impl Rig {
    /// A warm proxy in front of this script.
    pub async fn new(script: Script) -> Self {
        Self::with(script, "").await
    }

    pub async fn with(script: Script, more: &str) -> Self {
        let warm = Script::sse(tencent::answer("warm"));
        let upstream = Upstream::bind(vec![Scripted::new("/big", script), Scripted::new("/", warm)]).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let toml = format!("store = \"memory:\"\n{}provider = \"tencent\"\n{more}", route("chat", &upstream.url()));
        let proxy = Running::serve(dir.path(), &toml).await;
        for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
            for _ in 0..8 {
                client.send(post("/chat", "{}")).await.whole().await;
            }
        }
        let before = proxy.peak_memory();
        Self { upstream, proxy, before, _dir: dir }
    }

    pub async fn ask(&self) -> ClientResponse {
        self.proxy.post("/chat/big").await
    }

    pub fn is_flat(&self) {
        self.grew_at_most(GROWTH);
    }

    pub fn grew_at_most(&self, growth: u64) {
        let (before, now) = (self.before, self.proxy.peak_memory());
        assert!(now < before + growth, "from {} to {} MiB", before / MIB, now / MIB);
    }

    /// Waits until the upstream sends no more. Returns how much it was.
    pub async fn wait_until_stalled(&self) -> u64 {
        let out = || self.upstream.requests().last().unwrap().bytes_out;
        let began = Instant::now();
        let (mut last, mut since) = (out(), Instant::now());
        while since.elapsed() < Duration::from_millis(700) {
            assert!(began.elapsed() < LIMIT, "the upstream still sends: {last}");
            pause().await;
            if out() != last {
                (last, since) = (out(), Instant::now());
            }
        }
        last
    }
}

/// The upstream's bytes without the finish.
fn bytes_of(steps: &[Step]) -> Vec<u8> {
    let mut all = Vec::new();
    for step in steps {
        match step {
            Step::Send(bytes) => all.extend_from_slice(bytes),
            Step::Bulk { len, .. } => {
                let len = usize::try_from(*len).unwrap() / BULK_FRAME.len();
                (0..len).for_each(|_| all.extend_from_slice(BULK_FRAME));
            }
            _ => {}
        }
    }
    all
}

/// `steps` and the finish, which must arrive with our event before it.
pub fn script(steps: &[Step]) -> Script {
    let mut steps = steps.to_vec();
    steps.push(Step::Send(tencent::finish("m").into()));
    Script::sse_steps(steps)
}

/// The rest of the answer is the bytes of these steps, our event, and the finish.
pub async fn is_all(mut response: ClientResponse, steps: &[Step]) {
    let want = bytes_of(steps);
    let mut got = Vec::with_capacity(want.len() + 4096);
    while let Some(piece) = response.piece().await {
        got.extend_from_slice(&piece.expect("no abort"));
    }
    assert!(got.len() > want.len(), "{} of {} bytes", got.len(), want.len());
    let (theirs, rest) = got.split_at(want.len());
    assert!(theirs == want, "other bytes than were sent");
    let rest = std::str::from_utf8(rest).unwrap();
    assert!(rest.starts_with("event: citations\n"), "tapped to the end: {rest}");
    assert!(rest.ends_with(&tencent::finish("m")), "{rest}");
}

pub fn references() -> Step {
    Step::Send(tencent::references("m", &[1, 2]).into())
}

/// F7, F8
#[tokio::test]
async fn event_of_64_mb_is_relayed_and_the_next_one_tapped() {
    let piece = Step::Send(Bytes::from(vec![b'x'; 64 * 1024]));
    let mut steps = vec![Step::Send("data: ".into())];
    steps.extend(vec![piece; 1024]);
    steps.extend([Step::Send("\n\n".into()), references()]);
    let rig = Rig::new(script(&steps)).await;
    is_all(rig.ask().await, &steps).await;
    rig.is_flat();
}

/// F4: each byte is a chunk of its own, all available at once.
#[tokio::test]
async fn single_byte_chunks_are_relayed_and_tapped() {
    let text = tencent::text("m", &"字".repeat(100));
    let mut body = text.repeat((256 << 10) / text.len());
    body += &tencent::references("m", &[1, 2]);
    let mut response = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        .to_owned()
        .into_bytes();
    for byte in body.bytes().chain(tencent::finish("m").bytes()) {
        response.extend_from_slice(&[b'1', b'\r', b'\n', byte, b'\r', b'\n']);
    }
    response.extend_from_slice(b"0\r\n\r\n");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let by_hand = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0, "a request");
        stream.write_all(&response).await.unwrap();
        stream.shutdown().await.unwrap();
    });
    let rig =
        Rig::with(Script::hang(), &(route("bytes", &format!("http://{by_hand}")) + "provider = \"tencent\"\n")).await;
    is_all(rig.proxy.get("/bytes").await, &[Step::Send(body.into())]).await;
    rig.is_flat();
}

/// F11
#[tokio::test]
async fn comment_flood_is_relayed_and_next_frame_tapped() {
    let steps = [Step::Bulk { len: 48 * MIB, chunk: 64 * 1024 }, references()];
    let rig = Rig::new(script(&steps)).await;
    is_all(rig.ask().await, &steps).await;
    rig.is_flat();
}

/// L51: data in flight is in the sockets' buffers; the rest waits at the upstream.
#[tokio::test]
async fn client_that_does_not_read_pauses_its_upstream() {
    let steps = [references(), Step::Bulk { len: 64 * MIB, chunk: 64 * 1024 }];
    let rig = Rig::new(script(&steps)).await;
    for mut client in [Client::h1(rig.proxy.addr).await, Client::h2(rig.proxy.addr).await] {
        let response = client.send(post("/chat/big", "{}")).await;
        let out = rig.wait_until_stalled().await;
        assert!(out < 32 * MIB, "{} MiB are under way", out / MIB);
        rig.is_flat();
        // Meanwhile others are served, also on the same connection if it has streams.
        assert_eq!(rig.proxy.get("/healthz").await.status, 200);
        rig.proxy.post("/chat").await.whole().await;
        assert_eq!(Client::h1(rig.proxy.addr).await.send(get("/readyz")).await.status, 200);
        is_all(response, &steps).await;
        rig.is_flat();
    }
}

/// A JSON response of any size passes too.
#[tokio::test]
async fn large_unstreamed_response_is_not_buffered() {
    let piece = Bytes::from(vec![b' '; 64 * 1024]);
    let steps = vec![Step::Send(piece); 512];
    let json = Script::new(steps.clone())
        .header(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    let rig = Rig::new(json).await;
    let whole = rig.ask().await.whole().await;
    assert_eq!(whole.bytes().len(), 32 << 20);
    rig.is_flat();
}

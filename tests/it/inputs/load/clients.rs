//! Clients that are slow, silent, gone or half closed.

use std::time::{Duration, Instant};

use citetap::replay::{Outcome, Script, Step};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    net::{Client, LIMIT, chat, chat_with, get, post, tencent, within},
    relay::{
        ends::cancelled_within_a_second,
        memory::{MIB, Rig, references},
        timeouts::is_closed,
    },
};

/// A byte now and then does not count as progress.
async fn drips(addr: std::net::SocketAddr, begin: String) -> (Vec<u8>, Duration) {
    let began = Instant::now();
    let (mut read, mut write) = TcpStream::connect(addr).await.unwrap().into_split();
    let drip = tokio::spawn(async move {
        write.write_all(begin.as_bytes()).await.unwrap();
        while write.write_all(b"y").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let mut received = Vec::new();
    let _ = within("the server to close", read.read_to_end(&mut received)).await;
    drip.abort();
    (received, began.elapsed())
}

/// Headers have a timeout of their own. A body shares the timeout of the upstream's first byte, which limits its
/// slowest rate; bodies that citetap itself reads have the same timeout.
#[tokio::test]
async fn l50_slowly_sent_headers_and_bodies_time_out() {
    let toml = "[timeouts]\nrequest_headers = \"500ms\"\nfirst_byte = \"700ms\"";
    let (_upstream, proxy) = chat_with(Script::echo(), toml, "[routes.openai]\nmodels = [\"m\"]").await;
    let (received, took) = drips(proxy.addr, "GET /chat HTTP/1.1\r\nhost: localhost\r\nx: ".to_owned()).await;
    assert!(took < Duration::from_secs(5), "{took:?}: {}", String::from_utf8_lossy(&received));
    for path in ["/chat", "/v1/chat/completions", "/normalize", "/render"] {
        let begin = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n");
        let (received, took) = drips(proxy.addr, begin).await;
        let received = String::from_utf8_lossy(&received);
        assert!(received.starts_with("HTTP/1.1 504") || received.starts_with("HTTP/1.1 4"), "{path}: {received}");
        assert!(took < Duration::from_secs(5), "{path}: {took:?}");
    }
    let silent = TcpStream::connect(proxy.addr).await.unwrap();
    assert_eq!(is_closed(silent).await, b"");
}

/// Bytes in flight are in the sockets' buffers. The proxy buffers 64 KiB.
#[tokio::test]
async fn l51_stalled_client_pauses_its_upstream_and_is_closed() {
    let script = Script::sse_steps([references(), Step::Bulk { len: 1 << 40, chunk: 64 * 1024 }]);
    let rig = Rig::with(script, "[timeouts]\nclient_stall = \"2s\"\n").await;
    let mut other = Client::h1(rig.proxy.addr).await;
    let mut stalled = rig.ask().await;
    stalled.until("reference_chunks").await;
    let out = rig.wait_until_stalled().await;
    assert!(out < 32 * MIB, "{} MiB are under way", out / MIB);
    rig.grew_at_most(8 * MIB);
    // Meanwhile others are served.
    let whole = other.send(post("/chat", "{}")).await.whole().await;
    assert_eq!((whole.error.as_deref(), whole.split().1.len()), (None, 1));
    assert!(rig.upstream.until(LIMIT, |upstream| upstream.cancelled() == 1).await, "then it is left");
    assert!(stalled.whole().await.error.is_some(), "no clean end");
    let kept = rig.proxy.get("/citations/m").await.json().await;
    assert_eq!((&kept["complete"], kept["citations"].as_array().unwrap().len()), (&false.into(), 2));
}

#[tokio::test]
async fn l52_client_disconnect_cancels_upstream_and_stores() {
    let hang = Step::Pause(Duration::from_secs(60));
    for h2 in [false, true] {
        let client = async |addr| if h2 { Client::h2(addr).await } else { Client::h1(addr).await };
        // Before the first byte.
        let (upstream, proxy) = chat(Script::hang(), "").await;
        let mut asking = client(proxy.addr).await;
        let task =
            tokio::spawn(async move { asking.try_send(post("/chat", "{}")).await.map(|response| response.status) });
        assert!(upstream.until(LIMIT, |upstream| upstream.request_count() == 1).await);
        task.abort();
        cancelled_within_a_second(&upstream, Instant::now()).await;

        // Within an event, and right after the finish.
        let begun = tencent::references("m", &[1, 2]);
        for (stream, sign, complete) in
            [(begun + "data:{\"half", "reference_chunks", false), (tencent::answer("m"), "event:finish", true)]
        {
            let script = Script::sse_steps([Step::Send(stream.into()), hang.clone()]);
            let (upstream, proxy) = chat(script, "").await;
            let mut asking = client(proxy.addr).await;
            let mut response = asking.send(post("/chat", "{}")).await;
            response.until(sign).await;
            drop((response, asking));
            cancelled_within_a_second(&upstream, Instant::now()).await;
            let record = proxy.stored("m").await;
            assert_eq!((record.complete, record.citations.len()), (complete, 2));
        }
    }
}

/// A FIN from an HTTP/1.1 client cannot be distinguished from a disconnect, so the request is cancelled, which frees
/// the upstream. (In HTTP/2 the end of a request is a flag, and no client needs to close for it.)
#[tokio::test]
async fn l55_half_closed_client_is_cancelled_without_spinning() {
    let tick: bytes::Bytes = tencent::text("m", "又").into();
    let script = Script::sse_steps([references(), Step::Forever(tick, Duration::from_millis(50))]);
    let rig = Rig::new(script).await;
    let mut stream = TcpStream::connect(rig.proxy.addr).await.unwrap();
    stream.write_all(b"GET /chat/big HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut came = [0; 16];
    within("the answer", stream.read_exact(&mut came)).await.unwrap();
    let (before, began) = (rig.proxy.cpu(), Instant::now());
    stream.shutdown().await.unwrap();
    assert!(rig.upstream.until(LIMIT, |upstream| upstream.cancelled() == 1).await);
    is_closed(stream).await;
    assert_eq!(rig.upstream.requests().last().unwrap().outcome, Outcome::Cancelled);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (spent, passed) = (rig.proxy.cpu() - before, began.elapsed());
    assert!(spent * 2 < passed, "{spent:?} of {passed:?}");
    // Closing before the response is handled in the same way.
    let mut stream = TcpStream::connect(rig.proxy.addr).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    stream.shutdown().await.unwrap();
    is_closed(stream).await;
    assert_eq!(Client::h1(rig.proxy.addr).await.send(get("/healthz")).await.status, 200);
}

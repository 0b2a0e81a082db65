//! Slow clients over both versions of HTTP, also in large numbers.

use std::{
    convert::Infallible,
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::Bytes;
use citetap::replay::{Script, Scripted, Upstream};
use http::Request;
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::{io::AsyncWriteExt, net::TcpStream, task::JoinHandle};

use super::super::http::frames::{
    CONTINUATION, END_HEADERS, END_STREAM, HEADERS, PING, Raw, fields, frame, read_frames, request,
};
use crate::{
    net::{Client, LIMIT, chat, chat_with, eventually, get, post, route, tencent, within},
    process::Running,
    relay::timeouts::is_closed,
};

/// Bytes sent at once, and then one byte at a time.
struct Drip {
    name: &'static str,
    at_once: Vec<u8>,
    then: Vec<u8>,
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Every way to start an h2 request without finishing it.
fn drips() -> Vec<Drip> {
    let settings = frame(4, 0, 0, &[]);
    let begun = [PREFACE, &settings].concat();
    let of = |name, at_once: Vec<u8>, then: Vec<u8>| Drip { name, at_once: [begun.clone(), at_once].concat(), then };
    let open = frame(HEADERS, END_STREAM, 1, &fields(false, "/chat"));
    vec![
        Drip { name: "part of the preface", at_once: PREFACE[..9].to_vec(), then: PREFACE[9..12].to_vec() },
        Drip { name: "the preface alone", at_once: PREFACE.to_vec(), then: Vec::new() },
        of("no request", Vec::new(), Vec::new()),
        of("headers without an end", open.clone(), Vec::new()),
        of("headers of many parts", open.clone(), frame(CONTINUATION, 0, 1, &[]).repeat(40)),
        of("a long part, slowly", open, frame(CONTINUATION, END_HEADERS, 1, &[0; 200])),
        of("one long frame, slowly", Vec::new(), frame(HEADERS, END_HEADERS, 1, &[0; 200])),
        of("a second request", request(1, false, "/chat"), frame(HEADERS, END_HEADERS, 3, &[0; 200])),
    ]
}

/// Waits until the server closes. Returns the time it took.
fn dripping(addr: SocketAddr, drip: Drip) -> JoinHandle<(&'static str, Duration)> {
    tokio::spawn(async move {
        let (read, mut write) = TcpStream::connect(addr).await.unwrap().into_split();
        write.write_all(&drip.at_once).await.unwrap();
        let began = Instant::now();
        let sending = tokio::spawn(async move {
            for byte in drip.then {
                tokio::time::sleep(Duration::from_millis(50)).await;
                if write.write_all(&[byte]).await.is_err() {
                    break;
                }
            }
            write
        });
        let closed = tokio::time::timeout(LIMIT, read_frames(read)).await;
        sending.abort();
        assert!(closed.is_ok(), "{} is waited for", drip.name);
        (drip.name, began.elapsed())
    })
}

#[tokio::test]
async fn l50_h2_headers_have_the_same_timeout() {
    let (upstream, proxy) = chat(Script::sse(tencent::answer("m")), "[timeouts]\nrequest_headers = \"1s\"").await;
    let all: Vec<_> = drips().into_iter().map(|drip| dripping(proxy.addr, drip)).collect();
    for drip in all {
        let (name, took) = within("every one to be closed", drip).await.unwrap();
        assert!(took > Duration::from_millis(800), "{name} has its time, and had {took:?}");
    }
    assert_eq!(upstream.request_count(), 1, "the one that was whole");
}

/// A connection with active streams may be silent. A connection with many requests is not closed by the header timeout
/// of its first one.
#[tokio::test]
async fn l50_header_timeout_ends_with_the_headers() {
    let steps = [
        citetap::replay::Step::Send(tencent::references("m", &[1]).into()),
        citetap::replay::Step::Pause(Duration::from_millis(1500)),
        citetap::replay::Step::Send(tencent::finish("m").into()),
    ];
    let (_upstream, proxy) = chat(Script::sse_steps(steps), "[timeouts]\nrequest_headers = \"500ms\"").await;
    let mut client = Client::h2(proxy.addr).await;
    for _ in 0..2 {
        let whole = client.send(post("/chat", "{}")).await.whole().await;
        assert_eq!((whole.error.as_deref(), whole.split().1.len()), (None, 1));
    }
    let mut raw = Raw::connect(proxy.addr, &[]).await;
    raw.write.write_all(&request(1, false, "/healthz")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1200)).await;
    let more = [frame(PING, 0, 0, &[7; 8]), request(3, false, "/healthz")];
    let received = raw.flood_reading(more.into_iter(), Duration::from_secs(2)).await;
    assert_eq!(received.frames.iter().filter(|(kind, _)| *kind == HEADERS).count(), 2, "{received:?}");
}

/// An idle connection waits for the next headers as long as for the first.
#[tokio::test]
async fn l50_idle_h1_connection_is_closed() {
    let (_upstream, proxy) = chat(Script::echo(), "[timeouts]\nrequest_headers = \"500ms\"").await;
    let mut stream = TcpStream::connect(proxy.addr).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let received = String::from_utf8(is_closed(stream).await).unwrap();
    assert!(received.starts_with("HTTP/1.1 200") && received.ends_with("ok\n"), "{received}");
}

/// A body that never ends, with a piece now and then.
fn slow_body(path: &str) -> Request<impl http_body::Body<Data = Bytes, Error = Infallible> + Send + Sync + 'static> {
    let pieces = futures_util::stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        Some((Ok(Frame::data(Bytes::from_static(b" "))), ()))
    });
    Request::post(path).body(StreamBody::new(pieces)).unwrap()
}

#[tokio::test]
async fn l50_slowly_sent_h2_bodies_time_out() {
    let toml = "[timeouts]\nfirst_byte = \"700ms\"";
    let (_upstream, proxy) = chat_with(Script::echo(), toml, "[routes.openai]\nmodels = [\"m\"]").await;
    let mut client = Client::h2(proxy.addr).await;
    for path in ["/chat", "/v1/chat/completions", "/normalize", "/render"] {
        let began = Instant::now();
        let status = client.send(slow_body(path)).await.status.as_u16();
        assert!(status == 504 || (400..500).contains(&status), "{path}: {status}");
        assert!(began.elapsed() < Duration::from_secs(5), "{path}: {:?}", began.elapsed());
        assert_eq!(client.send(get("/healthz")).await.status, 200, "the connection is there still");
    }
}

/// Many slow clients of all kinds: they are closed after their timeout, and others are unaffected meanwhile.
#[tokio::test]
async fn l50_five_hundred_slow_clients_do_not_affect_others() {
    const CLIENTS: usize = 500;
    let upstream = Upstream::bind(vec![Scripted::new("/", Script::sse(tencent::answer("m")))]).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let toml = format!(
        "store = \"memory:\"\n[timeouts]\nrequest_headers = \"3s\"\nfirst_byte = \"3s\"\n{}provider = \"tencent\"\n",
        route("chat", &upstream.url())
    );
    let running = Running::serve(dir.path(), &toml).await;
    let files = async || {
        let text = running.get("/metrics").await.whole().await.text();
        let line = text.lines().find_map(|line| line.strip_prefix("process_open_fds ")).unwrap().to_owned();
        line.parse::<f64>().unwrap() as usize
    };
    let before = files().await;
    let plain = |name, at_once: &str| Drip { name, at_once: at_once.as_bytes().to_vec(), then: vec![b'y'; 200] };
    let mut slow = Vec::new();
    for n in 0..CLIENTS {
        let mut kinds = drips();
        kinds.push(plain("h1 headers", "GET /chat HTTP/1.1\r\nhost: localhost\r\nx: "));
        kinds.push(plain("h1 body", "POST /chat HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n"));
        slow.push(dripping(running.addr, kinds.swap_remove(n % kinds.len())));
    }
    let crowded = eventually(|| async { (files().await > before + CLIENTS * 9 / 10).then_some(()) });
    assert!(crowded.await.is_some(), "all are there at once");
    let mut times = Vec::new();
    for _ in 0..20 {
        let began = Instant::now();
        assert_eq!(running.get("/healthz").await.status, 200);
        let whole = running.post("/chat").await.whole().await;
        assert_eq!((whole.status.as_u16(), whole.error.as_deref(), whole.split().1.len()), (200, None, 1));
        times.push(began.elapsed());
    }
    times.sort();
    assert!(times[10] < Duration::from_secs(1), "{times:?}");
    for client in slow {
        within("every one to be closed", client).await.unwrap();
    }
    // A tenth of them received whole answers at the same time, so that many upstream connections are idle.
    let gone = eventually(|| async { (files().await < before + CLIENTS / 5).then_some(()) });
    assert!(gone.await.is_some(), "their files are free again");
}

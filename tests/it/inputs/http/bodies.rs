//! Encodings and lengths of bodies.

use std::io::Write as _;

use citetap::replay::{Script, Step};
use flate2::{Compression, write::GzEncoder};
use http::{HeaderValue, Method, header};

use super::super::{metric, raw_upstream};
use crate::{
    net::{Client, chat, post, raw, request, split, tencent},
    relay::{
        memory::{MIB, Rig},
        responses::{passes_unchanged, relayed},
    },
};

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut coder = GzEncoder::new(Vec::new(), Compression::best());
    coder.write_all(bytes).unwrap();
    coder.finish().unwrap()
}

/// Nothing is decoded: an encoded response, or one that claims to be, is relayed untapped and counted.
#[tokio::test]
async fn h31_encoded_stream_is_relayed_unchanged_and_counted() {
    let once = gzipped(tencent::answer("m").as_bytes());
    let twice = gzipped(&once);
    for (coding, body) in [
        ("gzip", once.clone()),
        ("GZIP", once.clone()),
        ("x-gzip", once.clone()),
        ("br", once.clone()),
        ("zstd", once.clone()),
        ("deflate", once.clone()),
        ("gzip, gzip", twice),
        ("identity, gzip", once),
        // The header is wrong.
        ("gzip", tencent::answer("m").into_bytes()),
    ] {
        let script = || {
            Script::sse(body.clone())
                .header(header::CONTENT_ENCODING, HeaderValue::from_static(coding))
                .header(header::ETAG, HeaderValue::from_static("\"x\""))
        };
        assert_eq!(passes_unchanged(script()).await.header("content-encoding"), Some(coding));
        let (upstream, proxy) = chat(script(), "").await;
        proxy.post("/chat", "{}").await.whole().await;
        assert_eq!(upstream.requests()[0].headers["accept-encoding"], "identity", "the requested encoding");
        assert!(metric(&proxy, "citetap_tap_skipped_total", &["reason=\"encoded\""]).await > 0.5);
        assert!(proxy.app.store.get("default", "m", None).await.unwrap().is_none());
    }
}

/// The same for a body that would expand a thousandfold.
#[tokio::test]
async fn h32_decompression_bomb_is_relayed_and_not_decoded() {
    let bomb = gzipped(&vec![0; 64 << 20]);
    assert!(bomb.len() < 128 * 1024, "{} bytes", bomb.len());
    let script = Script::sse(bomb.clone()).header(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    let rig = Rig::new(script).await;
    let whole = rig.ask().await.whole().await;
    assert_eq!((whole.bytes(), whole.error), (bomb, None));
    rig.grew_at_most(8 * MIB);
    assert_eq!(rig.proxy.post("/chat").await.whole().await.split().1.len(), 1, "the next is tapped");
}

#[tokio::test]
async fn h33_tapped_stream_has_no_content_length() {
    let body = tencent::answer("m");
    let script = || Script::sse(body.clone()).header(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    let (direct, whole) = relayed(script()).await;
    assert_eq!(direct.header("content-length"), Some(body.len().to_string().as_str()));
    assert_eq!((whole.header("content-length"), whole.header("transfer-encoding")), (None, Some("chunked")));
    assert_eq!((whole.split().0, whole.split().1.len()), (direct.bytes(), 1));

    let (_upstream, proxy) = chat(script(), "").await;
    let response = raw(proxy.addr, "GET /chat HTTP/1.0\r\n\r\n").await;
    let (head, rest) = response.split_once("\r\n\r\n").unwrap();
    let head = head.to_lowercase();
    assert!(head.starts_with("http/1.0 200"), "{head}");
    assert!(!head.contains("chunked") && !head.contains("content-length"), "{head}");
    assert_eq!((split(rest.as_bytes()).0, split(rest.as_bytes()).1.len()), (body.into_bytes(), 1));
}

/// A declared length above the body's is an abort. A declared length below it ends the body there, and the remaining
/// bytes reach neither this client nor the next.
#[tokio::test]
async fn h34_wrong_content_length_aborts_or_ends_the_body() {
    for kind in ["text/event-stream", "application/json", "text/plain"] {
        let body = tencent::text("m", "一");
        let response = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: 1000\r\n\r\n{body}");
        let proxy = raw_upstream::proxy(raw_upstream::says(response).await, "").await;
        for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
            let whole = client.send(post("/chat", "{}")).await.whole().await;
            assert!(whole.error.is_some(), "{kind}: an abort");
            assert_eq!(whole.text(), body, "{kind}");
        }

        let evil = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil";
        let short = body.len();
        let response =
            format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {short}\r\n\r\n{body}{evil}{evil}");
        let proxy = raw_upstream::proxy(raw_upstream::says(response).await, "").await;
        let mut client = Client::h1(proxy.addr).await;
        for _ in 0..3 {
            let whole = client.send(post("/chat", "{}")).await.whole().await;
            assert_eq!((whole.text(), whole.error), (body.clone(), None), "{kind}");
        }
    }
}

/// Trailers must not contain fields for framing, routing or content (RFC 9110 6.5.1).
#[tokio::test]
async fn h35_trailers_pass_except_forbidden_ones() {
    let mut trailers = http::HeaderMap::new();
    let forbidden = ["content-length", "transfer-encoding", "host", "content-type", "content-encoding", "set-cookie"];
    for name in forbidden.iter().chain(&["authorization", "connection", "x-citetap-nonce"]) {
        trailers.insert(http::HeaderName::from_static(name), HeaderValue::from_static("1"));
    }
    trailers.insert("x-usage", HeaderValue::from_static("12"));
    let script = Script::sse_steps([Step::Send(tencent::answer("m").into()), Step::Trailers(trailers)]);
    let (_upstream, proxy) = chat(script, "").await;
    // HTTP/2 has no such filter.
    for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
        let request = request(Method::POST, "/chat", &[("te", "trailers")], "{}");
        let whole = client.send(request).await.whole().await;
        assert_eq!((whole.split().1.len(), whole.error.as_deref()), (1, None));
        let came = whole.trailers.unwrap_or_default();
        let names: Vec<&str> = came.keys().map(http::HeaderName::as_str).collect();
        assert_eq!(names, ["x-usage"]);
    }
    // The body is complete in any case: too many trailers are dropped, or reset the stream.
    for (size, passes) in [(1 << 10, true), (20 << 10, false), (1 << 20, false)] {
        let body = tencent::answer("m");
        let response = format!(
            "{}{}0\r\nx-large: {}\r\n\r\n",
            raw_upstream::CHUNKED.replace("\r\n\r\n", "\r\ntrailer: x-large\r\n\r\n"),
            raw_upstream::chunk(&body),
            "v".repeat(size)
        );
        let proxy = raw_upstream::proxy(raw_upstream::says(response).await, "").await;
        let mut client = Client::h2(proxy.addr).await;
        let whole = client.send(request(Method::POST, "/chat", &[("te", "trailers")], "{}")).await.whole().await;
        assert_eq!(whole.split().0, body.as_bytes(), "{size}");
        let came = whole.trailers.is_some_and(|trailers| trailers.contains_key("x-large"));
        assert_eq!(came, passes, "{size} {:?}", whole.error);
        assert_eq!(client.send(crate::net::get("/healthz")).await.status, 200);
    }
}

#[tokio::test]
async fn h36_invalid_chunk_sizes_are_refused_both_ways() {
    let extension = format!("1;{}\r\nx\r\n0\r\n\r\n", "e".repeat(1 << 20));
    let chunks = ["FFFFFFFFFFFFFFFFF\r\nx", "-1\r\nx", "zz\r\nx", "1 1\r\nx", "\r\nx", &extension];
    let (upstream, proxy) = chat(Script::echo(), "[timeouts]\nfirst_byte = \"5s\"").await;
    for chunk in chunks {
        let request = format!("POST /chat HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n{chunk}");
        let response = raw_or_reset(proxy.addr, request).await;
        assert!(!response.contains("HTTP/1.1 200"), "{:?}: {response}", &chunk[..chunk.len().min(20)]);
    }
    assert_eq!(proxy.post("/chat", "{}").await.status, 200);
    let whole = upstream.requests().iter().filter(|seen| seen.outcome == citetap::replay::Outcome::Ended).count();
    assert_eq!(whole, 1, "the upstream received a complete request");

    for chunk in chunks {
        let begun = tencent::references("m", &[1, 2]);
        let response = format!("{}{}{chunk}", raw_upstream::CHUNKED, raw_upstream::chunk(&begun));
        let proxy = raw_upstream::proxy(
            raw_upstream::says(response).await,
            "[timeouts]\nupstream_idle = \"5s\"\ncommit = \"10s\"",
        )
        .await;
        let whole = proxy.post("/chat", "{}").await.whole().await;
        assert!(whole.error.is_some(), "{:?}", &chunk[..chunk.len().min(20)]);
        let (theirs, ours) = whole.split();
        assert_eq!(String::from_utf8(theirs).unwrap(), begun);
        assert_eq!((ours.len(), ours[0].complete), (1, false));
    }
}

/// Like [`raw`], but the server may close while we still send.
async fn raw_or_reset(addr: std::net::SocketAddr, request: String) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let (mut read, mut write) = tokio::net::TcpStream::connect(addr).await.unwrap().into_split();
    let sending = tokio::spawn(async move {
        let _ = write.write_all(request.as_bytes()).await;
        write
    });
    let mut response = Vec::new();
    let _ = crate::net::within("the connection's end", read.read_to_end(&mut response)).await;
    sending.abort();
    String::from_utf8_lossy(&response).into_owned()
}

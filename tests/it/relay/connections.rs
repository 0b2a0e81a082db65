//! Several requests on one connection: answered in order, each to its own end.

use std::time::Duration;

use bytes::Bytes;
use citetap::replay::{Outcome, Script, Step};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::net::{Proxy, chat, raw, tencent, within};

const ASK: &str = "POST /chat HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}";
const HEALTH: &str = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
const LAST_HEALTH: &str = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

fn steps(pause: Duration) -> Script {
    let pieces = [tencent::references("m", &[1]), tencent::text("m", "一"), tencent::finish("m")];
    Script::sse_steps(
        pieces.into_iter().flat_map(|piece| [Step::Send(Bytes::from(piece)), Step::Pause(pause)]).collect::<Vec<_>>(),
    )
}

/// The responses on one connection, in order, each starting with its headers.
fn responses(received: &str) -> Vec<&str> {
    received
        .match_indices("HTTP/1.1 ")
        .map(|(at, _)| at)
        .chain([received.len()])
        .collect::<Vec<_>>()
        .windows(2)
        .map(|span| &received[span[0]..span[1]])
        .collect()
}

fn is_stream(response: &str) -> bool {
    let chunked = response.contains("transfer-encoding: chunked") && response.ends_with("\r\n0\r\n\r\n");
    chunked && response.contains("event: citations") && response.contains("event:finish")
}

#[tokio::test]
async fn pipelined_requests_are_answered_after_a_stream() {
    let (_upstream, proxy) = chat(steps(Duration::from_millis(50)), "").await;
    let received = raw(proxy.addr, format!("{HEALTH}{ASK}{HEALTH}{ASK}{LAST_HEALTH}")).await;
    let responses = responses(&received);
    let streams: Vec<bool> = responses.iter().map(|response| is_stream(response)).collect();
    assert_eq!(streams, [false, true, false, true, false], "{received}");
    assert!(responses.iter().all(|response| response.starts_with("HTTP/1.1 200")));
}

#[tokio::test]
async fn request_sent_during_a_stream_is_answered_after_it() {
    let (_upstream, proxy) = chat(steps(Duration::from_millis(100)), "").await;
    let mut stream = TcpStream::connect(proxy.addr).await.unwrap();
    stream.write_all(ASK.as_bytes()).await.unwrap();
    let mut received = until(&mut stream, "一").await;
    // In two pieces, the second long after the first.
    stream.write_all(&LAST_HEALTH.as_bytes()[..20]).await.unwrap();
    received += &until(&mut stream, "0\r\n\r\n").await;
    stream.write_all(&LAST_HEALTH.as_bytes()[20..]).await.unwrap();
    let mut rest = Vec::new();
    within("the end", stream.read_to_end(&mut rest)).await.unwrap();
    received += &String::from_utf8(rest).unwrap();
    let streams: Vec<bool> = responses(&received).iter().map(|response| is_stream(response)).collect();
    assert_eq!(streams, [true, false], "{received}");
}

#[tokio::test]
async fn connection_close_closes_after_the_stream() {
    let (_upstream, proxy) = chat(steps(Duration::from_millis(20)), "").await;
    let last = ASK.replace("content-length", "connection: keep-alive, Close\r\ncontent-length");
    let received = raw(proxy.addr, format!("{last}{HEALTH}")).await;
    assert!(responses(&received).len() == 1 && is_stream(&received), "{received}");
}

/// HTTP/1.0 has no chunked encoding: the end of the connection ends the response.
#[tokio::test]
async fn http_1_0_client_gets_no_chunked_encoding() {
    let (_upstream, proxy) = chat(steps(Duration::from_millis(20)), "").await;
    let received = raw(proxy.addr, ASK.replace("HTTP/1.1", "HTTP/1.0")).await;
    let (head, body) = received.split_once("\r\n\r\n").unwrap();
    assert!(!head.contains("chunked") && body.starts_with("data:") && body.contains("event: citations"), "{received}");
    assert!(body.ends_with("\n\n"), "{received}");
}

/// Bytes beyond the buffer wait in the socket, and none are lost.
#[tokio::test]
async fn client_may_pipeline_many_requests() {
    let (_upstream, proxy) = chat(steps(Duration::from_millis(100)), "").await;
    let many = HEALTH.repeat(2000);
    let mut stream = TcpStream::connect(proxy.addr).await.unwrap();
    let (mut read, mut write) = stream.split();
    let send = async {
        write.write_all(format!("{ASK}{many}{LAST_HEALTH}").as_bytes()).await.unwrap();
    };
    let mut received = String::new();
    let ((), read) = tokio::join!(send, within("the end", read.read_to_string(&mut received)));
    read.unwrap();
    assert_eq!(responses(&received).len(), 2002);
}

async fn until(stream: &mut TcpStream, sign: &str) -> String {
    let mut received = Vec::new();
    while !String::from_utf8_lossy(&received).contains(sign) {
        let mut piece = [0; 4096];
        let length = within(sign, stream.read(&mut piece)).await.unwrap();
        assert!(length > 0, "it ended before {sign}: {}", String::from_utf8_lossy(&received));
        received.extend_from_slice(&piece[..length]);
    }
    String::from_utf8(received).unwrap()
}

/// P6
#[tokio::test]
async fn client_disconnect_in_mid_stream_is_noticed_at_once() {
    let (upstream, proxy): (_, Proxy) = chat(steps(Duration::from_secs(20)), "").await;
    let mut stream = TcpStream::connect(proxy.addr).await.unwrap();
    stream.write_all(ASK.as_bytes()).await.unwrap();
    until(&mut stream, "reference_chunks").await;
    drop(stream);
    let cancelled = async {
        while upstream.requests()[0].outcome != Outcome::Cancelled {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(1), cancelled).await.unwrap();
    assert_eq!(proxy.stored("m").await.citations.len(), 1);
}

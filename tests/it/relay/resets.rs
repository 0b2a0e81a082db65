//! An h2 stream that is reset is an incomplete body, whatever the error code.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use h2::Reason;
use http::{Request, Response};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use super::tls;
use crate::{
    inputs::raw_upstream,
    net::{Client, Proxy, post, raw, tencent, within},
};

/// An upstream that sends all received bytes to the channel after each read, and `None` at the end. If `responds_early`, it
/// responds before the request ends.
pub async fn recorder(responds_early: bool) -> (SocketAddr, mpsc::Receiver<Option<Vec<u8>>>) {
    let (tx, rx) = mpsc::channel(1024);
    let addr = raw_upstream::serve(move |mut stream| {
        let tx = tx.clone();
        async move {
            let (mut all, mut piece, mut has_responded) = (Vec::new(), [0; 4096], false);
            while let Ok(n @ 1..) = stream.read(&mut piece).await {
                all.extend_from_slice(&piece[..n]);
                if responds_early && !has_responded {
                    has_responded = true;
                    stream.write_all(raw_upstream::STREAM.as_bytes()).await.unwrap();
                }
                tx.send(Some(all.clone())).await.unwrap();
            }
            tx.send(None).await.unwrap();
        }
    })
    .await;
    (addr, rx)
}

#[tokio::test]
async fn reset_request_body_is_never_complete_for_the_upstream() {
    for (responds_early, length) in [(false, None), (true, None), (false, Some("100")), (true, Some("100"))] {
        let (addr, mut rx) = recorder(responds_early).await;
        let proxy = raw_upstream::proxy(addr, "").await;
        for reason in [Reason::NO_ERROR, Reason::CANCEL, Reason::INTERNAL_ERROR].into_iter().cycle().take(30) {
            let stream = TcpStream::connect(proxy.addr).await.unwrap();
            let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            let mut request = Request::post("http://localhost/chat");
            if let Some(length) = length {
                request = request.header("content-length", length);
            }
            let (response, mut body) = client.send_request(request.body(()).unwrap(), false).unwrap();
            body.send_data(Bytes::from_static(b"begun"), false).unwrap();
            let mut all = Vec::new();
            while !all.windows(5).any(|part| part == b"begun") {
                all = within("the body's beginning", rx.recv()).await.unwrap().expect("more");
            }
            let _response = if responds_early { Some(response.await.unwrap()) } else { None };
            body.send_reset(reason);
            while let Some(more) = within("the upstream's end", rx.recv()).await.unwrap() {
                all = more;
            }
            let text = String::from_utf8(all).unwrap();
            assert!(!text.ends_with("0\r\n\r\n"), "early response: {responds_early}, {reason:?}: {text}");
        }
    }
}

type Action = fn(&mut h2::SendStream<Bytes>);

/// A proxy in front of an h2 upstream that begins a response and then performs these actions, with a pause before each.
async fn h2_upstream(actions: &'static [Action]) -> Proxy {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    let head = Response::builder().header("content-type", "text/event-stream").body(()).unwrap();
                    let mut body = respond.send_response(head, false).unwrap();
                    body.send_data(tencent::references("m", &[1, 2]).into(), false).unwrap();
                    tokio::spawn(async move {
                        for action in actions {
                            // A reset discards data that has not been sent yet.
                            tokio::time::sleep(Duration::from_millis(100)).await;
                            action(&mut body);
                        }
                        drop(request);
                    });
                }
            });
        }
    });
    let (port, trust) = tls::terminator(addr, &[b"h2"], &["localhost"]).await;
    tls::proxy(port, trust).await
}

#[tokio::test]
async fn reset_answer_is_a_cut_for_the_client() {
    let resets: [&[Action]; 3] = [
        &[|body| body.send_reset(Reason::NO_ERROR)],
        &[|body| body.send_reset(Reason::CANCEL)],
        &[|body| body.send_reset(Reason::INTERNAL_ERROR)],
    ];
    for reset in resets {
        let proxy = h2_upstream(reset).await;
        for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
            let whole = client.send(post("/chat", "{}")).await.whole().await;
            assert!(whole.error.is_some(), "no abort: {}", whole.text());
            let (theirs, ours) = whole.split();
            assert_eq!(theirs, tencent::references("m", &[1, 2]).into_bytes());
            assert_eq!((ours.len(), ours[0].complete), (1, false));
        }
    }
}

/// RFC 9113 8.1: after a complete response a server may reset the stream, so that the client stops sending.
#[tokio::test]
async fn complete_answer_before_a_reset_stays_complete() {
    let proxy = h2_upstream(&[
        |body| body.send_data(tencent::finish("m").into(), true).unwrap(),
        |body| body.send_reset(Reason::NO_ERROR),
    ])
    .await;
    for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
        let whole = client.send(post("/chat", "{}")).await.whole().await;
        assert_eq!(whole.error, None);
        assert!(whole.text().contains("event:finish") && whole.split().1[0].complete, "{}", whole.text());
    }
    // The client is still sending its request.
    let response = raw(proxy.addr, "POST /chat HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\nbegun").await;
    assert!(response.contains("event:finish") && response.ends_with("\r\n0\r\n\r\n"), "{response}");
}

//! A reset stream of h2 is no end of its body, whichever its error code.

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

/// An upstream that sends what it has received whenever there is more, and `None` at the end. It answers early if told so.
pub async fn recorder(answers: bool) -> (SocketAddr, mpsc::Receiver<Option<Vec<u8>>>) {
    let (tell, heard) = mpsc::channel(1024);
    let addr = raw_upstream::serve(move |mut stream| {
        let tell = tell.clone();
        async move {
            let (mut all, mut piece, mut answered) = (Vec::new(), [0; 4096], false);
            while let Ok(n @ 1..) = stream.read(&mut piece).await {
                all.extend_from_slice(&piece[..n]);
                if answers && !answered {
                    answered = true;
                    stream.write_all(raw_upstream::STREAM.as_bytes()).await.unwrap();
                }
                tell.send(Some(all.clone())).await.unwrap();
            }
            tell.send(None).await.unwrap();
        }
    })
    .await;
    (addr, heard)
}

#[tokio::test]
async fn reset_request_body_is_never_complete_for_the_upstream() {
    for (answers, length) in [(false, None), (true, None), (false, Some("100")), (true, Some("100"))] {
        let (addr, mut heard) = recorder(answers).await;
        let proxy = raw_upstream::proxy(addr, "").await;
        for reason in [Reason::NO_ERROR, Reason::CANCEL, Reason::INTERNAL_ERROR].into_iter().cycle().take(30) {
            let stream = TcpStream::connect(proxy.addr).await.unwrap();
            let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            let mut asked = Request::post("http://localhost/chat");
            if let Some(length) = length {
                asked = asked.header("content-length", length);
            }
            let (answer, mut body) = client.send_request(asked.body(()).unwrap(), false).unwrap();
            body.send_data(Bytes::from_static(b"begun"), false).unwrap();
            let mut all = Vec::new();
            while !all.windows(5).any(|part| part == b"begun") {
                all = within("the body's beginning", heard.recv()).await.unwrap().expect("more");
            }
            let _answer = if answers { Some(answer.await.unwrap()) } else { None };
            body.send_reset(reason);
            while let Some(more) = within("the upstream's end", heard.recv()).await.unwrap() {
                all = more;
            }
            let text = String::from_utf8(all).unwrap();
            assert!(!text.ends_with("0\r\n\r\n"), "answered: {answers}, {reason:?}: {text}");
        }
    }
}

type Act = fn(&mut h2::SendStream<Bytes>);

/// The proxy of an h2 upstream that begins an answer and goes on with these acts, each when the one before has been sent.
async fn h2_upstream(acts: &'static [Act]) -> Proxy {
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
                        for act in acts {
                            // A reset drops what is not sent yet.
                            tokio::time::sleep(Duration::from_millis(100)).await;
                            act(&mut body);
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
    let resets: [&[Act]; 3] = [
        &[|body| body.send_reset(Reason::NO_ERROR)],
        &[|body| body.send_reset(Reason::CANCEL)],
        &[|body| body.send_reset(Reason::INTERNAL_ERROR)],
    ];
    for reset in resets {
        let proxy = h2_upstream(reset).await;
        for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
            let whole = client.send(post("/chat", "{}")).await.whole().await;
            assert!(whole.error.is_some(), "an abort: {}", whole.text());
            let (theirs, ours) = whole.split();
            assert_eq!(theirs, tencent::references("m", &[1, 2]).into_bytes());
            assert_eq!((ours.len(), ours[0].complete), (1, false));
        }
    }
}

/// RFC 9113 8.1: a server that has answered completely may reset the stream, so that the client stops sending.
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
    // Where that matters: the client is not done sending.
    let said = raw(proxy.addr, "POST /chat HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\nbegun").await;
    assert!(said.contains("event:finish") && said.ends_with("\r\n0\r\n\r\n"), "{said}");
}

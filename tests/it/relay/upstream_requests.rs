//! Requests to an HTTP/1.1 upstream, as the upstream reads their bytes.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
};

use crate::{
    inputs::raw_upstream,
    net::{Proxy, raw, route, within},
};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// An upstream that records each read and responds at the end of the request.
async fn recording_upstream(end: &'static str) -> (Proxy, mpsc::Receiver<String>) {
    let (tx, rx) = mpsc::channel(64);
    let upstream = raw_upstream::serve(move |mut stream| {
        let tx = tx.clone();
        async move {
            let (mut all, mut buffer) = (String::new(), [0; 4096]);
            while let Ok(length @ 1..) = stream.read(&mut buffer).await {
                let piece = String::from_utf8_lossy(&buffer[..length]).into_owned();
                all += &piece;
                tx.send(piece).await.unwrap();
                if all.ends_with(end) {
                    all.clear();
                    stream.write_all(OK).await.unwrap();
                }
            }
        }
    });
    let proxy = Proxy::start(&format!("workers = 1\n{}", route("chat", &format!("http://{}", upstream.await)))).await;
    (proxy, rx)
}

#[tokio::test]
async fn headers_and_available_body_are_one_write() {
    let (proxy, mut rx) = recording_upstream("{\"a\":1}").await;
    let request = "POST /chat?b=c HTTP/1.1\r\nhost: localhost\r\nx-own: d\r\ncontent-length: 7\r\nconnection: close\r\n\r\n{\"a\":1}";
    assert!(raw(proxy.addr, request).await.ends_with("\r\n\r\nok"));
    let came = rx.recv().await.unwrap();
    assert!(came.starts_with("POST /?b=c HTTP/1.1\r\n") && came.ends_with("\r\n\r\n{\"a\":1}"), "{came}");
    for line in ["x-own: d\r\n", "content-length: 7\r\n", "accept-encoding: identity\r\n"] {
        assert_eq!(came.matches(line).count(), 1, "{line} {came}");
    }
    assert!(rx.try_recv().is_err(), "nothing more");
}

#[tokio::test]
async fn body_of_unknown_length_is_chunked_with_trailers() {
    let (proxy, mut rx) = recording_upstream("\r\n\r\n").await;
    // The first blank line ends the headers, so the upstream responds before it has the body.
    let head = "POST /chat HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\ntrailer: x-sum, content-length\r\n\r\n";
    let mut client = TcpStream::connect(proxy.addr).await.unwrap();
    client.write_all(head.as_bytes()).await.unwrap();
    let came = rx.recv().await.unwrap();
    assert!(came.contains("\r\ntransfer-encoding: chunked\r\n") && !came.contains("content-length:"), "{came}");
    let mut response = [0; 12];
    within("the answer's head", client.read_exact(&mut response)).await.unwrap();
    assert_eq!(&response, b"HTTP/1.1 200");
    drop(client);

    let (proxy, mut rx) = recording_upstream("x-sum: 5\r\n\r\n").await;
    let body = "5\r\nhello\r\n1;x=y\r\n!\r\n0\r\nx-sum: 5\r\nx-other: 6\r\ncontent-length: 7\r\n\r\n";
    let request = format!("{}{body}", head.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n"));
    assert!(raw(proxy.addr, request).await.ends_with("\r\n\r\nok"));
    let mut came = String::new();
    while let Ok(piece) = rx.try_recv() {
        came += &piece;
    }
    let (_, body) = came.split_once("\r\n\r\n").unwrap();
    let (data, trailers) = body.split_once("0\r\n").unwrap();
    assert_eq!(trailers, "x-sum: 5\r\n\r\n");
    let sent: String = data.split("\r\n").skip(1).step_by(2).collect();
    assert_eq!(sent, "hello!");
}

/// Both continue: the rest of the request and the response.
#[tokio::test]
async fn response_may_start_before_the_request_ends() {
    let upstream = raw_upstream::serve(|mut stream| async move {
        raw_upstream::head(&mut stream).await;
        stream.write_all(raw_upstream::CHUNKED.as_bytes()).await.unwrap();
        stream.write_all(raw_upstream::chunk("data: 1\n\n").as_bytes()).await.unwrap();
        let (mut all, mut buffer) = (Vec::new(), [0; 65536]);
        while !all.ends_with(b"end") {
            let length = stream.read(&mut buffer).await.unwrap();
            all.extend_from_slice(&buffer[..length]);
        }
        let last = raw_upstream::chunk(&format!("data: {}\n\n", all.len())) + "0\r\n\r\n";
        stream.write_all(last.as_bytes()).await.unwrap();
    });
    let proxy = raw_upstream::proxy(upstream.await, "").await;
    let mut client = TcpStream::connect(proxy.addr).await.unwrap();
    client.write_all(b"POST /chat HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n").await.unwrap();
    let (mut response, mut buffer) = (String::new(), [0; 4096]);
    while !response.contains("data: 1\n\n") {
        let length = within("the first event", client.read(&mut buffer)).await.unwrap();
        response += std::str::from_utf8(&buffer[..length]).unwrap();
    }
    let body = ["x".repeat(999_997), "end".to_owned()].concat();
    client.write_all(body.as_bytes()).await.unwrap();
    while !response.ends_with("0\r\n\r\n") {
        let length = within("the end", client.read(&mut buffer)).await.unwrap();
        assert_ne!(length, 0, "{response}");
        response += std::str::from_utf8(&buffer[..length]).unwrap();
    }
    assert!(response.contains("data: 1000000\n\n"), "{response}");
}

/// An upstream that stops reading a request may have sent the reason.
#[tokio::test]
async fn early_error_response_is_relayed() {
    let upstream = raw_upstream::serve(|mut stream| async move {
        raw_upstream::head(&mut stream).await;
        let response = b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\nconnection: close\r\n\r\nno!";
        stream.write_all(response).await.unwrap();
        stream.shutdown().await.unwrap();
        // Read the remaining bytes, so that a reset does not discard the response.
        while let Ok(1..) = stream.read(&mut [0; 65536]).await {}
    });
    let proxy = raw_upstream::proxy(upstream.await, "").await;
    let request =
        format!("POST /chat HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3000000\r\n\r\n{}", "x".repeat(3_000_000));
    let response = raw(proxy.addr, request).await;
    assert!(response.starts_with("HTTP/1.1 413") && response.contains("no!"), "{response}");
}

/// RFC 9112 6.3
#[tokio::test]
async fn content_length_with_chunked_is_removed() {
    let response =
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n";
    let upstream = raw_upstream::says(response.to_owned() + &raw_upstream::chunk("whole") + "0\r\n\r\n").await;
    let proxy = raw_upstream::proxy(upstream, "").await;
    let whole = proxy.get("/chat").await.whole().await;
    assert_eq!((whole.headers.get("content-length"), whole.error.as_deref()), (None, None));
    assert_eq!(whole.text(), "whole");
}

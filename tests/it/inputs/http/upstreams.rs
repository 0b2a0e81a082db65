//! Upstreams with invalid HTTP.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use citetap::replay::Script;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::super::raw_upstream;
use crate::{
    net::{Client, chat, get, post, tencent, within},
    relay::tls,
};

fn early_hints(count: usize) -> String {
    "HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n".repeat(count)
}

/// A few interim responses are dropped, because they are for the next hop. More than hyper's limit is an error.
#[tokio::test]
async fn h45_interim_responses_are_dropped_and_a_flood_is_502() {
    for count in [1, 10] {
        let response = early_hints(count) + raw_upstream::STREAM + &tencent::answer("m");
        let proxy = raw_upstream::proxy(raw_upstream::says(response).await, "").await;
        for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
            let whole = client.send(post("/chat", "{}")).await.whole().await;
            assert_eq!((whole.status.as_u16(), whole.error.as_deref()), (200, None));
            assert_eq!((whole.split().0, whole.split().1.len()), (tencent::answer("m").into_bytes(), 1));
        }
    }
    let response = early_hints(11) + raw_upstream::STREAM + &tencent::answer("m");
    let proxy = raw_upstream::proxy(raw_upstream::says(response).await, "").await;
    proxy.post("/chat", "{}").await.is_problem(502, "upstream-unreachable").await;

    // An endless one.
    let by_hand = raw_upstream::serve(|mut stream| async move {
        raw_upstream::head(&mut stream).await;
        while stream.write_all(early_hints(100).as_bytes()).await.is_ok() {}
    })
    .await;
    let proxy = raw_upstream::proxy(by_hand, "").await;
    let began = Instant::now();
    proxy.post("/chat", "{}").await.is_problem(502, "upstream-unreachable").await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(proxy.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn h47_invalid_or_too_large_response_head_is_502() {
    let large = format!("HTTP/1.1 200 OK\r\nset-cookie: a={}\r\n\r\n", "v".repeat(1 << 20));
    let many: String = (0..10_000).map(|n| format!("x-{n}: 1\r\n")).collect();
    for head in [
        "HTTP/1.1 200 OK\r\nx: a\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx: a\0b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx\r\n: b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx y: b\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        "HTTP/9.9 200 OK\r\n\r\n",
        "no HTTP at all\r\n\r\n",
        "",
        &large,
        &format!("HTTP/1.1 200 OK\r\n{many}\r\n"),
    ] {
        let proxy = raw_upstream::proxy(raw_upstream::says(head).await, "").await;
        for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
            let response = client.send(post("/chat", "{}")).await;
            assert_eq!(response.status, 502, "{:?}", &head[..head.len().min(60)]);
            response.is_problem(502, "upstream-unreachable").await;
            assert_eq!(client.send(get("/healthz")).await.status, 200);
        }
    }
}

/// No setting disables the verification.
#[tokio::test]
async fn h48_invalid_certificate_is_502() {
    let upstream = tls::upstream().await;
    let (_, trusts_another) = tls::terminator(upstream.addr(), &[b"h2"], &["localhost"]).await;
    let (unknown, _) = tls::terminator(upstream.addr(), &[b"h2"], &["localhost"]).await;
    let (misnamed, trusts_misnamed) = tls::terminator(upstream.addr(), &[b"h2"], &["other.example.com"]).await;
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2020, 2, 1);
    let key = KeyPair::generate().unwrap();
    let cert = params.self_signed(&key).unwrap();
    let (expired, trusts_expired) = tls::terminator_with(upstream.addr(), &[b"h2"], &cert, &key).await;
    for (port, trusts) in [(unknown, trusts_another), (misnamed, trusts_misnamed), (expired, trusts_expired)] {
        let proxy = tls::proxy(port, trusts).await;
        let problem = proxy.post("/chat", "{}").await.is_problem(502, "upstream-unreachable").await;
        assert!(problem["detail"].as_str().unwrap().contains("certificate"), "{problem}");
    }
    assert_eq!(upstream.request_count(), 0);
    // Keys that could disable it, set or mentioned. Comments may mention the parameters of a store's URL.
    let lines = include_str!("../../../../config/citetap.toml").lines();
    let keys: Vec<&str> =
        lines.filter_map(|line| line.trim_start_matches('#').split_once(" = ")).map(|(key, _)| key).collect();
    assert!(keys.contains(&"connect") && !keys.iter().any(|key| key.contains("verify") || key.contains("insecure")));
}

/// The response does not wait for the request's body, and nothing waits for the body's end.
#[tokio::test]
async fn h49_response_before_the_end_of_the_request_is_relayed() {
    let responses = [
        "HTTP/1.1 413 Payload Too Large\r\ncontent-length: 2\r\n\r\nno".to_owned(),
        "HTTP/1.1 413 Payload Too Large\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno".to_owned(),
        raw_upstream::CHUNKED.to_owned() + &raw_upstream::chunk(&tencent::answer("m")) + "0\r\n\r\n",
    ];
    for response in responses {
        for closes in [false, true] {
            let bytes: Arc<str> = response.as_str().into();
            let by_hand = raw_upstream::serve(move |mut stream| {
                let bytes = Arc::clone(&bytes);
                async move {
                    raw_upstream::head(&mut stream).await;
                    stream.write_all(bytes.as_bytes()).await.unwrap();
                    if closes {
                        stream.shutdown().await.unwrap();
                    }
                    // It stops reading and stays open.
                    tokio::time::sleep(Duration::from_secs(60)).await;
                }
            })
            .await;
            let proxy = raw_upstream::proxy(by_hand, "").await;
            let mut stream = TcpStream::connect(proxy.addr).await.unwrap();
            stream
                .write_all(b"POST /chat HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\nbegun")
                .await
                .unwrap();
            let mut text = String::new();
            let sign = if response.contains("413") { "\r\n\r\nno" } else { "event:finish" };
            while !text.contains(sign) {
                let mut more = [0; 4096];
                let n = within("the answer", stream.read(&mut more)).await.unwrap();
                assert!(n > 0, "the end before the answer: {text}");
                text += &String::from_utf8_lossy(&more[..n]);
            }
            assert_eq!(text.starts_with("HTTP/1.1 413"), response.contains("413"), "{text}");
            // The rest of the body is read or the connection closed: either way there is an end.
            let (mut read, mut write) = stream.into_split();
            let rest = tokio::spawn(async move { drop(write.write_all(&[b'x'; 99_995]).await) });
            let _ = within("the rest", rest).await;
            let _ = within("the end", async {
                tokio::time::timeout(Duration::from_millis(200), read.read(&mut [0; 64])).await
            })
            .await;
            assert_eq!(proxy.get("/healthz").await.status, 200);
        }
    }
    // The same upstream behind an ordinary request.
    let (_upstream, proxy) = chat(Script::echo(), "").await;
    assert_eq!(proxy.post("/chat", "{}").await.status, 200);
}

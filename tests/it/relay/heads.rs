//! Header fields that two parsers could read differently: `Host`, `Connection`, and line ends.

use citetap::replay::Script;
use tokio::io::AsyncWriteExt;

use super::resets::recorder;
use crate::{
    inputs::raw_upstream,
    net::{Client, chat, get, post, raw, within},
};

fn request(lines: &[u8]) -> Vec<u8> {
    [b"GET /chat HTTP/1.1\r\n", lines, b"\r\nconnection: close\r\n\r\n"].concat()
}

#[tokio::test]
async fn invalid_host_header_is_refused() {
    let (upstream, proxy) = chat(Script::echo(), "allowed_hosts = [\"*\"]").await;
    let bad: [&[u8]; 13] = [
        b"user@a",
        b"user:word@a",
        b"a@a:80",
        b"a/b",
        b"a?b",
        b"a#b",
        b"a b",
        b"a, b",
        b"a:x",
        b"a:1:1",
        b"a:99999",
        b"http://a",
        b"\xe4",
    ];
    for host in bad {
        for path in ["/chat", "/citations"] {
            let head = [path.as_bytes(), b" HTTP/1.1\r\nhost: ", host, b"\r\nconnection: close\r\n\r\n"].concat();
            let response = raw(proxy.addr, [b"GET ", &*head].concat()).await;
            assert!(response.starts_with("HTTP/1.1 400 "), "{path} {}: {response}", host.escape_ascii());
        }
    }
    assert_eq!(upstream.request_count(), 0);
    for host in ["a", "a:80", "a:", "[::1]:80", "[::1]", "a_b.example.com", "127.0.0.1:65535", "xn--fiq228c.cn", ""] {
        let response = raw(proxy.addr, request(format!("host: {host}").as_bytes())).await;
        assert!(response.starts_with("HTTP/1.1 200 "), "{host}: {response}");
    }
}

/// RFC 9110 4.2.4: neither in the absolute form of the target nor in the `:authority` of h2.
#[tokio::test]
async fn authority_with_credentials_is_refused() {
    let (upstream, proxy) = chat(Script::echo(), "allowed_hosts = [\"*\"]").await;
    for uri in ["http://user@a/chat", "http://user:word@a:80/chat"] {
        let head = format!("GET {uri} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        let response = raw(proxy.addr, head).await;
        assert!(response.starts_with("HTTP/1.1 400 "), "{uri}: {response}");
        assert_eq!(over_h2(proxy.addr, http::Request::get(uri).body(()).unwrap()).await, Some(400), "{uri}");
    }
    assert_eq!(upstream.request_count(), 0);
}

/// The response status, or `None` if h2 refused the request as malformed.
async fn over_h2(addr: std::net::SocketAddr, request: http::Request<()>) -> Option<u16> {
    let stream = tokio::net::TcpStream::connect(addr).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let (response, _) = client.send_request(request, true).unwrap();
    response.await.ok().map(|response| response.status().as_u16())
}

/// Otherwise an HTTP/1.1 upstream would receive both.
#[tokio::test]
async fn h2_request_with_two_lengths_is_refused() {
    let (upstream, proxy) = chat(Script::echo(), "").await;
    for (first, second) in [("0", "0"), ("0", "5"), ("5", "0")] {
        let builder = http::Request::get(format!("http://{}/chat", proxy.addr));
        let request = builder.header("content-length", first).header("content-length", second).body(()).unwrap();
        let status = over_h2(proxy.addr, request).await;
        assert!(matches!(status, None | Some(400)), "{first} {second}: {status:?}");
    }
    assert_eq!(upstream.request_count(), 0);
}

/// The header names in it cannot be parsed, so it is unknown which headers must be removed.
#[tokio::test]
async fn non_ascii_connection_header_is_refused() {
    let (upstream, proxy) = chat(Script::echo(), "").await;
    for value in [&b"x-hop, \xe4"[..], b"\xff", b"x-hop\xc2\xa0, y"] {
        for path in ["/chat", "/citations"] {
            let lines =
                [path.as_bytes(), b" HTTP/1.1\r\nhost: localhost\r\nx-hop: 1\r\nconnection: close\r\nconnection: "];
            let response = raw(proxy.addr, [b"GET ", &*lines.concat(), value, b"\r\n\r\n"].concat()).await;
            assert!(response.starts_with("HTTP/1.1 400 "), "{path} {}: {response}", value.escape_ascii());
        }
    }
    assert_eq!(upstream.request_count(), 0);
}

/// A response may have such bytes: the headers that can be parsed are removed, and the other bytes name no header.
#[tokio::test]
async fn response_connection_header_with_other_bytes_is_obeyed() {
    let response =
        b"HTTP/1.1 200 OK\r\nconnection: close, x-hop, \xe4, x-hop-2\r\nx-hop: 1\r\nx-hop-2: 1\r\nx-end: 1\r\n\
                   content-length: 2\r\n\r\nok";
    let proxy = raw_upstream::proxy(raw_upstream::says(*response).await, "").await;
    for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
        let whole = client.send(post("/chat", "{}")).await.whole().await;
        assert_eq!((whole.status.as_u16(), whole.text().as_str()), (200, "ok"));
        let kept = ["x-hop", "x-hop-2", "x-end"].map(|name| whole.header(name).is_some());
        assert_eq!(kept, [false, false, true]);
    }
}

/// RFC 9112 2.2 allows a recipient to accept a bare LF as a line end, and hyper cannot be configured otherwise. The upstream
/// and the client receive CRLF.
#[tokio::test]
async fn bare_lf_ends_a_header_line_and_is_never_relayed() {
    let (tx, mut rx) = tokio::sync::mpsc::channel(8);
    let upstream = raw_upstream::serve(move |mut stream| {
        let tx = tx.clone();
        async move {
            let head = raw_upstream::head(&mut stream).await;
            tx.send(head).await.unwrap();
            stream
                .write_all(b"HTTP/1.1 200 OK\nx-a: 1\ncontent-type: text/plain\ncontent-length: 2\n\nok")
                .await
                .unwrap();
        }
    })
    .await;
    let proxy = raw_upstream::proxy(upstream, "").await;
    let response =
        raw(proxy.addr, "GET /chat HTTP/1.1\nhost: localhost\nx-a: 1\r\nx-b: 2\nconnection: close\n\n").await;
    let head = rx.recv().await.unwrap();
    assert!(head.contains("x-a: 1\r\n") && head.contains("x-b: 2\r\n"), "{head}");
    for text in [&head, &response] {
        assert!(!text.replace("\r\n", "").contains(['\n', '\r']), "{text:?}");
    }
    assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with("ok"), "{response}");
}

#[tokio::test]
async fn bare_lf_in_chunks_is_refused() {
    let (upstream, mut rx) = recorder(false).await;
    let proxy = raw_upstream::proxy(upstream, "").await;
    for body in
        ["5\nhello\r\n0\r\n\r\n", "5\r\nhello\n0\r\n\r\n", "5;a\nb\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n0\n\r\n"]
    {
        let head = "POST /chat HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
        let response = raw(proxy.addr, format!("{head}{body}GET /chat/2 HTTP/1.1\r\nhost: localhost\r\n\r\n")).await;
        assert!(response.starts_with("HTTP/1.1 400 "), "{body:?}: {response}");
        assert_eq!(response.matches("HTTP/1.1 ").count(), 1, "{body:?}: {response}");
        let mut all = Vec::new();
        while let Some(more) = within("the upstream's end", rx.recv()).await.unwrap() {
            all = more;
        }
        assert!(!all.ends_with(b"0\r\n\r\n"), "{body:?}: {}", all.escape_ascii());
    }
}

#[tokio::test]
async fn folded_header_lines_are_refused_both_ways() {
    let (upstream, proxy) = chat(Script::echo(), "").await;
    for lines in [
        "host: localhost\r\nx: a\r\n b",
        "host: localhost\r\nx: a\r\n\tb",
        "host: localhost\r\n connection: x",
        "host:\r\n a",
        "host: localhost\nx: a\n b",
    ] {
        let response = raw(proxy.addr, request(lines.as_bytes())).await;
        assert!(response.starts_with("HTTP/1.1 400 "), "{lines:?}: {response}");
    }
    assert_eq!(upstream.request_count(), 0);
    for lines in ["x: a\r\n b", "x: a\r\n\tb", "content-length:\r\n 2"] {
        let response = format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\nok");
        let proxy = raw_upstream::proxy(raw_upstream::says(response).await, "").await;
        Client::h1(proxy.addr).await.send(get("/chat")).await.is_problem(502, "upstream-unreachable").await;
    }
}

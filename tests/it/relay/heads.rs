//! Heads that two readers could understand differently: `Host`, `Connection`, and how lines end.

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
async fn host_that_is_no_host_and_port_is_refused() {
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
            let answer = raw(proxy.addr, [b"GET ", &*head].concat()).await;
            assert!(answer.starts_with("HTTP/1.1 400 "), "{path} {}: {answer}", host.escape_ascii());
        }
    }
    assert_eq!(upstream.request_count(), 0);
    for host in ["a", "a:80", "a:", "[::1]:80", "[::1]", "a_b.example.com", "127.0.0.1:65535", "xn--fiq228c.cn", ""] {
        let answer = raw(proxy.addr, request(format!("host: {host}").as_bytes())).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{host}: {answer}");
    }
}

/// RFC 9110 4.2.4. A URI of the absolute form, and the `:authority` of h2.
#[tokio::test]
async fn authority_with_credentials_is_refused() {
    let (upstream, proxy) = chat(Script::echo(), "allowed_hosts = [\"*\"]").await;
    for uri in ["http://user@a/chat", "http://user:word@a:80/chat"] {
        let head = format!("GET {uri} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        let answer = raw(proxy.addr, head).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{uri}: {answer}");
        assert_eq!(over_h2(proxy.addr, http::Request::get(uri).body(()).unwrap()).await, Some(400), "{uri}");
    }
    assert_eq!(upstream.request_count(), 0);
}

/// The status of the answer; `None`: h2 refused the request as malformed.
async fn over_h2(addr: std::net::SocketAddr, request: http::Request<()>) -> Option<u16> {
    let stream = tokio::net::TcpStream::connect(addr).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let (answer, _) = client.send_request(request, true).unwrap();
    answer.await.ok().map(|answer| answer.status().as_u16())
}

/// An HTTP/1.1 upstream would get both lines.
#[tokio::test]
async fn h2_request_with_two_lengths_is_refused() {
    let (upstream, proxy) = chat(Script::echo(), "").await;
    for (first, second) in [("0", "0"), ("0", "5"), ("5", "0")] {
        let asked = http::Request::get(format!("http://{}/chat", proxy.addr));
        let asked = asked.header("content-length", first).header("content-length", second).body(()).unwrap();
        let status = over_h2(proxy.addr, asked).await;
        assert!(matches!(status, None | Some(400)), "{first} {second}: {status:?}");
    }
    assert_eq!(upstream.request_count(), 0);
}

/// What is in it cannot be read, so neither can which headers must not be passed on.
#[tokio::test]
async fn connection_header_that_is_not_ascii_is_refused() {
    let (upstream, proxy) = chat(Script::echo(), "").await;
    for value in [&b"x-hop, \xe4"[..], b"\xff", b"x-hop\xc2\xa0, y"] {
        for path in ["/chat", "/citations"] {
            let lines =
                [path.as_bytes(), b" HTTP/1.1\r\nhost: localhost\r\nx-hop: 1\r\nconnection: close\r\nconnection: "];
            let answer = raw(proxy.addr, [b"GET ", &*lines.concat(), value, b"\r\n\r\n"].concat()).await;
            assert!(answer.starts_with("HTTP/1.1 400 "), "{path} {}: {answer}", value.escape_ascii());
        }
    }
    assert_eq!(upstream.request_count(), 0);
}

/// An answer is no attack on us: the names that can be read are removed, and what is no name is no header's.
#[tokio::test]
async fn answers_connection_header_is_obeyed_beside_other_bytes() {
    let answer =
        b"HTTP/1.1 200 OK\r\nconnection: close, x-hop, \xe4, x-hop-2\r\nx-hop: 1\r\nx-hop-2: 1\r\nx-end: 1\r\n\
                   content-length: 2\r\n\r\nok";
    let proxy = raw_upstream::proxy(raw_upstream::says(*answer).await, "").await;
    for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
        let whole = client.send(post("/chat", "{}")).await.whole().await;
        assert_eq!((whole.status.as_u16(), whole.text().as_str()), (200, "ok"));
        let kept = ["x-hop", "x-hop-2", "x-end"].map(|name| whole.header(name).is_some());
        assert_eq!(kept, [false, false, true]);
    }
}

/// RFC 9112 2.2 lets a recipient take a lone LF for the end of a line, and hyper has no setting against it. It ends a line
/// here, and the upstream and the client get CRLF.
#[tokio::test]
async fn bare_lf_ends_a_header_line_and_is_never_relayed() {
    let (heads, mut heard) = tokio::sync::mpsc::channel(8);
    let upstream = raw_upstream::serve(move |mut stream| {
        let heads = heads.clone();
        async move {
            let head = raw_upstream::head(&mut stream).await;
            heads.send(head).await.unwrap();
            stream
                .write_all(b"HTTP/1.1 200 OK\nx-a: 1\ncontent-type: text/plain\ncontent-length: 2\n\nok")
                .await
                .unwrap();
        }
    })
    .await;
    let proxy = raw_upstream::proxy(upstream, "").await;
    let said = raw(proxy.addr, "GET /chat HTTP/1.1\nhost: localhost\nx-a: 1\r\nx-b: 2\nconnection: close\n\n").await;
    let head = heard.recv().await.unwrap();
    assert!(head.contains("x-a: 1\r\n") && head.contains("x-b: 2\r\n"), "{head}");
    for told in [&head, &said] {
        assert!(!told.replace("\r\n", "").contains(['\n', '\r']), "{told:?}");
    }
    assert!(said.starts_with("HTTP/1.1 200 ") && said.ends_with("ok"), "{said}");
}

#[tokio::test]
async fn bare_lf_in_chunks_is_refused() {
    let (upstream, mut heard) = recorder(false).await;
    let proxy = raw_upstream::proxy(upstream, "").await;
    for body in
        ["5\nhello\r\n0\r\n\r\n", "5\r\nhello\n0\r\n\r\n", "5;a\nb\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n0\n\r\n"]
    {
        let head = "POST /chat HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
        let said = raw(proxy.addr, format!("{head}{body}GET /chat/2 HTTP/1.1\r\nhost: localhost\r\n\r\n")).await;
        assert!(said.starts_with("HTTP/1.1 400 "), "{body:?}: {said}");
        assert_eq!(said.matches("HTTP/1.1 ").count(), 1, "{body:?}: {said}");
        let mut all = Vec::new();
        while let Some(more) = within("the upstream's end", heard.recv()).await.unwrap() {
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
        let said = raw(proxy.addr, request(lines.as_bytes())).await;
        assert!(said.starts_with("HTTP/1.1 400 "), "{lines:?}: {said}");
    }
    assert_eq!(upstream.request_count(), 0);
    for lines in ["x: a\r\n b", "x: a\r\n\tb", "content-length:\r\n 2"] {
        let answer = format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\nok");
        let proxy = raw_upstream::proxy(raw_upstream::says(answer).await, "").await;
        Client::h1(proxy.addr).await.send(get("/chat")).await.is_problem(502, "upstream-unreachable").await;
    }
}

//! The response to a request does not depend on how its bytes are split into writes.

use std::{net::SocketAddr, sync::LazyLock, time::Duration};

use bytes::Bytes;
use citetap::replay::{Outcome, Script, Scripted, Step, Upstream};
use http::{HeaderName, HeaderValue, StatusCode};
use regex::Regex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

use crate::{
    inputs::raw_upstream,
    net::{Proxy, chat, route, tencent, within},
};

const PAUSE: Duration = Duration::from_millis(30);

fn stream() -> Bytes {
    [tencent::references("m", &[1, 2]), tencent::text("m", "见[1]"), tencent::finish("m")].concat().into()
}

/// The server's bytes on one connection for these pieces, without the parts that vary.
async fn exchange(proxy: &Proxy, pieces: &[&str]) -> String {
    let mut client = TcpStream::connect(proxy.addr).await.unwrap();
    client.set_nodelay(true).unwrap();
    for piece in pieces {
        client.write_all(piece.as_bytes()).await.unwrap();
        tokio::time::sleep(PAUSE).await;
    }
    let mut response = Vec::new();
    within("the end", client.read_to_end(&mut response)).await.unwrap();
    let response = String::from_utf8_lossy(&response);
    let response = once(&response);
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<&str> = head.lines().collect();
    lines.sort_unstable();
    // Chunk boundaries show where pieces were split, which is not promised.
    let body: Vec<&str> = body.split("\r\n").filter(|line| line.len() > 4).collect();
    format!("{}\n{}", lines.join("\n"), body.concat())
}

fn request_text(path: &str, headers: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\n{headers}connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[tokio::test]
async fn split_request_gets_the_same_response() {
    let dated = HeaderValue::from_static("Tue, 01 Jul 2025 00:00:00 GMT");
    let upstream = Upstream::bind(vec![
        Scripted::new("/stream", Script::sse(stream())),
        Scripted::new("/dated", Script::sse(stream()).header(HeaderName::from_static("x-dated"), dated)),
        Scripted::new("/empty", Script::sse("")),
        Scripted::new("/cut", Script::sse(stream()).cut_after(100)),
        Scripted::new("/whole", Script::json("{\"content\":\"whole\"}")),
        Scripted::new("/refused", Script::json("{\"error\":1}").status(StatusCode::TOO_MANY_REQUESTS)),
        Scripted::new("/nothing", Script::new([]).status(StatusCode::NO_CONTENT)),
        Scripted::new("/echo", Script::echo()),
    ]);
    let upstream = upstream.await.unwrap();
    let chat = route("chat", &upstream.url());
    let gone = route("gone", "http://127.0.0.1:9");
    let proxy = Proxy::start(&format!("{chat}provider = \"tencent\"\n{gone}provider = \"tencent\"\n")).await;
    let paths =
        ["stream", "dated", "empty", "cut", "whole", "refused", "nothing", "echo"].map(|path| format!("/chat/{path}"));
    let own = ["/gone/x", "/nowhere", "/render", "/v1/chat/completions", "/healthz"].map(str::to_owned);
    for path in paths.into_iter().chain(own) {
        for headers in
            ["", "x-citetap-profile: openai\r\n", "x-citetap-inject: none such\r\n", "origin: https://a.example\r\n"]
        {
            let request = request_text(&path, headers, "{\"messages\":[]}");
            let one = exchange(&proxy, &[&request]).await;
            let (first, second) = request.split_at(request.len() - 3);
            let two = exchange(&proxy, &[first, second]).await;
            assert_eq!(one, two, "{path} {headers}");
            assert!(one.contains("HTTP/1.1 "), "{path} {headers}: {one}");
        }
    }
}

/// A response as its client decodes it, independent of chunk boundaries.
#[derive(Debug, PartialEq, Eq)]
struct Parsed {
    status: String,
    headers: Vec<String>,
    body: String,
}

/// The responses to these methods in order, and whether the last one is complete. Interim responses are omitted.
fn parse(mut bytes: &[u8], methods: &[&str]) -> (Vec<Parsed>, bool) {
    let (mut all, mut methods) = (Vec::new(), methods.iter());
    while let Some(end) = bytes.windows(4).position(|end| end == b"\r\n\r\n") {
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        bytes = &bytes[end + 4..];
        let mut lines = head.split("\r\n").map(str::to_owned);
        let status = lines.next().unwrap();
        if status.starts_with("HTTP/1.1 100") {
            continue;
        }
        let method = *methods.next().expect("one answer for each request");
        let mut headers: Vec<String> = lines.map(|line| once(&line.to_ascii_lowercase())).collect();
        headers.sort_unstable();
        let length = headers.iter().find_map(|line| line.strip_prefix("content-length: "));
        let bodiless = method == "HEAD" || status.contains(" 204") || status.contains(" 304");
        let (body, rest, complete) = match length {
            _ if bodiless => (Vec::new(), bytes, true),
            Some(length) => {
                let length = length.parse::<usize>().unwrap().min(bytes.len());
                (bytes[..length].to_vec(), &bytes[length..], true)
            }
            None => unchunked(bytes),
        };
        bytes = rest;
        all.push(Parsed { status, headers, body: once(&String::from_utf8_lossy(&body)) });
        if !complete {
            return (all, false);
        }
    }
    (all, bytes.is_empty())
}

fn unchunked(mut bytes: &[u8]) -> (Vec<u8>, &[u8], bool) {
    let mut body = Vec::new();
    while let Some(end) = bytes.windows(2).position(|end| end == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        bytes = &bytes[end + 2..];
        if bytes.len() < size + 2 {
            return (body, bytes, false);
        }
        body.extend_from_slice(&bytes[..size]);
        bytes = &bytes[size + 2..];
        if size == 0 {
            return (body, bytes, true);
        }
    }
    (body, bytes, false)
}

/// Removes what varies: dates and ids.
fn once(text: &str) -> String {
    static ONCE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r#"(?i)date: [^\r]+|\d{4}-\d\d-\d\dT[\d:.]+Z|[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}|"created":\d+"#,
        )
        .unwrap()
    });
    ONCE.replace_all(text, "-").into_owned()
}

/// Sends the bytes in two pieces and reads to the end of the connection.
async fn answers_to(addr: SocketAddr, bytes: &[u8], cut: usize, methods: &[&str]) -> (Vec<Parsed>, bool) {
    let mut client = TcpStream::connect(addr).await.unwrap();
    client.set_nodelay(true).unwrap();
    if cut > 0 {
        client.write_all(&bytes[..cut]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // An early response may have closed the connection already.
    let _ = client.write_all(&bytes[cut..]).await;
    let mut response = Vec::new();
    let _ = within("the end", client.read_to_end(&mut response)).await;
    parse(&response, methods)
}

#[tokio::test]
async fn requests_split_at_every_byte_get_the_same_response() {
    let upstream = Upstream::bind(vec![
        Scripted::new("/stream", Script::sse(stream())),
        Scripted::new("/whole", Script::json("{\"content\":\"whole\"}")),
        Scripted::new("/nothing", Script::new([]).status(StatusCode::NO_CONTENT)),
        Scripted::new("/same", Script::new([]).status(StatusCode::NOT_MODIFIED)),
        Scripted::new("/echo", Script::echo()),
    ])
    .await
    .unwrap();
    // Responds after the headers of the request, and closes.
    let early = raw_upstream::says("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno").await;
    let toml =
        [route("chat", &upstream.url()) + "provider = \"tencent\"\n", route("early", &format!("http://{early}"))];
    let proxy = Proxy::start(&toml.concat()).await;
    let last = "host: localhost\r\nconnection: close\r\n";
    let chunks = "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n";
    let cases: Vec<(String, Vec<&str>)> = vec![
        (format!("GET /chat/stream HTTP/1.1\r\n{last}\r\n"), vec!["GET"]),
        (format!("HEAD /chat/stream HTTP/1.1\r\n{last}\r\n"), vec!["HEAD"]),
        (format!("GET /chat/nothing HTTP/1.1\r\n{last}\r\n"), vec!["GET"]),
        (format!("GET /chat/same HTTP/1.1\r\n{last}\r\n"), vec!["GET"]),
        (format!("GET /healthz HTTP/1.1\r\n{last}\r\n"), vec!["GET"]),
        (format!("POST /chat/echo HTTP/1.1\r\n{last}content-length: 4\r\n\r\nabcd"), vec!["POST"]),
        (format!("POST /chat/echo HTTP/1.1\r\n{last}{chunks}"), vec!["POST"]),
        (
            format!("POST /chat/echo HTTP/1.1\r\n{last}expect: 100-continue\r\ncontent-length: 4\r\n\r\nabcd"),
            vec!["POST"],
        ),
        (format!("POST /early HTTP/1.1\r\n{last}content-length: 4\r\n\r\nabcd"), vec!["POST"]),
        (format!("POST /nowhere HTTP/1.1\r\n{last}content-length: 4\r\n\r\nabcd"), vec!["POST"]),
        (
            format!(
                "POST /chat/whole HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{{}}HEAD /chat/echo HTTP/1.1\r\nhost: localhost\r\n\r\n\
                 POST /chat/stream HTTP/1.1\r\nhost: localhost\r\n{chunks}GET /chat/nothing HTTP/1.1\r\n{last}\r\n"
            ),
            vec!["POST", "HEAD", "POST", "GET"],
        ),
    ];
    for (request, methods) in cases {
        let (whole, complete) = answers_to(proxy.addr, request.as_bytes(), 0, &methods).await;
        assert!(complete && whole.len() == methods.len(), "{request}: {whole:?}");
        let mut cuts = JoinSet::new();
        for cut in 1..request.len() {
            let (request, methods, addr) = (request.clone(), methods.clone(), proxy.addr);
            cuts.spawn(async move { (cut, answers_to(addr, request.as_bytes(), cut, &methods).await) });
            if cuts.len() >= 32 {
                let (cut, response) = cuts.join_next().await.unwrap().unwrap();
                assert_eq!(response.0, whole, "cut at {cut}");
            }
        }
        while let Some(done) = cuts.join_next().await {
            let (cut, (response, complete)) = done.unwrap();
            assert!(complete, "cut at {cut}: {response:?}");
            assert_eq!(response, whole, "cut at {cut}");
        }
    }
}

/// Before there is a response.
#[tokio::test]
async fn p6_client_disconnect_before_the_response_is_noticed() {
    let (upstream, proxy) = chat(Script::hang(), "").await;
    let mut client = TcpStream::connect(proxy.addr).await.unwrap();
    client.write_all(request_text("/chat", "", "{}").as_bytes()).await.unwrap();
    within("the request", async {
        while upstream.requests().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    drop(client);
    let cancelled = async {
        while upstream.requests()[0].outcome != Outcome::Cancelled {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(1), cancelled).await.unwrap();
}

/// The response headers do not wait for the first event.
#[tokio::test]
async fn response_headers_precede_the_first_event() {
    let steps = [Step::Pause(Duration::from_secs(5)), Step::Send(stream())];
    let (_upstream, proxy) = chat(Script::sse_steps(steps), "").await;
    let mut client = TcpStream::connect(proxy.addr).await.unwrap();
    client.write_all(request_text("/chat", "", "{}").as_bytes()).await.unwrap();
    let mut head = [0; 2048];
    let length = tokio::time::timeout(Duration::from_secs(3), client.read(&mut head)).await.unwrap().unwrap();
    let head = std::str::from_utf8(&head[..length]).unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
}

#[tokio::test]
async fn split_requests_share_a_connection() {
    let (upstream, proxy) = chat(Script::sse(stream()), "").await;
    let mut client = TcpStream::connect(proxy.addr).await.unwrap();
    client.set_nodelay(true).unwrap();
    let request = request_text("/chat", "", "{}").replace("connection: close\r\n", "");
    for cut in [0, 5, 0, 0, request.len() - 1, 0] {
        client.write_all(&request.as_bytes()[..cut]).await.unwrap();
        tokio::time::sleep(PAUSE).await;
        client.write_all(&request.as_bytes()[cut..]).await.unwrap();
        let mut response = Vec::new();
        while !response.ends_with(b"0\r\n\r\n") {
            let length = within("an answer", client.read_buf(&mut response)).await.unwrap();
            assert!(length > 0, "closed: {}", String::from_utf8_lossy(&response));
        }
        let response = String::from_utf8(response).unwrap();
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n") && response.contains("event: citations"), "{response}");
    }
    assert_eq!(upstream.requests().len(), 6);
}

/// For a later request, as for the first one.
#[tokio::test]
async fn idle_connection_is_closed() {
    let (_upstream, proxy) = chat(Script::sse(stream()), "[timeouts]\nrequest_headers = \"300ms\"\n").await;
    let mut client = TcpStream::connect(proxy.addr).await.unwrap();
    let request = request_text("/chat", "", "{}").replace("connection: close\r\n", "");
    client.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    within("the end", client.read_to_string(&mut response)).await.unwrap();
    assert!(response.ends_with("0\r\n\r\n"), "{response}");
}

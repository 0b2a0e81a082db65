//! Requests that two servers could frame differently must never become another request, whatever the response is and
//! whether the upstream's connection is new or pooled.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use citetap::replay::{Script, Step};
use proptest::{prelude::*, test_runner::TestRunner};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::{Instant, sleep},
};

use crate::{
    inputs::raw_upstream,
    net::{Proxy, chat, eventually, raw, route, tencent, within},
};

/// A request as the upstream parsed it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Received {
    /// `POST /stream`
    line: String,
    body: String,
    /// The body is complete.
    complete: bool,
}

/// A strict upstream that records everything. It answers `/stream…` with a chunked event stream, and everything else
/// with a length.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<Received>>>);

impl Recorder {
    async fn start() -> (Self, SocketAddr) {
        let recorder = Self::default();
        let records = recorder.clone();
        let addr = raw_upstream::serve(move |stream| records.clone().serve(stream)).await;
        (recorder, addr)
    }

    async fn serve(self, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        while let Some(received) = read_request(&mut stream).await {
            let (line, complete) = (received.line.clone(), received.complete);
            self.0.lock().unwrap().push(received);
            if !complete || stream.get_mut().write_all(answer(&line).as_bytes()).await.is_err() {
                return;
            }
        }
    }

    fn received(&self) -> Vec<Received> {
        self.0.lock().unwrap().clone()
    }

    fn lines(&self) -> Vec<String> {
        self.received().into_iter().map(|received| received.line).collect()
    }
}

/// The response says which request it belongs to.
fn answer(line: &str) -> String {
    if line.contains("/stream") {
        let body = [tencent::references("m", &[1, 2]), tencent::text("m", line), tencent::finish("m")];
        raw_upstream::CHUNKED.to_owned() + &body.map(|piece| raw_upstream::chunk(&piece)).concat() + "0\r\n\r\n"
    } else {
        let body = format!("<{line}>");
        format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    }
}

async fn read_line(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = Vec::new();
    stream.read_until(b'\n', &mut line).await.ok()?;
    let line = String::from_utf8(line).ok()?;
    Some(line.strip_suffix("\r\n")?.to_owned())
}

async fn read_request(stream: &mut BufReader<TcpStream>) -> Option<Received> {
    let line = read_line(stream).await?;
    let (mut length, mut chunked) = (0, false);
    loop {
        let header = read_line(stream).await?.to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length: ") {
            length = value.parse().unwrap();
        }
        chunked |= header == "transfer-encoding: chunked";
    }
    let mut body = Vec::new();
    let complete = if chunked {
        read_chunks(stream, &mut body).await.is_some()
    } else {
        body.resize(length, 0);
        stream.read_exact(&mut body).await.is_ok()
    };
    let line = line.strip_suffix(" HTTP/1.1").expect("HTTP/1.1").to_owned();
    Some(Received { line, body: String::from_utf8_lossy(&body).into_owned(), complete })
}

async fn read_chunks(stream: &mut BufReader<TcpStream>, body: &mut Vec<u8>) -> Option<()> {
    loop {
        let size = usize::from_str_radix(&read_line(stream).await?, 16).ok()?;
        let at = body.len();
        body.resize(at + size, 0);
        stream.read_exact(&mut body[at..]).await.ok()?;
        if !read_line(stream).await?.is_empty() {
            return None;
        }
        if size == 0 {
            return Some(());
        }
    }
}

/// A proxy with pooled connections in front of a recorder.
async fn warm(toml: &str) -> (Recorder, Proxy) {
    let (recorder, upstream) = Recorder::start().await;
    let proxy = Proxy::start(&format!(
        "workers = 1\n{toml}\n{}provider = \"tencent\"\n",
        route("chat", &format!("http://{upstream}"))
    ))
    .await;
    for path in ["/chat/warm", "/chat/stream/warm"] {
        proxy.get(path).await.whole().await;
    }
    // A connection returns to the pool after its response has been read, shortly after the client has it.
    sleep(Duration::from_millis(50)).await;
    (recorder, proxy)
}

const SMUGGLED: &str = "GET /chat/smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n";

fn has_smuggled(recorder: &Recorder) -> bool {
    recorder.lines().iter().any(|line| line.contains("smuggled"))
}

/// RFC 9112 6.1: "the server MUST close the connection after responding to such a request". hyper removes the length
/// before we see the request, so it is relayed with its chunks, which are unambiguous.
#[tokio::test]
async fn s1_length_with_chunks_closes_the_connection() {
    let (recorder, proxy) = warm("").await;
    for path in ["/chat/stream", "/chat/length"] {
        for lengths in
            ["content-length: 4\r\ntransfer-encoding: chunked", "transfer-encoding: chunked\r\ncontent-length: 4"]
        {
            let before = recorder.received().len();
            let request =
                format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n{lengths}\r\n\r\n1\r\nz\r\n0\r\n\r\n{SMUGGLED}");
            let response = raw(proxy.addr, request).await;
            assert_eq!(response.matches("HTTP/1.1 ").count(), 1, "expected one response and the end: {response}");
            let received = recorder.received().split_off(before);
            let bodies: Vec<_> = received.iter().map(|received| (received.body.as_str(), received.complete)).collect();
            assert_eq!(bodies, [("z", true)], "{path} {lengths}");
        }
    }
    assert!(!has_smuggled(&recorder));
}

#[tokio::test]
async fn s2_malformed_chunks_are_never_a_complete_request() {
    let (recorder, proxy) = warm("").await;
    for path in ["/chat/stream", "/chat/length"] {
        for bad in ["zz\r\n", "\r\n", "-1\r\n", "ffffffffffffffffff\r\n", "2\r\nabX", "1\r\nz\r\nq\r\n"] {
            let before = recorder.received().len();
            let request =
                format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n{bad}{SMUGGLED}");
            let response = raw(proxy.addr, request).await;
            assert!(response.starts_with("HTTP/1.1 400 "), "{bad:?}: {response}");
            assert_eq!(response.matches("HTTP/1.1 ").count(), 1, "{bad:?}: {response}");
            sleep(Duration::from_millis(20)).await;
            let complete = recorder.received().split_off(before).into_iter().find(|received| received.complete);
            assert_eq!(complete, None, "{bad:?}");
        }
    }
    assert!(!has_smuggled(&recorder));
}

#[tokio::test]
async fn s2_oversized_chunks_are_never_a_complete_request() {
    let (recorder, proxy) = warm("[limits]\nrequest_body = \"1KiB\"\n").await;
    for path in ["/chat/stream", "/chat/length"] {
        for sizes in [&[1025][..], &[1, 1024], &[1024, 1]] {
            let before = recorder.received().len();
            let chunks: String = sizes.iter().map(|size| raw_upstream::chunk(&"y".repeat(*size))).collect();
            let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n");
            let response = raw(proxy.addr, format!("{head}{chunks}0\r\n\r\n{SMUGGLED}")).await;
            assert!(response.starts_with("HTTP/1.1 413 "), "{sizes:?}: {response}");
            assert_eq!(response.matches("HTTP/1.1 ").count(), 1, "{sizes:?}: {response}");
            sleep(Duration::from_millis(20)).await;
            let complete = recorder.received().split_off(before).into_iter().find(|received| received.complete);
            assert_eq!(complete, None, "{sizes:?}");
        }
        let within_limit = format!("{}0\r\n\r\n", raw_upstream::chunk(&"y".repeat(1024)));
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
        );
        assert!(raw(proxy.addr, head + &within_limit).await.starts_with("HTTP/1.1 200 "));
    }
    assert!(!has_smuggled(&recorder));
}

/// 64 KiB of requests on one connection, some with bodies that look like requests.
fn pipeline(paths: &[(bool, u8, usize)]) -> (Vec<u8>, Vec<Received>) {
    let (mut bytes, mut expected) = (Vec::new(), Vec::new());
    for (index, (stream, framing, size)) in paths.iter().enumerate() {
        let path = format!("/{}/{index}", if *stream { "stream" } else { "length" });
        let mut body = SMUGGLED.repeat(size / SMUGGLED.len());
        let last = if index + 1 == paths.len() { "connection: close\r\n" } else { "" };
        let (method, framed) = match framing {
            0 => {
                body.clear();
                ("GET", "\r\n".to_owned())
            }
            1 => ("POST", format!("content-length: {}\r\n\r\n{body}", body.len())),
            _ => {
                let chunks: String = body
                    .as_bytes()
                    .chunks(1000)
                    .map(|c| raw_upstream::chunk(std::str::from_utf8(c).unwrap()))
                    .collect();
                ("POST", format!("transfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"))
            }
        };
        bytes.extend_from_slice(
            format!("{method} /chat{path} HTTP/1.1\r\nhost: localhost\r\n{last}{framed}").as_bytes(),
        );
        expected.push(Received { line: format!("{method} {path}"), body, complete: true });
    }
    (bytes, expected)
}

/// Sends `bytes` in these pieces while it reads the responses.
async fn send_in_pieces(addr: SocketAddr, bytes: &[u8], cuts: &[usize]) -> String {
    let stream = TcpStream::connect(addr).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let (mut response, mut from) = (Vec::new(), 0);
    let send = async {
        for cut in cuts.iter().chain([&bytes.len()]) {
            // The proxy may close after the last request that it will answer.
            if writer.write_all(&bytes[from..*cut]).await.is_err() {
                return;
            }
            from = *cut;
            sleep(Duration::from_millis(1)).await;
        }
    };
    let read = within("the last answer", reader.read_to_end(&mut response));
    let ((), read) = tokio::join!(send, read);
    read.unwrap();
    String::from_utf8(response).unwrap()
}

#[test]
fn s3_split_pipelines_execute_exactly_the_requests_sent() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (recorder, proxy) = runtime.block_on(warm(""));
    let request = (any::<bool>(), 0..3_u8, 0..24_000_usize);
    let cases = (prop::collection::vec(request, 6..14), prop::collection::vec(0.0..1.0_f64, 0..12));
    let mut runner = TestRunner::new(ProptestConfig { cases: 24, ..ProptestConfig::default() });
    let result = runner.run(&cases, |(requests, cuts)| {
        let (bytes, expected) = pipeline(&requests);
        let mut cuts: Vec<usize> = cuts.iter().map(|at| (bytes.len() as f64 * at) as usize).collect();
        cuts.sort_unstable();
        let before = recorder.received().len();
        let response = runtime.block_on(send_in_pieces(proxy.addr, &bytes, &cuts));
        prop_assert_eq!(recorder.received().split_off(before), expected);
        prop_assert_eq!(response.matches("HTTP/1.1 200 OK\r\n").count(), requests.len());
        Ok(())
    });
    result.unwrap();
    assert!(!has_smuggled(&recorder));
}

/// P6: also if hyper has unread input, which it does not process before the response ends. A disconnect is noticed only
/// if the pipelined bytes fit into the kernel's receive buffer (64 KiB by default).
#[tokio::test]
async fn s7_disconnect_with_pipelined_requests_frees_upstream() {
    let steps = [Step::Send(tencent::references("m", &[1]).into()), Step::Pause(Duration::from_secs(60))];
    for script in [Script::sse_steps(steps), Script::hang()] {
        let (upstream, proxy) = chat(script, "").await;
        for ahead in [0, 1, 4096, 16 * 1024, 40_000] {
            let before = (upstream.request_count(), upstream.cancelled());
            let mut client = TcpStream::connect(proxy.addr).await.unwrap();
            let request = "POST /chat HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}".to_owned();
            let more = format!(
                "POST /chat HTTP/1.1\r\nhost: localhost\r\ncontent-length: {ahead}\r\n\r\n{}",
                "x".repeat(ahead)
            );
            let ahead_of_it = &more[..ahead];
            client.write_all((request + ahead_of_it).as_bytes()).await.unwrap();
            let came = eventually(|| async { (upstream.request_count() > before.0).then_some(()) }).await;
            assert_eq!(came, Some(()), "{ahead}");
            sleep(Duration::from_millis(50)).await;
            let left = Instant::now();
            drop(client);
            while upstream.cancelled() == before.1 {
                assert!(left.elapsed() < Duration::from_secs(1), "{ahead} bytes sent ahead: the upstream still sends");
                sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

/// An unsolicited response must not reach the next client of the connection.
#[tokio::test]
async fn s8_bytes_on_an_idle_pooled_connection_close_it() {
    let unsolicited = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 7\r\n\r\nforeign";
    for late in [Duration::ZERO, Duration::from_millis(30)] {
        for own in [answer("GET /length"), answer("GET /stream")] {
            let own: Arc<str> = own.into();
            let upstream = raw_upstream::serve(move |mut stream| {
                let own = Arc::clone(&own);
                async move {
                    while !raw_upstream::head(&mut stream).await.is_empty() {
                        // With the response, or when the connection has been idle for a while.
                        let both = if late.is_zero() { format!("{own}{unsolicited}") } else { own.to_string() };
                        if stream.write_all(both.as_bytes()).await.is_err() {
                            return;
                        }
                        if !late.is_zero() {
                            sleep(late).await;
                            let _ = stream.write_all(unsolicited.as_bytes()).await;
                        }
                    }
                }
            })
            .await;
            let proxy = Proxy::start(&format!("workers = 1\n{}", route("chat", &format!("http://{upstream}")))).await;
            // An unsolicited response that arrives after the next request was sent cannot be distinguished from that
            // request's.
            for pause in if late.is_zero() { [0, 5, 60, 0] } else { [60; 4] } {
                let whole = proxy.get("/chat").await.whole().await;
                assert_eq!((whole.status.as_u16(), whole.error.as_deref()), (200, None));
                assert!(!whole.text().contains("foreign") && whole.text().contains("GET /"), "{}", whole.text());
                sleep(Duration::from_millis(pause)).await;
            }
        }
    }
}

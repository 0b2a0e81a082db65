use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use http::{Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use proptest::{collection::vec, prelude::*, sample::select};
use tokio::io::AsyncWriteExt;

use super::*;

const LIMITS: Limits = Limits { headers: 8, bytes: 512 };

/// Method, path, headers and body, as far as anybody can tell.
type Told = (String, Vec<(String, Vec<u8>)>, Vec<u8>);

async fn told<B: http_body::Body<Data = Bytes, Error: std::fmt::Debug>>(request: Request<B>) -> Told {
    let (head, body) = request.into_parts();
    let headers = head.headers.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
    let body = body.collect().await.unwrap().to_bytes().to_vec();
    (format!("{} {} {:?}", head.method, head.uri, head.version), headers, body)
}

fn plain(said: &str) -> Option<(Request<Received>, usize)> {
    read(&Bytes::copy_from_slice(said.as_bytes()), &LIMITS)
}

/// The first request that the library finds; `None`: it refuses what it finds, or waits for more.
async fn by_the_library(said: &str) -> Option<Told> {
    let (mut client, server) = tokio::io::duplex(1 << 16);
    let found = Arc::new(Mutex::new(None));
    let first = Arc::clone(&found);
    let service = service_fn(move |request: Request<Incoming>| {
        let first = Arc::clone(&first);
        async move {
            let told = told(request).await;
            first.lock().unwrap().get_or_insert(told);
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let mut http1 = http1::Builder::new();
    http1.half_close(true).max_headers(LIMITS.headers);
    let serving = http1.serve_connection(TokioIo::new(server), service);
    client.write_all(said.as_bytes()).await.unwrap();
    client.shutdown().await.unwrap();
    let _ = serving.await;
    found.lock().unwrap().take()
}

#[test]
fn a_chat_in_one_piece_is_plain() {
    let asked =
        "POST /chat?x=%20y HTTP/1.1\r\nHost: a.example\r\nContent-Length: 6\r\nX-A: 1\r\nx-a: 2 \r\n\r\n{\"世\"";
    let (request, length) = plain(&format!("{asked}POST /next")).unwrap();
    assert_eq!((request.uri().to_string().as_str(), length), ("/chat?x=%20y", asked.len()));
    let all: Vec<&HeaderValue> = request.headers().get_all("x-a").iter().collect();
    assert_eq!(all, ["1", "2"]);
    assert!(matches!(request.body(), Received::Whole(Some(body)) if body == "{\"世\""));
    for at in 0..asked.len() {
        assert!(read(&Bytes::copy_from_slice(&asked.as_bytes()[..at]), &LIMITS).is_none(), "cut at {at}");
    }
    let (request, _) = plain("POST / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    assert!(matches!(request.body(), Received::Whole(None)));
}

#[test]
fn whatever_is_less_plain_is_the_librarys() {
    for head in [
        "GET /x HTTP/1.1\r\nhost: a\r\n",
        "POST /x HTTP/1.0\r\nhost: a\r\n",
        "POST http://a/x HTTP/1.1\r\nhost: a\r\n",
        "POST * HTTP/1.1\r\nhost: a\r\n",
        "POST /\u{7f} HTTP/1.1\r\nhost: a\r\n",
        "\r\nPOST /x HTTP/1.1\r\nhost: a\r\n",
        "POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n",
        "POST /x HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\n",
        "POST /x HTTP/1.1\r\nhost: a\r\nupgrade: h2c\r\n",
        "POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\ncontent-length: 0\r\n",
        "POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 0, 0\r\n",
        "POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: +0\r\n",
        "POST /x HTTP/1.1\r\nhost: a\r\ncontent-length:\r\n",
        "POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999999999999999\r\n",
        "POST /x HTTP/1.1\r\nhost: a\r\n folded: b\r\n",
        "POST /x HTTP/1.1\r\nhost : a\r\n",
    ] {
        assert!(plain(&format!("{head}\r\n")).is_none(), "{head:?}");
    }
}

#[test]
fn the_limits_of_a_head_are_the_librarys_to_tell() {
    let many = |count: usize| plain(&format!("POST / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(count)));
    assert!(many(LIMITS.headers).is_some() && many(LIMITS.headers + 1).is_none());
    let long = |length: usize| plain(&format!("POST / HTTP/1.1\r\na: {}\r\n\r\n", "b".repeat(length - 24)));
    assert!(long(LIMITS.bytes).is_some_and(|(_, length)| length == LIMITS.bytes) && long(LIMITS.bytes + 1).is_none());
}

#[test]
fn the_head_of_an_answer_says_what_there_is_to_say() {
    let (mut answer, ()) = Response::new(()).into_parts();
    answer.headers.insert("content-type", HeaderValue::from_static("text/event-stream"));
    let text = |answer: &response::Parts, stays| String::from_utf8(head(answer, stays)).unwrap();
    let said = text(&answer, true);
    let (rest, date) = said.split_once("date: ").unwrap();
    assert_eq!(rest, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n");
    let (date, rest) = date.split_once("\r\n").unwrap();
    let ago = Timestamp::now().duration_since(jiff::fmt::rfc2822::parse(date).unwrap().timestamp());
    assert!(date.ends_with(" GMT") && ago.as_secs() < 5, "{date}");
    assert_eq!(rest, "transfer-encoding: chunked\r\n");

    answer.status = StatusCode::from_u16(299).unwrap();
    answer.headers.insert("date", HeaderValue::from_static("its own"));
    answer.headers.insert("connection", HeaderValue::from_static("close"));
    assert_eq!(
        text(&answer, false),
        "HTTP/1.1 299 \r\ncontent-type: text/event-stream\r\ndate: its own\r\nconnection: close\r\ntransfer-encoding: chunked\r\n"
    );
}

fn pieces() -> impl Strategy<Value = Vec<&'static str>> {
    let lines = vec![
        "host: a\r\n",
        "Host: b\r\n",
        "content-length: 2\r\n",
        "Content-Length: 5\r\n",
        "content-length: 02\r\n",
        "content-length: -2\r\n",
        "content-length: 2 \r\n",
        "content-length: 2, 2\r\n",
        "transfer-encoding: chunked\r\n",
        "connection: close\r\n",
        "connection: upgrade\r\n",
        "upgrade: websocket\r\n",
        "expect: 100-continue\r\n",
        "te: trailers\r\n",
        "x-empty:\r\n",
        "x-odd: \u{e9}\t~\r\n",
        "x-nul: a\0b\r\n",
        "x y: z\r\n",
        "x-lf: a\n",
        "x: a\r\n b\r\n",
        ": none\r\n",
        "no colon\r\n",
    ];
    vec(select(lines), 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8192, failure_persistence: None, ..ProptestConfig::default() })]

    /// It may have to read it again, and must find the same.
    #[test]
    fn what_is_plain_the_library_reads_alike(
        first in select(vec!["POST / HTTP/1.1\r\n", "POST /a%2Fb?c#d HTTP/1.1\r\n", "POST /x HTTP/1.0\r\n", "POST /é HTTP/1.1\r\n",
            "POST /x HTTP/1.1\n", "POST  /x HTTP/1.1\r\n", "GET /x HTTP/1.1\r\n", "POST /x\r\n", "POST /<> HTTP/1.1\r\n"]),
        lines in pieces(),
        end in select(vec!["\r\n", "\n", "\r\n\r\n", ""]),
        body in select(vec!["", "{}", "{}POST", "hello", "2\r\n{}\r\n0\r\n\r\n"]),
    ) {
        let said = format!("{first}{}{end}{body}", lines.concat());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        if let Some((request, length)) = plain(&said) {
            let (ours, theirs) = runtime.block_on(async { (told(request).await, by_the_library(&said[..length]).await) });
            prop_assert_eq!(Some(ours), theirs, "{:?}", said);
        }
    }
}

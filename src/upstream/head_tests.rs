use http::Request;
use http_body_util::{Empty, Full, combinators::UnsyncBoxBody};

use super::*;
use crate::upstream::wire::Framing;

#[test]
fn a_head_ends_with_a_blank_line() {
    let length = |bytes: &str| end(bytes.as_bytes(), 0);
    let ok = "HTTP/1.1 200 OK\r\nx: y\r\n\r\n";
    assert_eq!(length(&format!("{ok}body\r\n\r\n")), Some(ok.len()));
    assert_eq!(length("HTTP/1.1 200 OK\nx: y\n\nbody"), Some(22));
    assert_eq!(length(&format!("\r\n\r\n{ok}")), Some(ok.len() + 4));
    assert_eq!(length("HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"), Some(22));
    for at in 0..ok.len() {
        assert_eq!(length(&ok[..at]), None, "cut at {at}");
        let looked = at.saturating_sub(BLANK.len());
        assert_eq!(end(ok.as_bytes(), looked), Some(ok.len()), "looked at to {at}");
    }
}

fn head(text: &str) -> Option<response::Parts> {
    parse(Bytes::copy_from_slice(text.as_bytes()))
}

#[test]
fn an_answers_head_is_read() {
    let read = head("\r\nHTTP/1.1 299 Own words\r\nX-A: 1\r\nx-a:2 \r\nx-b: \u{e9}\r\nx-empty:\r\n\r\n").unwrap();
    assert_eq!((read.status.as_u16(), read.version, read.headers.len()), (299, Version::HTTP_11, 4));
    let all: Vec<&[u8]> = read.headers.get_all("x-a").iter().map(HeaderValue::as_bytes).collect();
    assert_eq!(all, [b"1", b"2"]);
    assert_eq!((read.headers["x-b"].as_bytes(), read.headers["x-empty"].as_bytes()), ("\u{e9}".as_bytes(), &b""[..]));
    assert_eq!(head("HTTP/1.0 200\n\n").map(|head| head.version), Some(Version::HTTP_10));
    let many = |count: usize| head(&format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(count)));
    assert_eq!(many(MAX_HEADERS).map(|head| head.headers.len()), Some(MAX_HEADERS));
    assert!(many(MAX_HEADERS + 1).is_none());
    for none in [
        "HTTP/2 200 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx y: b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx : b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx: a\r\n b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx: a\0b\r\n\r\n",
        "nothing\r\n\r\n",
    ] {
        assert!(head(none).is_none(), "{none:?}");
    }
}

#[test]
fn a_length_is_told_once_or_the_same_each_time() {
    let of = |values: &[&str]| {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(CONTENT_LENGTH, HeaderValue::from_str(value).unwrap());
        }
        length(&headers)
    };
    assert_eq!(of(&[]), None);
    assert_eq!(of(&["5"]), Some(Ok(5)));
    assert_eq!(of(&["5", "5, 05"]), Some(Ok(5)));
    for bad in
        [&["5", "6"][..], &["5,6"], &[""], &["+5"], &["-1"], &["5 5"], &["0x5"], &["5,"], &["99999999999999999999"]]
    {
        assert_eq!(of(bad), Some(Err(NoLength)), "{bad:?}");
    }
}

#[test]
fn how_an_answers_end_is_told() {
    let get = Method::GET;
    let of = |method: &Method, status: &str, lines: &str| {
        let head = head(&format!("HTTP/{status}\r\n{lines}\r\n")).unwrap();
        match Framing::of(method, &head) {
            Ok(Framing::Over) => "over".to_owned(),
            Ok(Framing::Length(length)) => length.to_string(),
            Ok(Framing::Chunked(_)) => "chunked".to_owned(),
            Ok(Framing::Close) => "close".to_owned(),
            Err(_) => "error".to_owned(),
        }
    };
    for (method, status, lines, told) in [
        (&get, "1.1 200 OK", "", "close"),
        (&get, "1.0 200 OK", "", "close"),
        (&get, "1.1 200 OK", "content-length: 5\r\n", "5"),
        (&get, "1.1 200 OK", "content-length: 0\r\n", "over"),
        (&get, "1.1 200 OK", "content-length: 5\r\ncontent-length: 6\r\n", "error"),
        (&get, "1.1 200 OK", "transfer-encoding: chunked\r\n", "chunked"),
        (&get, "1.1 200 OK", "transfer-encoding: gzip, Chunked\r\ncontent-length: 5\r\n", "chunked"),
        (&get, "1.1 200 OK", "transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n", "chunked"),
        (&get, "1.1 200 OK", "transfer-encoding: chunked, gzip\r\ncontent-length: 5\r\n", "close"),
        (&get, "1.0 200 OK", "transfer-encoding: chunked\r\n", "error"),
        (&get, "1.1 204 None", "content-length: 5\r\n", "over"),
        (&get, "1.1 304 Same", "content-length: 5\r\n", "over"),
        (&get, "1.1 101 Other", "", "over"),
        (&Method::HEAD, "1.1 200 OK", "content-length: 5\r\n", "over"),
        (&Method::HEAD, "1.1 200 OK", "transfer-encoding: chunked\r\n", "over"),
    ] {
        assert_eq!(of(method, status, lines), told, "{method} {status} {lines}");
    }
}

#[test]
fn a_requests_head_is_written() {
    let write = |method: &str, lines: &[(&str, &str)], body: UnsyncBoxBody<Bytes, std::convert::Infallible>| {
        let mut request = Request::builder().method(method).uri("https://a.example:8443/x/y?z=1");
        for (name, value) in lines {
            request = request.header(*name, *value);
        }
        let (mut head, body) = request.body(body).unwrap().into_parts();
        let (out, coding) = super::write(&mut head, &body);
        (String::from_utf8(out).unwrap(), coding)
    };
    let none = || UnsyncBoxBody::new(Empty::new());
    let known = || UnsyncBoxBody::new(Full::new(Bytes::from_static(b"12345")));
    let unknown = || {
        let frames = futures_util::stream::iter([Ok(http_body::Frame::data(Bytes::from_static(b"12345")))]);
        UnsyncBoxBody::new(http_body_util::StreamBody::new(frames))
    };
    let text = |lines: &str| format!("/x/y?z=1 HTTP/1.1\r\n{lines}\r\n");
    for (method, lines, body, expected, coding) in [
        ("GET", &[][..], none(), "", Coding::None),
        ("POST", &[("content-length", "0")], none(), "content-length: 0\r\n", Coding::Length(0)),
        (
            "POST",
            &[("x-a", "1"), ("content-length", "5")],
            known(),
            "x-a: 1\r\ncontent-length: 5\r\n",
            Coding::Length(5),
        ),
        ("POST", &[], known(), "content-length: 5\r\n", Coding::Length(5)),
        ("POST", &[("content-length", "5")], unknown(), "content-length: 5\r\n", Coding::Length(5)),
        ("POST", &[], unknown(), "transfer-encoding: chunked\r\n", Coding::Chunked),
        ("POST", &[("transfer-encoding", "gzip")], known(), "content-length: 5\r\n", Coding::Length(5)),
        ("POST", &[("content-length", "x")], unknown(), "transfer-encoding: chunked\r\n", Coding::Chunked),
        ("GET", &[], unknown(), "", Coding::None),
    ] {
        assert_eq!(write(method, lines, body), (format!("{method} {}", text(expected)), coding), "{method} {lines:?}");
    }
}

//! The heads of an exchange over HTTP/1.1 (RFC 9112): a request's is written, an answer's is read.

use std::{
    io::Write as _,
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version,
    header::{CONTENT_LENGTH, TRANSFER_ENCODING},
    request, response,
};
use http_body::Body;
use hyper::rt::{Read, ReadBuf};

use super::{Fault, MAX_BUFFER, MAX_INFORMATIONAL, io::Io, wire};

/// Mostly a head and the first events. What comes beyond it is not copied before those have left.
const READ: usize = 4 * 1024;
/// Of an answer.
const MAX_HEADERS: usize = 100;
const BLANK: &[u8] = b"\r\n";

/// How a request's body is told from what follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// There is none.
    None,
    /// By the length in its head.
    Length(u64),
    Chunked,
}

/// Writes the head of a request whose URI is a path.
pub fn write(head: &mut request::Parts, body: &impl Body) -> (Vec<u8>, Coding) {
    head.headers.remove(TRANSFER_ENCODING);
    let (told, known) = (length(&head.headers), body.size_hint().exact());
    let coding = match (told, known) {
        (Some(Ok(told)), _) => Coding::Length(told),
        _ if body.is_end_stream() => Coding::None,
        (_, Some(known)) => Coding::Length(known),
        // Nobody gives these a body.
        _ if matches!(head.method, Method::GET | Method::HEAD | Method::CONNECT) => Coding::None,
        _ => Coding::Chunked,
    };
    if coding == Coding::Chunked || told.is_some_and(|told| told.is_err()) {
        head.headers.remove(CONTENT_LENGTH);
    }
    let mut out = Vec::with_capacity(512);
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    for part in [head.method.as_str(), " ", path, " HTTP/1.1\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    for (name, value) in &head.headers {
        write_line(&mut out, name, value);
    }
    match coding {
        Coding::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        Coding::Length(length) if !head.headers.contains_key(CONTENT_LENGTH) => {
            let _ = write!(out, "content-length: {length}\r\n");
        }
        _ => {}
    }
    out.extend_from_slice(BLANK);
    (out, coding)
}

pub fn write_line(out: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), BLANK] {
        out.extend_from_slice(part);
    }
}

/// The length that a head tells; `None`: it tells none. Those who tell several tell the same.
pub fn length(headers: &HeaderMap) -> Option<Result<u64, NoLength>> {
    let digits = |value: &[u8]| {
        let value = value.trim_ascii();
        let whole = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        std::str::from_utf8(value).ok().filter(|_| whole).and_then(|value| value.parse().ok()).ok_or(NoLength)
    };
    let mut told =
        headers.get_all(CONTENT_LENGTH).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let first = digits(told.next()?);
    Some(if told.all(|other| digits(other) == first) { first } else { Err(NoLength) })
}

/// What is told is no length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoLength;

/// An answer's head as it comes.
#[derive(Default)]
pub struct Reading {
    read: BytesMut,
    /// So much of it was looked through for the end of a head.
    looked: usize,
    informational: u32,
}

impl Reading {
    /// The head. Informational ones before it are the upstream's to us, and end here.
    pub fn poll(&mut self, io: &mut Io, task: &mut Context<'_>) -> Poll<Result<response::Parts, Fault>> {
        let broken = |why: &str| Poll::Ready(Err(Fault::Broken(why.to_owned())));
        loop {
            if let Some(length) = end(&self.read, self.looked) {
                self.looked = 0;
                let Some(head) = parse(self.read.split_to(length).freeze()) else {
                    return broken("its answer is no HTTP");
                };
                if !head.status.is_informational() || head.status == StatusCode::SWITCHING_PROTOCOLS {
                    return Poll::Ready(Ok(head));
                }
                self.informational += 1;
                if self.informational > MAX_INFORMATIONAL {
                    return broken("it sends informational answers without end");
                }
                continue;
            }
            if self.read.len() >= MAX_BUFFER {
                return broken("the head of its answer is too large");
            }
            // The blank line may have begun.
            self.looked = self.read.len().saturating_sub(BLANK.len());
            let came = wire::with_scratch(|scratch| {
                let mut buf = ReadBuf::new(&mut scratch[..READ]);
                ready!(Pin::new(&mut *io).poll_read(task, buf.unfilled()))?;
                self.read.extend_from_slice(buf.filled());
                Poll::Ready(Ok::<_, std::io::Error>(buf.filled().len()))
            });
            match ready!(came) {
                Ok(0) => return broken("it ended before the answer"),
                Ok(_) => {}
                Err(error) => return broken(&error.to_string()),
            }
        }
    }

    /// What came behind the head.
    pub fn into_rest(self) -> BytesMut {
        self.read
    }
}

/// The length of the head at the beginning, if it is whole; it is known not to end before `looked`. Blank lines before it
/// are passed over, and a line may end without CR (RFC 9112 2.2).
fn end(bytes: &[u8], looked: usize) -> Option<usize> {
    let start = bytes.iter().position(|byte| !BLANK.contains(byte))?;
    let mut at = start.max(looked);
    loop {
        at += memchr::memchr(b'\n', bytes.get(at..)?)? + 1;
        match bytes.get(at..)? {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => {}
        }
    }
}

/// `None`: it is none of HTTP's.
fn parse(bytes: Bytes) -> Option<response::Parts> {
    let mut lines = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut read = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let parsed = config.parse_response_with_uninit_headers(&mut read, &bytes, &mut lines).ok()?;
    if parsed != httparse::Status::Complete(bytes.len()) {
        return None;
    }
    let (mut head, ()) = http::Response::new(()).into_parts();
    head.status = StatusCode::from_u16(read.code?).ok()?;
    head.version = if read.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
    head.headers.reserve(read.headers.len());
    for line in &*read.headers {
        let name = HeaderName::from_bytes(line.name.as_bytes()).ok()?;
        head.headers.append(name, HeaderValue::from_maybe_shared(bytes.slice_ref(line.value)).ok()?);
    }
    Some(head)
}

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;

//! Requests that are all there when their client is heard: they are read by us, and so are the heads of their answers written
//! where those are streams to carry. Whatever is less plain is the library's, from its first byte on.

use std::{cell::RefCell, mem::MaybeUninit};

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Method, Request, Uri,
    header::{CONNECTION, CONTENT_LENGTH, DATE, EXPECT, TRANSFER_ENCODING, UPGRADE},
    response,
};
use jiff::{Timestamp, fmt::rfc2822::DateTimePrinter};

use super::request::Received;
use crate::upstream::write_line;

/// The longest that is looked at. It is held until its answer comes.
pub const MOST: usize = 16 * 1024;
/// Whoever has more headers is not plain.
const HEADERS: usize = 64;
const BEGINNING: &[u8] = b"POST /";

/// What the head of a request may have.
pub struct Limits {
    pub headers: usize,
    pub bytes: usize,
}

/// The request that the client has said, and how long it is. `None`: it is not whole, or not plain. None is taken for plain
/// that the library would refuse: it may have to read it again.
pub fn read(said: &Bytes, limits: &Limits) -> Option<(Request<Received>, usize)> {
    if !said.starts_with(BEGINNING) {
        return None;
    }
    let mut lines = [const { MaybeUninit::uninit() }; HEADERS];
    let mut read = httparse::Request::new(&mut []);
    let config = httparse::ParserConfig::default();
    let Ok(httparse::Status::Complete(head)) = config.parse_request_with_uninit_headers(&mut read, said, &mut lines)
    else {
        return None;
    };
    if read.version != Some(1) || read.headers.len() > limits.headers || head > limits.bytes {
        return None;
    }
    let mut request = Request::new(Received::Whole(None));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_maybe_shared(said.slice_ref(read.path?.as_bytes())).ok()?;
    let (headers, mut length) = (request.headers_mut(), None);
    headers.reserve(read.headers.len());
    for line in &*read.headers {
        let name = HeaderName::from_bytes(line.name.as_bytes()).ok()?;
        // How it ends and what follows it is to be as plain as the rest.
        if name == TRANSFER_ENCODING || name == UPGRADE || name == EXPECT {
            return None;
        }
        if name == CONTENT_LENGTH && length.replace(digits(line.value)?).is_some() {
            return None;
        }
        headers.append(name, HeaderValue::from_maybe_shared(said.slice_ref(line.value)).ok()?);
    }
    let end = head.checked_add(length.unwrap_or(0)).filter(|end| *end <= said.len())?;
    if end > head {
        *request.body_mut() = Received::Whole(Some(said.slice(head..end)));
    }
    Some((request, end))
}

fn digits(value: &[u8]) -> Option<usize> {
    let whole = value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value).ok().filter(|_| whole)?.parse().ok()
}

/// The head of an answer whose body goes in chunks, but for the blank line after it. `stays`: the connection may be used
/// after it.
pub fn head(answer: &response::Parts, stays: bool) -> Vec<u8> {
    // With room for the first event.
    let mut out = Vec::with_capacity(1024);
    out.extend_from_slice(b"HTTP/1.1 ");
    for part in [answer.status.as_str(), " ", answer.status.canonical_reason().unwrap_or_default(), "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    for (name, value) in answer.headers.iter().filter(|(name, _)| **name != CONNECTION) {
        write_line(&mut out, name, value);
    }
    if !stays {
        out.extend_from_slice(b"connection: close\r\n");
    }
    if !answer.headers.contains_key(DATE) {
        out.extend_from_slice(b"date: ");
        date(|date| out.extend_from_slice(date.as_bytes()));
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"transfer-encoding: chunked\r\n");
    out
}

/// Now, as HTTP writes it.
fn date(write: impl FnOnce(&str)) {
    thread_local! {
        /// Of this second.
        static DATE: RefCell<(i64, String)> = const { RefCell::new((0, String::new())) };
    }
    DATE.with_borrow_mut(|(of, date)| {
        let now = Timestamp::now();
        if *of != now.as_second() {
            *of = now.as_second();
            *date = DateTimePrinter::new().timestamp_to_rfc9110_string(&now).unwrap_or_default();
        }
        write(date);
    });
}

#[cfg(test)]
#[path = "plain_tests.rs"]
mod tests;

//! The parts of HTTP/1.1 that upstream and load generator need.

use std::io;

use memchr::memmem;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// Heads longer than this, and requests longer than twice this, are errors.
const MAX_HEAD: usize = 64 << 10;

pub const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Length of the head including the empty line, if the head is complete.
pub fn head_len(bytes: &[u8]) -> Option<usize> {
    memmem::find(bytes, b"\r\n\r\n").map(|at| at + 4)
}

pub fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .skip(1)
        .filter_map(|line| line.split_once(':'))
        .find(|(n, _)| n.eq_ignore_ascii_case(name))
        .map(|(_, v)| v.trim())
}

/// Reads one request with its body; returns its target. `None`: the peer has closed the connection.
pub async fn read_request(socket: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<String>> {
    buffer.clear();
    let (target, body, whole) = loop {
        if socket.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
        if let Some(len) = head_len(buffer) {
            let head = std::str::from_utf8(&buffer[..len]).map_err(io::Error::other)?;
            let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
            let length = header(head, "content-length").and_then(|v| v.parse::<usize>().ok());
            break (
                target,
                len,
                length.map(|length| len + length).or(header(head, "transfer-encoding").is_none().then_some(len)),
            );
        }
        if buffer.len() > MAX_HEAD {
            return Err(io::Error::other("a head that is too long"));
        }
    };
    while !whole.map_or_else(|| buffer[body..].ends_with(LAST_CHUNK), |whole| buffer.len() >= whole) {
        if buffer.len() > 2 * MAX_HEAD || socket.read_buf(buffer).await? == 0 {
            return Err(io::Error::other("a body that is too long or cut"));
        }
    }
    Ok(Some(target))
}

/// Decoder of the chunked transfer coding.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Chunked {
    Size(u64),
    Extension(u64),
    Data(u64),
    /// Bytes of the CRLF after the chunk data that are still missing.
    DataEnd(u8),
    /// In the trailer section; true at the beginning of a line.
    Trailer(bool),
    Done,
}

impl Chunked {
    pub const START: Self = Self::Size(0);

    pub fn feed(&mut self, mut bytes: &[u8], mut payload: impl FnMut(&[u8])) -> Result<(), String> {
        while let Some(&byte) = bytes.first() {
            let mut taken = 1;
            *self = match *self {
                Self::Size(size) => match byte {
                    b'\r' => Self::Extension(size),
                    b';' | b' ' => Self::Extension(size),
                    _ => Self::Size(size << 4 | u64::from(char::from(byte).to_digit(16).ok_or("no chunk size")?)),
                },
                Self::Extension(size) => match (byte, size) {
                    (b'\n', 0) => Self::Trailer(true),
                    (b'\n', _) => Self::Data(size),
                    _ => Self::Extension(size),
                },
                Self::Data(size) => {
                    taken = usize::try_from(size).unwrap_or(usize::MAX).min(bytes.len());
                    payload(&bytes[..taken]);
                    match size - taken as u64 {
                        0 => Self::DataEnd(2),
                        left => Self::Data(left),
                    }
                }
                Self::DataEnd(2) => Self::DataEnd(1),
                Self::DataEnd(_) => Self::START,
                Self::Trailer(begin) => match byte {
                    b'\n' if begin => Self::Done,
                    b'\n' => Self::Trailer(true),
                    b'\r' => Self::Trailer(begin),
                    _ => Self::Trailer(false),
                },
                Self::Done => return Err("bytes after the last chunk".to_owned()),
            };
            bytes = &bytes[taken..];
        }
        Ok(())
    }
}

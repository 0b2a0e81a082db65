//! The body of an HTTP/1.1 answer, read from its socket by whoever wants it: no task, no channel, and no buffer that
//! waits with it. What one read brought is one piece.
//!
//! *Cancel safety.* Dropped before its end it takes its connection with it: the upstream hears at once.

use std::{
    cell::RefCell,
    io,
    ops::Range,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Method, StatusCode, Version, header, response};
use http_body::{Body, Frame, SizeHint};
use hyper::rt::{Read, ReadBuf};

use super::{chunked::Chunked, driven::Home, head, io::Io};

/// What one read may bring: less, until it is seen that more comes.
const READ: usize = 64 * 1024;
const FIRST_READ: usize = 8 * 1024;

thread_local! {
    /// Streams take turns: what is read into is warm when it is one for all.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ]);
}

/// Lends what is read into. Nobody who has it asks for it again.
pub fn with_scratch<T>(read: impl FnOnce(&mut [u8]) -> T) -> T {
    SCRATCH.with_borrow_mut(|scratch| read(scratch))
}

/// How the end of a body is told (RFC 9112 6.3).
pub enum Framing {
    /// So many bytes are left.
    Length(u64),
    Chunked(Chunked),
    /// By the end of the connection.
    Close,
    /// It was there.
    Over,
}

impl Framing {
    /// Of the answer to such a request. An error: nobody can tell.
    pub fn of(method: &Method, head: &response::Parts) -> Result<Self, &'static str> {
        let bare =
            matches!(head.status, StatusCode::SWITCHING_PROTOCOLS | StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let tunnel = *method == Method::CONNECT && head.status.is_success();
        let last = head.headers.get_all(header::TRANSFER_ENCODING).iter().next_back();
        let coding = last.and_then(|value| value.as_bytes().rsplit(|byte| *byte == b',').next());
        Ok(match (coding, head::length(&head.headers)) {
            _ if bare || tunnel || *method == Method::HEAD => Self::Over,
            // It cannot tell what that is, and whoever passed it on may have taken it for something else.
            (Some(_), _) if head.version == Version::HTTP_10 => return Err("HTTP/1.0 has no transfer codings"),
            (Some(coding), _) if coding.trim_ascii().eq_ignore_ascii_case(b"chunked") => Self::Chunked(Chunked::new()),
            (None, Some(Ok(0))) => Self::Over,
            (None, Some(Ok(length))) => Self::Length(length),
            (None, Some(Err(_))) => return Err("the length of its answer is none"),
            _ => Self::Close,
        })
    }

    /// Where in the input its data lies now, and how much of the input was the body's.
    fn decode(&mut self, input: &mut [u8]) -> (Range<usize>, usize) {
        let there = input.len();
        match self {
            Self::Over => (0..0, 0),
            Self::Close => (0..there, there),
            Self::Length(left) => {
                let length = usize::try_from(*left).map_or(there, |left| left.min(there));
                *left -= length as u64;
                if *left == 0 {
                    *self = Self::Over;
                }
                (0..length, length)
            }
            Self::Chunked(chunked) => chunked.decode(input),
        }
    }

    fn is_malformed(&self) -> bool {
        matches!(self, Self::Chunked(chunked) if chunked.is_malformed())
    }

    fn is_over(&self) -> bool {
        match self {
            Self::Over => true,
            Self::Chunked(chunked) => chunked.is_end(),
            Self::Length(_) | Self::Close => false,
        }
    }
}

/// May a connection be used again after an answer with this head?
pub fn stays(head: &response::Parts) -> bool {
    head.version == Version::HTTP_11
        && head.status != StatusCode::SWITCHING_PROTOCOLS
        && !head.headers.get_all(header::CONNECTION).iter().any(says_close)
}

/// Does a `Connection` header say `close`?
pub fn says_close(value: &HeaderValue) -> bool {
    value.as_bytes().split(|byte| *byte == b',').any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
}

/// In this order: what every read touches comes first, and lies together.
#[repr(C)]
pub struct Wire {
    /// `None`: it has gone home, or away.
    io: Option<Io>,
    framing: Framing,
    /// What the next read may bring.
    room: usize,
    /// Read with the head.
    ahead: BytesMut,
    /// Where the connection waits for its next request; `None`: it has had its last.
    home: Option<Box<Home>>,
}

impl Wire {
    pub fn new(io: Io, framing: Framing, ahead: BytesMut, home: Option<Box<Home>>) -> Self {
        let mut wire = Self { io: Some(io), framing, room: FIRST_READ, ahead, home };
        if wire.framing.is_over() {
            wire.rest();
        }
        wire
    }

    /// `None`: it has gone.
    pub fn io(&mut self) -> Option<&mut Io> {
        self.io.as_mut()
    }

    /// The body is over.
    fn rest(&mut self) {
        let io = self.io.take();
        // What comes without having been asked for belongs to nothing that we know.
        if let (Some(io), Some(home), true) = (io, self.home.take(), self.ahead.is_empty()) {
            home.put(io);
        }
    }

    /// What the input carries.
    fn take(&mut self, input: &mut [u8]) -> Option<Bytes> {
        let (data, used) = self.framing.decode(input);
        if self.framing.is_over() {
            self.ahead = BytesMut::from(&input[used..]);
        }
        (!data.is_empty()).then(|| Bytes::copy_from_slice(&input[data]))
    }

    /// The same of what comes next; nothing at the end of the connection.
    fn poll_read(&mut self, task: &mut Context<'_>, scratch: &mut [u8]) -> Poll<io::Result<Option<Option<Bytes>>>> {
        let Some(io) = &mut self.io else { return Poll::Ready(Ok(None)) };
        let mut buf = ReadBuf::new(&mut scratch[..self.room]);
        ready!(Pin::new(io).poll_read(task, buf.unfilled()))?;
        let length = buf.filled().len();
        if length == self.room {
            self.room = READ.min(2 * self.room);
        }
        Poll::Ready(Ok((length > 0).then(|| self.take(&mut scratch[..length]))))
    }

    fn poll_data(&mut self, task: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        loop {
            if self.framing.is_over() {
                self.rest();
                return Poll::Ready(Ok(None));
            }
            if self.framing.is_malformed() {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "these are no chunks")));
            }
            let taken = if self.ahead.is_empty() {
                match ready!(with_scratch(|scratch| self.poll_read(task, scratch)))? {
                    Some(taken) => taken,
                    None => return Poll::Ready(self.cut_off()),
                }
            } else {
                let mut ahead = std::mem::take(&mut self.ahead);
                self.take(&mut ahead)
            };
            if let Some(data) = taken {
                if self.framing.is_over() {
                    self.rest();
                }
                return Poll::Ready(Ok(Some(data)));
            }
        }
    }

    /// The connection has ended.
    fn cut_off(&mut self) -> io::Result<Option<Bytes>> {
        self.io = None;
        match self.framing {
            Framing::Close => {
                self.framing = Framing::Over;
                Ok(None)
            }
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl Body for Wire {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        Poll::Ready(match ready!(this.poll_data(task)) {
            Ok(Some(data)) => Some(Ok(Frame::data(data))),
            Err(error) => {
                this.io = None;
                Some(Err(error))
            }
            Ok(None) => match &mut this.framing {
                Framing::Chunked(chunked) => chunked.take_trailers().map(|trailers| Ok(Frame::trailers(trailers))),
                _ => None,
            },
        })
    }

    fn is_end_stream(&self) -> bool {
        match &self.framing {
            Framing::Over => true,
            Framing::Chunked(chunked) => chunked.is_end() && !chunked.has_trailers(),
            Framing::Length(_) | Framing::Close => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self.framing {
            Framing::Length(left) => SizeHint::with_exact(left),
            Framing::Over => SizeHint::with_exact(0),
            Framing::Chunked(_) | Framing::Close => SizeHint::default(),
        }
    }
}

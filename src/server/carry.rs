//! The way of a relayed stream to an HTTP/1.1 client, once the library has written the head of the answer: the connection
//! is taken back, and what comes is written as chunks where it comes up. Between two events nothing of the library's waits
//! with the stream.
//!
//! *Cancel safety.* A client that goes is seen here; the stream is dropped, and its upstream with it.

use std::{
    cell::RefCell,
    collections::VecDeque,
    io::{self, IoSlice},
    iter,
    mem::MaybeUninit,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version, header, response};
use http_body::Body;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::{AnyBody, request::ReadToEnd, stall::StallGuard, stalled::Guarded};
use crate::{upstream::says_close, workers};

/// What a client may send ahead while its stream runs. More waits in its socket.
const MAX_AHEAD: usize = 16 * 1024;
const LINE_END: &[u8] = b"\r\n";
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
const LINE_END_AND_LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";
/// What is at hand at the same time leaves in one write: so many pieces, and about so many bytes.
const MAX_PIECES: usize = 8;
const MAX_AT_ONCE: usize = 64 * 1024;
/// A chunk that is no longer is put together: to copy that much is cheaper than to have the kernel gather it.
const SMALL: usize = 1024;

thread_local! {
    /// Where that is done.
    static TOGETHER: RefCell<[u8; SMALL]> = const { RefCell::new([0; SMALL]) };
}

/// What a stream is carried over.
pub trait Way: AsyncRead + AsyncWrite + Unpin {
    /// What was written may stay in a buffer until it is flushed.
    const BUFFERS: bool;
}

impl Way for TcpStream {
    const BUFFERS: bool = false;
}

/// Any other than plain TCP, which has a type of its own as it is the way of nearly all.
pub trait Channel: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Channel for T {}

impl Way for Box<dyn Channel> {
    const BUFFERS: bool = true;
}

impl<T: Way> Way for StallGuard<T> {
    const BUFFERS: bool = T::BUFFERS;
}

/// Where a connection finds the stream that it is to carry.
#[derive(Default)]
pub struct Offer {
    stream: Mutex<Option<Offered>>,
    /// Since then the library has written all that it was given.
    flushed: AtomicBool,
}

/// A stream to carry.
pub struct Offered {
    stream: Guarded,
    /// The library may have written something of it.
    begun: bool,
    /// The connection may be used after it.
    pub stays: bool,
}

impl Offer {
    fn lock(&self) -> MutexGuard<'_, Option<Offered>> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing of the library's is left in its buffer.
    pub fn flushed(&self) {
        self.flushed.store(true, Relaxed);
    }

    /// The stream, once what came before it is written.
    pub fn take(&self) -> Option<Offered> {
        self.flushed.load(Relaxed).then(|| self.lock().take()).flatten()
    }
}

/// A request whose answer may be carried; known before the answer.
pub struct Asked {
    offer: Arc<Offer>,
    read: ReadToEnd,
    /// HTTP/1.0 has no chunks, and an answer to HEAD no body.
    chunks: bool,
    last: bool,
}

/// Is the connection not to be used after an exchange with these headers?
pub fn is_last(headers: &HeaderMap) -> bool {
    headers.get_all(header::CONNECTION).iter().any(says_close)
}

/// Would the library write the answer's body in chunks, and nothing else?
fn is_in_chunks(response: &Response<AnyBody>) -> bool {
    let (status, headers) = (response.status(), response.headers());
    let bare = status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let told = headers.contains_key(header::CONTENT_LENGTH) || headers.contains_key(header::TRAILER);
    !bare && !told && response.body().size_hint().exact().is_none()
}

/// The stream that an answer to a plain request is, and its first piece where that is in hand. An error: it is none that can
/// be carried from its head on.
pub fn stream_of(response: Response<AnyBody>) -> Result<(response::Parts, Bytes, Guarded), Box<Response<AnyBody>>> {
    if !is_in_chunks(&response) {
        return Err(Box::new(response));
    }
    match response.into_parts() {
        (head, AnyBody::Relayed(stream)) => Ok((head, Bytes::new(), stream)),
        (head, AnyBody::Begun(first, stream)) => Ok((head, first.unwrap_or_default(), stream)),
        (head, body) => Err(Box::new(Response::from_parts(head, body))),
    }
}

impl Asked {
    pub fn new<B: Body>(offer: &Arc<Offer>, request: &mut Request<B>) -> Self {
        let read = ReadToEnd::of(request.body());
        request.extensions_mut().insert(read.clone());
        Self {
            offer: Arc::clone(offer),
            read,
            chunks: request.version() == Version::HTTP_11 && request.method() != Method::HEAD,
            last: is_last(request.headers()),
        }
    }

    /// Lets the connection have the answer's body where it can carry that.
    pub fn answered(self, mut response: Response<AnyBody>) -> Response<AnyBody> {
        let last = self.last || is_last(response.headers());
        if self.chunks
            && is_in_chunks(&response)
            && let Some(stream) = response.body_mut().stream()
        {
            stream.carried_by(Ticket { offer: self.offer, read: self.read, last, begun: false });
        }
        response
    }
}

/// A stream's right to be carried.
pub struct Ticket {
    offer: Arc<Offer>,
    read: ReadToEnd,
    last: bool,
    /// Something was given to the library; with the head it makes one write.
    begun: bool,
}

impl Ticket {
    /// Is the library to be told to wait? What the connection takes is then `stream`.
    pub fn is_due(&mut self, pending: bool, stream: impl FnOnce() -> Guarded) -> bool {
        if !(self.begun || pending) || !self.read.is_over() {
            self.begun = true;
            return false;
        }
        let mut offered = self.offer.lock();
        if offered.is_none() {
            self.offer.flushed.store(false, Relaxed);
            *offered = Some(Offered { stream: stream(), begun: !pending, stays: !self.last });
        }
        true
    }
}

pub struct Carry {
    stream: Guarded,
    /// What is being written: a chunk's size in its line, what it carries, and its end.
    line: [u8; 18],
    line_left: (u8, u8),
    data: Bytes,
    /// Mostly nothing: what goes into the same chunk.
    more: VecDeque<Bytes>,
    end: &'static [u8],
    ended: bool,
    /// Something was written that may not have left.
    unflushed: bool,
    /// When something of the stream is written, the client is to have the core.
    gives_way: bool,
    /// Something more of it is at hand.
    at_hand: bool,
    ahead: Ahead,
    /// Of the answer without the blank line after it, until it is about to leave: with what comes first, or alone if nothing
    /// is there yet.
    head: Vec<u8>,
}

/// What a client has sent while it waits for its answer.
pub struct Ahead(Vec<u8>);

impl From<&[u8]> for Ahead {
    fn from(came: &[u8]) -> Self {
        Self(came.to_vec())
    }
}

impl From<Ahead> for Bytes {
    fn from(ahead: Ahead) -> Self {
        ahead.0.into()
    }
}

impl Ahead {
    /// Is the client still there? Ready only if it is not.
    pub fn poll<T: AsyncRead + Unpin>(&mut self, io: &mut T, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.0.len() < MAX_AHEAD {
            let mut room = [MaybeUninit::uninit(); 1024];
            let mut read = ReadBuf::uninit(&mut room);
            ready!(Pin::new(&mut *io).poll_read(task, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            self.0.extend_from_slice(read.filled());
        }
        Poll::Pending
    }
}

impl Carry {
    /// The library has written the head; `ahead` has come already. `near`: the client is on this machine.
    pub fn offered(offered: Offered, ahead: Ahead, near: bool) -> Self {
        let Offered { stream, begun, .. } = offered;
        if begun && near {
            workers::give_way();
        }
        Self::new(stream, Vec::new(), Bytes::new(), ahead, near && !begun)
    }

    /// `first` comes before the stream. `gives_way`: then the client is to have the core.
    pub fn new(stream: Guarded, head: Vec<u8>, first: Bytes, ahead: Ahead, gives_way: bool) -> Self {
        let mut carry = Self {
            stream,
            line: [0; 18],
            line_left: (0, 0),
            data: Bytes::new(),
            more: VecDeque::new(),
            end: &[],
            ended: false,
            unflushed: false,
            gives_way,
            at_hand: false,
            ahead,
            head,
        };
        carry.add(first);
        carry
    }

    /// What is to be read before anything else.
    pub fn into_ahead(self) -> Bytes {
        self.ahead.into()
    }

    /// Until all is written. An error: the client has gone, or is to see that the stream broke off.
    pub fn poll<T>(&mut self, io: &mut T, task: &mut Context<'_>) -> Poll<io::Result<()>>
    where
        T: Way,
    {
        loop {
            // First what there is: whatever is done with it beside can wait until it has left.
            if !self.gathers() && !self.waits() {
                let gives_way = self.gives_way && !self.end.is_empty();
                ready!(self.poll_write(io, task))?;
                if self.ended {
                    return Poll::Ready(Ok(()));
                }
                if gives_way {
                    self.gives_way = false;
                    workers::give_way();
                }
            }
            let polled;
            (polled, self.at_hand) = self.stream.poll_piece(task);
            match polled {
                Poll::Ready(Some(Ok(frame))) => {
                    // Without a `Trailer` header in the head there is no place for trailers.
                    if let Ok(data) = frame.into_data() {
                        self.add(data);
                    }
                }
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
                Poll::Ready(None) => {
                    self.ended = true;
                    self.end = if self.end.is_empty() { LAST_CHUNK } else { LINE_END_AND_LAST_CHUNK };
                }
                // What was said to be at hand is not: what was gathered goes.
                Poll::Pending if !self.end.is_empty() || self.waits() => ready!(self.poll_write(io, task))?,
                Poll::Pending => return self.ahead.poll(io, task),
            }
        }
    }

    /// Something is to be written that has not begun to be, and something else is at hand.
    fn gathers(&self) -> bool {
        let begun = self.end.is_empty() || self.line_left.0 > 0 || self.ended;
        !begun && self.more.len() < MAX_PIECES && self.length() < MAX_AT_ONCE && self.at_hand
    }

    /// The head is not written, and nothing has come that goes with it.
    fn waits(&self) -> bool {
        self.end.is_empty() && !self.head.is_empty()
    }

    /// What is to be written begins with the head.
    fn begin(&mut self) {
        let mut head = std::mem::take(&mut self.head);
        if self.end.is_empty() {
            self.end = LINE_END;
        } else {
            for part in [LINE_END, &self.line[..usize::from(self.line_left.1)], &self.data] {
                head.extend_from_slice(part);
            }
        }
        self.data = head.into();
        // Nothing can be put into this chunk any more.
        self.line_left = (1, 1);
    }

    fn length(&self) -> usize {
        self.data.len() + self.more.iter().map(Bytes::len).sum::<usize>()
    }

    fn add(&mut self, data: Bytes) {
        if data.is_empty() {
            return;
        }
        if self.data.is_empty() {
            self.data = data;
        } else {
            self.more.push_back(data);
        }
        self.line_left = (0, size_line(self.length(), &mut self.line));
        self.end = LINE_END;
    }

    fn poll_write<T: Way>(&mut self, io: &mut T, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.head.is_empty() {
            self.begin();
        }
        while !self.end.is_empty() {
            self.unflushed = T::BUFFERS;
            let line = &self.line[usize::from(self.line_left.0)..usize::from(self.line_left.1)];
            let parts = [line, &self.data, self.end];
            let length: usize = parts.iter().map(|part| part.len()).sum();
            let written = if self.more.is_empty() && length <= SMALL {
                let written = TOGETHER.with_borrow_mut(|small| {
                    let mut at = 0;
                    for part in parts {
                        small[at..at + part.len()].copy_from_slice(part);
                        at += part.len();
                    }
                    Pin::new(&mut *io).poll_write(task, &small[..length])
                });
                ready!(written)?
            } else if self.more.is_empty() {
                ready!(Pin::new(&mut *io).poll_write_vectored(task, &parts.map(IoSlice::new)))?
            } else {
                let data = iter::once(&self.data).chain(&self.more).map(|piece| &**piece);
                let parts: Vec<_> = iter::once(line).chain(data).chain([self.end]).map(IoSlice::new).collect();
                ready!(Pin::new(&mut *io).poll_write_vectored(task, &parts))?
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let of_line = written.min(line.len());
            self.line_left.0 += u8::try_from(of_line).unwrap_or_default();
            self.written(written - of_line);
        }
        if T::BUFFERS && self.unflushed {
            ready!(Pin::new(&mut *io).poll_flush(task))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// So much after the line.
    fn written(&mut self, mut length: usize) {
        loop {
            let of_data = length.min(self.data.len());
            self.data.advance(of_data);
            length -= of_data;
            if !self.data.is_empty() {
                return;
            }
            match self.more.pop_front() {
                Some(next) => self.data = next,
                None => break,
            }
        }
        // It is kept no longer than it is needed.
        self.data = Bytes::new();
        self.end = &self.end[length..];
    }
}

/// Writes the line before a chunk of that length; says how long it is.
fn size_line(length: usize, line: &mut [u8; 18]) -> u8 {
    let digits = (usize::BITS - length.leading_zeros()).div_ceil(4).max(1) as u8;
    for (digit, place) in line.iter_mut().zip((0..digits).rev()) {
        *digit = b"0123456789abcdef"[length >> (4 * place) & 15];
    }
    line[usize::from(digits)..][..LINE_END.len()].copy_from_slice(LINE_END);
    digits + LINE_END.len() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_begins_with_its_size() {
        let mut lengths = vec![0, 1, 9, 10, 15, 16, 255, 4096, 65_535, 65_536, usize::MAX];
        lengths.extend((0..64).map(|bit| 1_usize << bit));
        for length in lengths {
            let mut line = [0; 18];
            let written = size_line(length, &mut line);
            assert_eq!(line[..written.into()], *format!("{length:x}\r\n").as_bytes());
        }
    }
}

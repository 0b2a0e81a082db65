//! The heads of answers are the library's to read; what follows them is not. A connection behind this gate reads up to the
//! end of an answer's head and no further, so that whoever takes it back has the body from its first byte.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use bytes::{Buf, BytesMut};
use http_body::{Body, Frame, SizeHint};
use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};

use super::{MAX_BUFFER, wire};

/// Mostly a head and the first events.
const READ: usize = 4 * 1024;
const BLANK: &[u8] = b"\r\n";

/// How far request and answer are. Shared by the gate, the request's body, and whoever waits for the answer.
#[derive(Debug, Default)]
pub struct Progress {
    /// The library has asked the request's body for its end.
    asked: AtomicBool,
    /// And has written all of it.
    sent: AtomicBool,
    /// The answer's head has gone through.
    answered: AtomicBool,
    /// Everything goes through.
    open: AtomicBool,
}

impl Progress {
    /// Nothing of this exchange is left with the library but the answer's head.
    pub fn is_over(&self) -> bool {
        self.sent.load(Relaxed) && self.answered.load(Relaxed) && !self.open.load(Relaxed)
    }

    pub fn is_answered(&self) -> bool {
        self.answered.load(Relaxed)
    }

    /// From now on the library reads all.
    pub fn open(&self) {
        self.open.store(true, Relaxed);
    }
}

/// A request's body that tells when it has ended.
pub struct Told<B> {
    body: B,
    progress: Arc<Progress>,
}

impl<B: Body> Told<B> {
    pub fn new(body: B, progress: &Arc<Progress>) -> Self {
        let told = Self { body, progress: Arc::clone(progress) };
        told.tell(false);
        told
    }

    pub fn into_inner(self) -> B {
        self.body
    }

    fn tell(&self, ended: bool) {
        if ended || self.body.is_end_stream() {
            self.progress.asked.store(true, Relaxed);
        }
    }
}

impl<B: Body + Unpin> Body for Told<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(task));
        this.tell(frame.as_ref().is_none_or(|frame| frame.as_ref().is_ok_and(Frame::is_trailers)));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

pub struct Gate<T> {
    io: T,
    progress: Arc<Progress>,
    /// Read, and not let through yet.
    read: BytesMut,
    /// So much of that belongs to a head.
    head: usize,
    /// So much of it was looked through for the end of one.
    looked: usize,
    /// The request has begun to go out.
    begun: bool,
}

impl<T> Gate<T> {
    pub fn new(io: T, progress: &Arc<Progress>) -> Self {
        Self { io, progress: Arc::clone(progress), read: BytesMut::new(), head: 0, looked: 0, begun: false }
    }

    /// The connection, and what was read of it beyond the head.
    pub fn into_parts(self) -> (T, BytesMut) {
        (self.io, self.read)
    }

    fn let_through(&mut self, most: usize, buf: &mut ReadBufCursor<'_>) -> usize {
        let length = most.min(buf.remaining());
        buf.put_slice(&self.read[..length]);
        self.read.advance(length);
        length
    }
}

impl<T: Read + Unpin> Gate<T> {
    /// Says whether there was something.
    fn poll_more(&mut self, task: &mut Context<'_>) -> Poll<io::Result<bool>> {
        // The blank line may have begun.
        self.looked = self.read.len().saturating_sub(BLANK.len());
        wire::with_scratch(|scratch| {
            let mut buf = ReadBuf::new(&mut scratch[..READ]);
            ready!(Pin::new(&mut self.io).poll_read(task, buf.unfilled()))?;
            self.read.extend_from_slice(buf.filled());
            Poll::Ready(Ok(!buf.filled().is_empty()))
        })
    }
}

impl<T: Read + Unpin> Read for Gate<T> {
    fn poll_read(self: Pin<&mut Self>, task: &mut Context<'_>, mut buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.progress.open.load(Relaxed) {
                if this.read.is_empty() {
                    return Pin::new(&mut this.io).poll_read(task, buf);
                }
                this.let_through(this.read.len(), &mut buf);
                return Poll::Ready(Ok(()));
            }
            if this.head > 0 {
                this.head -= this.let_through(this.head, &mut buf);
                return Poll::Ready(Ok(()));
            }
            if this.progress.is_answered() {
                // What follows is not the library's, and nobody wakes it.
                return Poll::Pending;
            }
            match head(&this.read, this.looked) {
                Some(Head { length, is_last }) => {
                    (this.head, this.looked) = (length, 0);
                    this.progress.answered.store(is_last, Relaxed);
                }
                // Too long, or cut off: the library knows what to say to that.
                None if this.read.len() >= MAX_BUFFER => this.progress.open(),
                None if !ready!(this.poll_more(task))? => this.progress.open(),
                None => {}
            }
        }
    }
}

impl<T: Write + Unpin> Write for Gate<T> {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.begun = true;
        Pin::new(&mut self.io).poll_write(task, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.begun = true;
        Pin::new(&mut self.io).poll_write_vectored(task, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.io).poll_flush(task))?;
        // What is flushed has been written, and with it all that the body gave.
        if self.begun && self.progress.asked.load(Relaxed) {
            self.progress.sent.store(true, Relaxed);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(task)
    }
}

struct Head {
    length: usize,
    /// No other one follows.
    is_last: bool,
}

/// The head at the beginning, if it is whole; it is known not to end before `looked`. As the library does it, blank lines
/// before it are passed over, and a line may end without CR.
fn head(bytes: &[u8], looked: usize) -> Option<Head> {
    let start = bytes.iter().position(|byte| !BLANK.contains(byte))?;
    let mut at = start.max(looked);
    let length = loop {
        at += memchr::memchr(b'\n', bytes.get(at..)?)? + 1;
        match bytes.get(at..)? {
            [b'\n', ..] => break at + 1,
            [b'\r', b'\n', ..] => break at + 2,
            _ => {}
        }
    };
    // `HTTP/1.1 1..`, but for 101, after which there is no HTTP any more.
    let status = bytes.get(start + 9..start + 12)?;
    Some(Head { length, is_last: !status.starts_with(b"1") || status == b"101" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_ends_with_a_blank_line() {
        let length = |bytes: &str| head(bytes.as_bytes(), 0).map(|head| (head.length, head.is_last));
        let ok = "HTTP/1.1 200 OK\r\nx: y\r\n\r\n";
        assert_eq!(length(&format!("{ok}body\r\n\r\n")), Some((ok.len(), true)));
        assert_eq!(length("HTTP/1.1 200 OK\nx: y\n\nbody"), Some((22, true)));
        assert_eq!(length(&format!("\r\n\r\n{ok}")), Some((ok.len() + 4, true)));
        assert_eq!(length("HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"), Some((22, false)));
        assert_eq!(length("HTTP/1.1 101 Other\r\n\r\n"), Some((22, true)));
        for at in 0..ok.len() {
            assert_eq!(length(&ok[..at]), None, "cut at {at}");
            let looked = at.saturating_sub(BLANK.len());
            assert_eq!(head(ok.as_bytes(), looked).map(|head| head.length), Some(ok.len()), "looked at to {at}");
        }
    }
}

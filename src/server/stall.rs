//! A connection that fails when its peer takes nothing for too long, never begins to speak, or (over h2) does not get to
//! the end of a request's head. A client that stalls is not seen by the body, which is not asked for more; it is seen here.

use std::{
    future::{Future, poll_fn},
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep},
};

use super::{carry::Offer, heads::Heads, plain};
use crate::{pipeline::body::LATE, upstream::with_scratch};

/// What an h2 client begins with (RFC 9113 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// For a client to hear our last word.
const LINGER: Duration = Duration::from_millis(500);
/// What a client said first.
pub struct Opening {
    pub said: Bytes,
    pub speaks_http2: bool,
}

impl Opening {
    /// Nothing was read of it.
    pub fn unread(speaks_http2: bool) -> Self {
        Self { said: Bytes::new(), speaks_http2 }
    }

    /// As much as shows whether it is h2, and what came with that. `None`: the client has gone.
    pub async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Option<Self> {
        let mut said = heard(stream).await?;
        while PREFACE.starts_with(&said) && said.len() < PREFACE.len() {
            said = [said, heard(stream).await?].concat().into();
        }
        Some(Self { speaks_http2: said.starts_with(PREFACE), said })
    }
}

/// What a client says next, as far as it has come: mostly all of its request. `None`: the client has gone.
pub async fn heard(io: &mut (impl AsyncRead + Unpin)) -> Option<Bytes> {
    poll_fn(|task| {
        with_scratch(|scratch| {
            let mut buf = ReadBuf::new(&mut scratch[..plain::MOST]);
            let read = ready!(Pin::new(&mut *io).poll_read(task, &mut buf));
            Poll::Ready(read.ok().map(|()| buf.filled()).filter(|said| !said.is_empty()).map(Bytes::copy_from_slice))
        })
    })
    .await
}

pub struct StallGuard<T> {
    io: T,
    /// Read by us and not for us: it comes before what the connection brings.
    ahead: Bytes,
    offer: Arc<Offer>,
    limit: Duration,
    /// For the client to show its protocol, and over h2 for the head of each request. Over h1 hyper has a timer itself.
    first: Duration,
    reading: Pin<Box<Sleep>>,
    writing: Pin<Box<Sleep>>,
    said: Said,
    waiting: bool,
    /// We have said all.
    closed: bool,
}

/// What the client has shown of its protocol.
enum Said {
    /// So much of h2's preface, which is no protocol yet.
    Preface(usize),
    Http1,
    Http2(Heads),
}

impl Said {
    /// Is the client to say something?
    fn due(&self) -> bool {
        match self {
            Self::Preface(_) => true,
            Self::Http1 => false,
            Self::Http2(heads) => heads.due(),
        }
    }

    fn feed(&mut self, mut bytes: &[u8]) {
        if let Self::Preface(known) = self {
            let common = PREFACE[*known..].iter().zip(bytes).take_while(|(a, b)| a == b).count();
            *known += common;
            bytes = &bytes[common..];
            if *known == PREFACE.len() {
                *self = Self::Http2(Heads::new());
            } else if !bytes.is_empty() {
                *self = Self::Http1;
            }
        }
        if let Self::Http2(heads) = self {
            heads.feed(bytes);
        }
    }
}

impl<T> StallGuard<T> {
    /// `limit` is for writes, `first` for what the client has to say.
    pub fn new(io: T, limit: Duration, first: Duration) -> Self {
        let [reading, writing] = [first, limit].map(|time| Box::pin(tokio::time::sleep(time)));
        let (ahead, offer) = (Bytes::new(), Arc::default());
        Self { io, ahead, offer, limit, first, reading, writing, said: Said::Preface(0), waiting: false, closed: false }
    }

    /// Where streams are found that the connection is to carry.
    pub fn offer(&self) -> Arc<Offer> {
        Arc::clone(&self.offer)
    }

    /// The same connection, whose client has said this first.
    pub fn after_opening(mut self, opening: &Opening) -> Self {
        self.said.feed(&opening.said);
        self
    }

    /// The same connection, which is read anew from here.
    pub fn after(self, ahead: Bytes) -> Self {
        Self { ahead, ..self }
    }

    fn guard<R>(&mut self, task: &mut Context<'_>, written: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.waiting = false;
            return written;
        }
        if !self.waiting {
            self.waiting = true;
            self.writing.as_mut().reset(Instant::now() + self.limit);
        }
        loop {
            ready!(self.writing.as_mut().poll(task));
            let now = Instant::now();
            if now <= self.writing.deadline() + LATE {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")));
            }
            // It was not the client that stood still.
            self.writing.as_mut().reset(now + self.limit);
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for StallGuard<T> {
    fn poll_read(mut self: Pin<&mut Self>, task: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            let length = self.ahead.len().min(buf.remaining());
            buf.put_slice(&self.ahead.split_to(length));
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut self.io).poll_read(task, buf);
        let due = self.said.due();
        if read.is_pending() {
            if !due {
                return Poll::Pending;
            }
            ready!(self.reading.as_mut().poll(task));
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client says nothing")));
        }
        self.said.feed(buf.filled().get(before..).unwrap_or_default());
        if self.said.due() && !due {
            let end = Instant::now() + self.first;
            self.reading.as_mut().reset(end);
        }
        read
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for StallGuard<T> {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(task, buf);
        self.guard(task, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(task, bufs);
        self.guard(task, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(task);
        ready!(self.guard(task, flushed))?;
        self.offer.flushed();
        Poll::Ready(Ok(()))
    }

    /// A client that is still sending would take a closed connection for a broken one, and never see the answer that
    /// refuses what it sends: we listen on for a moment.
    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.closed {
            let closed = Pin::new(&mut self.io).poll_shutdown(task);
            ready!(self.guard(task, closed))?;
            self.closed = true;
            self.reading.as_mut().reset(Instant::now() + LINGER);
        }
        let mut unread = [0; 4096];
        loop {
            let mut unread = ReadBuf::new(&mut unread);
            match Pin::new(&mut self.io).poll_read(task, &mut unread) {
                Poll::Ready(Ok(())) if !unread.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return self.reading.as_mut().poll(task).map(Ok),
            }
        }
    }
}

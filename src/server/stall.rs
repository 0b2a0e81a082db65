//! A connection that fails when its peer takes nothing for too long, or never begins to speak. A client
//! that stalls is not seen by the body, which is not asked for more; it is seen here.

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep},
};

use crate::pipeline::body::LATE;

/// What an h2 client begins with (RFC 9113 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub struct StallGuard<T> {
    io: T,
    limit: Duration,
    /// Armed until the client has shown its protocol, and while a write waits.
    timer: Pin<Box<Sleep>>,
    /// How much of h2's preface has come.
    preface: usize,
    spoken: bool,
    waiting: bool,
}

impl<T> StallGuard<T> {
    /// `first` is for the choice between h1 and h2, before hyper's own timer runs.
    pub fn new(io: T, limit: Duration, first: Duration) -> Self {
        Self { io, limit, timer: Box::pin(tokio::time::sleep(first)), preface: 0, spoken: false, waiting: false }
    }

    fn guard<R>(&mut self, task: &mut Context<'_>, written: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.waiting = false;
            return written;
        }
        if !self.waiting {
            self.waiting = true;
            self.timer.as_mut().reset(Instant::now() + self.limit);
        }
        loop {
            ready!(self.timer.as_mut().poll(task));
            let now = Instant::now();
            if now <= self.timer.deadline() + LATE {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")));
            }
            // It was not the client that stood still.
            self.timer.as_mut().reset(now + self.limit);
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for StallGuard<T> {
    fn poll_read(mut self: Pin<&mut Self>, task: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.io).poll_read(task, buf);
        if self.spoken {
            return read;
        }
        if read.is_pending() {
            return match self.timer.as_mut().poll(task) {
                Poll::Ready(()) => Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client says nothing"))),
                Poll::Pending => Poll::Pending,
            };
        }
        // A part of the preface is no protocol yet.
        for byte in buf.filled().get(before..).unwrap_or_default() {
            self.spoken |= PREFACE.get(self.preface) != Some(byte);
            self.preface += 1;
        }
        self.spoken |= self.preface >= PREFACE.len();
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for StallGuard<T> {
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
        self.guard(task, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.io).poll_shutdown(task);
        self.guard(task, closed)
    }
}

//! A client's socket under hyper. It adds the timeouts that hyper does not have: for a client that takes nothing, that sends
//! nothing, or (over h2) never ends a request's header block. It also notices a client that has gone while hyper does not
//! read, and closes so that a client which still sends can read its response.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
    time::{Instant, Sleep, sleep},
};
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::h2_header_progress::HeaderProgress;

/// The client connection preface of h2 (RFC 9113 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// After the response, input is read and dropped for so long: closing with unread input would reset the connection, and the
/// client might lose the response.
const LINGER: Duration = Duration::from_millis(500);
/// How often a connection that hyper does not read is checked for a client that has gone.
const HANGUP_CHECK: Duration = Duration::from_millis(500);
/// A timer that fires later than this did not measure the client: the process was suspended.
const SUSPENDED: Duration = Duration::from_millis(500);

/// TCP, a Unix socket or TLS over TCP.
pub type ClientSocket = Either<TcpStream, Either<UnixStream, Box<TlsStream<TcpStream>>>>;

fn descriptor(socket: &ClientSocket) -> BorrowedFd<'_> {
    match socket {
        Either::Left(tcp) => tcp.as_fd(),
        Either::Right(Either::Left(unix)) => unix.as_fd(),
        Either::Right(Either::Right(tls)) => tls.get_ref().0.as_fd(),
    }
}

/// True if the peer has closed its side, even while data from it is unread.
fn has_hung_up(socket: &ClientSocket) -> bool {
    #[cfg(target_os = "linux")]
    let closed = PollFlags::RDHUP;
    #[cfg(not(target_os = "linux"))]
    let closed = PollFlags::empty();
    let mut fds = [PollFd::from_borrowed_fd(descriptor(socket), closed)];
    let polled = poll(&mut fds, Some(&Timespec::default()));
    polled.is_ok() && fds[0].revents().intersects(closed | PollFlags::HUP | PollFlags::ERR)
}

pub struct ClientIo {
    socket: ClientSocket,
    write_timeout: Duration,
    /// For the client to show its protocol, and over h2 for each header block. hyper has a timer of its own for h1.
    header_timeout: Duration,
    protocol: Protocol,
    read_timer: Pin<Box<Sleep>>,
    /// Set while a write is pending.
    write_timer: Option<Pin<Box<Sleep>>>,
    /// Set while hyper does not read.
    hangup_timer: Option<Pin<Box<Sleep>>>,
    /// The last read gave data. hyper reads again only when it needs more, so the end of the input may go unnoticed.
    is_read_idle: bool,
    is_shut_down: bool,
}

/// What the client has shown of its protocol.
enum Protocol {
    /// Matching bytes of the h2 preface.
    Unknown(usize),
    Http1,
    Http2(HeaderProgress),
}

impl Protocol {
    /// True while the server waits for the client.
    fn is_due(&self) -> bool {
        match self {
            Self::Unknown(_) => true,
            Self::Http1 => false,
            Self::Http2(headers) => headers.due(),
        }
    }

    fn feed(&mut self, mut bytes: &[u8]) {
        if let Self::Unknown(known) = self {
            let common = PREFACE[*known..].iter().zip(bytes).take_while(|(a, b)| a == b).count();
            *known += common;
            bytes = &bytes[common..];
            if *known == PREFACE.len() {
                *self = Self::Http2(HeaderProgress::new());
            } else if !bytes.is_empty() {
                *self = Self::Http1;
            }
        }
        if let Self::Http2(headers) = self {
            headers.feed(bytes);
        }
    }
}

impl ClientIo {
    pub fn new(socket: ClientSocket, write_timeout: Duration, header_timeout: Duration) -> Self {
        Self {
            socket,
            write_timeout,
            header_timeout,
            protocol: Protocol::Unknown(0),
            read_timer: Box::pin(sleep(header_timeout)),
            write_timer: None,
            hangup_timer: None,
            is_read_idle: false,
            is_shut_down: false,
        }
    }

    /// Fails a write that has been pending for too long.
    fn limit_write<R>(&mut self, task: &mut Context<'_>, written: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.write_timer = None;
            return written;
        }
        let timer = self.write_timer.get_or_insert_with(|| Box::pin(sleep(self.write_timeout)));
        loop {
            ready!(timer.as_mut().poll(task));
            let now = Instant::now();
            if now <= timer.deadline() + SUSPENDED {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")));
            }
            timer.as_mut().reset(now + self.write_timeout);
        }
    }

    /// hyper does not read while it holds unprocessed input, such as a pipelined request: then the end of the input is
    /// looked for here, so that a client that leaves cancels its upstream.
    fn check_hangup(&mut self, task: &mut Context<'_>) -> io::Result<()> {
        if !self.is_read_idle {
            self.hangup_timer = None;
            return Ok(());
        }
        let timer = self.hangup_timer.get_or_insert_with(|| Box::pin(sleep(HANGUP_CHECK)));
        while timer.as_mut().poll(task).is_ready() {
            if has_hung_up(&self.socket) {
                return Err(io::Error::new(io::ErrorKind::ConnectionReset, "the client has gone"));
            }
            timer.as_mut().reset(Instant::now() + HANGUP_CHECK);
        }
        Ok(())
    }
}

impl AsyncRead for ClientIo {
    fn poll_read(mut self: Pin<&mut Self>, task: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(task, buf);
        self.is_read_idle = read.is_ready();
        let was_due = self.protocol.is_due();
        if read.is_pending() {
            if !was_due {
                return Poll::Pending;
            }
            ready!(self.read_timer.as_mut().poll(task));
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client sends nothing")));
        }
        self.protocol.feed(buf.filled().get(before..).unwrap_or_default());
        if self.protocol.is_due() && !was_due {
            let deadline = Instant::now() + self.header_timeout;
            self.read_timer.as_mut().reset(deadline);
        }
        read
    }
}

impl AsyncWrite for ClientIo {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(task, buf);
        self.limit_write(task, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(task, bufs);
        self.limit_write(task, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_hangup(task)?;
        let flushed = Pin::new(&mut self.socket).poll_flush(task);
        self.limit_write(task, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_shut_down {
            let closed = Pin::new(&mut self.socket).poll_shutdown(task);
            ready!(self.limit_write(task, closed))?;
            self.is_shut_down = true;
            self.read_timer.as_mut().reset(Instant::now() + LINGER);
        }
        let mut dropped = [0; 4096];
        loop {
            let mut dropped = ReadBuf::new(&mut dropped);
            match Pin::new(&mut self.socket).poll_read(task, &mut dropped) {
                Poll::Ready(Ok(())) if !dropped.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return self.read_timer.as_mut().poll(task).map(Ok),
            }
        }
    }
}

//! A connection to an upstream. With TLS it lies in a box: it is handed on a few times for every request, and without TLS it is
//! a tenth as large.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use tokio::net::TcpStream;

type Opened = MaybeHttpsStream<TokioIo<TcpStream>>;

pub enum Io {
    Plain(TokioIo<TcpStream>),
    Tls(Box<Opened>),
}

impl From<Opened> for Io {
    fn from(opened: Opened) -> Self {
        match opened {
            MaybeHttpsStream::Http(plain) => Self::Plain(plain),
            tls => Self::Tls(Box::new(tls)),
        }
    }
}

/// The same of either.
macro_rules! either {
    ($io:expr, $each:ident => $what:expr) => {
        match $io {
            Io::Plain($each) => $what,
            Io::Tls($each) => $what,
        }
    };
}

impl Connection for Io {
    fn connected(&self) -> Connected {
        either!(self, io => io.connected())
    }
}

impl Read for Io {
    fn poll_read(self: Pin<&mut Self>, task: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), io => Pin::new(io).poll_read(task, buf))
    }
}

impl Write for Io {
    fn poll_write(self: Pin<&mut Self>, task: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        either!(self.get_mut(), io => Pin::new(io).poll_write(task, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self.get_mut(), io => Pin::new(io).poll_write_vectored(task, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        either!(self, io => io.is_write_vectored())
    }

    fn poll_flush(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), io => Pin::new(io).poll_flush(task))
    }

    fn poll_shutdown(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), io => Pin::new(io).poll_shutdown(task))
    }
}

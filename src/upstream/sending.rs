//! A request on its way: its head, and its body as it comes.

use std::{
    io::{self, IoSlice, Write as _},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderName, Request, header::TRAILER};
use http_body::Frame;
use hyper::rt::Write;

use super::{
    BoxError, Sendable,
    head::{self, Coding},
    io::Io,
};

const LINE_END: &[u8] = b"\r\n";
const LAST_CHUNK: &[u8] = b"0\r\n";

pub struct Sending<B> {
    /// `None`: nothing more comes of it.
    body: Option<B>,
    /// Of a length, what is left.
    coding: Coding,
    /// The trailers that the head announced.
    announced: Vec<HeaderName>,
    /// To be written, one after the other.
    before: Bytes,
    data: Bytes,
    after: &'static [u8],
    begun: bool,
}

/// Why a request is not sent on.
pub enum Failed {
    /// Its body broke off.
    Body(BoxError),
    /// The upstream takes no more of it. It may have answered.
    Upstream(io::Error),
}

impl<B: Sendable> Sending<B> {
    pub fn new(request: Request<B>) -> Self {
        let (mut head, body) = request.into_parts();
        let (written, coding) = head::write(&mut head, &body);
        let named = head.headers.get_all(TRAILER).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        let announced = named.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok()).collect();
        let body = Some(body).filter(|_| coding != Coding::None);
        Self { body, coding, announced, before: written.into(), data: Bytes::new(), after: &[], begun: false }
    }

    /// Has any of it left?
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// Until all of it is written. What is at hand together, the head among it, leaves in one write.
    pub fn poll(&mut self, io: &mut Io, task: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        loop {
            let mut waits = false;
            if self.data.is_empty()
                && self.after.is_empty()
                && let Some(body) = &mut self.body
            {
                let added = match Pin::new(body).poll_frame(task) {
                    Poll::Ready(Some(Ok(frame))) => self.add(frame),
                    Poll::Ready(Some(Err(error))) => Err(error.into()),
                    Poll::Ready(None) => self.end(None),
                    Poll::Pending => {
                        waits = true;
                        Ok(())
                    }
                };
                added.map_err(Failed::Body)?;
            }
            ready!(self.poll_write(io, task)).map_err(Failed::Upstream)?;
            if waits || self.body.is_none() {
                ready!(Pin::new(&mut *io).poll_flush(task)).map_err(Failed::Upstream)?;
                return if waits { Poll::Pending } else { Poll::Ready(Ok(())) };
            }
        }
    }

    /// An error: it is not as long as its head says, and what follows on the connection would be taken for its rest, or
    /// its rest for what follows.
    fn add(&mut self, frame: Frame<Bytes>) -> Result<(), BoxError> {
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(frame) => return self.end(frame.into_trailers().ok().as_ref()),
        };
        match &mut self.coding {
            Coding::Length(left) => {
                *left = left.checked_sub(data.len() as u64).ok_or("the request's body is longer than its head says")?;
            }
            Coding::Chunked if !data.is_empty() => {
                self.write_before(|out| {
                    let _ = write!(out, "{:x}\r\n", data.len());
                });
                self.after = LINE_END;
            }
            Coding::Chunked | Coding::None => {}
        }
        self.data = data;
        // Of a body whose length is known, nobody asks for the end.
        if self.coding == Coding::Length(0) {
            self.body = self.body.take().filter(|body| !body.is_end_stream());
        }
        Ok(())
    }

    fn end(&mut self, trailers: Option<&HeaderMap>) -> Result<(), BoxError> {
        self.body = None;
        match self.coding {
            Coding::None | Coding::Length(0) => {}
            Coding::Length(_) => return Err("the request's body is shorter than its head says".into()),
            Coding::Chunked => {
                let announced = std::mem::take(&mut self.announced);
                self.write_before(|out| {
                    out.extend_from_slice(LAST_CHUNK);
                    for (name, value) in trailers.into_iter().flatten().filter(|(name, _)| announced.contains(name)) {
                        head::write_line(out, name, value);
                    }
                    out.extend_from_slice(LINE_END);
                });
            }
        }
        Ok(())
    }

    /// The head may still be there.
    fn write_before(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut before = Vec::from(std::mem::take(&mut self.before));
        write(&mut before);
        self.before = before.into();
    }

    fn poll_write(&mut self, io: &mut Io, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let parts = [&*self.before, &*self.data, self.after];
            let written = match parts.map(<[u8]>::is_empty) {
                [true, true, true] => return Poll::Ready(Ok(())),
                [false, true, true] => ready!(Pin::new(&mut *io).poll_write(task, &self.before))?,
                _ => ready!(Pin::new(&mut *io).poll_write_vectored(task, &parts.map(IoSlice::new)))?,
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.begun = true;
            let of_before = written.min(self.before.len());
            let of_data = (written - of_before).min(self.data.len());
            self.before.advance(of_before);
            self.data.advance(of_data);
            self.after = self.after.get(written - of_before - of_data..).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future::poll_fn};

    use http_body_util::StreamBody;
    use hyper_util::rt::TokioIo;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Whether a body of these pieces is sent whose head says that it is so long.
    async fn sent(length: &str, pieces: &[&'static str]) -> bool {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut io = Io::Plain(TokioIo::new(TcpStream::connect(listener.local_addr().unwrap()).await.unwrap()));
        let pieces: Vec<_> = pieces.iter().map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::from(*piece)))).collect();
        let body = StreamBody::new(futures_util::stream::iter(pieces));
        let request = Request::post("/").header("content-length", length).body(body).unwrap();
        let mut sending = Sending::new(request);
        poll_fn(|task| sending.poll(&mut io, task)).await.is_ok()
    }

    #[tokio::test]
    async fn a_body_is_as_long_as_its_head_says() {
        assert!(sent("5", &["hello"]).await && sent("5", &["he", "", "llo"]).await && sent("0", &[]).await);
        for (length, pieces) in
            [("6", &["hello"][..]), ("4", &["hello"]), ("5", &["hello", "!"]), ("5", &[]), ("0", &["x"])]
        {
            assert!(!sent(length, pieces).await, "{length} {pieces:?}");
        }
    }
}

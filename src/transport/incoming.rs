//! A body from hyper that ends only where its sender ended it. Used for clients' requests and upstreams' responses.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::Version;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::BoxError;

/// Fails if the stream was reset, even with `NO_ERROR`. hyper treats that reset as the end of the body, because it may
/// follow a complete response (RFC 9113 8.1).
pub struct IncomingBody {
    body: Incoming,
    is_h2: bool,
}

impl IncomingBody {
    /// The body of a message of this version.
    pub fn new(body: Incoming, version: Version) -> Self {
        Self { body, is_h2: version == Version::HTTP_2 }
    }

    /// True if the sender has ended the body, once nothing is left to read. Over HTTP/1.1 hyper reports any other end as an
    /// error.
    fn is_ended(&self) -> bool {
        !self.is_h2 || self.body.is_end_stream()
    }
}

impl Body for IncomingBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        Poll::Ready(match ready!(Pin::new(&mut this.body).poll_frame(task)) {
            None if !this.is_ended() => Some(Err("the stream was reset before its end".into())),
            frame => frame.map(|frame| frame.map_err(Into::into)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

//! The bodies of our answers.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::stalled::Guarded;
use crate::pipeline::body::BoxError;

/// A relayed answer, or one of our own.
pub enum AnyBody {
    Relayed(Guarded),
    /// The same, its first piece in hand.
    Begun(Option<Bytes>, Guarded),
    Api(axum::body::Body),
    Own(Option<Bytes>),
}

impl AnyBody {
    /// The stream that it relays, if it does.
    pub(super) fn stream(&mut self) -> Option<&mut Guarded> {
        match self {
            Self::Relayed(stream) | Self::Begun(_, stream) => Some(stream),
            Self::Api(_) | Self::Own(_) => None,
        }
    }

    /// A body whose first piece was taken from it.
    pub fn begun(self, first: Bytes) -> Self {
        match self {
            Self::Relayed(rest) => Self::Begun((!first.is_empty()).then_some(first), rest),
            other => other,
        }
    }
}

impl From<Bytes> for AnyBody {
    fn from(bytes: Bytes) -> Self {
        Self::Own((!bytes.is_empty()).then_some(bytes))
    }
}

impl Body for AnyBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Relayed(body) => Pin::new(body).poll_frame(task),
            Self::Begun(first, rest) => match first.take() {
                Some(first) => Poll::Ready(Some(Ok(Frame::data(first)))),
                None => Pin::new(rest).poll_frame(task),
            },
            Self::Api(body) => Pin::new(body).poll_frame(task).map_err(BoxError::from),
            Self::Own(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Relayed(body) => body.is_end_stream(),
            Self::Begun(first, rest) => first.is_none() && rest.is_end_stream(),
            Self::Api(body) => body.is_end_stream(),
            Self::Own(bytes) => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Relayed(body) => body.size_hint(),
            Self::Begun(..) => SizeHint::default(),
            Self::Api(body) => body.size_hint(),
            Self::Own(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
        }
    }
}

//! What goes to an upstream: a client's body as it comes, or one of our own.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::request::RequestBody;
use crate::pipeline::{body::BoxError, hold::Share};

/// A body of our own goes out in pieces of this size, so that it is held, and counted as held, until it was taken.
const PIECE: usize = 64 * 1024;

/// The body of what an upstream answers to it.
pub type Answered = crate::upstream::Answer<Outgoing>;

pub enum Outgoing {
    /// Boxed, as it is handed on a few times and is large.
    Relayed(Box<RequestBody>),
    Own(Own),
}

/// Bytes, and the share of the budget that they take until they are sent.
pub struct Own {
    rest: Bytes,
    _share: Share,
}

impl Own {
    pub fn new(bytes: Bytes, share: Share) -> Self {
        Self { rest: bytes, _share: share }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Relayed(body) => Pin::new(&mut **body).poll_frame(task),
            Self::Own(own) if own.rest.is_empty() => Poll::Ready(None),
            Self::Own(own) => {
                let piece = own.rest.split_to(own.rest.len().min(PIECE));
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Relayed(body) => body.is_end_stream(),
            Self::Own(own) => own.rest.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Relayed(body) => body.size_hint(),
            Self::Own(own) => SizeHint::with_exact(own.rest.len() as u64),
        }
    }
}

//! A client's request body on its way to the upstream: limited, observed, and never complete once it has failed.

use std::{
    convert::Infallible,
    fmt,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context as Task, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::{model::Seeker, supplement::BodyCopy};
use crate::{
    pipeline::budget::BudgetShare,
    transport::{BoxError, incoming::IncomingBody, trailers},
};

/// Why a client's request body was not sent to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFailure {
    /// It is larger than `limits.request_body`.
    TooLarge,
    /// Its framing is malformed, or the client stopped sending.
    Broken,
}

/// Where the handler finds out how the body ended: the upstream client reports only that the request failed.
#[derive(Clone, Default)]
pub struct BodyStatus(Arc<OnceLock<BodyFailure>>);

impl BodyStatus {
    pub fn failure(&self) -> Option<BodyFailure> {
        self.0.get().copied()
    }

    fn fail(&self, failure: BodyFailure) {
        let _ = self.0.set(failure);
    }
}

/// The client's body, up to the limit.
pub struct RequestBody {
    pub inner: IncomingBody,
    pub left: u64,
    pub status: BodyStatus,
    /// For a search of our own.
    pub copy: Option<BodyCopy>,
    /// For exported telemetry.
    pub model: Option<Seeker>,
}

impl RequestBody {
    /// Passes a frame, or the end of the body, to the observers of the request.
    fn observe(&mut self, frame: Option<&Frame<Bytes>>) {
        // hyper does not poll for the end of a body whose length is known.
        let last = frame.is_none_or(|frame| frame.is_trailers() || self.inner.is_end_stream());
        if let (Some(seeker), Some(data)) = (&mut self.model, frame.and_then(Frame::data_ref)) {
            seeker.look(data);
        }
        let Some(copy) = &mut self.copy else { return };
        if let Some(data) = frame.and_then(Frame::data_ref) {
            copy.add(data);
        }
        if last {
            copy.end();
        }
    }

    fn limit(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, BodyFailure> {
        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
        self.left = self.left.checked_sub(length).ok_or(BodyFailure::TooLarge)?;
        Ok(frame)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        // A body that failed must not look complete to anyone who polls it again.
        if let Some(failure) = this.status.failure() {
            return Poll::Ready(Some(Err(failure.into())));
        }
        let Some(frame) = ready!(Pin::new(&mut this.inner).poll_frame(task)) else {
            this.observe(None);
            return Poll::Ready(None);
        };
        let limited = frame.map_err(|_| BodyFailure::Broken).and_then(|frame| this.limit(frame));
        Poll::Ready(Some(match limited {
            Ok(frame) => {
                this.observe(Some(&frame));
                Ok(match frame.into_trailers() {
                    Ok(all) => Frame::trailers(trailers::allowed(&all).unwrap_or_default()),
                    Err(frame) => frame,
                })
            }
            Err(failure) => {
                this.status.fail(failure);
                Err(failure.into())
            }
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.status.failure().is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl fmt::Display for BodyFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLarge => "the request body is too large",
            Self::Broken => "the request body is broken",
        })
    }
}

impl std::error::Error for BodyFailure {}

/// A body of our own goes out in pieces of this size, so that it is held, and counted as held, until it was taken.
const PIECE: usize = 64 * 1024;

/// A request body of our own, and the share of the budget that they take until they are sent.
pub struct OwnBody {
    rest: Bytes,
    _share: BudgetShare,
}

impl OwnBody {
    pub fn new(bytes: Bytes, share: BudgetShare) -> Self {
        Self { rest: bytes, _share: share }
    }
}

impl Body for OwnBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Task<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let rest = &mut self.get_mut().rest;
        Poll::Ready((!rest.is_empty()).then(|| Ok(Frame::data(rest.split_to(rest.len().min(PIECE))))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

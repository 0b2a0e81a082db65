//! Request bodies for the upstream client: a client's body, limited and observed, and bodies that citetap has built.
//! A client's body that failed never looks complete, so half a request is never sent as a whole one.

use std::{
    convert::Infallible,
    fmt,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context as Task, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::{model::ModelScanner, supplement::BodyCopy};
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

/// Tells the handler why the body failed, because the upstream client reports only that the request failed.
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

/// A client's body, up to the size limit.
pub struct RequestBody {
    pub inner: IncomingBody,
    /// Bytes that the client may still send.
    pub remaining: u64,
    pub status: BodyStatus,
    /// Copy for the route's own search.
    pub copy: Option<BodyCopy>,
    /// For exported telemetry.
    pub model: Option<ModelScanner>,
}

impl RequestBody {
    /// Passes a frame, or the end of the body, to the scanner and the copy.
    fn observe(&mut self, frame: Option<&Frame<Bytes>>) {
        // hyper does not poll for the end of a body whose length is known.
        let is_last = frame.is_none_or(|frame| frame.is_trailers() || self.inner.is_end_stream());
        if let (Some(scanner), Some(data)) = (&mut self.model, frame.and_then(Frame::data_ref)) {
            scanner.feed(data);
        }
        let Some(copy) = &mut self.copy else { return };
        if let Some(data) = frame.and_then(Frame::data_ref) {
            copy.add(data);
        }
        if is_last {
            copy.end();
        }
    }

    fn limit(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, BodyFailure> {
        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
        self.remaining = self.remaining.checked_sub(length).ok_or(BodyFailure::TooLarge)?;
        Ok(frame)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        // A body that failed must not look complete when it is polled again.
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

/// Bytes per data frame of an [`OwnBody`]. hyper drops a body once it has the last frame, so one large frame would release
/// the budget before it is sent.
const PIECE: usize = 64 * 1024;

/// A body that citetap has built, with its reservation of the budget until it is sent.
pub struct OwnBody {
    unsent: Bytes,
    _share: BudgetShare,
}

impl OwnBody {
    pub fn new(bytes: Bytes, share: BudgetShare) -> Self {
        Self { unsent: bytes, _share: share }
    }
}

impl Body for OwnBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Task<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let unsent = &mut self.get_mut().unsent;
        Poll::Ready((!unsent.is_empty()).then(|| Ok(Frame::data(unsent.split_to(unsent.len().min(PIECE))))))
    }

    fn is_end_stream(&self) -> bool {
        self.unsent.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.unsent.len() as u64)
    }
}

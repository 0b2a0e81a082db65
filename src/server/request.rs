//! The body of a request: as it comes, and on its way to the upstream.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context as Task, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::{model::Seeker, supplement::BodyCopy};
use crate::pipeline::{body::BoxError, trailers};

/// The body of a client's request.
pub enum Received {
    /// As the library reads it.
    Streamed(Incoming),
    /// It came with its head. `None`: nothing is left of it.
    Whole(Option<Bytes>),
}

impl Body for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Streamed(body) => Pin::new(body).poll_frame(task),
            Self::Whole(body) => Poll::Ready(body.take().map(|body| Ok(Frame::data(body)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Streamed(body) => body.is_end_stream(),
            Self::Whole(body) => body.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Streamed(body) => body.size_hint(),
            Self::Whole(body) => SizeHint::with_exact(body.as_ref().map_or(0, |body| body.len() as u64)),
        }
    }
}

/// Whether a request was read to its end.
#[derive(Clone)]
pub struct ReadToEnd(Arc<AtomicBool>);

impl ReadToEnd {
    pub fn of(body: &impl Body) -> Self {
        Self(Arc::new(AtomicBool::new(body.is_end_stream())))
    }

    pub fn tell(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The client's body, as it comes, up to the limit.
pub struct RequestBody {
    pub(super) inner: Received,
    pub(super) left: u64,
    /// Set when the limit is passed.
    pub(super) over: Arc<AtomicBool>,
    /// For a search of our own.
    pub(super) copy: Option<BodyCopy>,
    pub(super) read: Option<ReadToEnd>,
    /// For telemetry that is exported.
    pub(super) model: Option<Seeker>,
}

impl RequestBody {
    /// Looks at what is sent on.
    fn looked(&mut self, frame: Option<&Frame<Bytes>>) {
        // Of a body whose length is known, nobody asks for the end.
        let last = frame.is_none_or(|frame| frame.is_trailers() || self.inner.is_end_stream());
        if let Some(read) = self.read.as_ref().filter(|_| last) {
            read.tell();
        }
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
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        Pin::new(&mut this.inner).poll_frame(task).map(|frame| {
            let Some(frame) = frame else {
                this.looked(None);
                return None;
            };
            let frame = frame.map_err(BoxError::from);
            if let Some(data) = frame.as_ref().ok().and_then(Frame::data_ref) {
                match this.left.checked_sub(data.len() as u64) {
                    Some(left) => this.left = left,
                    None => {
                        this.over.store(true, Ordering::Relaxed);
                        return Some(Err("the request body is too large".into()));
                    }
                }
            }
            if let Ok(frame) = &frame {
                this.looked(Some(frame));
            }
            // The same as in the other direction.
            Some(frame.map(|frame| match frame.into_trailers() {
                Ok(all) => Frame::trailers(trailers::allowed(&all).unwrap_or_default()),
                Err(frame) => frame,
            }))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

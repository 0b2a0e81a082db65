//! Detects the wire format of a stream from the first frame that only one provider sends.

use super::{
    Adapter, Envelope, ParseError, Payload, Sink,
    registry::{Descriptor, InputKind, sniff},
};
use crate::sse::Event;

/// Frames with data that are examined before detection gives up.
pub(super) const MAX_UNDECIDED: u32 = 64;

/// An adapter that delegates to the adapter of the detected provider.
pub struct Detector {
    candidates: &'static [&'static Descriptor],
    detected: Option<Box<dyn Adapter>>,
    /// Frames left to examine. `None`: no limit, because the route named the provider.
    frames_left: Option<u32>,
}

impl Detector {
    pub fn new(candidates: &'static [&'static Descriptor], max_frames: Option<u32>) -> Self {
        Self { candidates, detected: None, frames_left: max_frames }
    }
}

impl Adapter for Detector {
    fn provider(&self) -> Option<&'static str> {
        self.detected.as_ref()?.provider()
    }

    fn frame(&mut self, event: &Event<'_>, sink: &mut dyn Sink) -> Result<(), ParseError> {
        if let Some(adapter) = &mut self.detected {
            return adapter.frame(event, sink);
        }
        let Some(data) = event.data.as_deref() else { return Ok(()) };
        let streams = self.candidates.iter().copied().filter(|provider| provider.input == InputKind::Streams);
        if let Some((_, build)) = sniff(streams, &event.name, data) {
            return self.detected.insert(build()).frame(event, sink);
        }
        if let Some(left) = &mut self.frames_left {
            *left = left.saturating_sub(1);
        }
        Ok(())
    }

    fn envelope(&self, payload: &Payload<'_>) -> Envelope {
        self.detected.as_ref().map_or_else(|| Envelope::from_record(payload), |adapter| adapter.envelope(payload))
    }

    fn clients_accept_comments(&self) -> bool {
        self.detected.as_ref().is_none_or(|adapter| adapter.clients_accept_comments())
    }

    fn gave_up(&self) -> bool {
        self.detected.is_none() && self.frames_left == Some(0)
    }
}

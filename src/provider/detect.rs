//! Which wire format is it? Decided by the first frame that only one of them sends.

use super::{
    Adapter, Envelope, ParseError, Payload, Sink,
    registry::{Descriptor, Reads, Registry, sniff},
};
use crate::sse::Event;

/// Frames with data that may pass undecided before we stop looking.
const MAX_UNDECIDED: u32 = 64;

pub struct Detect {
    among: &'static [&'static Descriptor],
    chosen: Option<Box<dyn Adapter>>,
    /// Frames left to look at; `None` looks for ever (the route named the provider).
    left: Option<u32>,
}

impl Detect {
    /// Among the formats of providers that are known.
    pub fn among(among: &'static [&'static Descriptor]) -> Self {
        Self { among, chosen: None, left: None }
    }

    /// Any chat stream. Search responses are no streams, so they are not looked for.
    pub fn any(registry: &'static Registry) -> Self {
        Self { among: registry.0, chosen: None, left: Some(MAX_UNDECIDED) }
    }
}

impl Adapter for Detect {
    fn provider(&self) -> Option<&'static str> {
        self.chosen.as_ref()?.provider()
    }

    fn frame(&mut self, event: &Event<'_>, sink: &mut dyn Sink) -> Result<(), ParseError> {
        if let Some(adapter) = &mut self.chosen {
            return adapter.frame(event, sink);
        }
        let Some(data) = event.data.as_deref() else { return Ok(()) };
        let streams = self.among.iter().copied().filter(|provider| provider.reads == Reads::Streams);
        if let Some((_, build)) = sniff(streams, &event.name, data) {
            return self.chosen.insert(build()).frame(event, sink);
        }
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(1);
        }
        Ok(())
    }

    fn envelope(&self, payload: &Payload<'_>) -> Envelope {
        self.chosen.as_ref().map_or_else(|| Envelope::bare(payload), |adapter| adapter.envelope(payload))
    }

    fn gave_up(&self) -> bool {
        self.chosen.is_none() && self.left == Some(0)
    }
}

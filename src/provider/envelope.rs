//! Our frame before SSE encoding: the record, in a form without effect for clients of the stream's dialect.

use serde::Serialize;

use crate::citation::{Citation, Record};

/// Default name of our SSE event.
pub const EVENT: &str = "citations";

/// Returns the span of the answer's text that uses a citation: start and end in code points.
pub type SpanLookup<'p> = dyn Fn(&Citation) -> (u64, u64) + 'p;

/// What our frame carries.
pub struct Payload<'p> {
    pub record: &'p Record,
    /// `None` before the final event: clients collect annotations, so only the final event has them.
    pub span_lookup: Option<&'p SpanLookup<'p>>,
}

/// Our frame before it is encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// The SSE event's name. Empty: the frame has no `event:` line.
    pub event: &'static str,
    /// The data: one line of JSON.
    pub json: String,
}

impl Envelope {
    /// Serializes the data of an event named [`EVENT`]. Serialization cannot fail: all keys are strings.
    pub fn new(json: &impl Serialize) -> Self {
        Self { event: EVENT, json: serde_json::to_string(json).unwrap_or_default() }
    }

    /// Serializes the data of an event without a name, for clients that fail on an `event:` line.
    pub fn unnamed(json: &impl Serialize) -> Self {
        Self { event: "", ..Self::new(json) }
    }

    /// Encodes the record itself, for streams without a known dialect.
    pub fn from_record(payload: &Payload<'_>) -> Self {
        Self::new(payload.record)
    }
}

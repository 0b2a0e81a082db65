//! Our frame: the record in a form that clients of the stream's own dialect take for a frame without effect.

use serde::Serialize;

use crate::citation::{Citation, Record};

/// The name of our event, where the dialect does not ask for another.
pub const EVENT: &str = "citations";

/// Where in the answer's text a citation is used: first and last code point.
pub type SpanLookup<'p> = dyn Fn(&Citation) -> (u64, u64) + 'p;

/// What our frame carries.
pub struct Payload<'p> {
    pub record: &'p Record,
    /// `None` in an announcement: clients add up annotations, so these come once, at the end.
    pub span_lookup: Option<&'p SpanLookup<'p>>,
}

/// Our frame before it is encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// The SSE event's name.
    pub event: &'static str,
    /// One line.
    pub json: String,
}

impl Envelope {
    /// Under the usual name. The value has string keys and no parts that cannot be serialized.
    pub fn new(json: &impl Serialize) -> Self {
        Self { event: EVENT, json: serde_json::to_string(json).unwrap_or_default() }
    }

    /// No dialect: the record itself.
    pub fn from_record(payload: &Payload<'_>) -> Self {
        Self::new(payload.record)
    }
}

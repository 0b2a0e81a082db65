//! Wire formats of upstreams: an [`Adapter`] reads frames into [`Signal`]s and encodes our frame in the stream's dialect.
//! One folder per provider and one line in the [`registry`]. Called by `pipeline`; knows no chunks and does no I/O.

pub mod anthropic;
mod detect;
pub mod doubao;
mod envelope;
pub mod error_document;
pub mod gemini;
pub mod json;
pub mod json_path;
pub mod mcp;
pub mod openai;
pub mod openai_responses;
pub mod registry;
mod results;
pub mod splice;
pub mod tavily;
pub mod tencent;

use std::borrow::Cow;

use crate::{
    citation::{
        ledger::{Published, Reference},
        record::CitationType,
    },
    sse::Event,
};
use detect::Detector;
pub use envelope::{EVENT, Envelope, Payload, SpanLookup};
pub use json_path::JsonPath;
pub use registry::{Build, Descriptor, InputKind, Provider, REGISTRY, Registry};

/// Reads the frames of one stream in one wire format.
pub trait Adapter: Send {
    /// The provider's name in records. `None` until it is detected.
    fn provider(&self) -> Option<&'static str>;

    /// Reads one frame and sends its signals to `sink`. After a `ParseError` the caller continues with the next frame.
    fn frame(&mut self, event: &Event<'_>, sink: &mut dyn Sink) -> Result<(), ParseError>;

    /// Encodes our frame in the stream's dialect, as a frame without effect for its clients.
    fn envelope(&self, payload: &Payload<'_>) -> Envelope {
        Envelope::from_record(payload)
    }

    /// Whether clients of the stream's dialect skip SSE comments. If not, no heartbeat is sent.
    fn clients_accept_comments(&self) -> bool {
        true
    }

    /// True if the adapter will never understand this stream: the caller stops passing frames.
    fn gave_up(&self) -> bool {
        false
    }
}

/// Receives the signals of a frame in the order in which the adapter reads them.
pub trait Sink {
    fn signal(&mut self, signal: Signal<'_>);
}

/// One piece of information that an adapter reads from a frame.
#[derive(Debug, Clone, PartialEq)]
pub enum Signal<'a> {
    /// The assistant message's id.
    MessageId(&'a str),
    ConversationId(&'a str),
    Model(&'a str),
    /// A delta of the answer's text, and its path in the frame.
    Text(&'a str, JsonPath<'a>),
    /// A delta of the model's thinking.
    Thinking(&'a str),
    /// The complete answer, repeated after its deltas, and its path in the frame.
    FullText(&'a str, JsonPath<'a>),
    /// Progress that the upstream reports, in its own words.
    Stage {
        name: &'a str,
        message: &'a str,
        detail: Option<String>,
    },
    /// A search, identified by its block. References that follow belong to it.
    SearchRound {
        key: &'a str,
        summary: Option<&'a str>,
        queries: Vec<Cow<'a, str>>,
    },
    Reference(Reference<'a>),
    /// An entry that cannot become a citation: an id that distinguishes it if it has one, its position in its list from 1,
    /// and one of [`code`].
    InvalidReference {
        id: Option<String>,
        position: u32,
        code: &'static str,
    },
    /// Token counts of the answer.
    Usage(Usage),
    /// The upstream finished the answer. Sent after the other signals of its frame.
    Finish(FinishReason),
    /// The upstream reports a failure, with its own code and message if it has them.
    Fault {
        code: Option<String>,
        message: Option<&'a str>,
    },
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FinishReason {
    #[default]
    Stop,
    Length,
    /// A content filter withheld the answer or the rest of it.
    Filter,
    /// The model requests tool calls.
    Tools,
}

impl FinishReason {
    /// Parses an upstream's spelling. Unknown reasons are `Stop`.
    pub fn of(name: &str) -> Self {
        match name {
            "length" | "max_tokens" | "max_output_tokens" => Self::Length,
            "content_filter" | "sensitive" | "safety" | "refusal" => Self::Filter,
            "tool_calls" | "function_call" | "tool_use" => Self::Tools,
            _ => Self::Stop,
        }
    }
}

/// Token counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    pub input: u64,
    pub output: u64,
    pub total: u64,
}

/// Why an entry cannot become a citation, as records and bundles report it. Clients depend on these: add, never change.
pub mod code {
    pub const NOT_AN_OBJECT: &str = "not_an_object";
    pub const MISSING_TITLE_AND_URL: &str = "missing_title_and_url";
    pub const MISSING_TITLE_URL_AND_ID: &str = "missing_title_url_and_id";
}

/// The frame should have been readable and was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseError;

/// Citation type of web search results.
const WEB: CitationType = CitationType::Websearch;

/// Reads a publication time: text, or seconds since the epoch.
fn published<'a>(node: &'a json::Node<'_>) -> Option<Published<'a>> {
    match node {
        json::Node::Str(text) if !text.trim().is_empty() => Some(Published::Text(text)),
        json::Node::Unsigned(n) => i64::try_from(*n).ok().map(Published::Epoch),
        _ => None,
    }
}

#[cfg(test)]
mod tests;

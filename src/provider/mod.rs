//! What upstreams mean: a frame in, signals out; and how our frame looks in their dialect. One folder per provider, and
//! one line for it in the [`registry`].

mod detect;
pub mod doubao;
mod envelope;
pub mod error_document;
pub mod json;
pub mod json_path;
pub mod mcp;
pub mod openai;
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

/// One instance per stream; reads frames and says what they mean.
pub trait Adapter: Send {
    /// The provider's name in records; `None` until it is known.
    fn provider(&self) -> Option<&'static str>;

    /// Reads one frame. `ParseError` means that the frame was not understood where it should have
    /// been; the next one is read all the same.
    fn frame(&mut self, event: &Event<'_>, sink: &mut dyn Sink) -> Result<(), ParseError>;

    /// Our frame in this stream's own dialect: its clients take it for one without effect.
    fn envelope(&self, payload: &Payload<'_>) -> Envelope {
        Envelope::from_record(payload)
    }

    /// It will never understand this stream: stop asking.
    fn gave_up(&self) -> bool {
        false
    }
}

/// Takes what an adapter reads, as it reads it.
pub trait Sink {
    fn signal(&mut self, signal: Signal<'_>);
}

/// What a frame meant.
#[derive(Debug, Clone, PartialEq)]
pub enum Signal<'a> {
    /// The assistant message's id.
    MessageId(&'a str),
    ConversationId(&'a str),
    Model(&'a str),
    /// A piece of the answer, and where in the frame it stands.
    Text(&'a str, JsonPath<'a>),
    /// A piece of the model's thinking.
    Thinking(&'a str),
    /// The whole answer once more, and where in the frame it stands.
    FullText(&'a str, JsonPath<'a>),
    /// What the upstream is doing, in its own words.
    Stage {
        name: &'a str,
        message: &'a str,
        detail: Option<String>,
    },
    /// A search: its block, and what is known of it. References that follow belong to it.
    SearchRound {
        key: &'a str,
        summary: Option<&'a str>,
        queries: Vec<Cow<'a, str>>,
    },
    Reference(Reference<'a>),
    /// A reference that cannot be one: what tells it from others where it has that, its place, and one of [`code`].
    InvalidReference {
        id: Option<String>,
        position: u32,
        code: &'static str,
    },
    /// What the answer cost.
    Usage(Usage),
    /// The upstream says that the answer is finished. The frame that says so was read whole.
    Finish(FinishReason),
    /// The upstream says that it failed, with its own code and words where it has them.
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
    /// What was to be said was held back.
    Filter,
    /// The model wants tools called.
    Tools,
}

impl FinishReason {
    /// As upstreams spell it; what is not known is a plain stop.
    pub fn of(name: &str) -> Self {
        match name {
            "length" | "max_tokens" | "max_output_tokens" => Self::Length,
            "content_filter" | "sensitive" | "safety" | "refusal" => Self::Filter,
            "tool_calls" | "function_call" | "tool_use" => Self::Tools,
            _ => Self::Stop,
        }
    }
}

/// Tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    pub input: u64,
    pub output: u64,
    pub total: u64,
}

/// Why a reference cannot be one, as records and bundles say it. Others rely on these: add, never change.
pub mod code {
    pub const NOT_AN_OBJECT: &str = "not_an_object";
    pub const MISSING_TITLE_AND_URL: &str = "missing_title_and_url";
    pub const MISSING_TITLE_URL_AND_ID: &str = "missing_title_url_and_id";
}

/// A frame that should have been readable and was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseError;

/// The type that references of a web search have.
const WEB: CitationType = CitationType::Websearch;

/// A time as upstreams write it: text, or seconds since the epoch.
fn published<'a>(node: &'a json::Node<'_>) -> Option<Published<'a>> {
    match node {
        json::Node::Str(text) if !text.trim().is_empty() => Some(Published::Text(text)),
        json::Node::Unsigned(n) => i64::try_from(*n).ok().map(Published::Epoch),
        _ => None,
    }
}

#[cfg(test)]
mod tests;

//! OpenAI chat completions: as a stream of chunks, or as one document.

use serde::Serialize;

use super::{Encoder, MessageStart, Positions, native};
use crate::{
    citation::Record,
    provider::{
        FinishReason, Usage,
        openai::{self, shapes},
    },
    sse::{Eol, encode},
};

/// What opens every chunk and document.
#[derive(Debug, Clone, Default)]
pub struct Head {
    pub id: String,
    pub model: String,
    pub created: i64,
}

impl Head {
    pub fn of(opening: &MessageStart<'_>) -> Self {
        Self { id: opening.id.to_owned(), model: opening.model.to_owned(), created: opening.created }
    }
}

#[derive(Serialize)]
struct Chunk<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    model: &'a str,
    choices: [Choice<'a>; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Tokens>,
}

#[derive(Serialize)]
struct Choice<'a> {
    index: u32,
    delta: Delta<'a>,
    finish_reason: Option<&'static str>,
}

#[derive(Serialize, Default)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
}

#[derive(Serialize, Clone, Copy)]
pub struct Tokens {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
}

impl From<Usage> for Tokens {
    fn from(usage: Usage) -> Self {
        Self { prompt_tokens: usage.input, completion_tokens: usage.output, total_tokens: usage.total }
    }
}

#[derive(Serialize)]
pub struct ErrorDocument<'a> {
    error: ErrorBody<'a>,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    param: Option<&'a str>,
    code: Option<&'a str>,
}

/// The type of errors that are the upstream's.
pub const UPSTREAM_ERROR: &str = "upstream_error";

/// An upstream's error in the words of the API.
pub fn upstream_error<'a>(code: Option<&'a str>, message: &'a str) -> ErrorDocument<'a> {
    error(UPSTREAM_ERROR, None, code, message)
}

/// Any error in the words of the API.
pub fn error<'a>(
    kind: &'static str,
    param: Option<&'a str>,
    code: Option<&'a str>,
    message: &'a str,
) -> ErrorDocument<'a> {
    ErrorDocument { error: ErrorBody { message, kind, param, code } }
}

/// Is this the beginning of a document that is an error?
pub fn is_error(document: &[u8]) -> bool {
    document.starts_with(br#"{"error":{"message":"#)
}

pub const fn finish_reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
        FinishReason::Filter => "content_filter",
        FinishReason::Tools => "tool_calls",
    }
}

/// One unnamed event.
pub fn data(value: &impl Serialize, out: &mut Vec<u8>) {
    if let Ok(json) = serde_json::to_string(value) {
        out.extend_from_slice(&encode::data(&json, Eol::Lf));
    }
}

/// Speaks in chunks.
#[derive(Default)]
pub struct Chunks {
    head: Head,
    /// Known, and not said yet.
    usage: Option<Usage>,
    failed: bool,
}

impl Chunks {
    fn chunk(&mut self, delta: Delta<'_>, finish_reason: Option<&'static str>, out: &mut Vec<u8>) {
        // What it cost goes with the end, or in a chunk of its own after it.
        let usage = finish_reason.and_then(|_| self.usage.take());
        self.send(delta, finish_reason, usage, out);
    }

    fn send(&self, delta: Delta<'_>, finish_reason: Option<&'static str>, usage: Option<Usage>, out: &mut Vec<u8>) {
        let Head { id, model, created } = &self.head;
        let choices = [Choice { index: 0, delta, finish_reason }];
        let usage = usage.map(Tokens::from);
        data(&Chunk { id, object: "chat.completion.chunk", created: *created, model, choices, usage }, out);
    }

    /// A chunk without text that carries the record; with positions also annotations and search results.
    pub(super) fn record(&self, record: &Record, positions: Option<&Positions>, out: &mut Vec<u8>) {
        let Head { id, model, created } = &self.head;
        let head = openai::ChunkHeader { id, model, created: *created };
        let frame = native::frame(record.clone(), &|payload| head.envelope(payload, false), positions, Eol::Lf);
        out.extend_from_slice(&frame);
    }
}

impl Encoder for Chunks {
    fn open(&mut self, opening: &MessageStart<'_>, out: &mut Vec<u8>) {
        self.head = Head::of(opening);
        self.chunk(Delta { role: Some("assistant"), content: Some(""), ..Delta::default() }, None, out);
    }

    fn text(&mut self, text: &str, out: &mut Vec<u8>) {
        self.chunk(Delta { content: Some(text), ..Delta::default() }, None, out);
    }

    fn thinking(&mut self, text: &str, out: &mut Vec<u8>) {
        self.chunk(Delta { reasoning_content: Some(text), ..Delta::default() }, None, out);
    }

    fn live(&mut self, record: &Record, out: &mut Vec<u8>) {
        self.record(record, None, out);
    }

    fn citations(&mut self, record: &Record, positions: &Positions, out: &mut Vec<u8>) {
        self.record(record, Some(positions), out);
    }

    fn usage(&mut self, usage: Usage, _: &mut Vec<u8>) {
        self.usage = Some(usage);
    }

    fn finish(&mut self, reason: FinishReason, out: &mut Vec<u8>) {
        self.chunk(Delta::default(), Some(finish_reason(reason)), out);
    }

    fn fault(&mut self, code: Option<&str>, message: &str, out: &mut Vec<u8>) {
        data(&upstream_error(code, message), out);
        self.failed = true;
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        // An error is the end: no chunk follows it. A chunk without choices breaks loops that look at the first one,
        // so this one has one.
        if let Some(usage) = self.usage.take().filter(|_| !self.failed) {
            self.send(Delta { content: Some(""), ..Delta::default() }, None, Some(usage), out);
        }
        out.extend_from_slice(&encode::data("[DONE]", Eol::Lf));
    }
}

/// Speaks once, at the end.
#[derive(Default)]
pub struct Whole {
    head: Head,
    text: String,
    thinking: String,
    truncated: bool,
    sources: Option<(Record, Positions)>,
    usage: Option<Usage>,
    reason: Option<FinishReason>,
    fault: Option<(Option<String>, String)>,
}

/// Bytes of text in a document; what is beyond is left out, and the finish reason says so.
pub const MAX_WHOLE: usize = 16 * 1024 * 1024;

#[derive(Serialize)]
pub struct Completion<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    model: &'a str,
    choices: [WholeChoice<'a>; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Tokens>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    citations: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    search_results: Vec<shapes::SearchResult<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    citetap: Option<&'a Record>,
}

#[derive(Serialize)]
struct WholeChoice<'a> {
    index: u32,
    message: Message<'a>,
    finish_reason: &'static str,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reasoning_content: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    annotations: Vec<shapes::Annotation<'a>>,
}

impl Whole {
    fn keep(&mut self, text: &str, thinking: bool) {
        let held = self.text.len() + self.thinking.len();
        let piece = crate::citation::text::first_bytes(text, MAX_WHOLE.saturating_sub(held));
        self.truncated |= piece.len() < text.len();
        if thinking { &mut self.thinking } else { &mut self.text }.push_str(piece);
    }
}

impl Encoder for Whole {
    fn open(&mut self, opening: &MessageStart<'_>, _: &mut Vec<u8>) {
        self.head = Head::of(opening);
    }

    fn text(&mut self, text: &str, _: &mut Vec<u8>) {
        self.keep(text, false);
    }

    fn thinking(&mut self, text: &str, _: &mut Vec<u8>) {
        self.keep(text, true);
    }

    fn citations(&mut self, record: &Record, positions: &Positions, _: &mut Vec<u8>) {
        self.sources = Some((native::shown(record.clone()), positions.clone()));
    }

    fn usage(&mut self, usage: Usage, _: &mut Vec<u8>) {
        self.usage = Some(usage);
    }

    fn finish(&mut self, reason: FinishReason, _: &mut Vec<u8>) {
        self.reason = Some(reason);
    }

    fn fault(&mut self, code: Option<&str>, message: &str, _: &mut Vec<u8>) {
        self.fault = Some((code.map(ToOwned::to_owned), message.to_owned()));
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        write_json(&self.outcome(), out);
    }
}

/// One JSON document.
pub fn write_json(value: &impl Serialize, out: &mut Vec<u8>) {
    // Our types have string keys and no failing parts.
    serde_json::to_writer(out, value).unwrap_or_default();
}

/// What came of an answer, as a document says it.
#[derive(Serialize)]
#[serde(untagged)]
pub enum Outcome<'a> {
    Done(Completion<'a>),
    Failed(ErrorDocument<'a>),
}

impl Whole {
    pub(super) fn outcome(&self) -> Outcome<'_> {
        match &self.fault {
            Some((code, message)) => Outcome::Failed(upstream_error(code.as_deref(), message)),
            None => Outcome::Done(self.completion()),
        }
    }

    /// The sources that were said, and where their markers stand.
    pub(super) fn sources(&self) -> Option<&Record> {
        self.sources.as_ref().map(|(record, _)| record)
    }

    fn completion(&self) -> Completion<'_> {
        let Head { id, model, created } = &self.head;
        let reason = if self.truncated { FinishReason::Length } else { self.reason.unwrap_or_default() };
        let sources = self.sources.as_ref();
        Completion {
            id,
            object: "chat.completion",
            created: *created,
            model,
            choices: [WholeChoice {
                index: 0,
                message: Message {
                    role: "assistant",
                    content: &self.text,
                    reasoning_content: &self.thinking,
                    annotations: sources
                        .map(|(record, at)| shapes::annotations(record, &|citation| at.span(citation)))
                        .unwrap_or_default(),
                },
                finish_reason: finish_reason(reason),
            }],
            usage: self.usage.map(Tokens::from),
            citations: sources.map(|(record, _)| shapes::urls(record)).unwrap_or_default(),
            search_results: sources.map(|(record, _)| shapes::search_results(record)).unwrap_or_default(),
            citetap: sources.map(|(record, _)| record),
        }
    }
}

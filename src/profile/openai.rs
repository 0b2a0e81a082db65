//! OpenAI chat completions as a stream of chunks or as one document.

use serde::Serialize;

use super::{Encoder, MessageStart, Positions, native, open_webui};
use crate::{
    citation::{Record, text},
    provider::{
        FinishReason, Usage,
        openai::{self, shapes},
    },
    sse::{Eol, encode},
};

/// Members that every chunk and document starts with.
#[derive(Debug, Clone, Default)]
struct Head {
    id: String,
    model: String,
    created: i64,
}

impl Head {
    fn new(start: &MessageStart<'_>) -> Self {
        Self { id: start.id.to_owned(), model: start.model.to_owned(), created: start.created }
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

#[derive(Serialize)]
struct Tokens {
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

/// Error type of upstream errors.
pub const UPSTREAM_ERROR: &str = "upstream_error";

/// An upstream's error in OpenAI's format.
pub fn upstream_error<'a>(code: Option<&'a str>, message: &'a str) -> ErrorDocument<'a> {
    error(UPSTREAM_ERROR, None, code, message)
}

/// An error in OpenAI's format.
pub fn error<'a>(
    kind: &'static str,
    param: Option<&'a str>,
    code: Option<&'a str>,
    message: &'a str,
) -> ErrorDocument<'a> {
    ErrorDocument { error: ErrorBody { message, kind, param, code } }
}

/// Whether a document starts like an error.
pub fn is_error(document: &[u8]) -> bool {
    document.starts_with(br#"{"error":{"message":"#)
}

const fn finish_reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
        FinishReason::Filter => "content_filter",
        FinishReason::Tools => "tool_calls",
    }
}

/// Appends an unnamed event.
pub fn write_data(value: &impl Serialize, out: &mut Vec<u8>) {
    if let Ok(json) = serde_json::to_string(value) {
        out.extend_from_slice(&encode::data(&json, Eol::Lf));
    }
}

/// Encodes an answer as chunks.
#[derive(Default)]
pub struct ChunkEncoder {
    head: Head,
    /// Usage that is not encoded yet.
    usage: Option<Usage>,
    failed: bool,
}

impl ChunkEncoder {
    fn chunk(&mut self, delta: Delta<'_>, finish_reason: Option<&'static str>, out: &mut Vec<u8>) {
        // Usage goes with the finish, or in a chunk of its own after it.
        let usage = finish_reason.and_then(|_| self.usage.take());
        self.send(delta, finish_reason, usage, out);
    }

    fn send(&self, delta: Delta<'_>, finish_reason: Option<&'static str>, usage: Option<Usage>, out: &mut Vec<u8>) {
        let Head { id, model, created } = &self.head;
        let choices = [Choice { index: 0, delta, finish_reason }];
        let usage = usage.map(Tokens::from);
        write_data(&Chunk { id, object: "chat.completion.chunk", created: *created, model, choices, usage }, out);
    }

    /// Appends a chunk that carries the record, and with positions also annotations and search results.
    pub(super) fn record(&self, record: &Record, positions: Option<&Positions>, out: &mut Vec<u8>) {
        let Head { id, model, created } = &self.head;
        let head = openai::ChunkHeader { id, model, created: *created };
        let frame = native::frame(record.clone(), &|payload| head.envelope(payload, false), positions, Eol::Lf);
        out.extend_from_slice(&frame);
    }
}

impl Encoder for ChunkEncoder {
    fn open(&mut self, start: &MessageStart<'_>, out: &mut Vec<u8>) {
        self.head = Head::new(start);
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
        write_data(&upstream_error(code, message), out);
        self.failed = true;
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        // No chunk follows an error. The chunk has a choice because clients read the first choice of every chunk.
        if let Some(usage) = self.usage.take().filter(|_| !self.failed) {
            self.send(Delta { content: Some(""), ..Delta::default() }, None, Some(usage), out);
        }
        out.extend_from_slice(&encode::data("[DONE]", Eol::Lf));
    }
}

/// Collects an answer and encodes it as one document.
#[derive(Default)]
pub struct DocumentEncoder {
    head: Head,
    text: String,
    thinking: String,
    truncated: bool,
    sources: Option<(Record, Positions)>,
    usage: Option<Usage>,
    reason: Option<FinishReason>,
    fault: Option<(Option<String>, String)>,
    for_open_webui: bool,
}

/// Bytes of text in a document. Longer text is cut, and the finish reason is `length`.
pub const MAX_TEXT: usize = 16 * 1024 * 1024;

#[derive(Serialize)]
struct Completion<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    model: &'a str,
    choices: [DocumentChoice<'a>; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Tokens>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    citations: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    search_results: Vec<shapes::SearchResult<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    citetap: Option<&'a Record>,
    /// Open WebUI's list of sources.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sources: Vec<open_webui::Source<'a>>,
}

#[derive(Serialize)]
struct DocumentChoice<'a> {
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

impl DocumentEncoder {
    /// Creates an encoder whose document also has Open WebUI's list of sources.
    pub fn for_open_webui() -> Self {
        Self { for_open_webui: true, ..Self::default() }
    }

    /// Returns the part of `piece` that fits under [`MAX_TEXT`].
    fn fitting<'p>(&mut self, piece: &'p str) -> &'p str {
        let fitting = text::first_bytes(piece, MAX_TEXT.saturating_sub(self.text.len() + self.thinking.len()));
        self.truncated |= fitting.len() < piece.len();
        fitting
    }

    fn completion(&self) -> Completion<'_> {
        let Head { id, model, created } = &self.head;
        let reason = if self.truncated { FinishReason::Length } else { self.reason.unwrap_or_default() };
        let sources = self.sources.as_ref();
        let record = sources.map(|(record, _)| record);
        let annotations = sources
            .map(|(record, positions)| shapes::annotations(record, &|citation| positions.span(citation)))
            .unwrap_or_default();
        Completion {
            id,
            object: "chat.completion",
            created: *created,
            model,
            choices: [DocumentChoice {
                index: 0,
                message: Message {
                    role: "assistant",
                    content: &self.text,
                    reasoning_content: &self.thinking,
                    annotations,
                },
                finish_reason: finish_reason(reason),
            }],
            usage: self.usage.map(Tokens::from),
            citations: record.map(shapes::urls).unwrap_or_default(),
            search_results: record.map(shapes::search_results).unwrap_or_default(),
            citetap: record,
            sources: record.filter(|_| self.for_open_webui).map(open_webui::sources).unwrap_or_default(),
        }
    }
}

impl Encoder for DocumentEncoder {
    fn open(&mut self, start: &MessageStart<'_>, _: &mut Vec<u8>) {
        self.head = Head::new(start);
    }

    fn text(&mut self, text: &str, _: &mut Vec<u8>) {
        let fitting = self.fitting(text);
        self.text.push_str(fitting);
    }

    fn thinking(&mut self, text: &str, _: &mut Vec<u8>) {
        let fitting = self.fitting(text);
        self.thinking.push_str(fitting);
    }

    fn citations(&mut self, record: &Record, positions: &Positions, _: &mut Vec<u8>) {
        self.sources = Some((native::client_view(record.clone()), positions.clone()));
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
        match &self.fault {
            Some((code, message)) => write_json(&upstream_error(code.as_deref(), message), out),
            None => write_json(&self.completion(), out),
        }
    }
}

/// Appends a JSON document.
pub fn write_json(value: &impl Serialize, out: &mut Vec<u8>) {
    // Our types have string keys, so serializing them cannot fail.
    serde_json::to_writer(out, value).unwrap_or_default();
}

//! The AI SDK's UI message stream, version 1. Only what its schema has had since finish reasons came into it:
//! versions 5 and 6 refuse a chunk with a key that they do not know.

use serde::Serialize;

use super::{Encoder, MessageStart, Positions, native::fitted, openai::data};
use crate::{
    citation::{Citation, Record, text},
    provider::{
        FinishReason, Usage,
        openai::shapes::{title, unfiltered},
    },
    sse::{Eol, encode},
};

/// Characters of a stage's message or a query in a status.
const MAX_STATUS: usize = 300;
/// Queries in a status; further ones are in the record.
const MAX_QUERIES: usize = 16;

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
enum Chunk<'a> {
    Start {
        message_id: &'a str,
    },
    TextStart {
        id: &'a str,
    },
    TextDelta {
        id: &'a str,
        delta: &'a str,
    },
    TextEnd {
        id: &'a str,
    },
    ReasoningStart {
        id: &'a str,
    },
    ReasoningDelta {
        id: &'a str,
        delta: &'a str,
    },
    ReasoningEnd {
        id: &'a str,
    },
    SourceUrl {
        source_id: &'a str,
        url: &'a str,
        title: &'a str,
    },
    SourceDocument {
        source_id: &'a str,
        media_type: &'static str,
        title: &'a str,
    },
    /// Shown while it lasts, and no part of the message.
    DataStatus {
        data: Status<'a>,
        transient: bool,
    },
    /// One with an id replaces the one before it.
    DataCitations {
        id: &'a str,
        data: &'a Record,
    },
    Error {
        error_text: &'a str,
    },
    Finish {
        finish_reason: &'static str,
    },
}

#[derive(Serialize, Default)]
struct Status<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    stage: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    queries: Vec<&'a str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Reasoning,
}

/// Speaks in chunks. Text and reasoning are parts, of which one at a time is open.
#[derive(Default)]
pub struct Parts {
    open: Option<Kind>,
    /// The id of the part that is open.
    part: String,
    parts: u32,
}

impl Parts {
    fn delta(&mut self, kind: Kind, delta: &str, out: &mut Vec<u8>) {
        if self.open != Some(kind) {
            self.close(out);
            self.parts += 1;
            self.open = Some(kind);
            self.part = format!("part-{}", self.parts);
            let id = &self.part;
            say(&if kind == Kind::Text { Chunk::TextStart { id } } else { Chunk::ReasoningStart { id } }, out);
        }
        let id = &self.part;
        say(
            &if kind == Kind::Text { Chunk::TextDelta { id, delta } } else { Chunk::ReasoningDelta { id, delta } },
            out,
        );
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        let id = &self.part;
        match self.open.take() {
            Some(Kind::Text) => say(&Chunk::TextEnd { id }, out),
            Some(Kind::Reasoning) => say(&Chunk::ReasoningEnd { id }, out),
            None => {}
        }
    }
}

impl Encoder for Parts {
    fn open(&mut self, opening: &MessageStart<'_>, out: &mut Vec<u8>) {
        say(&Chunk::Start { message_id: opening.id }, out);
    }

    fn text(&mut self, text: &str, out: &mut Vec<u8>) {
        self.delta(Kind::Text, text, out);
    }

    fn thinking(&mut self, text: &str, out: &mut Vec<u8>) {
        self.delta(Kind::Reasoning, text, out);
    }

    fn stage(&mut self, name: &str, message: &str, detail: Option<&str>, out: &mut Vec<u8>) {
        let short = |words| text::first_chars(words, MAX_STATUS);
        let data = Status {
            stage: Some(short(name)),
            message: Some(message).filter(|message| !message.is_empty()).map(short),
            detail: detail.map(short),
            queries: Vec::new(),
        };
        say(&Chunk::DataStatus { data, transient: true }, out);
    }

    fn searching(&mut self, queries: &[String], out: &mut Vec<u8>) {
        let queries = queries.iter().take(MAX_QUERIES).map(|query| text::first_chars(query, MAX_STATUS)).collect();
        say(&Chunk::DataStatus { data: Status { queries, ..Status::default() }, transient: true }, out);
    }

    fn live(&mut self, record: &Record, out: &mut Vec<u8>) {
        let id = &record.message_id;
        let line = fitted(record.clone(), |data| {
            serde_json::to_string(&Chunk::DataCitations { id, data }).unwrap_or_default()
        });
        out.extend_from_slice(&encode::data(&line, Eol::Lf));
    }

    /// The part that is open stays so: it ends with the answer, and after a cut it does not end.
    fn citations(&mut self, record: &Record, _: &Positions, out: &mut Vec<u8>) {
        for citation in unfiltered(record) {
            let url = citation.url.as_deref();
            let (source_id, title) = (&source_id(citation), &title(citation));
            let chunk = match url {
                Some(url) => Chunk::SourceUrl { source_id, url, title },
                None => Chunk::SourceDocument { source_id, media_type: media_type(citation), title },
            };
            say(&chunk, out);
        }
        self.live(record, out);
    }

    /// The stream has no place for it.
    fn usage(&mut self, _: Usage, _: &mut Vec<u8>) {}

    fn finish(&mut self, reason: FinishReason, out: &mut Vec<u8>) {
        self.close(out);
        let finish_reason = match reason {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            FinishReason::Filter => "content-filter",
            FinishReason::Tools => "tool-calls",
        };
        say(&Chunk::Finish { finish_reason }, out);
    }

    fn fault(&mut self, code: Option<&str>, message: &str, out: &mut Vec<u8>) {
        self.close(out);
        let coded = code.map(|code| format!("{message} ({code})"));
        say(&Chunk::Error { error_text: coded.as_deref().unwrap_or(message) }, out);
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&encode::data("[DONE]", Eol::Lf));
    }
}

fn say(chunk: &Chunk<'_>, out: &mut Vec<u8>) {
    data(chunk, out);
}

/// `citation-<n>` counts from zero: clients make the marker's number of it. A source numbered zero has no such name.
fn source_id(citation: &Citation) -> String {
    match citation.number.checked_sub(1) {
        Some(n) => format!("citation-{n}"),
        None => citation.source_id.clone(),
    }
}

/// Of a document that has no link. Clients want one; where nothing tells it, it is text.
fn media_type(citation: &Citation) -> &'static str {
    match citation.metadata.get("fileType").and_then(serde_json::Value::as_str) {
        Some("pdf") => "application/pdf",
        Some("md" | "markdown") => "text/markdown",
        Some("html" | "htm") => "text/html",
        Some("csv") => "text/csv",
        Some("docx") => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        Some("xlsx") => "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        Some("pptx") => "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        _ => "text/plain",
    }
}

//! The AI SDK's UI message stream, version 1. Uses only keys of the first schema with finish reasons, because versions 5 and
//! 6 of the SDK reject chunks with unknown keys.

use serde::Serialize;

use super::{Encoder, MessageStart, Positions, native::fit_line, openai::write_data};
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
    /// Shown until the next status. Not stored in the message.
    DataStatus {
        data: Status<'a>,
        transient: bool,
    },
    /// Replaces the previous chunk with the same id.
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
enum PartKind {
    Text,
    Reasoning,
}

/// Encodes an answer as chunks. Text and reasoning are parts, of which one at a time is open.
#[derive(Default)]
pub struct PartEncoder {
    open: Option<PartKind>,
    /// Id of the open part.
    part_id: String,
    part_count: u32,
}

impl PartEncoder {
    fn delta(&mut self, kind: PartKind, delta: &str, out: &mut Vec<u8>) {
        if self.open != Some(kind) {
            self.close(out);
            self.part_count += 1;
            self.open = Some(kind);
            self.part_id = format!("part-{}", self.part_count);
            let id = &self.part_id;
            let start = match kind {
                PartKind::Text => Chunk::TextStart { id },
                PartKind::Reasoning => Chunk::ReasoningStart { id },
            };
            write_data(&start, out);
        }
        let id = &self.part_id;
        let delta = match kind {
            PartKind::Text => Chunk::TextDelta { id, delta },
            PartKind::Reasoning => Chunk::ReasoningDelta { id, delta },
        };
        write_data(&delta, out);
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        let id = &self.part_id;
        match self.open.take() {
            Some(PartKind::Text) => write_data(&Chunk::TextEnd { id }, out),
            Some(PartKind::Reasoning) => write_data(&Chunk::ReasoningEnd { id }, out),
            None => {}
        }
    }
}

impl Encoder for PartEncoder {
    fn open(&mut self, start: &MessageStart<'_>, out: &mut Vec<u8>) {
        write_data(&Chunk::Start { message_id: start.id }, out);
    }

    fn text(&mut self, text: &str, out: &mut Vec<u8>) {
        self.delta(PartKind::Text, text, out);
    }

    fn thinking(&mut self, text: &str, out: &mut Vec<u8>) {
        self.delta(PartKind::Reasoning, text, out);
    }

    fn stage(&mut self, name: &str, message: &str, detail: Option<&str>, out: &mut Vec<u8>) {
        let short = |text| text::first_chars(text, MAX_STATUS);
        let data = Status {
            stage: Some(short(name)),
            message: Some(message).filter(|message| !message.is_empty()).map(short),
            detail: detail.map(short),
            queries: Vec::new(),
        };
        write_data(&Chunk::DataStatus { data, transient: true }, out);
    }

    fn searching(&mut self, queries: &[String], out: &mut Vec<u8>) {
        let queries = queries.iter().take(MAX_QUERIES).map(|query| text::first_chars(query, MAX_STATUS)).collect();
        write_data(&Chunk::DataStatus { data: Status { queries, ..Status::default() }, transient: true }, out);
    }

    fn live(&mut self, record: &Record, out: &mut Vec<u8>) {
        let id = &record.message_id;
        let line = fit_line(record.clone(), |data| {
            serde_json::to_string(&Chunk::DataCitations { id, data }).unwrap_or_default()
        });
        out.extend_from_slice(&encode::data(&line, Eol::Lf));
    }

    /// Leaves the open part open: it ends with the answer, and not at all after a cut.
    fn citations(&mut self, record: &Record, _: &Positions, out: &mut Vec<u8>) {
        for citation in unfiltered(record) {
            let (source_id, title) = (&source_id(citation), &title(citation));
            let chunk = match citation.url.as_deref() {
                Some(url) => Chunk::SourceUrl { source_id, url, title },
                None => Chunk::SourceDocument { source_id, media_type: media_type(citation), title },
            };
            write_data(&chunk, out);
        }
        self.live(record, out);
    }

    /// Does nothing, because the stream has no chunk for usage.
    fn usage(&mut self, _: Usage, _: &mut Vec<u8>) {}

    fn finish(&mut self, reason: FinishReason, out: &mut Vec<u8>) {
        self.close(out);
        let finish_reason = match reason {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            FinishReason::Filter => "content-filter",
            FinishReason::Tools => "tool-calls",
        };
        write_data(&Chunk::Finish { finish_reason }, out);
    }

    fn fault(&mut self, code: Option<&str>, message: &str, out: &mut Vec<u8>) {
        self.close(out);
        let coded = code.map(|code| format!("{message} ({code})"));
        write_data(&Chunk::Error { error_text: coded.as_deref().unwrap_or(message) }, out);
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&encode::data("[DONE]", Eol::Lf));
    }
}

/// Returns `citation-<n>`, counted from zero, from which clients derive the marker's number. A source with number 0 gets its
/// own id.
fn source_id(citation: &Citation) -> String {
    match citation.number.checked_sub(1) {
        Some(n) => format!("citation-{n}"),
        None => citation.source_id.clone(),
    }
}

/// Media type of a document without a link, `text/plain` if it is unknown. Clients require one.
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

//! Encodes our frame as a chunk with an empty text.
//!
//! Google's SDKs do not read SSE as its specification says. python-genai, go-genai and the older JavaScript SDK fail on a
//! line that does not start with `data:`, so the frame has no name. Chat sessions of python-genai, js-genai and go-genai
//! forget a question and its answer if a chunk has no part; an empty text is what Google itself sends in last chunks.

use serde::Serialize;

use crate::{citation::Record, provider::Envelope};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Chunk<'a> {
    candidates: [Candidate; 1],
    #[serde(skip_serializing_if = "str::is_empty")]
    model_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    response_id: &'a str,
    citations: &'a Record,
}

#[derive(Serialize)]
struct Candidate {
    content: Content,
    index: u32,
}

#[derive(Serialize)]
struct Content {
    parts: [Part; 1],
    role: &'static str,
}

#[derive(Serialize)]
struct Part {
    text: &'static str,
}

/// Encodes a chunk with the record. `response_id` and `model_version` are empty if the upstream sends none.
pub fn chunk(response_id: &str, model_version: &str, record: &Record) -> Envelope {
    let candidate = Candidate { content: Content { parts: [Part { text: "" }], role: "model" }, index: 0 };
    let mut envelope =
        Envelope::unnamed(&Chunk { candidates: [candidate], model_version, response_id, citations: record });
    // python-genai splits lines at these too. They occur only in strings.
    for (separator, escape) in [('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")] {
        if envelope.json.contains(separator) {
            envelope.json = envelope.json.replace(separator, escape);
        }
    }
    envelope
}

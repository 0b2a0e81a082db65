//! Encodes our frame as a `chat.completion.chunk` without text.

use serde::Serialize;

use super::shapes;
use crate::{
    citation::Record,
    provider::{Envelope, Payload},
};

/// Fields that every chunk of a stream repeats.
#[derive(Debug, Clone, Copy)]
pub struct ChunkHeader<'a> {
    /// Empty if the upstream sends none; the frame then has the record's id.
    pub id: &'a str,
    pub model: &'a str,
    pub created: i64,
}

#[derive(Serialize)]
struct Chunk<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    model: &'a str,
    choices: [Choice<'a>; 1],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    search_results: Vec<shapes::SearchResult<'a>>,
    citetap: &'a Record,
}

#[derive(Serialize)]
struct Choice<'a> {
    index: u32,
    delta: Delta<'a>,
    finish_reason: Option<()>,
}

#[derive(Serialize)]
struct Delta<'a> {
    content: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    annotations: Vec<shapes::Annotation<'a>>,
}

impl ChunkHeader<'_> {
    /// Encodes a chunk with the record. A final one also has search results, and annotations unless the upstream has sent
    /// its own (`is_annotated`).
    pub fn envelope(self, payload: &Payload<'_>, is_annotated: bool) -> Envelope {
        let record = payload.record;
        // Send annotations once per stream: clients collect them without deduplication, and openai-python's `stream()`
        // fails on a second list.
        let annotations =
            payload.span_lookup.filter(|_| !is_annotated).map(|span_lookup| shapes::annotations(record, span_lookup));
        Envelope::new(&Chunk {
            id: if self.id.is_empty() { &record.message_id } else { self.id },
            object: "chat.completion.chunk",
            created: self.created,
            model: self.model,
            choices: [Choice {
                index: 0,
                delta: Delta { content: "", annotations: annotations.unwrap_or_default() },
                finish_reason: None,
            }],
            search_results: payload.span_lookup.map(|_| shapes::search_results(record)).unwrap_or_default(),
            citetap: record,
        })
    }
}

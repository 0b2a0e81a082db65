//! Our frame as a chunk without text.

use serde::Serialize;

use super::shapes;
use crate::{
    citation::Record,
    provider::{Envelope, Payload},
};

/// What every chunk of a stream repeats.
#[derive(Debug, Clone, Copy)]
pub struct ChunkHeader<'a> {
    /// Empty where the upstream names none: then it is the record's.
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
    /// A chunk that carries the record; a final one also annotations, unless the stream was `annotated` by its upstream,
    /// and search results.
    pub fn envelope(self, payload: &Payload<'_>, annotated: bool) -> Envelope {
        let record = payload.record;
        // Once in a stream: clients collect annotations, so what is said twice is there twice, and
        // openai-python's `stream()` fails on a second list of them.
        let annotations =
            payload.span_lookup.filter(|_| !annotated).map(|span_lookup| shapes::annotations(record, span_lookup));
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

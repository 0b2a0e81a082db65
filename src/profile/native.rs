//! The upstream's own dialect: our record inside a frame that its clients take for one without effect.

use bytes::Bytes;
use serde::Serialize;

use super::{Positions, shapes};
use crate::{
    citation::{Record, record::Status, text},
    provider::Envelope,
    sse::{Eol, encode},
};

/// The name of our event.
pub const EVENT: &str = "citations";
/// Our line stays under this: proxies and clients with line buffers take 64 KiB.
pub const MAX_LINE: usize = 64 * 1024;
/// Characters of an excerpt in the event; the store has more.
const SNIPPET: usize = 200;
/// Characters of an excerpt when the line would be too long.
const SHORT_SNIPPET: usize = 60;

/// Our frame, whole. Without positions it is an announcement: clients add up annotations, so these come once, at the end.
pub fn frame(record: Record, envelope: &Envelope<'_>, positions: Option<&Positions>, eol: Eol) -> Bytes {
    encode::event(EVENT, &fitted(record, |record| dressed(record, envelope, positions)), eol)
}

/// A record as clients see it: what is filtered or failed stays with the store, and excerpts are cut.
pub fn shown(mut record: Record) -> Record {
    record.citations.retain(|citation| citation.status != Status::Filtered);
    for round in &mut record.rounds {
        round.failures.clear();
    }
    cut_snippets(&mut record, SNIPPET);
    record
}

/// One line with the record in it: excerpts are cut, then shrunk, then dropped, then the list is cut and says so.
pub fn fitted(record: Record, line_of: impl Fn(&Record) -> String) -> String {
    let mut record = shown(record);
    for shrink in [|_: &mut Record| {}, short_snippets, no_snippets, bare] {
        shrink(&mut record);
        let line = line_of(&record);
        if line.len() < MAX_LINE {
            return line;
        }
    }
    record.truncated = true;
    loop {
        let keep = record.citations.len() / 2;
        record.citations.truncate(keep);
        let line = line_of(&record);
        if line.len() < MAX_LINE {
            return line;
        }
        if keep == 0 {
            // Only the message's own texts are left to shorten.
            record.queries.clear();
            record.summary = None;
            record.stats.dangling_markers.clear();
            return line_of(&record);
        }
    }
}

fn cut_snippets(record: &mut Record, chars: usize) {
    for citation in &mut record.citations {
        for snippet in citation.content.iter_mut().chain(&mut citation.snippets) {
            let keep = text::first_chars(snippet, chars).len();
            snippet.truncate(keep);
        }
    }
}

fn short_snippets(record: &mut Record) {
    for citation in &mut record.citations {
        citation.snippets.clear();
    }
    cut_snippets(record, SHORT_SNIPPET);
}

fn no_snippets(record: &mut Record) {
    for citation in &mut record.citations {
        citation.content = None;
    }
}

fn bare(record: &mut Record) {
    record.rounds.clear();
    for citation in &mut record.citations {
        citation.icon_url = None;
        citation.metadata.clear();
    }
}

#[derive(Serialize)]
struct DoubaoWeb<'a> {
    message_id: &'a str,
    patch_op: [(); 0],
    citations: &'a Record,
}

#[derive(Serialize)]
struct Samantha<'a> {
    event_type: u32,
    event_data: &'static str,
    citations: &'a Record,
}

#[derive(Serialize)]
struct Lexiang<'a> {
    completion_id: &'a str,
    session_id: &'a str,
    processes: Processes,
    delta_content: &'static str,
    content: &'static str,
    finish_reason: &'static str,
    is_stop: bool,
    answer_source: &'static str,
    additional_content: Option<()>,
    citations: &'a Record,
}

#[derive(Serialize, Default)]
struct Processes {
    stage: &'static str,
    message: &'static str,
    delta_content: &'static str,
    content: &'static str,
    detail: Option<()>,
}

#[derive(Serialize)]
struct OpenAi<'a> {
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

fn dressed(record: &Record, envelope: &Envelope<'_>, positions: Option<&Positions>) -> String {
    let json = match *envelope {
        Envelope::DoubaoWeb => {
            serde_json::to_string(&DoubaoWeb { message_id: &record.message_id, patch_op: [], citations: record })
        }
        Envelope::Samantha => serde_json::to_string(&Samantha { event_type: 0, event_data: "{}", citations: record }),
        Envelope::Lexiang { completion_id, session_id } => serde_json::to_string(&Lexiang {
            completion_id,
            session_id,
            processes: Processes::default(),
            delta_content: "",
            content: "",
            finish_reason: "",
            is_stop: false,
            answer_source: "",
            additional_content: None,
            citations: record,
        }),
        Envelope::OpenAi { id, model, created, annotated } => serde_json::to_string(&OpenAi {
            id: if id.is_empty() { &record.message_id } else { id },
            object: "chat.completion.chunk",
            created,
            model,
            choices: [Choice {
                index: 0,
                // Once in a stream: clients collect annotations, so what is said twice is there twice, and
                // openai-python's `stream()` fails on a second list of them.
                delta: Delta {
                    content: "",
                    annotations: positions
                        .filter(|_| !annotated)
                        .map(|at| shapes::annotations(record, at))
                        .unwrap_or_default(),
                },
                finish_reason: None,
            }],
            search_results: positions.map(|_| shapes::search_results(record)).unwrap_or_default(),
            citetap: record,
        }),
        Envelope::Bare => serde_json::to_string(record),
    };
    // The types above have string keys and no failing parts: this cannot fail.
    json.unwrap_or_default()
}

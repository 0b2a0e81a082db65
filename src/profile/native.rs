//! Our event in the upstream's own dialect: a frame that holds the record and has no effect on the upstream's clients.

use bytes::Bytes;

use super::Positions;
use crate::{
    citation::{Citation, Record, record::CitationStatus, text},
    provider::{Envelope, Payload, SpanLookup},
    sse::{Eol, encode},
};

pub use crate::provider::EVENT;

/// Bytes under which our data line stays, because line buffers of proxies and clients hold 64 KiB.
pub const MAX_LINE: usize = 64 * 1024;
/// Characters of an excerpt in the event. The stored record has more.
const SNIPPET: usize = 200;
/// Characters of an excerpt if the line is too long otherwise.
const SHORT_SNIPPET: usize = 60;

/// Encodes our event in the provider's `envelope`. A live event has no positions.
pub fn frame(
    record: Record,
    envelope: &dyn Fn(&Payload<'_>) -> Envelope,
    positions: Option<&Positions>,
    eol: Eol,
) -> Bytes {
    let span_lookup = positions.map(|positions| |citation: &Citation| positions.span(citation));
    let span_lookup = span_lookup.as_ref().map(|span_lookup| span_lookup as &SpanLookup<'_>);
    let mut event = EVENT;
    let line = fit_line(record, |record| {
        let envelope = envelope(&Payload { record, span_lookup });
        event = envelope.event;
        envelope.json
    });
    if event.is_empty() { encode::data(&line, eol) } else { encode::event(event, &line, eol) }
}

/// Returns the record without what clients do not get: filtered citations, failures and long excerpts.
pub fn client_view(mut record: Record) -> Record {
    record.citations.retain(|citation| citation.status != CitationStatus::Filtered);
    for round in &mut record.rounds {
        round.failures.clear();
    }
    cut_snippets(&mut record, SNIPPET);
    record
}

/// Encodes a record in a line under [`MAX_LINE`]: shortens excerpts, drops them, drops details, then truncates the list and
/// marks the record as truncated.
pub fn fit_line(record: Record, mut line_of: impl FnMut(&Record) -> String) -> String {
    let mut record = client_view(record);
    for shrink in [|_: &mut Record| {}, shorten_snippets, drop_snippets, drop_details] {
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
            // Only the message's own texts are left.
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

fn shorten_snippets(record: &mut Record) {
    for citation in &mut record.citations {
        citation.snippets.clear();
    }
    cut_snippets(record, SHORT_SNIPPET);
}

fn drop_snippets(record: &mut Record) {
    for citation in &mut record.citations {
        citation.content = None;
    }
}

fn drop_details(record: &mut Record) {
    record.rounds.clear();
    for citation in &mut record.citations {
        citation.icon_url = None;
        citation.metadata.clear();
    }
}

//! The upstream's own dialect: our record inside a frame that its clients take for one without effect.

use bytes::Bytes;

use super::Positions;
use crate::{
    citation::{Citation, Record, record::CitationStatus, text},
    provider::{Envelope, Payload, SpanLookup},
    sse::{Eol, encode},
};

pub use crate::provider::EVENT;

/// Our line stays under this: proxies and clients with line buffers take 64 KiB.
pub const MAX_LINE: usize = 64 * 1024;
/// Characters of an excerpt in the event; the store has more.
const SNIPPET: usize = 200;
/// Characters of an excerpt when the line would be too long.
const SHORT_SNIPPET: usize = 60;

/// Our frame, whole, as `envelope` has it. Without positions it is an announcement.
pub fn frame(
    record: Record,
    envelope: &dyn Fn(&Payload<'_>) -> Envelope,
    positions: Option<&Positions>,
    eol: Eol,
) -> Bytes {
    let span_lookup = positions.map(|positions| |citation: &Citation| positions.span(citation));
    let span_lookup = span_lookup.as_ref().map(|span_lookup| span_lookup as &SpanLookup<'_>);
    let mut event = EVENT;
    let line = fitted(record, |record| {
        let envelope = envelope(&Payload { record, span_lookup });
        event = envelope.event;
        envelope.json
    });
    encode::event(event, &line, eol)
}

/// A record as clients see it: what is filtered or failed stays with the store, and excerpts are cut.
pub fn shown(mut record: Record) -> Record {
    record.citations.retain(|citation| citation.status != CitationStatus::Filtered);
    for round in &mut record.rounds {
        round.failures.clear();
    }
    cut_snippets(&mut record, SNIPPET);
    record
}

/// One line with the record in it: excerpts are cut, then shrunk, then dropped, then the list is cut and says so.
pub fn fitted(record: Record, mut line_of: impl FnMut(&Record) -> String) -> String {
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

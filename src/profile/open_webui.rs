//! OpenAI chat completions for Open WebUI, which takes sources and status lines as events beside the chunks.
//!
//! Open WebUI reads `data:` lines only and passes the value of `event` to its page. The page resolves `[N]` to the Nth source
//! of the message, whatever number the source has: see [`sources`].

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;

use super::{
    Encoder, MessageStart, Positions,
    openai::{ChunkEncoder, write_data},
};
use crate::{
    citation::{Citation, Record, text},
    provider::{
        FinishReason, Usage,
        openai::shapes::{title, unfiltered},
    },
};

/// Characters of a status line or a query.
const MAX_STATUS: usize = 300;
/// Queries in a status line. The record has all.
const MAX_QUERIES: usize = 16;
/// Excerpts of one source and characters of each, which keep a source's line under 64 KiB. The store has more.
const MAX_EXCERPTS: usize = 4;
const EXCERPT: usize = 1000;
/// Placeholder entries in the list. Beyond it, sources are listed in order and no longer at their numbers.
const MAX_PLACEHOLDERS: usize = 32;

#[derive(Serialize)]
struct Line<'a> {
    event: Event<'a>,
}

#[derive(Serialize)]
#[serde(tag = "type", content = "data", rename_all = "lowercase")]
enum Event<'a> {
    Status(Status<'a>),
    Source(&'a Source<'a>),
}

#[derive(Serialize, Default)]
struct Status<'a> {
    /// Newer versions show a translated text for it instead of the description.
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<&'static str>,
    description: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    queries: &'a [&'a str],
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<usize>,
    done: bool,
}

#[derive(Debug, Serialize)]
pub struct Source<'r> {
    source: SourceInfo<'r>,
    document: Vec<&'r str>,
    metadata: Vec<Metadata>,
}

#[derive(Debug, Serialize)]
struct SourceInfo<'r> {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'r str>,
}

/// Metadata of one excerpt. The page identifies a source by `source` in one place and by `name` in another, so both are
/// equal.
#[derive(Debug, Clone, Serialize)]
struct Metadata {
    source: String,
    name: String,
}

/// Encodes an answer as chunks and events.
#[derive(Default)]
pub struct EventEncoder {
    chunks: ChunkEncoder,
    /// Description of the status line that is not done yet.
    open_status: Option<String>,
}

impl EventEncoder {
    fn start_status(&mut self, status: Status<'_>, out: &mut Vec<u8>) {
        let description = status.description;
        if self.open_status.as_deref() != Some(description) {
            write_event(Event::Status(status), out);
            self.open_status = Some(description.to_owned());
        }
    }

    fn end_status(&mut self, out: &mut Vec<u8>) {
        if let Some(description) = self.open_status.take() {
            write_event(Event::Status(Status { description: &description, done: true, ..Status::default() }), out);
        }
    }
}

impl Encoder for EventEncoder {
    fn open(&mut self, start: &MessageStart<'_>, out: &mut Vec<u8>) {
        self.chunks.open(start, out);
    }

    fn text(&mut self, text: &str, out: &mut Vec<u8>) {
        self.end_status(out);
        self.chunks.text(text, out);
    }

    fn thinking(&mut self, text: &str, out: &mut Vec<u8>) {
        self.end_status(out);
        self.chunks.thinking(text, out);
    }

    fn stage(&mut self, name: &str, message: &str, _: Option<&str>, out: &mut Vec<u8>) {
        let description = text::first_chars(if message.is_empty() { name } else { message }, MAX_STATUS);
        self.start_status(Status { description, ..Status::default() }, out);
    }

    fn searching(&mut self, queries: &[String], out: &mut Vec<u8>) {
        let mut shown: Vec<&str> = Vec::new();
        for query in queries.iter().map(|query| text::first_chars(query, MAX_STATUS)) {
            // The page cannot show a query twice.
            if shown.len() < MAX_QUERIES && !shown.contains(&query) {
                shown.push(query);
            }
        }
        let joined = shown.join(", ");
        let description = text::first_chars(&joined, MAX_STATUS);
        let action = Some("web_search_queries_generated");
        self.start_status(Status { action, description, queries: &shown, ..Status::default() }, out);
    }

    fn live(&mut self, record: &Record, out: &mut Vec<u8>) {
        self.chunks.live(record, out);
    }

    fn citations(&mut self, record: &Record, _: &Positions, out: &mut Vec<u8>) {
        self.end_status(out);
        for source in &sources(record) {
            write_event(Event::Source(source), out);
        }
        let count = unfiltered(record).count();
        if count > 0 {
            let (action, description) = (Some("sources_retrieved"), &*format!("{count} sources"));
            let status = Status { action, description, queries: &[], count: Some(count), done: true };
            write_event(Event::Status(status), out);
        }
        // Without positions, because the page would add a second source for each annotation.
        self.chunks.record(record, None, out);
    }

    fn usage(&mut self, usage: Usage, out: &mut Vec<u8>) {
        self.chunks.usage(usage, out);
    }

    fn finish(&mut self, reason: FinishReason, out: &mut Vec<u8>) {
        self.end_status(out);
        self.chunks.finish(reason, out);
    }

    fn fault(&mut self, code: Option<&str>, message: &str, out: &mut Vec<u8>) {
        self.end_status(out);
        self.chunks.fault(code, message, out);
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        self.chunks.end(out);
    }
}

fn write_event(event: Event<'_>, out: &mut Vec<u8>) {
    write_data(&Line { event }, out);
}

/// Lists the sources so that `[N]` opens the source with number N. A source with several numbers has several entries. Gaps
/// before a number that the text cites are filled with placeholders. Sources that the text does not cite come last, but never
/// at a number that the text cites and no source has.
pub fn sources(record: &Record) -> Vec<Source<'_>> {
    let numbers = |citation: &Citation| [citation.number].into_iter().chain(citation.aliases.clone());
    let by_number: BTreeMap<u32, &Citation> =
        unfiltered(record).flat_map(|citation| numbers(citation).map(move |number| (number, citation))).collect();
    let last_cited = unfiltered(record).filter(|citation| citation.cited).flat_map(numbers).max();
    let dangling: HashSet<u32> = record.stats.dangling_markers.iter().copied().collect();

    let (mut list, mut listed) = (SourceList::default(), HashSet::new());
    for number in 1..=last_cited.unwrap_or_default() {
        match by_number.get(&number) {
            Some(citation) => {
                listed.insert(citation.number);
                list.add(citation, number);
            }
            None if list.add_placeholder() => {}
            None => break,
        }
    }
    for (number, citation) in by_number {
        if listed.insert(citation.number) {
            while dangling.contains(&list.next_number()) && list.add_placeholder() {}
            list.add(citation, number);
        }
    }
    list.sources
}

#[derive(Default)]
struct SourceList<'r> {
    names: HashSet<String>,
    sources: Vec<Source<'r>>,
    placeholders: usize,
}

impl<'r> SourceList<'r> {
    fn add(&mut self, citation: &'r Citation, number: u32) {
        let mut excerpts: Vec<&str> = citation.snippets.iter().map(String::as_str).take(MAX_EXCERPTS).collect();
        if excerpts.is_empty() {
            excerpts.push(citation.content.as_deref().or(citation.title.as_deref()).unwrap_or_default());
        }
        let excerpts = excerpts.into_iter().map(|excerpt| text::first_chars(excerpt, EXCERPT)).collect();
        // The name is never a link, which the page would open instead of the source's own.
        self.push(title(citation), number, citation.url.as_deref(), Some(&citation.source_id), excerpts);
    }

    /// Adds an entry without a source. Returns false if the list has too many of them.
    fn add_placeholder(&mut self) -> bool {
        let allowed = self.placeholders < MAX_PLACEHOLDERS;
        if allowed {
            self.placeholders += 1;
            let number = self.next_number();
            self.push(format!("[{number}]"), number, None, None, vec![""]);
        }
        allowed
    }

    /// The number that opens the next entry.
    fn next_number(&self) -> u32 {
        u32::try_from(self.sources.len() + 1).unwrap_or(u32::MAX)
    }

    fn push(
        &mut self,
        mut name: String,
        number: u32,
        url: Option<&'r str>,
        id: Option<&'r str>,
        document: Vec<&'r str>,
    ) {
        while !self.names.insert(name.clone()) {
            name += &format!(" ({number})");
        }
        let metadata = vec![Metadata { source: name.clone(), name: name.clone() }; document.len()];
        self.sources.push(Source { source: SourceInfo { name, url, id }, document, metadata });
    }
}

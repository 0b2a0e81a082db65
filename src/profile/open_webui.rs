//! OpenAI chat completions for Open WebUI, which takes sources and status lines as events beside the chunks.
//!
//! It reads `data:` lines alone, and hands what stands under the key `event` to its page. There `[N]` is the Nth of
//! the message's sources, whatever these say of themselves: see [`sources`].

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;

use super::{
    Encoder, MessageStart, Positions,
    openai::{self, data, write_json},
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
/// Queries that are told; the record has them all.
const MAX_QUERIES: usize = 16;
/// Excerpts of one source, and characters of each: a source's line stays under 64 KiB. The store has more.
const MAX_EXCERPTS: usize = 4;
const EXCERPT: usize = 1000;
/// Places in the list that no source has. Beyond, sources stand in their order, and not at their numbers.
const MAX_FILLERS: usize = 32;

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
    /// What newer versions show in the reader's language, instead of the description.
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
    source: Named<'r>,
    document: Vec<&'r str>,
    metadata: Vec<Metadata>,
}

#[derive(Debug, Serialize)]
struct Named<'r> {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'r str>,
}

/// One for each excerpt. The page tells sources apart by `source` in one place and by `name` in another: both are one.
#[derive(Debug, Clone, Serialize)]
struct Metadata {
    source: String,
    name: String,
}

/// Speaks in chunks and events.
#[derive(Default)]
pub struct Events {
    chunks: openai::Chunks,
    /// The last status line, until it is done.
    doing: Option<String>,
}

impl Events {
    fn doing(&mut self, status: &Status<'_>, out: &mut Vec<u8>) {
        if self.doing.as_deref() != Some(status.description) {
            say(Event::Status(Status { ..*status }), out);
            self.doing = Some(status.description.to_owned());
        }
    }

    /// What was being done is done.
    fn done(&mut self, out: &mut Vec<u8>) {
        if let Some(description) = self.doing.take() {
            say(Event::Status(Status { description: &description, done: true, ..Status::default() }), out);
        }
    }
}

impl Encoder for Events {
    fn open(&mut self, opening: &MessageStart<'_>, out: &mut Vec<u8>) {
        self.chunks.open(opening, out);
    }

    fn text(&mut self, text: &str, out: &mut Vec<u8>) {
        self.done(out);
        self.chunks.text(text, out);
    }

    fn thinking(&mut self, text: &str, out: &mut Vec<u8>) {
        self.done(out);
        self.chunks.thinking(text, out);
    }

    fn stage(&mut self, name: &str, message: &str, _: Option<&str>, out: &mut Vec<u8>) {
        let description = text::first_chars(if message.is_empty() { name } else { message }, MAX_STATUS);
        self.doing(&Status { description, ..Status::default() }, out);
    }

    fn searching(&mut self, queries: &[String], out: &mut Vec<u8>) {
        let mut told: Vec<&str> = Vec::new();
        for query in queries.iter().map(|query| text::first_chars(query, MAX_STATUS)) {
            // The page cannot show one twice.
            if told.len() < MAX_QUERIES && !told.contains(&query) {
                told.push(query);
            }
        }
        let joined = told.join(", ");
        let description = text::first_chars(&joined, MAX_STATUS);
        let action = Some("web_search_queries_generated");
        self.doing(&Status { action, description, queries: &told, ..Status::default() }, out);
    }

    fn live(&mut self, record: &Record, out: &mut Vec<u8>) {
        self.chunks.live(record, out);
    }

    fn citations(&mut self, record: &Record, _: &Positions, out: &mut Vec<u8>) {
        self.done(out);
        for source in &sources(record) {
            say(Event::Source(source), out);
        }
        let count = unfiltered(record).count();
        if count > 0 {
            let (action, description) = (Some("sources_retrieved"), format!("{count} sources"));
            let (description, count) = (description.as_str(), Some(count));
            say(Event::Status(Status { action, description, queries: &[], count, done: true }), out);
        }
        // No annotations: of each the page would make a second source.
        self.chunks.record(record, None, out);
    }

    fn usage(&mut self, usage: Usage, out: &mut Vec<u8>) {
        self.chunks.usage(usage, out);
    }

    fn finish(&mut self, reason: FinishReason, out: &mut Vec<u8>) {
        self.done(out);
        self.chunks.finish(reason, out);
    }

    fn fault(&mut self, code: Option<&str>, message: &str, out: &mut Vec<u8>) {
        self.done(out);
        self.chunks.fault(code, message, out);
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        self.chunks.end(out);
    }
}

fn say(event: Event<'_>, out: &mut Vec<u8>) {
    data(&Line { event }, out);
}

/// Speaks once, at the end.
#[derive(Default)]
pub struct Whole(openai::Whole);

#[derive(Serialize)]
struct WithSources<'a> {
    #[serde(flatten)]
    outcome: openai::Outcome<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sources: Vec<Source<'a>>,
}

impl Encoder for Whole {
    fn open(&mut self, opening: &MessageStart<'_>, out: &mut Vec<u8>) {
        self.0.open(opening, out);
    }

    fn text(&mut self, text: &str, out: &mut Vec<u8>) {
        self.0.text(text, out);
    }

    fn thinking(&mut self, text: &str, out: &mut Vec<u8>) {
        self.0.thinking(text, out);
    }

    fn citations(&mut self, record: &Record, positions: &Positions, out: &mut Vec<u8>) {
        self.0.citations(record, positions, out);
    }

    fn usage(&mut self, usage: Usage, out: &mut Vec<u8>) {
        self.0.usage(usage, out);
    }

    fn finish(&mut self, reason: FinishReason, out: &mut Vec<u8>) {
        self.0.finish(reason, out);
    }

    fn fault(&mut self, code: Option<&str>, message: &str, out: &mut Vec<u8>) {
        self.0.fault(code, message, out);
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        let outcome = self.0.outcome();
        let sources = match outcome {
            openai::Outcome::Done(_) => self.0.sources().map(sources).unwrap_or_default(),
            openai::Outcome::Failed(_) => Vec::new(),
        };
        write_json(&WithSources { outcome, sources }, out);
    }
}

/// The sources, each where its number is, so that `[N]` opens it. A further number of a source is a further entry.
/// A gap before a number that the text names is filled with entries that say nothing but their number. What the text
/// does not name comes last, and not where the text names a number that no source has.
pub fn sources(record: &Record) -> Vec<Source<'_>> {
    let numbers = |citation: &Citation| [citation.number].into_iter().chain(citation.aliases.clone());
    let by_number: BTreeMap<u32, &Citation> =
        unfiltered(record).flat_map(|citation| numbers(citation).map(move |number| (number, citation))).collect();
    let named = unfiltered(record).filter(|citation| citation.cited).flat_map(numbers).max();
    let dangling: HashSet<u32> = record.stats.dangling_markers.iter().copied().collect();

    let (mut list, mut placed) = (List::default(), HashSet::new());
    for number in 1..=named.unwrap_or_default() {
        match by_number.get(&number) {
            Some(citation) => {
                placed.insert(citation.number);
                list.add(citation, number);
            }
            None if list.fill() => {}
            None => break,
        }
    }
    for (number, citation) in by_number {
        if placed.insert(citation.number) {
            while dangling.contains(&list.next()) && list.fill() {}
            list.add(citation, number);
        }
    }
    list.sources
}

#[derive(Default)]
struct List<'r> {
    names: HashSet<String>,
    sources: Vec<Source<'r>>,
    fillers: usize,
}

impl<'r> List<'r> {
    fn add(&mut self, citation: &'r Citation, number: u32) {
        let url = citation.url.as_deref();
        // Never a link, which would be taken for the source's own.
        let name = title(citation);
        let mut excerpts: Vec<&str> = citation.snippets.iter().map(String::as_str).take(MAX_EXCERPTS).collect();
        if excerpts.is_empty() {
            excerpts.push(citation.content.as_deref().or(citation.title.as_deref()).unwrap_or_default());
        }
        let excerpts = excerpts.into_iter().map(|excerpt| text::first_chars(excerpt, EXCERPT)).collect();
        self.push(name, number, url, Some(&citation.source_id), excerpts);
    }

    /// Leaves the next place to nobody; `false`: too many are so already.
    fn fill(&mut self) -> bool {
        let free = self.fillers < MAX_FILLERS;
        if free {
            self.fillers += 1;
            let number = self.next();
            self.push(format!("[{number}]"), number, None, None, vec![""]);
        }
        free
    }

    /// The number of the place that the next entry gets.
    fn next(&self) -> u32 {
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
        self.sources.push(Source { source: Named { name, url, id }, document, metadata });
    }
}

//! Collects the sources of one message while it streams. `pipeline` feeds it references, searches and answer text.
//!
//! Upstreams resend a reference with more fields and under new block ids, and number the results of every search from 1.
//! The ledger keeps each source once, under a number that is unique in the record.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap, HashSet},
};

use jiff::Timestamp;
use serde_json::Value;
use url::Url;

use super::{
    ledger_entry::{Entry, push_tight},
    record::{Citation, CitationStatus, CitationType, RecordStats, SearchRound},
    rounds::Rounds,
    score,
    source_index::{Key, SourceIndex},
    text,
    url::{self as links, Page},
};
use crate::marker::{Mark, Scanner};

/// Citations kept per message; further ones only set `truncated`.
pub const MAX_CITATIONS: usize = 1000;
/// Bytes kept of a title, and of any other one-line text.
pub const MAX_TITLE: usize = 1024;
/// Bytes kept of a snippet.
pub const MAX_SNIPPET: usize = 4 * 1024;
/// Snippets kept per source.
pub const MAX_SNIPPETS: usize = 32;
/// Queries kept per message, each cut to [`MAX_TITLE`].
pub const MAX_QUERIES: usize = 64;
/// Search rounds kept per message; further ones are added to the last.
pub const MAX_ROUNDS: usize = 256;
/// Failed results whose keys are kept so that a resend counts once; further ones are not counted.
const MAX_FAILED: usize = 10_000;

/// A reference as the upstream sent it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reference<'a> {
    /// The upstream's own number.
    pub number: Option<u32>,
    /// Position in its list, used as the number if `number` is `None`.
    pub position: Option<u32>,
    pub rank: Option<u32>,
    /// The upstream's relevance score, from 0 to 1.
    pub score: Option<f64>,
    pub url: Option<&'a str>,
    pub title: Option<&'a str>,
    pub snippet: Option<&'a str>,
    pub site_name: Option<&'a str>,
    pub icon_url: Option<&'a str>,
    pub published: Option<Published<'a>>,
    /// Identifies a document that has no URL.
    pub doc_id: Option<Cow<'a, str>>,
    pub kind: CitationType,
    /// True if the upstream says that its answer uses this source, for example by giving the position in the text.
    pub cited: bool,
    /// Extra fields for `Citation::metadata`. The ledger writes `round` and `upstreamIndex` itself: do not use these names.
    pub metadata: Vec<(&'static str, Value)>,
}

/// A publication time as the upstream sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published<'a> {
    Text(&'a str),
    /// Seconds since the Unix epoch, or milliseconds if the value is too large for seconds.
    Epoch(i64),
}

/// The sources of one message, with their numbers and search rounds.
#[derive(Debug, Default)]
pub struct Ledger {
    link_base: Option<Url>,
    provider: &'static str,
    summary: Option<String>,
    queries: Vec<String>,
    rounds: Rounds,
    entries: Vec<Entry>,
    /// Finds an entry by URL or document id.
    source_index: SourceIndex,
    /// Numbers and aliases to indices of `entries`.
    by_number: HashMap<u32, u32>,
    highest_number: u32,
    /// Keys of the failed results.
    failed: HashSet<String>,
    duplicates: u32,
    truncated: bool,
    markers: Scanner,
    /// Marker numbers in the full texts of [`Ledger::add_full_text`].
    answer_markers: BTreeSet<u32>,
    revision: u64,
}

/// Keys under which a reference is looked up.
#[derive(Clone, Copy)]
struct ReferenceKeys {
    url: Option<Key>,
    doc: Option<Key>,
}

impl Ledger {
    /// Creates an empty ledger. `link_base` resolves relative URLs; without it they are dropped.
    pub fn new(link_base: Option<Url>) -> Self {
        Self { link_base, ..Self::default() }
    }

    /// Sets the provider name, which is part of the source ids of documents without a URL.
    pub fn set_provider(&mut self, provider: &'static str) {
        self.provider = provider;
    }

    /// Number of sources.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Increases whenever a change to the sources would change the record.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Scans the next delta of the answer for markers.
    pub fn add_text(&mut self, delta: &str) {
        self.markers.feed(delta);
    }

    /// Positions of the answer's markers, and the answer's length, in code points.
    pub fn marks(&self) -> (impl Iterator<Item = Mark>, u64) {
        self.markers.marks()
    }

    /// Scans the full answer, which some upstreams repeat at the end and which may contain markers that the deltas lacked.
    pub fn add_full_text(&mut self, answer: &str) {
        let mut scanner = Scanner::default();
        scanner.feed(answer);
        self.answer_markers.extend(scanner.numbers());
    }

    /// Adds a search round, or updates the one with this key. References that follow belong to it.
    pub fn add_round(&mut self, key: &str, summary: Option<&str>, queries: &[Cow<'_, str>]) {
        let queries: Vec<String> = queries.iter().map(|query| text::single_line(query, MAX_TITLE)).collect();
        let queries: Vec<String> = queries.into_iter().filter(|query| !query.is_empty()).collect();
        self.rounds.enter(&bounded_key(key), summary, &queries);
        if let Some(summary) = summary {
            self.summary = Some(text::single_line(summary, MAX_TITLE));
        }
        for query in queries {
            if self.queries.len() < MAX_QUERIES && !self.queries.contains(&query) {
                push_tight(&mut self.queries, query, 1);
                self.revision += 1;
            }
        }
    }

    /// Counts a search result that could not be read as a source. A resend with the same id, or at the same position of the
    /// round if it has none, is ignored.
    pub fn add_failure(&mut self, id: Option<&str>, position: u32, code: &str) {
        let key = id
            .map_or_else(|| format!("{}/{position}", self.rounds.current_number()), |id| bounded_key(id).into_owned());
        if self.failed.len() < MAX_FAILED && self.failed.insert(key) {
            self.rounds.add_failure(id, position, code);
            self.revision += 1;
        }
    }

    /// Adds a source, or merges the reference into the source with the same URL or document id.
    pub fn add_reference(&mut self, reference: &Reference<'_>) {
        let page = reference.url.and_then(|raw| links::page(raw, self.link_base.as_ref()));
        let keys = ReferenceKeys {
            url: match (&page, reference.url) {
                (Some(page), _) => Some(self.source_index.url_key(page.canonical.of(&page.url))),
                (None, Some(raw)) => Some(self.source_index.url_key(raw.trim())),
                (None, None) => None,
            },
            doc: reference.doc_id.as_deref().map(|doc| self.source_index.doc_key(doc)),
        };
        match self.find(keys) {
            Some(index) => self.merge(index, reference, page, keys),
            None => self.insert(reference, page, keys),
        }
    }

    fn find(&self, keys: ReferenceKeys) -> Option<usize> {
        let by_url = keys.url.and_then(|url| self.source_index.get(url));
        by_url.or_else(|| {
            let index = self.source_index.get(keys.doc?)?;
            let entry = self.entries.get(index)?;
            // Two URLs are two sources, even under one document id.
            (keys.url.is_none() || entry.url.is_none()).then_some(index)
        })
    }

    fn insert(&mut self, reference: &Reference<'_>, page: Option<Page<'_>>, keys: ReferenceKeys) {
        if self.entries.len() >= MAX_CITATIONS {
            self.truncated = true;
            return;
        }
        let index = self.entries.len();
        let wanted = reference.number.or(reference.position);
        let number =
            wanted.filter(|n| self.make_free(*n, reference.number.is_some())).unwrap_or(self.highest_number + 1);
        let arrival = u32::try_from(index).unwrap_or_default() + 1;
        let mut entry = Entry::new(number, reference, reference.rank.unwrap_or(arrival));
        if page.is_none() {
            let name = reference.doc_id.as_deref().or(reference.url).or(reference.title);
            entry.id_name = Some(bounded_key(name.unwrap_or_default()).into());
        }
        entry.upstream_index = wanted.filter(|wanted| *wanted != number);
        entry.round = self.rounds.current_number();
        self.highest_number = self.highest_number.max(number);
        self.assign(number, index);
        self.truncated |= entry.merge(reference, page).truncated;
        push_tight(&mut self.entries, entry, 4);
        self.add_keys(keys, index);
        self.revision += 1;
    }

    /// Returns true if `number` is free. A number from the upstream (`authoritative`) has precedence over one that the ledger
    /// assigned: the entry that has it is renumbered.
    fn make_free(&mut self, number: u32, authoritative: bool) -> bool {
        let Some(&holder) = self.by_number.get(&number) else { return true };
        let next = self.highest_number + 1;
        match self.entries.get_mut(holder as usize) {
            Some(entry) if authoritative && entry.provisional && entry.number == number => {
                entry.number = next;
                self.by_number.insert(next, holder);
                self.highest_number = next;
                true
            }
            _ => false,
        }
    }

    fn merge(&mut self, index: usize, reference: &Reference<'_>, page: Option<Page<'_>>, keys: ReferenceKeys) {
        self.add_keys(keys, index);
        let Some(entry) = self.entries.get_mut(index) else { return };
        let merged = entry.merge(reference, page);
        self.truncated |= merged.truncated;
        let wanted = reference.number.or(reference.position).filter(|n| !entry.has_sent_number(*n));
        if merged.changed || wanted.is_some() {
            self.revision += 1;
        }
        let Some(wanted) = wanted else {
            // The upstream's number may equal the assigned one.
            if reference.number.is_some() {
                entry.provisional = false;
            }
            return;
        };
        entry.add_sent_number(wanted);
        if entry.provisional && reference.number.is_some() {
            self.renumber(index, wanted);
        } else {
            self.duplicates += 1;
            self.rounds.add_duplicate();
            self.add_alias(index, wanted, reference.number.is_some());
        }
    }

    /// Gives a provisional entry the upstream's number. A provisional entry that has this number gets the old one in exchange;
    /// if the number cannot be moved, it becomes `upstream_index`.
    fn renumber(&mut self, index: usize, number: u32) {
        let holder = self.by_number.get(&number).map(|holder| *holder as usize);
        let movable = holder
            .and_then(|holder| self.entries.get(holder))
            .is_none_or(|entry| entry.provisional && entry.number == number);
        let Some(entry) = self.entries.get_mut(index) else { return };
        entry.provisional = false;
        if entry.number == number {
            return;
        }
        if !movable {
            entry.upstream_index = Some(number);
            return;
        }
        let old = std::mem::replace(&mut entry.number, number);
        self.by_number.remove(&old);
        self.assign(number, index);
        self.highest_number = self.highest_number.max(number);
        if let Some(holder) = holder
            && let Some(other) = self.entries.get_mut(holder)
        {
            other.number = old;
            self.assign(old, holder);
        }
    }

    /// Adds a further number of a source, unless another source has it.
    fn add_alias(&mut self, index: usize, number: u32, authoritative: bool) {
        if !self.make_free(number, authoritative) {
            return;
        }
        if let Some(entry) = self.entries.get_mut(index) {
            entry.add_alias(number);
            self.assign(number, index);
            self.highest_number = self.highest_number.max(number);
        }
    }

    fn assign(&mut self, number: u32, index: usize) {
        self.by_number.insert(number, u32::try_from(index).unwrap_or(u32::MAX));
    }

    fn add_keys(&mut self, keys: ReferenceKeys, index: usize) {
        for key in [keys.url, keys.doc].into_iter().flatten() {
            self.source_index.insert(key, index);
        }
    }

    /// The source with this number or alias; `None` if there is none or a filter removes it.
    pub fn kept_entry(&self, number: u32, rules: &score::Rules, now: Timestamp) -> Option<&Entry> {
        let entry = self.entries.get(*self.by_number.get(&number)? as usize)?;
        (!rules.has_filters() || entry.passes(rules, now)).then_some(entry)
    }

    /// Number of sources that no filter removes.
    pub fn kept_count(&self, rules: &score::Rules, now: Timestamp) -> usize {
        if !rules.has_filters() {
            return self.entries.len();
        }
        self.entries.iter().filter(|entry| entry.passes(rules, now)).count()
    }

    /// The ledger's part of the record, sorted by number and scored as of `now`.
    pub fn snapshot(&self, rules: &score::Rules, now: Timestamp) -> LedgerSnapshot {
        let marked: BTreeSet<u32> = self.markers.numbers().chain(self.answer_markers.iter().copied()).collect();
        let scored = |entry: &Entry| {
            let mut citation = entry.citation(self.provider);
            rules.score_and_filter(&mut citation, entry.score, now);
            citation
        };
        let mut citations: Vec<Citation> = self.entries.iter().map(scored).collect();
        citations.sort_by_key(|citation| citation.number);
        for citation in &mut citations {
            citation.cited |= marked.contains(&citation.number) || citation.aliases.iter().any(|n| marked.contains(n));
        }
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let failed = count(self.failed.len());
        let kept = count(citations.iter().filter(|citation| citation.status == CitationStatus::Ok).count());
        let filtered = count(citations.len()) - kept;
        LedgerSnapshot {
            stats: RecordStats {
                total_returned: kept + filtered + failed + self.duplicates,
                kept_after_filter: kept,
                filtered_count: filtered,
                failed_count: failed,
                dedup_count: self.duplicates,
                cited_count: count(citations.iter().filter(|citation| citation.cited).count()),
                dangling_markers: marked.into_iter().filter(|n| !self.by_number.contains_key(n)).collect(),
                supplement: None,
            },
            summary: self.summary.clone(),
            queries: self.queries.clone(),
            rounds: self.rounds.list(citations.iter().any(|citation| !citation.metadata.contains_key("round"))),
            truncated: self.truncated,
            citations,
        }
    }
}

/// The key itself, or its hash if it is longer than [`MAX_TITLE`]: keys stay in memory until the stream ends.
fn bounded_key(key: &str) -> Cow<'_, str> {
    if key.len() <= MAX_TITLE { Cow::Borrowed(key) } else { Cow::Owned(links::source_id(key)) }
}

/// The ledger's part of a record.
#[derive(Debug, Clone, PartialEq)]
pub struct LedgerSnapshot {
    pub summary: Option<String>,
    pub queries: Vec<String>,
    pub rounds: Vec<SearchRound>,
    pub citations: Vec<Citation>,
    pub stats: RecordStats,
    pub truncated: bool,
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;

//! Counts and numbers what a message rests on, while it streams.
//!
//! Upstreams send the same references again, grown, under new block ids, and number them from
//! one in every search. Here each source stands once, under a number that is unique in the record.

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
    source_index::{Key, Names},
    text,
    url::{self as links, Page},
};
use crate::marker::{Mark, Scanner};

/// Citations kept of one message; further ones only set `truncated`.
pub const MAX_CITATIONS: usize = 1000;
pub const MAX_TITLE: usize = 1024;
pub const MAX_SNIPPET: usize = 4 * 1024;
/// Excerpts kept of one source.
pub const MAX_SNIPPETS: usize = 32;
/// Queries kept of one message, each under the cap of titles.
pub const MAX_QUERIES: usize = 64;
/// Search rounds told apart; further ones count as the last.
pub const MAX_ROUNDS: usize = 256;
/// Failed cards told apart.
const MAX_FAILED: usize = 10_000;

/// A reference as the wire named it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reference<'a> {
    /// The upstream's own number.
    pub number: Option<u32>,
    /// Its place in its list, which stands for a number where there is none.
    pub position: Option<u32>,
    pub rank: Option<u32>,
    /// The upstream's own relevance, from 0 to 1.
    pub score: Option<f64>,
    pub url: Option<&'a str>,
    pub title: Option<&'a str>,
    pub snippet: Option<&'a str>,
    pub site_name: Option<&'a str>,
    pub icon_url: Option<&'a str>,
    pub published: Option<Published<'a>>,
    /// Tells documents apart that have no URL.
    pub doc_id: Option<Cow<'a, str>>,
    pub kind: CitationType,
    /// The upstream says that its answer uses this, be it by the place where it does.
    pub cited: bool,
    /// Under names other than those that the ledger itself gives, `round` and `upstreamIndex`.
    pub metadata: Vec<(&'static str, Value)>,
}

/// A time as the wire has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published<'a> {
    Text(&'a str),
    /// Seconds, or milliseconds where that is the only sensible reading.
    Epoch(i64),
}

#[derive(Debug, Default)]
pub struct Ledger {
    link_base: Option<Url>,
    provider: &'static str,
    summary: Option<String>,
    queries: Vec<String>,
    rounds: Rounds,
    entries: Vec<Entry>,
    /// URLs and document ids to entries.
    names: Names,
    /// Numbers and aliases to entries.
    by_number: HashMap<u32, u32>,
    highest: u32,
    failed: HashSet<String>,
    duplicates: u32,
    truncated: bool,
    markers: Scanner,
    /// Numbers in a whole answer that came at once.
    answer_markers: BTreeSet<u32>,
    revision: u64,
}

/// What a reference is known by.
#[derive(Clone, Copy)]
struct Known {
    url: Option<Key>,
    doc: Option<Key>,
}

impl Ledger {
    pub fn new(link_base: Option<Url>) -> Self {
        Self { link_base, ..Self::default() }
    }

    /// Goes into the source ids of documents without a URL.
    pub fn set_provider(&mut self, provider: &'static str) {
        self.provider = provider;
    }

    /// How many sources there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Changes whenever what the record would say of its sources changes.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// A piece of the answer.
    pub fn add_text(&mut self, piece: &str) {
        self.markers.feed(piece);
    }

    /// Where the answer's markers stand, and how long it is, in code points.
    pub fn marks(&self) -> (impl Iterator<Item = Mark>, u64) {
        self.markers.marks()
    }

    /// The whole answer once more: it may hold markers that the pieces did not.
    pub fn add_full_text(&mut self, whole: &str) {
        let mut scanner = Scanner::default();
        scanner.feed(whole);
        self.answer_markers.extend(scanner.numbers());
    }

    /// A search block: new, or one that grew.
    pub fn add_round(&mut self, key: &str, summary: Option<&str>, queries: &[Cow<'_, str>]) {
        let queries: Vec<String> = queries.iter().map(|query| text::single_line(query, MAX_TITLE)).collect();
        let queries: Vec<String> = queries.into_iter().filter(|query| !query.is_empty()).collect();
        self.rounds.enter(&bounded(key), summary, &queries);
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

    /// A card that names no source. Sent again, it counts once.
    pub fn add_failure(&mut self, id: Option<&str>, position: u32, code: &str) {
        let key = id.map_or_else(|| format!("{}/{position}", self.rounds.number()), |id| bounded(id).into_owned());
        if self.failed.len() < MAX_FAILED && self.failed.insert(key) {
            self.rounds.failed(id, position, code);
            self.revision += 1;
        }
    }

    pub fn add_reference(&mut self, reference: &Reference<'_>) {
        let page = reference.url.and_then(|raw| links::page(raw, self.link_base.as_ref()));
        let known = Known {
            url: match (&page, reference.url) {
                (Some(page), _) => Some(self.names.url(page.canonical.of(&page.url))),
                (None, Some(raw)) => Some(self.names.url(raw.trim())),
                (None, None) => None,
            },
            doc: reference.doc_id.as_deref().map(|doc| self.names.doc(doc)),
        };
        match self.find(known) {
            Some(index) => self.again(index, reference, page, known),
            None => self.first(reference, page, known),
        }
    }

    fn find(&self, known: Known) -> Option<usize> {
        let by_url = known.url.and_then(|url| self.names.get(url));
        by_url.or_else(|| {
            let index = self.names.get(known.doc?)?;
            let entry = self.entries.get(index)?;
            // Two URLs are two sources, whatever the document id says.
            (known.url.is_none() || entry.url.is_none()).then_some(index)
        })
    }

    fn first(&mut self, reference: &Reference<'_>, page: Option<Page<'_>>, known: Known) {
        if self.entries.len() >= MAX_CITATIONS {
            self.truncated = true;
            return;
        }
        let index = self.entries.len();
        let wanted = reference.number.or(reference.position);
        let number = wanted.filter(|n| self.vacate(*n, reference.number.is_some())).unwrap_or(self.highest + 1);
        let arrival = u32::try_from(index).unwrap_or_default() + 1;
        let mut entry = Entry::new(number, reference, reference.rank.unwrap_or(arrival));
        if page.is_none() {
            let name = reference.doc_id.as_deref().or(reference.url).or(reference.title);
            entry.own_name = Some(bounded(name.unwrap_or_default()).into());
        }
        entry.upstream_index = wanted.filter(|wanted| *wanted != number);
        entry.round = self.rounds.number();
        self.highest = self.highest.max(number);
        self.holds(number, index);
        self.truncated |= entry.fill(reference, page).cut;
        push_tight(&mut self.entries, entry, 4);
        self.note(known, index);
        self.revision += 1;
    }

    /// Is `number` free for a newcomer? One that the upstream gave beats one that we gave: its holder moves.
    fn vacate(&mut self, number: u32, authoritative: bool) -> bool {
        let Some(&holder) = self.by_number.get(&number) else { return true };
        let next = self.highest + 1;
        match self.entries.get_mut(holder as usize) {
            Some(entry) if authoritative && entry.provisional && entry.number == number => {
                entry.number = next;
                self.by_number.insert(next, holder);
                self.highest = next;
                true
            }
            _ => false,
        }
    }

    fn again(&mut self, index: usize, reference: &Reference<'_>, page: Option<Page<'_>>, known: Known) {
        self.note(known, index);
        let Some(entry) = self.entries.get_mut(index) else { return };
        let filled = entry.fill(reference, page);
        self.truncated |= filled.cut;
        let wanted = reference.number.or(reference.position).filter(|n| !entry.was_sent_as(*n));
        if filled.changed || wanted.is_some() {
            self.revision += 1;
        }
        let Some(wanted) = wanted else {
            // The upstream's own number may be the one that we gave already.
            if reference.number.is_some() {
                entry.provisional = false;
            }
            return;
        };
        entry.sent_as(wanted);
        if entry.provisional && reference.number.is_some() {
            self.renumber(index, wanted);
        } else {
            self.duplicates += 1;
            self.rounds.duplicate();
            self.alias(index, wanted, reference.number.is_some());
        }
    }

    /// Gives an entry that we had numbered the upstream's number; who held it gets the old one.
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
        self.holds(number, index);
        self.highest = self.highest.max(number);
        if let Some(holder) = holder
            && let Some(other) = self.entries.get_mut(holder)
        {
            other.number = old;
            self.holds(old, holder);
        }
    }

    /// A further number of a known source, unless it is another one's already.
    fn alias(&mut self, index: usize, number: u32, authoritative: bool) {
        if !self.vacate(number, authoritative) {
            return;
        }
        if let Some(entry) = self.entries.get_mut(index) {
            entry.alias(number);
            self.holds(number, index);
            self.highest = self.highest.max(number);
        }
    }

    fn holds(&mut self, number: u32, index: usize) {
        self.by_number.insert(number, u32::try_from(index).unwrap_or(u32::MAX));
    }

    fn note(&mut self, known: Known, index: usize) {
        for key in [known.url, known.doc].into_iter().flatten() {
            self.names.note(key, index);
        }
    }

    /// The source that a marker's number means, if no filter removes it.
    pub fn kept_entry(&self, number: u32, rules: &score::Rules, now: Timestamp) -> Option<&Entry> {
        let entry = self.entries.get(*self.by_number.get(&number)? as usize)?;
        (!rules.has_filters() || entry.passes(rules, now)).then_some(entry)
    }

    /// How many sources are not filtered.
    pub fn kept_count(&self, rules: &score::Rules, now: Timestamp) -> usize {
        if !rules.has_filters() {
            return self.entries.len();
        }
        self.entries.iter().filter(|entry| entry.passes(rules, now)).count()
    }

    /// What the record says of its sources, by number, as they are at `now`.
    pub fn snapshot(&self, rules: &score::Rules, now: Timestamp) -> LedgerSnapshot {
        let marked: BTreeSet<u32> = self.markers.numbers().chain(self.answer_markers.iter().copied()).collect();
        let judged = |entry: &Entry| {
            let mut citation = entry.citation(self.provider);
            rules.judge(&mut citation, entry.score, now);
            citation
        };
        let mut citations: Vec<Citation> = self.entries.iter().map(judged).collect();
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

/// What tells sources apart is kept for as long as the message streams: a long one as its hash.
fn bounded(name: &str) -> Cow<'_, str> {
    if name.len() <= MAX_TITLE { Cow::Borrowed(name) } else { Cow::Owned(links::source_id(name)) }
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

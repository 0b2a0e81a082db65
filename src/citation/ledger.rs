//! Counts and numbers what a message rests on, while it streams.
//!
//! Upstreams send the same references again, grown, under new block ids, and number them from
//! one in every search. Here each source stands once, under a number that is unique in the record.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap, HashSet},
};

use jiff::Timestamp;
use serde_json::{Map, Value};
use url::Url;

use super::{
    record::{Citation, CitationType, Origin, Round, Stats, Status},
    rounds::Rounds,
    score, text,
    url::{self as links, Link},
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
/// A dropped URL is kept as evidence, not whole.
const MAX_DROPPED_URL: usize = 1024;

/// A reference as the wire named it.
#[derive(Debug, Clone, PartialEq)]
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
    /// Canonical URL, or the text of one that is no link, to entry.
    by_url: HashMap<String, usize>,
    by_doc: HashMap<String, usize>,
    /// Numbers and aliases to entries.
    by_number: HashMap<u32, usize>,
    highest: u32,
    failed: HashSet<String>,
    duplicates: u32,
    truncated: bool,
    markers: Scanner,
    /// Numbers in a whole answer that came at once.
    answer_markers: BTreeSet<u32>,
    revision: u64,
}

#[derive(Debug)]
struct Entry {
    citation: Citation,
    /// Its number is ours, by position or order: an upstream's number may take its place.
    provisional: bool,
    /// Numbers under which the upstream sent it: the same again is a re-send.
    sent_as: Vec<u32>,
    /// The upstream's own relevance.
    score: Option<f64>,
    /// The upstream says so; markers in the text are counted apart.
    cited: bool,
    /// What its id is made of: the provider's name may become known after the first references.
    identity: Identity,
}

#[derive(Debug)]
enum Identity {
    /// The canonical URL.
    Page(String),
    /// The provider's own name for it.
    Own(String),
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
    pub fn text(&mut self, piece: &str) {
        self.markers.feed(piece);
    }

    /// Where the answer's markers stand, and how long it is, in code points.
    pub fn marks(&self) -> (impl Iterator<Item = Mark>, u64) {
        self.markers.marks()
    }

    /// The whole answer once more: it may hold markers that the pieces did not.
    pub fn answer(&mut self, whole: &str) {
        let mut scanner = Scanner::default();
        scanner.feed(whole);
        self.answer_markers.extend(scanner.numbers());
    }

    /// A search block: new, or one that grew.
    pub fn round(&mut self, key: &str, summary: Option<&str>, queries: &[Cow<'_, str>]) {
        let queries: Vec<String> = queries.iter().map(|query| text::line(query, MAX_TITLE).0).collect();
        let queries: Vec<String> = queries.into_iter().filter(|query| !query.is_empty()).collect();
        self.rounds.enter(&bounded(key), summary, &queries);
        if let Some(summary) = summary {
            self.summary = Some(text::line(summary, MAX_TITLE).0);
        }
        for query in queries {
            if self.queries.len() < MAX_QUERIES && !self.queries.contains(&query) {
                self.queries.push(query);
                self.revision += 1;
            }
        }
    }

    /// A card that names no source. Sent again, it counts once.
    pub fn failed(&mut self, id: Option<&str>, position: u32, code: &str) {
        let key = id.map_or_else(|| format!("{}/{position}", self.rounds.number()), |id| bounded(id).into_owned());
        if self.failed.len() < MAX_FAILED && self.failed.insert(key) {
            self.rounds.failed(id, position, code);
            self.revision += 1;
        }
    }

    pub fn reference(&mut self, reference: &Reference<'_>) {
        let link = reference.url.and_then(|raw| links::link(raw, self.link_base.as_ref()));
        let url_key = match (&link, reference.url) {
            (Some(link), _) => Some(link.canonical.clone()),
            (None, Some(raw)) => Some(bounded(raw.trim()).into_owned()),
            (None, None) => None,
        };
        match self.find(url_key.as_deref(), reference) {
            Some(index) => self.again(index, reference, link, url_key),
            None => self.first(reference, link, url_key),
        }
    }

    fn find(&self, url_key: Option<&str>, reference: &Reference<'_>) -> Option<usize> {
        let by_url = url_key.and_then(|key| self.by_url.get(key)).copied();
        by_url.or_else(|| {
            let index = *self.by_doc.get(&*bounded(reference.doc_id.as_deref()?))?;
            let known = self.entries.get(index)?;
            // Two URLs are two sources, whatever the document id says.
            (url_key.is_none() || known.citation.url.is_none()).then_some(index)
        })
    }

    fn first(&mut self, reference: &Reference<'_>, link: Option<Link>, url_key: Option<String>) {
        if self.entries.len() >= MAX_CITATIONS {
            self.truncated = true;
            return;
        }
        let index = self.entries.len();
        let wanted = reference.number.or(reference.position);
        let number = wanted.filter(|n| self.vacate(*n, reference.number.is_some())).unwrap_or(self.highest + 1);
        let arrival = u32::try_from(index).unwrap_or_default() + 1;
        let identity = match (&link, &reference.doc_id, reference.url) {
            (Some(link), _, _) => Identity::Page(link.canonical.clone()),
            (None, Some(doc), _) => Identity::Own(bounded(doc).into_owned()),
            (None, None, Some(raw)) => Identity::Own(bounded(raw).into_owned()),
            (None, None, None) => Identity::Own(bounded(reference.title.unwrap_or_default()).into_owned()),
        };
        let mut entry = Entry {
            citation: Citation {
                number,
                aliases: Vec::new(),
                url: None,
                title: None,
                content: None,
                hostname: None,
                kind: reference.kind,
                show_favicon: reference.kind == CitationType::Websearch,
                site_name: None,
                icon_url: None,
                published_at: None,
                source_id: String::new(),
                rank: reference.rank.unwrap_or(arrival),
                origin: Origin::Upstream,
                cited: false,
                status: Status::Ok,
                scores: None,
                snippets: Vec::new(),
                metadata: Map::new(),
            },
            provisional: reference.number.is_none(),
            sent_as: wanted.into_iter().collect(),
            score: None,
            cited: false,
            identity,
        };
        if let Some(wanted) = wanted.filter(|wanted| *wanted != number) {
            entry.citation.metadata.insert("upstreamIndex".to_owned(), wanted.into());
        }
        if self.rounds.number() > 0 {
            entry.citation.metadata.insert("round".to_owned(), self.rounds.number().into());
        }
        self.highest = self.highest.max(number);
        self.by_number.insert(number, index);
        self.truncated |= entry.fill(reference, link);
        self.entries.push(entry);
        self.index(index, reference, url_key);
        self.revision += 1;
    }

    /// Is `number` free for a newcomer? One that the upstream gave beats one that we gave: its holder moves.
    fn vacate(&mut self, number: u32, authoritative: bool) -> bool {
        let Some(&holder) = self.by_number.get(&number) else { return true };
        let next = self.highest + 1;
        match self.entries.get_mut(holder) {
            Some(entry) if authoritative && entry.provisional && entry.citation.number == number => {
                entry.citation.number = next;
                self.by_number.insert(next, holder);
                self.highest = next;
                true
            }
            _ => false,
        }
    }

    fn again(&mut self, index: usize, reference: &Reference<'_>, link: Option<Link>, url_key: Option<String>) {
        self.index(index, reference, url_key);
        let Some(entry) = self.entries.get_mut(index) else { return };
        let before = (entry.citation.clone(), entry.score, entry.cited);
        self.truncated |= entry.fill(reference, link);
        let changed = (&entry.citation, entry.score, entry.cited) != (&before.0, before.1, before.2);
        let wanted = reference.number.or(reference.position).filter(|n| !entry.sent_as.contains(n));
        if changed || wanted.is_some() {
            self.revision += 1;
        }
        let Some(wanted) = wanted else {
            // The upstream's own number may be the one that we gave already.
            if reference.number.is_some() {
                entry.provisional = false;
            }
            return;
        };
        if entry.sent_as.len() < MAX_CITATIONS {
            entry.sent_as.push(wanted);
        }
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
        let holder = self.by_number.get(&number).copied();
        let movable = holder
            .and_then(|holder| self.entries.get(holder))
            .is_none_or(|entry| entry.provisional && entry.citation.number == number);
        let Some(entry) = self.entries.get_mut(index) else { return };
        entry.provisional = false;
        if entry.citation.number == number {
            return;
        }
        if !movable {
            entry.citation.metadata.insert("upstreamIndex".to_owned(), number.into());
            return;
        }
        let old = std::mem::replace(&mut entry.citation.number, number);
        self.by_number.remove(&old);
        self.by_number.insert(number, index);
        self.highest = self.highest.max(number);
        if let Some(holder) = holder
            && let Some(other) = self.entries.get_mut(holder)
        {
            other.citation.number = old;
            self.by_number.insert(old, holder);
        }
    }

    /// A further number of a known source, unless it is another one's already.
    fn alias(&mut self, index: usize, number: u32, authoritative: bool) {
        if !self.vacate(number, authoritative) {
            return;
        }
        if let Some(entry) = self.entries.get_mut(index) {
            entry.citation.aliases.push(number);
            self.by_number.insert(number, index);
            self.highest = self.highest.max(number);
        }
    }

    fn index(&mut self, index: usize, reference: &Reference<'_>, url_key: Option<String>) {
        if let Some(key) = url_key {
            self.by_url.entry(key).or_insert(index);
        }
        if let Some(doc) = &reference.doc_id {
            self.by_doc.entry(bounded(doc).into_owned()).or_insert(index);
        }
    }

    /// The source that a marker's number means, if no filter removes it.
    pub fn numbered(&self, number: u32, rules: &score::Rules, now: Timestamp) -> Option<&Citation> {
        let entry = self.entries.get(*self.by_number.get(&number)?)?;
        let refused = rules.filters() && {
            let scores = rules.score(&entry.citation, entry.score, now);
            rules.refuses(&entry.citation, &scores).is_some()
        };
        (!refused).then_some(&entry.citation)
    }

    /// How many sources are not filtered.
    pub fn kept(&self, rules: &score::Rules, now: Timestamp) -> usize {
        if !rules.filters() {
            return self.entries.len();
        }
        let keeps = |entry: &&Entry| {
            let scores = rules.score(&entry.citation, entry.score, now);
            rules.refuses(&entry.citation, &scores).is_none()
        };
        self.entries.iter().filter(keeps).count()
    }

    /// What the record says of its sources, by number, as they are at `now`.
    pub fn view(&self, rules: &score::Rules, now: Timestamp) -> View {
        let marked: BTreeSet<u32> = self.markers.numbers().chain(self.answer_markers.iter().copied()).collect();
        let judged = |entry: &Entry| {
            let mut citation = entry.citation.clone();
            rules.judge(&mut citation, entry.score, now);
            citation.cited = entry.cited;
            citation.source_id = match &entry.identity {
                Identity::Page(canonical) => links::source_id(canonical),
                Identity::Own(name) => links::source_id(&format!("{}:{name}", self.provider)),
            };
            citation
        };
        let mut citations: Vec<Citation> = self.entries.iter().map(judged).collect();
        citations.sort_by_key(|citation| citation.number);
        for citation in &mut citations {
            citation.cited |= marked.contains(&citation.number) || citation.aliases.iter().any(|n| marked.contains(n));
        }
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let failed = count(self.failed.len());
        let kept = count(citations.iter().filter(|citation| citation.status == Status::Ok).count());
        let filtered = count(citations.len()) - kept;
        View {
            stats: Stats {
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
pub struct View {
    pub summary: Option<String>,
    pub queries: Vec<String>,
    pub rounds: Vec<Round>,
    pub citations: Vec<Citation>,
    pub stats: Stats,
    pub truncated: bool,
}

impl Entry {
    /// Fills in what was missing and adds an excerpt that is new; says whether a cap cut something.
    fn fill(&mut self, reference: &Reference<'_>, link: Option<Link>) -> bool {
        let mut truncated = false;
        let mut cut = |(text, cut): (String, bool)| {
            truncated |= cut;
            (!text.is_empty()).then_some(text)
        };
        self.score = self.score.or(reference.score);
        self.cited |= reference.cited;
        let citation = &mut self.citation;
        if citation.url.is_none() {
            match (link, reference.url) {
                (Some(link), _) => {
                    citation.url = Some(link.url);
                    citation.hostname = Some(link.hostname);
                    citation.metadata.remove("droppedUrl");
                }
                (None, Some(raw)) => {
                    let (dropped, _) = text::line(raw, MAX_DROPPED_URL);
                    citation.metadata.insert("droppedUrl".to_owned(), dropped.into());
                }
                (None, None) => {}
            }
        }
        let one_line = |raw: Option<&str>| raw.map(|raw| text::line(raw, MAX_TITLE));
        citation.title = citation.title.take().or_else(|| one_line(reference.title).and_then(&mut cut));
        citation.site_name = citation.site_name.take().or_else(|| one_line(reference.site_name).and_then(&mut cut));
        if citation.icon_url.is_none() {
            citation.icon_url = reference.icon_url.and_then(|raw| links::link(raw, None)).map(|link| link.url);
        }
        if let (None, Some(published)) = (&citation.published_at, reference.published) {
            match published.normalized() {
                Some(time) => citation.published_at = Some(time),
                None => {
                    if let Published::Text(raw) = published {
                        let (raw, _) = text::line(raw, 64);
                        citation.metadata.entry("publishedText").or_insert(raw.into());
                    }
                }
            }
        }
        for (key, value) in &reference.metadata {
            citation.metadata.entry(*key).or_insert_with(|| match value {
                Value::String(raw) => text::line(raw, MAX_TITLE).0.into(),
                other => other.clone(),
            });
        }
        if let Some(snippet) = reference.snippet.map(|raw| text::lines(raw, MAX_SNIPPET)).and_then(&mut cut) {
            match &citation.content {
                None => citation.content = Some(snippet),
                Some(first) if *first == snippet || citation.snippets.contains(&snippet) => {}
                Some(first) => {
                    if citation.snippets.is_empty() {
                        citation.snippets.push(first.clone());
                    }
                    if citation.snippets.len() < MAX_SNIPPETS {
                        citation.snippets.push(snippet);
                    } else {
                        truncated = true;
                    }
                }
            }
        }
        truncated
    }
}

impl Published<'_> {
    /// Text that is a date or a time stays as it was written; an epoch becomes one in UTC.
    fn normalized(self) -> Option<String> {
        match self {
            Self::Text(raw) => {
                let raw = raw.trim();
                let known = raw.parse::<Timestamp>().is_ok() || raw.parse::<jiff::civil::DateTime>().is_ok();
                known.then(|| raw.to_owned())
            }
            Self::Epoch(n) => {
                let time = if n > 100_000_000_000 { Timestamp::from_millisecond(n) } else { Timestamp::from_second(n) };
                (n > 0).then_some(time.ok()?.to_string())
            }
        }
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;

//! One source in the ledger while the message streams. It stores no derived fields and each text once, to keep memory small.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::{
    ledger::{MAX_CITATIONS, MAX_SNIPPET, MAX_SNIPPETS, MAX_TITLE, Published, Reference},
    record::{Citation, CitationOrigin, CitationStatus, CitationType},
    score, text,
    url::{self as links, Canonical, Page},
};

/// Bytes kept of an invalid URL, in `metadata.droppedUrl`.
const MAX_DROPPED_URL: usize = 1024;

#[derive(Debug)]
pub struct Entry {
    pub number: u32,
    pub url: Option<Box<str>>,
    pub title: Option<Box<str>>,
    /// The first snippet.
    pub content: Option<Box<str>>,
    /// True while the number comes from the position or the order of arrival; a number from the upstream replaces it.
    pub(super) provisional: bool,
    /// The upstream's relevance score.
    pub(super) score: Option<f64>,
    /// The number from the upstream, if another source has it.
    pub(super) upstream_index: Option<u32>,
    /// Number of the search round that found it; 0 before the first.
    pub(super) round: u32,
    /// Name hashed into the source id if the source had no URL at first; otherwise the canonical URL is hashed. Stored because
    /// the provider, the other part of the id, may become known after the first references.
    pub(super) id_name: Option<Box<str>>,
    canonical: Canonical,
    rank: u32,
    kind: CitationType,
    /// True if the upstream says so; `Ledger::snapshot` adds the markers in the text.
    cited: bool,
    site_name: Option<Box<str>>,
    icon_url: Option<Box<str>>,
    published_at: Option<Box<str>>,
    /// A list, because a map of so few items would take more memory.
    metadata: Vec<(&'static str, MetadataValue)>,
    /// The first number under which the upstream sent it. The same number again is a resend, not an alias.
    first_sent_number: Option<u32>,
    repeats: Option<Box<Repeats>>,
}

/// Data of a source that was sent more than once. Boxed, because most sources have none.
#[derive(Debug, Default)]
struct Repeats {
    aliases: Vec<u32>,
    /// Numbers after `Entry::first_sent_number`.
    sent_numbers: Vec<u32>,
    /// Snippets after `Entry::content`.
    snippets: Vec<Box<str>>,
}

/// A metadata value. Texts, by far the most frequent, are stored without the overhead of [`Value`].
#[derive(Debug, PartialEq)]
enum MetadataValue {
    Text(Box<str>),
    Other(Box<Value>),
}

/// Result of [`Entry::merge`].
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Merged {
    pub changed: bool,
    /// A cap cut a text or dropped a snippet.
    pub truncated: bool,
}

impl Entry {
    pub(super) fn new(number: u32, reference: &Reference<'_>, rank: u32) -> Self {
        Self {
            number,
            url: None,
            title: None,
            content: None,
            provisional: reference.number.is_none(),
            score: None,
            upstream_index: None,
            round: 0,
            id_name: None,
            canonical: Canonical::Start(0),
            rank,
            kind: reference.kind,
            cited: false,
            site_name: None,
            icon_url: None,
            published_at: None,
            metadata: Vec::with_capacity(reference.metadata.len()),
            first_sent_number: reference.number.or(reference.position),
            repeats: None,
        }
    }

    /// Fills empty fields from the reference and adds its snippet if it is new. Fields that are set stay.
    pub(super) fn merge(&mut self, reference: &Reference<'_>, page: Option<Page<'_>>) -> Merged {
        let mut merged = Merged::default();
        if self.score.is_none() && reference.score.is_some() {
            self.score = reference.score;
            merged.changed = true;
        }
        if reference.cited && !self.cited {
            self.cited = true;
            merged.changed = true;
        }
        if self.url.is_none() {
            merged.changed |= match (page, reference.url) {
                (Some(page), _) => {
                    self.url = Some(page.url.into());
                    self.canonical = page.canonical;
                    self.metadata.retain(|(key, _)| *key != "droppedUrl");
                    true
                }
                (None, Some(raw)) => self.set_metadata("droppedUrl", MetadataValue::line(raw, MAX_DROPPED_URL)),
                (None, None) => false,
            };
        }
        merged.fill_line(&mut self.title, reference.title);
        merged.fill_line(&mut self.site_name, reference.site_name);
        if self.icon_url.is_none() {
            self.icon_url = reference.icon_url.and_then(|url| links::page(url, None)).map(|page| page.url.into());
            merged.changed |= self.icon_url.is_some();
        }
        if let (None, Some(published)) = (&self.published_at, reference.published) {
            self.published_at = published.normalized();
            merged.changed |= match published {
                _ if self.published_at.is_some() => true,
                Published::Text(raw) => self.add_metadata("publishedText", || MetadataValue::line(raw, 64)),
                Published::Epoch(_) => false,
            };
        }
        for (key, value) in &reference.metadata {
            merged.changed |= self.add_metadata(key, || match value {
                Value::String(raw) => MetadataValue::line(raw, MAX_TITLE),
                other => MetadataValue::Other(Box::new(other.clone())),
            });
        }
        if let Some(raw) = reference.snippet {
            self.add_snippet(raw, &mut merged);
        }
        merged
    }

    fn add_snippet(&mut self, raw: &str, merged: &mut Merged) {
        let (snippet, cut) = text::clean_lines(raw, MAX_SNIPPET);
        merged.truncated |= cut;
        if snippet.is_empty() {
            return;
        }
        let Some(first) = &self.content else {
            self.content = Some(snippet.into());
            merged.changed = true;
            return;
        };
        let further = self.repeats.as_ref().map(|repeats| repeats.snippets.as_slice()).unwrap_or_default();
        if **first == *snippet || further.iter().any(|known| **known == *snippet) {
            return;
        }
        if 1 + further.len() < MAX_SNIPPETS {
            push_tight(&mut self.repeats().snippets, snippet.into(), 1);
            merged.changed = true;
        } else {
            merged.truncated = true;
        }
    }

    /// Adds a value unless the key has one. Returns true if it was added.
    fn add_metadata(&mut self, key: &'static str, value: impl FnOnce() -> MetadataValue) -> bool {
        let is_new = self.metadata.iter().all(|(known, _)| *known != key);
        if is_new {
            push_tight(&mut self.metadata, (key, value()), 1);
        }
        is_new
    }

    /// Adds or replaces a value. Returns true if it changed.
    fn set_metadata(&mut self, key: &'static str, value: MetadataValue) -> bool {
        match self.metadata.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) if *known == value => false,
            Some((_, known)) => {
                *known = value;
                true
            }
            None => self.add_metadata(key, || value),
        }
    }

    fn repeats(&mut self) -> &mut Repeats {
        self.repeats.get_or_insert_default()
    }

    /// True if the upstream sent the source under this number before.
    pub(super) fn has_sent_number(&self, number: u32) -> bool {
        self.first_sent_number == Some(number)
            || self.repeats.as_ref().is_some_and(|repeats| repeats.sent_numbers.contains(&number))
    }

    pub(super) fn add_sent_number(&mut self, number: u32) {
        if self.first_sent_number.is_none() {
            self.first_sent_number = Some(number);
            return;
        }
        let further = &mut self.repeats().sent_numbers;
        if 1 + further.len() < MAX_CITATIONS {
            push_tight(further, number, 1);
        }
    }

    pub(super) fn add_alias(&mut self, number: u32) {
        push_tight(&mut self.repeats().aliases, number, 1);
    }

    /// True if no filter removes the source.
    pub(super) fn passes(&self, rules: &score::Rules, now: Timestamp) -> bool {
        let input = score::ScoreInput {
            rank: self.rank,
            published_at: self.published_at.as_deref(),
            hostname: self.hostname(),
            kind: self.kind,
        };
        rules.filter_reason(input, &rules.score(input, self.score, now)).is_none()
    }

    fn hostname(&self) -> Option<&str> {
        self.url.as_deref().map(|url| links::host_of(self.canonical.of(url)))
    }

    /// The citation of the record, without scores, filter status and the citations found in the text.
    pub(super) fn citation(&self, provider: &str) -> Citation {
        let owned = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
        let mut metadata = Map::new();
        for (key, value) in &self.metadata {
            metadata.insert((*key).to_owned(), value.to_json());
        }
        if let Some(number) = self.upstream_index {
            metadata.insert("upstreamIndex".to_owned(), number.into());
        }
        if self.round > 0 {
            metadata.insert("round".to_owned(), self.round.into());
        }
        let (aliases, further) = match &self.repeats {
            Some(repeats) => (repeats.aliases.clone(), repeats.snippets.as_slice()),
            None => (Vec::new(), [].as_slice()),
        };
        let first = self.content.as_ref().filter(|_| !further.is_empty());
        Citation {
            number: self.number,
            aliases,
            url: owned(&self.url),
            title: owned(&self.title),
            content: owned(&self.content),
            hostname: self.hostname().map(str::to_owned),
            kind: self.kind,
            show_favicon: self.kind == CitationType::Websearch,
            site_name: owned(&self.site_name),
            icon_url: owned(&self.icon_url),
            published_at: owned(&self.published_at),
            source_id: match &self.id_name {
                Some(name) => links::source_id(&format!("{provider}:{name}")),
                None => links::source_id(self.canonical.of(self.url.as_deref().unwrap_or_default())),
            },
            rank: self.rank,
            origin: CitationOrigin::Upstream,
            cited: self.cited,
            status: CitationStatus::Ok,
            scores: None,
            snippets: first.into_iter().chain(further).map(|text| text.clone().into_string()).collect(),
            metadata,
        }
    }
}

impl MetadataValue {
    fn line(raw: &str, cap: usize) -> Self {
        Self::Text(text::clean_line(raw, cap).0.into())
    }

    fn to_json(&self) -> Value {
        match self {
            Self::Text(text) => Value::String(text.clone().into_string()),
            Self::Other(value) => (**value).clone(),
        }
    }
}

impl Merged {
    /// Fills an empty field with the cleaned text.
    fn fill_line(&mut self, field: &mut Option<Box<str>>, raw: Option<&str>) {
        if let (None, Some(raw)) = (&field, raw) {
            let (line, cut) = text::clean_line(raw, MAX_TITLE);
            self.truncated |= cut;
            if !line.is_empty() {
                *field = Some(line.into());
                self.changed = true;
            }
        }
    }
}

impl Published<'_> {
    /// A date or time in text form unchanged, an epoch value as RFC 3339 in UTC; `None` for anything else.
    fn normalized(self) -> Option<Box<str>> {
        match self {
            Self::Text(raw) => {
                let raw = raw.trim();
                let is_time = raw.parse::<Timestamp>().is_ok() || raw.parse::<jiff::civil::DateTime>().is_ok();
                is_time.then(|| raw.into())
            }
            Self::Epoch(n) => {
                // As seconds, larger values lie after the year 5138.
                let time = if n > 100_000_000_000 { Timestamp::from_millisecond(n) } else { Timestamp::from_second(n) };
                (n > 0).then_some(time.ok()?.to_string().into())
            }
        }
    }
}

/// Pushes an item and grows a full list by `least` items or a quarter. `Vec` would double it, and up to half of the memory
/// would stay unused while the message streams.
pub(super) fn push_tight<T>(list: &mut Vec<T>, item: T, least: usize) {
    if list.len() == list.capacity() {
        list.reserve_exact(least.max(list.len() / 4));
    }
    list.push(item);
}

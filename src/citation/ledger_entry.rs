//! A source as the ledger holds it for as long as the message streams: only what cannot be worked out, each text once.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::{
    ledger::{MAX_CITATIONS, MAX_SNIPPET, MAX_SNIPPETS, MAX_TITLE, Published, Reference},
    record::{Citation, CitationOrigin, CitationStatus, CitationType},
    score, text,
    url::{self as links, Canonical, Page},
};

/// A dropped URL is kept as evidence, not whole.
const MAX_DROPPED_URL: usize = 1024;

#[derive(Debug)]
pub struct Entry {
    pub number: u32,
    pub url: Option<Box<str>>,
    pub title: Option<Box<str>>,
    /// The first excerpt.
    pub content: Option<Box<str>>,
    /// Its number is ours, by position or order: an upstream's number may take its place.
    pub(super) provisional: bool,
    /// The upstream's own relevance.
    pub(super) score: Option<f64>,
    /// The number that the upstream meant where it could not be had.
    pub(super) upstream_index: Option<u32>,
    /// The search that found it; 0 before any.
    pub(super) round: u32,
    /// What its id is made of where it had no link at first: the provider's name may become known after the first
    /// references. Without it, the canonical URL.
    pub(super) own_name: Option<Box<str>>,
    canonical: Canonical,
    rank: u32,
    kind: CitationType,
    /// The upstream says so; markers in the text are counted apart.
    cited: bool,
    site_name: Option<Box<str>>,
    icon_url: Option<Box<str>>,
    published_at: Option<Box<str>>,
    /// Few: a map of them would be larger than they are.
    metadata: Vec<(&'static str, Note)>,
    /// The first of the numbers under which the upstream sent it: the same again is a re-send.
    sent_as: Option<u32>,
    more: Option<Box<More>>,
}

/// What only a source has that was named more than once.
#[derive(Debug, Default)]
struct More {
    aliases: Vec<u32>,
    sent_as: Vec<u32>,
    /// The excerpts after the first.
    snippets: Vec<Box<str>>,
}

/// A value of the metadata. Nearly all are texts.
#[derive(Debug, PartialEq)]
enum Note {
    Text(Box<str>),
    Other(Box<Value>),
}

/// What a reference did to its entry.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Filled {
    pub changed: bool,
    /// A cap cut something.
    pub cut: bool,
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
            own_name: None,
            canonical: Canonical::Start(0),
            rank,
            kind: reference.kind,
            cited: false,
            site_name: None,
            icon_url: None,
            published_at: None,
            metadata: Vec::with_capacity(reference.metadata.len()),
            sent_as: reference.number.or(reference.position),
            more: None,
        }
    }

    /// Fills in what was missing and adds an excerpt that is new.
    pub(super) fn fill(&mut self, reference: &Reference<'_>, page: Option<Page<'_>>) -> Filled {
        let mut filled = Filled::default();
        if self.score.is_none() && reference.score.is_some() {
            self.score = reference.score;
            filled.changed = true;
        }
        if reference.cited && !self.cited {
            self.cited = true;
            filled.changed = true;
        }
        if self.url.is_none() {
            filled.changed |= match (page, reference.url) {
                (Some(page), _) => {
                    self.url = Some(page.url.into());
                    self.canonical = page.canonical;
                    self.metadata.retain(|(key, _)| *key != "droppedUrl");
                    true
                }
                (None, Some(raw)) => self.set("droppedUrl", Note::line(raw, MAX_DROPPED_URL)),
                (None, None) => false,
            };
        }
        filled.line(&mut self.title, reference.title);
        filled.line(&mut self.site_name, reference.site_name);
        if self.icon_url.is_none() {
            self.icon_url = reference.icon_url.and_then(links::address).map(Into::into);
            filled.changed |= self.icon_url.is_some();
        }
        if let (None, Some(published)) = (&self.published_at, reference.published) {
            self.published_at = published.normalized();
            filled.changed |= match published {
                _ if self.published_at.is_some() => true,
                Published::Text(raw) => self.add("publishedText", || Note::line(raw, 64)),
                Published::Epoch(_) => false,
            };
        }
        for (key, value) in &reference.metadata {
            filled.changed |= self.add(key, || match value {
                Value::String(raw) => Note::line(raw, MAX_TITLE),
                other => Note::Other(Box::new(other.clone())),
            });
        }
        if let Some(raw) = reference.snippet {
            self.excerpt(raw, &mut filled);
        }
        filled
    }

    fn excerpt(&mut self, raw: &str, filled: &mut Filled) {
        let (snippet, cut) = text::clean_lines(raw, MAX_SNIPPET);
        filled.cut |= cut;
        if snippet.is_empty() {
            return;
        }
        let Some(first) = &self.content else {
            self.content = Some(snippet.into());
            filled.changed = true;
            return;
        };
        let further = self.more.as_ref().map(|more| more.snippets.as_slice()).unwrap_or_default();
        if **first == *snippet || further.iter().any(|known| **known == *snippet) {
            return;
        }
        if 1 + further.len() < MAX_SNIPPETS {
            push_tight(&mut self.more().snippets, snippet.into(), 1);
            filled.changed = true;
        } else {
            filled.cut = true;
        }
    }

    /// Says whether there was none.
    fn add(&mut self, key: &'static str, value: impl FnOnce() -> Note) -> bool {
        let is_new = self.metadata.iter().all(|(known, _)| *known != key);
        if is_new {
            push_tight(&mut self.metadata, (key, value()), 1);
        }
        is_new
    }

    /// Says whether it was another.
    fn set(&mut self, key: &'static str, value: Note) -> bool {
        match self.metadata.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) if *known == value => false,
            Some((_, known)) => {
                *known = value;
                true
            }
            None => self.add(key, || value),
        }
    }

    fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    pub(super) fn was_sent_as(&self, number: u32) -> bool {
        self.sent_as == Some(number) || self.more.as_ref().is_some_and(|more| more.sent_as.contains(&number))
    }

    pub(super) fn sent_as(&mut self, number: u32) {
        if self.sent_as.is_none() {
            self.sent_as = Some(number);
            return;
        }
        let further = &mut self.more().sent_as;
        if 1 + further.len() < MAX_CITATIONS {
            push_tight(further, number, 1);
        }
    }

    pub(super) fn alias(&mut self, number: u32) {
        push_tight(&mut self.more().aliases, number, 1);
    }

    /// Does no filter remove it?
    pub(super) fn passes(&self, rules: &score::Rules, now: Timestamp) -> bool {
        let facts = score::Facts {
            rank: self.rank,
            published_at: self.published_at.as_deref(),
            hostname: self.hostname(),
            kind: self.kind,
        };
        rules.refuses(facts, &rules.score(facts, self.score, now)).is_none()
    }

    fn hostname(&self) -> Option<&str> {
        self.url.as_deref().map(|url| links::host_of(self.canonical.of(url)))
    }

    /// As the record has it, but for its scores and for what the text says of it.
    pub(super) fn citation(&self, provider: &str) -> Citation {
        let owned = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
        let mut metadata = Map::new();
        for (key, value) in &self.metadata {
            metadata.insert((*key).to_owned(), value.value());
        }
        if let Some(number) = self.upstream_index {
            metadata.insert("upstreamIndex".to_owned(), number.into());
        }
        if self.round > 0 {
            metadata.insert("round".to_owned(), self.round.into());
        }
        let (aliases, further) = match &self.more {
            Some(more) => (more.aliases.clone(), more.snippets.as_slice()),
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
            source_id: match &self.own_name {
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

impl Note {
    fn line(raw: &str, cap: usize) -> Self {
        Self::Text(text::clean_line(raw, cap).0.into())
    }

    fn value(&self) -> Value {
        match self {
            Self::Text(text) => Value::String(text.clone().into_string()),
            Self::Other(value) => (**value).clone(),
        }
    }
}

impl Filled {
    /// Takes a line where there was none.
    fn line(&mut self, into: &mut Option<Box<str>>, raw: Option<&str>) {
        if let (None, Some(raw)) = (&into, raw) {
            let (line, cut) = text::clean_line(raw, MAX_TITLE);
            self.cut |= cut;
            if !line.is_empty() {
                *into = Some(line.into());
                self.changed = true;
            }
        }
    }
}

impl Published<'_> {
    /// Text that is a date or a time stays as it was written; an epoch becomes one in UTC.
    fn normalized(self) -> Option<Box<str>> {
        match self {
            Self::Text(raw) => {
                let raw = raw.trim();
                let known = raw.parse::<Timestamp>().is_ok() || raw.parse::<jiff::civil::DateTime>().is_ok();
                known.then(|| raw.into())
            }
            Self::Epoch(n) => {
                let time = if n > 100_000_000_000 { Timestamp::from_millisecond(n) } else { Timestamp::from_second(n) };
                (n > 0).then_some(time.ok()?.to_string().into())
            }
        }
    }
}

/// Doubling would leave up to half of a list empty while the message streams: room for `least` more, or a quarter.
pub(super) fn push_tight<T>(list: &mut Vec<T>, item: T, least: usize) {
    if list.len() == list.capacity() {
        list.reserve_exact(least.max(list.len() / 4));
    }
    list.push(item);
}

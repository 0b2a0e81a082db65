//! Reads one reference, under any of the key names that OpenAI-like upstreams use.

use std::borrow::Cow;

use serde_json::Value;

use crate::{
    citation::{ledger::Reference, record::CitationType, url::link},
    provider::{Signal, Sink, WEB, json::Node, published},
};

const URL: &[&str] = &["url", "link", "uri", "mobile_url"];
const TITLE: &[&str] =
    &["title", "name", "doc_title", "doc_name", "document_name", "filename", "file_name", "chunk_title"];
const SNIPPET: &[&str] = &["summary", "snippet", "quote", "content", "cited_text", "description"];
const SITE: &[&str] = &["site_name", "siteName", "sitename", "media", "site", "collection_name"];
const ICON: &[&str] = &["icon", "logo_url", "favicon", "web_icon", "site_icon"];
const DATE: &[&str] = &["date", "publish_time", "publish_date", "published_at", "published_date", "last_updated"];
const DOC: &[&str] = &["doc_id", "document_id", "file_id"];
/// Keys that only documents of a knowledge base have.
const KNOWLEDGE: &[&str] = &["doc_id", "document_id", "file_id", "doc_name", "document_name", "collection_name"];
const SCORE: &[&str] = &["score", "similarity"];

/// How a reference is numbered if it has no number of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbering {
    /// By this number: the markers in the text count this list.
    Number(u32),
    /// By its position in the list, which is weaker than a number.
    Position(u32),
    /// By its order of arrival.
    Arrival,
}

/// An entry of a list of references, before it becomes a signal.
pub struct Item<'n, 'j> {
    node: &'n Node<'j>,
    pub url: Option<&'n str>,
    /// The entry itself, if it is a string and no URL.
    title: Option<&'n str>,
    /// Span of the answer's text that uses it: start and end in characters.
    span: Option<(u64, u64)>,
    /// In an annotation, `index` is a position in the text and the number is that of the marker.
    is_annotation: bool,
    /// Number in the annotation's marker.
    marker: Option<u32>,
    /// `text` is the name of the site, as in Hunyuan's results.
    text_is_site: bool,
    is_knowledge: bool,
}

impl<'n, 'j> Item<'n, 'j> {
    /// Reads an object, or a string that is a URL or a title.
    pub fn new(node: &'n Node<'j>) -> Self {
        let string = node.as_str().map(str::trim).filter(|text| !text.is_empty());
        let is_url = string.is_some_and(|text| link(text, None).is_some());
        Self {
            node,
            url: if is_url { string } else { node.text(URL) },
            title: if is_url { None } else { string },
            span: None,
            is_annotation: false,
            marker: None,
            text_is_site: false,
            is_knowledge: false,
        }
    }

    /// Adds the span and the marker of the annotation that contains the entry.
    pub fn with_annotation(mut self, annotation: &Node<'_>) -> Self {
        let index = |key| [self.node.get(key), annotation.get(key)].into_iter().flatten().find_map(Node::as_number);
        let position = index("index").map(|position| (position, position));
        let span = index("start_index").zip(index("end_index")).or(position);
        // A span that ends at 0 or before its start carries no information.
        self.span = span.filter(|(start, end)| *end > 0 && start <= end);
        self.is_annotation = true;
        self.marker = annotation.text(&["text"]).and_then(marker_number);
        self
    }

    pub fn with_site_as_text(self, text_is_site: bool) -> Self {
        Self { text_is_site, ..self }
    }

    /// Marks it as a document of a knowledge base, even if it has a URL.
    pub fn in_knowledge_base(self) -> Self {
        Self { is_knowledge: true, ..self }
    }

    /// Sends the reference. `list` and `position` identify an entry that cannot become a citation.
    pub fn emit(self, list: &str, numbering: Numbering, position: u32, sink: &mut dyn Sink) {
        let node = self.node;
        // Drop a title that only repeats the URL: a later entry may have a better one.
        let title =
            self.title.or_else(|| node.text(TITLE)).filter(|title| Some(title.trim()) != self.url.map(str::trim));
        let doc = node.id(DOC);
        if self.url.is_none() && title.is_none() && doc.is_none() {
            let id = Some(format!("{list}/{position}"));
            return sink.signal(Signal::InvalidReference {
                id,
                position,
                code: crate::provider::code::MISSING_TITLE_URL_AND_ID,
            });
        }
        let own = match self.is_annotation {
            true => self.marker,
            false => node.index(&["index", "no", "ref_num", "cite_index"]).or_else(|| refer_number(node)),
        };
        let (number, list_position) = match numbering {
            Numbering::Number(number) => (own.or(Some(number)), None),
            Numbering::Position(position) => (own, Some(position)),
            Numbering::Arrival => (own, None),
        };
        let is_document = self.url.is_none() && KNOWLEDGE.iter().any(|key| node.id(&[key]).is_some());
        let kind = if self.is_knowledge || is_document { CitationType::Knowledge } else { WEB };
        let mut metadata = Vec::new();
        for (key, value) in [("docId", doc.clone()), ("chunkId", node.id(&["chunk_id"]))] {
            metadata.extend(value.map(|value| (key, Value::String(value))));
        }
        if let Some((start, end)) = self.span {
            metadata.extend([("startIndex", start.into()), ("endIndex", end.into())]);
        }
        sink.signal(Signal::Reference(Reference {
            number,
            position: list_position,
            rank: None,
            score: node.first(SCORE).and_then(score),
            url: self.url,
            title,
            snippet: node.text(SNIPPET),
            site_name: if self.text_is_site { node.text(SITE).or(node.text(&["text"])) } else { node.text(SITE) },
            icon_url: node.text(ICON),
            published: DATE.iter().filter_map(|key| node.get(key)).find_map(published),
            // Without URL and id, the title identifies the source, so that a repeated entry counts once.
            doc_id: doc.map(Cow::Owned).or_else(|| title.filter(|_| self.url.is_none()).map(Cow::Borrowed)),
            kind,
            cited: self.span.is_some() || self.marker.is_some(),
            metadata,
        }));
    }
}

/// Parses the number in Zhipu's `ref_1`.
fn refer_number(node: &Node<'_>) -> Option<u32> {
    node.text(&["refer"])?.trim().strip_prefix("ref_")?.parse().ok().filter(|n| (1..1_000_000).contains(n))
}

/// Parses the number in `【5†source】`, or in `【8:1†source】`, whose first number is the turn.
fn marker_number(text: &str) -> Option<u32> {
    let number = text.trim().strip_prefix('【')?.split('†').next()?;
    number.rsplit(':').next()?.trim_end_matches('】').parse().ok().filter(|n| (1..1_000_000).contains(n))
}

/// A score from 0 to 1. Other values have another scale and are ignored.
fn score(node: &Node<'_>) -> Option<f64> {
    match node {
        Node::Float(score) if (0.0..=1.0).contains(score) => Some(*score),
        Node::Unsigned(score @ (0 | 1)) => Some(*score as f64),
        _ => None,
    }
}

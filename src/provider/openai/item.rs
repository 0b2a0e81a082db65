//! One reference, in whatever words its upstream has for it.

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
/// What only a document of a knowledge base has.
const OF_DOCS: &[&str] = &["doc_id", "document_id", "file_id", "doc_name", "document_name", "collection_name"];
const SCORE: &[&str] = &["score", "similarity"];

/// What number a reference has where it names none itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbered {
    /// The markers in the text count this list.
    As(u32),
    /// Its place, for want of a number.
    Place(u32),
    /// In the order in which they come.
    Not,
}

pub struct Item<'n, 'j> {
    node: &'n Node<'j>,
    pub url: Option<&'n str>,
    /// A string that is no URL.
    title: Option<&'n str>,
    /// Where in the answer it is used: first and last character.
    span: Option<(u64, u64)>,
    /// It is an annotation: its `index` is a place in the text, its number that of the marker it is for.
    is_annotation: bool,
    marker: Option<u32>,
    /// Hunyuan's `text` is the site's name.
    text_is_site: bool,
    is_knowledge: bool,
}

impl<'n, 'j> Item<'n, 'j> {
    /// An object, or a string with a URL.
    pub fn of(node: &'n Node<'j>) -> Self {
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

    /// With what the annotation around it says of its use.
    pub fn marked(mut self, annotation: &Node<'_>) -> Self {
        let index = |key| [self.node.get(key), annotation.get(key)].into_iter().flatten().find_map(Node::as_number);
        let place = index("index").map(|place| (place, place));
        let span = index("start_index").zip(index("end_index")).or(place);
        // From nowhere to nowhere says nothing.
        self.span = span.filter(|(start, end)| *end > 0 && start <= end);
        self.is_annotation = true;
        self.marker = annotation.text(&["text"]).and_then(marker);
        self
    }

    pub fn with_site_as_text(self, text_is_site: bool) -> Self {
        Self { text_is_site, ..self }
    }

    /// Of a knowledge base, also where it has a URL.
    pub fn of_knowledge(self) -> Self {
        Self { is_knowledge: true, ..self }
    }

    /// Tells what it is. `list` and `position` tell apart those that are nothing.
    pub fn tell(self, list: &str, numbered: Numbered, position: u32, sink: &mut dyn Sink) {
        let node = self.node;
        // A title that only repeats the URL is none: a better one may come.
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
            false => node.index(&["index", "no", "ref_num", "cite_index"]).or_else(|| refer(node)),
        };
        let (number, place) = match numbered {
            Numbered::As(number) => (own.or(Some(number)), None),
            Numbered::Place(place) => (own, Some(place)),
            Numbered::Not => (own, None),
        };
        let is_document = self.url.is_none() && OF_DOCS.iter().any(|key| node.id(&[key]).is_some());
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
            position: place,
            rank: None,
            score: node.first(SCORE).and_then(score),
            url: self.url,
            title,
            snippet: node.text(SNIPPET),
            site_name: if self.text_is_site { node.text(SITE).or(node.text(&["text"])) } else { node.text(SITE) },
            icon_url: node.text(ICON),
            published: DATE.iter().filter_map(|key| node.get(key)).find_map(published),
            // What has neither URL nor id is known by its title, so that it counts once when it is sent again.
            doc_id: doc.map(Cow::Owned).or_else(|| title.filter(|_| self.url.is_none()).map(Cow::Borrowed)),
            kind,
            cited: self.span.is_some() || self.marker.is_some(),
            metadata,
        }));
    }
}

/// Zhipu's `ref_1`.
fn refer(node: &Node<'_>) -> Option<u32> {
    node.text(&["refer"])?.trim().strip_prefix("ref_")?.parse().ok().filter(|n| (1..1_000_000).contains(n))
}

/// `【5†source】`, and `【8:1†source】`, whose first number is the turn.
fn marker(text: &str) -> Option<u32> {
    let number = text.trim().strip_prefix('【')?.split('†').next()?;
    number.rsplit(':').next()?.trim_end_matches('】').parse().ok().filter(|n| (1..1_000_000).contains(n))
}

/// From 0 to 1; what is not, is another scale.
fn score(node: &Node<'_>) -> Option<f64> {
    match node {
        Node::Float(score) if (0.0..=1.0).contains(score) => Some(*score),
        Node::Unsigned(score @ (0 | 1)) => Some(*score as f64),
        _ => None,
    }
}

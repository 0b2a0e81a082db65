//! Reads one entry of a list of references.

use std::borrow::Cow;

use serde_json::Value;

use super::Span;
use crate::{
    citation::{
        ledger::{Published, Reference},
        record::CitationType,
        url::source_id,
    },
    provider::{Signal, Sink, WEB, code, json::Node},
};

/// Host of the links that lead to a page found by Google Search. Their title is the page's domain.
const REDIRECT: &str = "https://vertexaisearch.cloud.google.com/grounding-api-redirect/";

/// A grounding chunk: a page, a document or a place.
pub struct Item<'n> {
    pub url: Option<&'n str>,
    pub title: Option<&'n str>,
    /// Identifies a document without a URL.
    pub doc: Option<Cow<'n, str>>,
    snippet: Option<&'n str>,
    site: Option<&'n str>,
    kind: CitationType,
    metadata: Vec<(&'static str, &'n str)>,
}

impl<'n> Item<'n> {
    pub fn new(chunk: &'n Node<'_>) -> Self {
        let (kind, node) = chunk
            .first_with_key(&["web", "retrievedContext", "maps", "image"])
            .filter(|(_, node)| node.is_map())
            .unwrap_or(("", &Node::Null));
        let mut item = Self {
            url: node.text(&["uri", "sourceUri"]),
            title: node.text(&["title"]),
            doc: None,
            snippet: node.text(&["text"]),
            site: node.text(&["domain"]),
            kind: WEB,
            metadata: Vec::new(),
        };
        match kind {
            "retrievedContext" => item.read_document(node),
            "maps" => item.set_id(node.text(&["placeId"])),
            _ if item.url.is_some_and(|url| url.starts_with(REDIRECT)) => {
                item.site = item.site.or(item.title.filter(|title| title.contains('.') && !title.contains(' ')));
            }
            _ => {}
        }
        if item.doc.is_none() && item.url.is_none() {
            // So that a repeated entry counts once.
            item.doc = item.title.map(Cow::Borrowed).or_else(|| item.passage_id(node));
        }
        item
    }

    /// Reads a passage of a file or of a document store. Passages of one document become one citation.
    fn read_document(&mut self, node: &'n Node<'_>) {
        self.kind = CitationType::Knowledge;
        self.snippet = self.snippet.or_else(|| node.get("ragChunk")?.text(&["text"]));
        self.set_id(node.text(&["documentName"]));
        self.metadata.extend(node.text(&["fileSearchStore"]).map(|store| ("fileSearchStore", store)));
    }

    /// Identifies a passage whose document has no name, as file search sends it.
    fn passage_id(&self, node: &Node<'_>) -> Option<Cow<'n, str>> {
        let text = self.snippet.filter(|_| self.kind == CitationType::Knowledge)?;
        let store = node.text(&["fileSearchStore"]).unwrap_or_default();
        Some(Cow::Owned(format!("{store}#{}", source_id(text))))
    }

    fn set_id(&mut self, id: Option<&'n str>) {
        self.doc = id.map(Cow::Borrowed);
        self.metadata.extend(id.map(|id| ("docId", id)));
    }

    /// Sends the reference. `index` counts from 0, as in supports; a `used` chunk supports the text, in a span if known.
    pub fn emit(&self, index: usize, used: Option<Option<Span>>, sink: &mut dyn Sink) {
        let number = number(index);
        if self.url.is_none() && self.title.is_none() && self.doc.is_none() {
            let id = Some(format!("groundingChunks/{index}"));
            return sink.signal(Signal::InvalidReference {
                id,
                position: number,
                code: code::MISSING_TITLE_URL_AND_ID,
            });
        }
        let text = |(key, value): &(&'static str, &str)| (*key, Value::String((*value).to_owned()));
        sink.signal(Signal::Reference(Reference {
            number: Some(number),
            url: self.url,
            title: self.title,
            snippet: self.snippet,
            site_name: self.site,
            doc_id: self.doc.as_deref().map(Cow::Borrowed),
            kind: self.kind,
            cited: used.is_some(),
            metadata: self.metadata.iter().map(text).chain(span_metadata(used.flatten())).collect(),
            ..Reference::default()
        }));
    }
}

/// Marks a chunk of an earlier response as used.
pub fn emit_use(url: Option<&str>, doc: Option<&str>, index: usize, span: Option<Span>, sink: &mut dyn Sink) {
    if url.is_some() || doc.is_some() {
        sink.signal(Signal::Reference(Reference {
            number: Some(number(index)),
            url,
            doc_id: doc.map(Cow::Borrowed),
            cited: true,
            metadata: span_metadata(span).collect(),
            ..Reference::default()
        }));
    }
}

/// Reads a page that the URL context tool fetched. A page that it could not fetch is no source.
pub fn emit_page(node: &Node<'_>, position: u32, sink: &mut dyn Sink) {
    const FAILED: &[&str] = &["ERROR", "PAYWALL", "UNSAFE"];
    let status = node.text(&["urlRetrievalStatus"]).unwrap_or_default();
    if FAILED.iter().any(|failed| status.ends_with(failed)) {
        return;
    }
    let url = node.text(&["retrievedUrl"]);
    if url.is_none() {
        let id = Some(format!("urlMetadata/{position}"));
        return sink.signal(Signal::InvalidReference { id, position, code: code::MISSING_TITLE_AND_URL });
    }
    sink.signal(Signal::Reference(Reference { url, kind: WEB, ..Reference::default() }));
}

/// Reads the source of a text that the answer quotes. Its offsets are not read: recorded ones do not fit the quoted text.
pub fn emit_quote(node: &Node<'_>, position: u32, sink: &mut dyn Sink) {
    let (url, title) = (node.text(&["uri"]), node.text(&["title"]));
    if url.is_none() && title.is_none() {
        let id = Some(format!("citations/{position}"));
        return sink.signal(Signal::InvalidReference { id, position, code: code::MISSING_TITLE_AND_URL });
    }
    let date = node.get("publicationDate").and_then(date);
    let license = node.text(&["license"]).map(|license| ("license", Value::String(license.to_owned())));
    sink.signal(Signal::Reference(Reference {
        url,
        title,
        published: date.as_deref().map(Published::Text),
        doc_id: title.filter(|_| url.is_none()).map(Cow::Borrowed),
        kind: WEB,
        cited: true,
        metadata: license.into_iter().collect(),
        ..Reference::default()
    }));
}

/// Reads `{"year":…,"month":…,"day":…}`. Month and day may be unknown.
fn date(node: &Node<'_>) -> Option<String> {
    let part = |key, max| node.get(key).and_then(Node::as_number).filter(|part| (1..=max).contains(part));
    let year = part("year", 9999)?;
    Some(match (part("month", 12), part("day", 31)) {
        (Some(month), Some(day)) => format!("{year:04}-{month:02}-{day:02}"),
        (Some(month), None) => format!("{year:04}-{month:02}"),
        _ => format!("{year:04}"),
    })
}

fn span_metadata(span: Option<Span>) -> impl Iterator<Item = (&'static str, Value)> {
    span.into_iter().flat_map(|(start, end)| [("startIndex", start.into()), ("endIndex", end.into())])
}

/// The number of the chunk at `index`.
fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX).saturating_add(1)
}

//! Reads a citation of a text block. Its `type` says what it cites: a search result, a result that the request contained,
//! or a document.

use std::borrow::Cow;

use serde_json::Value;

use super::pages::FetchedPages;
use crate::{
    citation::{ledger::Reference, record::CitationType, url::link},
    provider::{Signal, Sink, WEB, code, json::Node},
};

/// Bytes of the longest key of a source whose span is reported. A longer one is cited without a span.
const MAX_KEY: usize = 2 * 1024;

/// Search round of the sources that the request contained: no search of the answer returned them.
const REQUEST_ROUND: &str = "request";

/// A source that a text block cites, as the ledger finds it again.
#[derive(Debug, PartialEq, Eq)]
pub struct CitedSource {
    key: SourceKey,
    kind: CitationType,
}

#[derive(Debug, PartialEq, Eq)]
enum SourceKey {
    Url(String),
    Document(String),
}

impl CitedSource {
    fn of(reference: &Reference<'_>) -> Option<Self> {
        let key = match (reference.url, reference.doc_id.as_deref()) {
            (Some(url), _) if url.len() <= MAX_KEY => SourceKey::Url(url.to_owned()),
            (None, Some(id)) if id.len() <= MAX_KEY => SourceKey::Document(id.to_owned()),
            _ => return None,
        };
        Some(Self { key, kind: reference.kind })
    }

    /// Sends the part of the answer that cites the source, in code points. It is known when the text block ends; the
    /// ledger merges it into the source and keeps the first.
    pub fn emit_span(&self, start: u64, end: u64, sink: &mut dyn Sink) {
        let (url, doc_id) = match &self.key {
            SourceKey::Url(url) => (Some(url.as_str()), None),
            SourceKey::Document(id) => (None, Some(Cow::Borrowed(id.as_str()))),
        };
        sink.signal(Signal::Reference(Reference {
            url,
            doc_id,
            kind: self.kind,
            cited: true,
            metadata: vec![("startIndex", start.into()), ("endIndex", end.into())],
            ..Reference::default()
        }));
    }
}

/// Sends the source of a citation. Returns it if its span can be sent later.
pub fn emit(citation: &Node<'_>, pages: &FetchedPages, message_id: &str, sink: &mut dyn Sink) -> Option<CitedSource> {
    let base = Reference { snippet: citation.text(&["cited_text"]), cited: true, ..Reference::default() };
    let reference = match citation.text(&["type"])? {
        "web_search_result_location" => web_result(citation, base),
        "search_result_location" => request_result(citation, base),
        kind @ ("char_location" | "page_location" | "content_block_location") => {
            document(citation, pages.url_of(citation, kind == "page_location"), message_id, base)
        }
        _ => return None,
    };
    if reference.url.is_none() && reference.title.is_none() && reference.doc_id.is_none() {
        let id = citation.id(&["encrypted_index", "search_result_index"]);
        sink.signal(Signal::InvalidReference { id, position: 1, code: code::MISSING_TITLE_URL_AND_ID });
        return None;
    }
    if reference.kind == CitationType::Knowledge {
        sink.signal(Signal::SearchRound { key: REQUEST_ROUND, summary: None, queries: Vec::new() });
    }
    let source = CitedSource::of(&reference);
    sink.signal(Signal::Reference(reference));
    source
}

/// A result of the server's web search.
fn web_result<'n>(citation: &'n Node<'_>, base: Reference<'n>) -> Reference<'n> {
    let url = citation.text(&["url"]);
    let title = citation.text(&["title"]);
    // Without a URL, the title identifies the source.
    let doc_id = title.filter(|_| url.is_none()).map(Cow::Borrowed);
    Reference { url, title, doc_id, kind: WEB, ..base }
}

/// A search result that the request contained. `source` is a URL or any other name.
fn request_result<'n>(citation: &'n Node<'_>, base: Reference<'n>) -> Reference<'n> {
    let title = citation.text(&["title"]);
    match citation.text(&["source"]) {
        Some(source) if link(source, None).is_some() => Reference { url: Some(source), title, kind: WEB, ..base },
        source => Reference {
            title: title.or(source),
            doc_id: source.or(title).map(Cow::Borrowed),
            kind: CitationType::Knowledge,
            ..base
        },
    }
}

/// A document: a page that the server fetched if there is a `url`, else one that the request contained.
fn document<'n>(citation: &'n Node<'_>, url: Option<&'n str>, message_id: &str, base: Reference<'n>) -> Reference<'n> {
    let title = citation.text(&["document_title"]);
    let index = citation.get("document_index").and_then(Node::as_number);
    let file_id = citation.text(&["file_id"]);
    let mut metadata = Vec::new();
    metadata.extend(file_id.map(|id| ("docId", Value::from(id))));
    metadata.extend(index.map(|index| ("documentIndex", Value::from(index))));
    let (kind, doc_id) = match (url, file_id) {
        (Some(_), _) => (WEB, None),
        (None, Some(id)) => (CitationType::Knowledge, Some(Cow::Borrowed(id))),
        // Two documents may have one title. An index alone means nothing outside of its message.
        (None, None) => {
            let id = index.map(|index| Cow::Owned(format!("{}#{index}", title.unwrap_or(message_id))));
            (CitationType::Knowledge, id.or(title.map(Cow::Borrowed)))
        }
    };
    Reference { url, title, doc_id, kind, metadata, ..base }
}

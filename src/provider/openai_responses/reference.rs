//! Reads one reference: an annotation of the text, a result of a search, or a page that the model opened.

use std::borrow::Cow;

use serde_json::Value;

use crate::{
    citation::{ledger::Reference, record::CitationType},
    provider::{Signal, Sink, WEB, code, json::Node, published},
};

const URL: &[&str] = &["url", "mobile_url"];
const TITLE: &[&str] = &["title", "filename", "doc_name", "name"];
const SNIPPET: &[&str] = &["summary", "snippet", "quote"];
/// Keys of an excerpt in a result of a file search. In an annotation, `text` is the answer's own.
const FILE_SNIPPET: &[&str] = &["text", "summary", "snippet"];
const SITE: &[&str] = &["site_name", "sitename"];
const ICON: &[&str] = &["logo_url", "favicon"];
const DATE: &[&str] = &["publish_time", "date", "last_updated"];
const DOC: &[&str] = &["file_id", "doc_id"];
/// The highest number that a title of digits alone stands for. A page can be titled `2048`.
const MAX_TITLE_NUMBER: u32 = 999;

/// Where a reference is, which decides how its fields are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An annotation that names a page.
    PageCitation,
    /// An annotation that names a file or a document of a knowledge base.
    DocumentCitation,
    /// A result of a file search.
    File,
    /// A numbered search result.
    Result,
    /// A page that was found or opened.
    Page,
}

/// The URL of a page; `None` if there is none or it is blank.
pub fn url<'n>(node: &'n Node<'_>) -> Option<&'n str> {
    node.text(URL)
}

/// Sends a page of which only the URL is known.
pub fn emit_page(url: &str, sink: &mut dyn Sink) {
    sink.signal(Signal::Reference(Reference { url: Some(url), kind: WEB, ..Reference::default() }));
}

/// Sends the reference. An entry that cannot become a citation is identified by `id`, else by its position in the round.
pub fn emit(node: &Node<'_>, kind: Kind, position: u32, id: impl FnOnce() -> Option<String>, sink: &mut dyn Sink) {
    let is_citation = matches!(kind, Kind::PageCitation | Kind::DocumentCitation);
    let url = url(node).or_else(|| node.as_str().filter(|text| !text.trim().is_empty()));
    let title = node.text(TITLE).map(str::trim).filter(|title| Some(*title) != url.map(str::trim));
    let doc = node.id(DOC);
    let span = if is_citation { span(node) } else { None };
    if url.is_none() && title.is_none() && doc.is_none() {
        let code = code::MISSING_TITLE_URL_AND_ID;
        return sink.signal(Signal::InvalidReference { id: id(), position, code });
    }
    let title_number = title.filter(|_| kind == Kind::PageCitation && span.is_some()).and_then(number_in_title);
    let title = title.filter(|_| title_number.is_none());
    let number = match kind {
        Kind::Result => node.index(&["id"]),
        _ => title_number,
    };
    let is_document = matches!(kind, Kind::DocumentCitation | Kind::File) || (url.is_none() && doc.is_some());
    let mut metadata = Vec::new();
    for (key, value) in
        [("docId", doc.clone()), ("chunkId", node.id(&["chunk_id"])), ("containerId", node.id(&["container_id"]))]
    {
        metadata.extend(value.map(|value| (key, Value::String(value))));
    }
    if let Some((start, end)) = span {
        metadata.extend([("startIndex", start.into()), ("endIndex", end.into())]);
    }
    sink.signal(Signal::Reference(Reference {
        number,
        position: None,
        rank: None,
        score: node.get("score").and_then(score),
        url,
        title,
        snippet: node.text(if kind == Kind::File { FILE_SNIPPET } else { SNIPPET }),
        site_name: node.text(SITE),
        icon_url: node.text(ICON),
        published: DATE.iter().filter_map(|key| node.get(key)).find_map(published),
        // Without URL and id, the title identifies the source, so that a repeated entry counts once.
        doc_id: doc.map(Cow::Owned).or_else(|| title.filter(|_| url.is_none()).map(Cow::Borrowed)),
        kind: if is_document { CitationType::Knowledge } else { WEB },
        cited: span.is_some(),
        metadata,
    }));
}

/// Reads the span of the answer's text that uses the source: `start_index` and `end_index`, or `index`, which is a position.
/// Ark has neither, and xAI also annotates the pages that it found and did not use, without a span.
fn span(node: &Node<'_>) -> Option<(u64, u64)> {
    let index = |key| node.get(key).and_then(Node::as_number);
    let span = index("start_index").zip(index("end_index")).or_else(|| index("index").map(|at| (at, at)));
    // A span that ends at 0 or before its start carries no information.
    span.filter(|(start, end)| *end > 0 && start <= end)
}

/// The number of an inline link such as `[[1]](https://…)`, which xAI sends as the title of its annotation.
fn number_in_title(title: &str) -> Option<u32> {
    let is_number = title.len() <= 3 && title.bytes().all(|byte| byte.is_ascii_digit());
    title.parse().ok().filter(|number| is_number && (1..=MAX_TITLE_NUMBER).contains(number))
}

/// A score from 0 to 1. Other values have another scale and are ignored.
fn score(node: &Node<'_>) -> Option<f64> {
    match node {
        Node::Float(score) if (0.0..=1.0).contains(score) => Some(*score),
        Node::Unsigned(score @ (0 | 1)) => Some(*score as f64),
        _ => None,
    }
}

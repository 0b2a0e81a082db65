//! Encodes a record as OpenAI-like clients expect it: `url_citation` annotations of a delta or a message, and Perplexity's
//! `search_results`. Both have web pages only: citations without an http(s) URL are omitted. Used here and by `profile`.

use std::collections::HashSet;

use serde::Serialize;

use crate::citation::{Citation, Record, record::CitationStatus, url::link};
use crate::provider::SpanLookup;

/// One entry of `annotations`. `@ai-sdk/openai` rejects a chunk if one of the four fields is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Annotation<'r> {
    #[serde(rename = "type")]
    kind: &'static str,
    pub url_citation: UrlCitation<'r>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UrlCitation<'r> {
    pub url: &'r str,
    pub title: String,
    pub start_index: u64,
    pub end_index: u64,
}

/// One entry of `search_results`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SearchResult<'r> {
    pub title: String,
    pub url: &'r str,
    pub date: Option<&'r str>,
    pub snippet: &'r str,
}

/// Builds an annotation for each page of the record, with the span that `span_lookup` returns.
pub fn annotations<'r>(record: &'r Record, span_lookup: &SpanLookup<'_>) -> Vec<Annotation<'r>> {
    let annotation = |(citation, url, title): (&'r Citation, &'r str, String)| {
        let (start_index, end_index) = span_lookup(citation);
        Annotation { kind: "url_citation", url_citation: UrlCitation { url, title, start_index, end_index } }
    };
    pages(record).map(annotation).collect()
}

/// Builds a search result for each page of the record.
pub fn search_results<'r>(record: &'r Record) -> Vec<SearchResult<'r>> {
    let result = |(citation, url, title): (&'r Citation, &'r str, String)| SearchResult {
        title,
        url,
        date: citation.published_at.as_deref().and_then(|time| time.get(..10)),
        snippet: citation.content.as_deref().unwrap_or_default(),
    };
    pages(record).map(result).collect()
}

/// Builds `citations`: the URLs of the pages.
pub fn urls(record: &Record) -> Vec<&str> {
    pages(record).map(|(_, url, _)| url).collect()
}

/// Citations with a URL, each with a unique title: Open WebUI distinguishes sources by title and numbers them wrongly if
/// two are equal. LobeChat shows no sources if a title is a URL.
fn pages(record: &Record) -> impl Iterator<Item = (&Citation, &str, String)> {
    let mut used: HashSet<String> = HashSet::new();
    unfiltered(record).filter_map(move |citation| {
        let url = citation.url.as_deref()?;
        let mut title = title(citation);
        if used.contains(&title) {
            title = format!("{title} ({})", citation.number);
        }
        used.insert(title.clone());
        Some((citation, url, title))
    })
}

/// A display title that is never a URL, because clients treat such a source as untitled.
pub fn title(citation: &Citation) -> String {
    let names = [&citation.title, &citation.site_name, &citation.hostname].into_iter().flatten();
    let name = names.map(|name| name.trim()).find(|name| !name.is_empty() && link(name, None).is_none());
    name.map_or_else(|| format!("Source {}", citation.number), str::to_owned)
}

/// Citations that no filter removed.
pub fn unfiltered(record: &Record) -> impl Iterator<Item = &Citation> {
    record.citations.iter().filter(|citation| citation.status == CitationStatus::Ok)
}

#[cfg(test)]
#[path = "shapes_tests.rs"]
pub(in crate::provider) mod tests;

//! A record in the shapes that OpenAI-like clients know: `url_citation` annotations, as a delta or a message has
//! them, and Perplexity's `search_results`. Both name pages only: what has no http(s) URL is in the record alone.

use std::collections::HashSet;

use serde::Serialize;

use crate::citation::{Citation, Record, record::CitationStatus, url::link};
use crate::provider::SpanLookup;

/// One entry of `annotations`. `@ai-sdk/openai` refuses a chunk where one of the four fields is missing.
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

/// Every page of the record, and where in the answer's text `span_lookup` says that it is used.
pub fn annotations<'r>(record: &'r Record, span_lookup: &SpanLookup<'_>) -> Vec<Annotation<'r>> {
    let annotation = |(citation, url, title): (&'r Citation, &'r str, String)| {
        let (start_index, end_index) = span_lookup(citation);
        Annotation { kind: "url_citation", url_citation: UrlCitation { url, title, start_index, end_index } }
    };
    pages(record).map(annotation).collect()
}

pub fn search_results<'r>(record: &'r Record) -> Vec<SearchResult<'r>> {
    let result = |(citation, url, title): (&'r Citation, &'r str, String)| SearchResult {
        title,
        url,
        date: citation.published_at.as_deref().and_then(|time| time.get(..10)),
        snippet: citation.content.as_deref().unwrap_or_default(),
    };
    pages(record).map(result).collect()
}

/// `citations`: nothing but links.
pub fn urls(record: &Record) -> Vec<&str> {
    pages(record).map(|(_, url, _)| url).collect()
}

/// Citations with a URL, each with a title that no other has: Open WebUI tells sources apart by their titles, and
/// numbers them wrongly where two are equal. LobeChat shows none if one title is a URL.
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

/// Never a link: clients then take the source for one without a title.
pub fn title(citation: &Citation) -> String {
    let names = [&citation.title, &citation.site_name, &citation.hostname].into_iter().flatten();
    let name = names.map(|name| name.trim()).find(|name| !name.is_empty() && link(name, None).is_none());
    name.map_or_else(|| format!("Source {}", citation.number), str::to_owned)
}

/// The sources that no filter removed.
pub fn unfiltered(record: &Record) -> impl Iterator<Item = &Citation> {
    record.citations.iter().filter(|citation| citation.status == CitationStatus::Ok)
}

#[cfg(test)]
#[path = "shapes_tests.rs"]
pub(super) mod tests;

//! A record's sources in the shapes that OpenAI-like clients know.

use serde::Serialize;

use super::Positions;
use crate::citation::{
    Record,
    record::{Citation, Status},
    text,
};

/// Characters of an excerpt.
const SNIPPET: usize = 200;

/// `choices[].delta.annotations[]`, `message.annotations[]`. Clients insist on all four fields.
#[derive(Debug, Serialize)]
pub struct Annotation<'r> {
    #[serde(rename = "type")]
    kind: &'static str,
    url_citation: UrlCitation<'r>,
}

#[derive(Debug, Serialize)]
struct UrlCitation<'r> {
    url: &'r str,
    title: String,
    start_index: u64,
    end_index: u64,
}

/// `search_results[]`, as Perplexity has them.
#[derive(Debug, Serialize)]
pub struct SearchResult<'r> {
    title: String,
    url: &'r str,
    date: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    snippet: Option<&'r str>,
}

/// Sources that have a link, with where their first marker stands in the text; 0, 0 where none does.
pub fn annotations<'r>(record: &'r Record, positions: &Positions) -> Vec<Annotation<'r>> {
    let annotation = |(citation, url): (&'r Citation, &'r str)| {
        let numbers = std::iter::once(citation.number).chain(citation.aliases.iter().copied());
        let (start_index, end_index) = positions.of(numbers).unwrap_or_default();
        let url_citation = UrlCitation { url, title: title(citation, url), start_index, end_index };
        Annotation { kind: "url_citation", url_citation }
    };
    linked(record).map(annotation).collect()
}

pub fn search_results(record: &Record) -> Vec<SearchResult<'_>> {
    let result = |(citation, url)| SearchResult {
        title: title(citation, url),
        url,
        date: citation.published_at.as_deref(),
        snippet: citation.content.as_deref().map(|content| text::first_chars(content, SNIPPET)),
    };
    linked(record).map(result).collect()
}

/// The sources that no filter removed.
pub fn kept(record: &Record) -> impl Iterator<Item = &Citation> {
    record.citations.iter().filter(|citation| citation.status == Status::Ok)
}

/// Those of them that have a link.
pub fn linked(record: &Record) -> impl Iterator<Item = (&Citation, &str)> {
    kept(record).filter_map(|citation| Some((citation, citation.url.as_deref()?)))
}

/// Never the link itself: clients then take the source for one without a title.
pub fn title(citation: &Citation, url: &str) -> String {
    let names = [&citation.title, &citation.site_name, &citation.hostname];
    let name = names.into_iter().flatten().find(|name| !name.is_empty() && *name != url);
    name.cloned().unwrap_or_else(|| format!("Source {}", citation.number))
}

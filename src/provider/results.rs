//! Adapter for search services, whose responses are one JSON document with a list of `results`. Used by `tavily` and `mcp`.

use super::{
    Adapter, FinishReason, ParseError, Signal, Sink, WEB, code,
    json::{self, Node},
    published,
};
use crate::{
    citation::{
        ledger::{Published, Reference},
        url::link,
    },
    sse::Event,
};

/// Reads documents with `read`, which returns false if a document is not the provider's.
pub struct Results {
    pub provider: &'static str,
    pub read: fn(&Node<'_>, &mut dyn Sink) -> bool,
}

impl Adapter for Results {
    fn provider(&self) -> Option<&'static str> {
        Some(self.provider)
    }

    fn frame(&mut self, event: &Event<'_>, sink: &mut dyn Sink) -> Result<(), ParseError> {
        let Some(data) = event.data.as_deref() else { return Ok(()) };
        match json::with_parsed(data, |node| (self.read)(node, sink)) {
            Some(true) => Ok(()),
            _ => Err(ParseError),
        }
    }
}

pub fn has_results(node: &Node<'_>) -> bool {
    matches!(node.get("results"), Some(Node::List(_)))
}

/// Sends the references in `holder`'s `results`. `snippets` are the keys of an excerpt, in order of preference.
pub fn emit_results(holder: &Node<'_>, query: Option<&str>, snippets: &[&str], sink: &mut dyn Sink) {
    let queries = query.map(Into::into).into_iter().collect();
    sink.signal(Signal::SearchRound { key: "results", summary: None, queries });
    let list = holder.get("results").map(Node::as_list).unwrap_or_default();
    for (position, result) in (1..).zip(list) {
        reference(result, position, snippets, sink);
    }
    sink.signal(Signal::Finish(FinishReason::Stop));
}

fn reference(result: &Node<'_>, position: u32, snippets: &[&str], sink: &mut dyn Sink) {
    let url = result.text(&["url", "link"]);
    let title = result.text(&["title"]);
    if url.is_none() && title.is_none() {
        return sink.signal(Signal::InvalidReference { id: None, position, code: code::MISSING_TITLE_AND_URL });
    }
    let site = url.and_then(|url| link(url, None)).map(|link| link.hostname);
    let date = result.first(&["published_date", "publishedDate"]);
    let rfc2822 = date.and_then(Node::as_str).and_then(rfc2822_date);
    let published = match &rfc2822 {
        Some(time) => Some(Published::Text(time)),
        None => date.and_then(published),
    };
    sink.signal(Signal::Reference(Reference {
        number: Some(position),
        position: Some(position),
        rank: Some(position),
        url,
        title,
        snippet: result.text(snippets),
        site_name: site.as_deref(),
        icon_url: result.text(&["favicon"]),
        published,
        doc_id: None,
        score: score(result),
        kind: WEB,
        cited: false,
        metadata: Vec::new(),
    }));
}

/// The service's own relevance, 0 to 1, comparable only within one response.
fn score(result: &Node<'_>) -> Option<f64> {
    match result.get("score")? {
        Node::Float(score) => Some(*score),
        Node::Unsigned(score) => Some(*score as f64),
        _ => None,
    }
}

/// Parses the date of a news result, such as `Tue, 11 Nov 2025 09:00:00 GMT`.
fn rfc2822_date(text: &str) -> Option<String> {
    let time = jiff::fmt::rfc2822::parse(text.trim()).ok()?;
    Some(time.timestamp().to_string())
}

//! Reads the results of the server's tools: web search and web fetch.

use serde_json::Value;

use super::{MAX_ID, pages::FetchedPage};
use crate::{
    citation::{
        ledger::{Published, Reference},
        text,
    },
    provider::{Signal, Sink, WEB, code, json::Node},
};

/// Sends a search with its query. Its results name the same call.
pub fn emit_search(call: &str, query: Option<&str>, sink: &mut dyn Sink) {
    let queries = query.map(Into::into).into_iter().collect();
    sink.signal(Signal::SearchRound { key: text::first_bytes(call, MAX_ID), summary: None, queries });
}

/// Reads `web_search_tool_result`. Its `content` is a list, or an object if the search failed.
pub fn emit_results(block: &Node<'_>, sink: &mut dyn Sink) {
    let call = block.id(&["tool_use_id"]).unwrap_or_default();
    emit_search(&call, None, sink);
    match block.get("content") {
        Some(Node::List(results)) => {
            for (position, result) in (1..).zip(results) {
                emit_result(result, &call, position, sink);
            }
        }
        Some(error) => emit_error(error, sink),
        None => {}
    }
}

fn emit_result(result: &Node<'_>, call: &str, position: u32, sink: &mut dyn Sink) {
    // A `tool_reference` names a tool, not a source.
    if result.text(&["type"]).is_some_and(|kind| kind != "web_search_result") {
        return;
    }
    let (url, title) = (result.text(&["url"]), result.text(&["title"]));
    if url.is_none() && title.is_none() {
        let code = if result.is_map() { code::MISSING_TITLE_AND_URL } else { code::NOT_AN_OBJECT };
        let id = Some(format!("{}/{position}", text::first_bytes(call, MAX_ID)));
        return sink.signal(Signal::InvalidReference { id, position, code });
    }
    let age = result.text(&["page_age"]);
    let date = age.and_then(written_date);
    sink.signal(Signal::Reference(Reference {
        rank: Some(position),
        url,
        title,
        published: date.as_deref().or(age).map(Published::Text),
        // Without a URL, the title identifies the source.
        doc_id: title.filter(|_| url.is_none()).map(Into::into),
        kind: WEB,
        ..Reference::default()
    }));
}

/// Reads `web_fetch_tool_result`. Returns the page if it was fetched.
pub fn emit_page(block: &Node<'_>, sink: &mut dyn Sink) -> Option<FetchedPage> {
    let result = block.get("content")?;
    let Some(url) = result.text(&["url"]) else {
        emit_error(result, sink);
        return None;
    };
    let document = result.get("content");
    let title = document.and_then(|document| document.text(&["title"]));
    let source = document.and_then(|document| document.get("source"));
    let is_paged = source.and_then(|source| source.text(&["type"])) == Some("base64");
    let call = block.id(&["tool_use_id"]).unwrap_or_default();
    // The page is not a result of the last search.
    emit_search(&call, None, sink);
    let retrieved = result.text(&["retrieved_at"]).map(|time| ("retrievedAt", Value::from(time)));
    sink.signal(Signal::Reference(Reference {
        url: Some(url),
        title,
        kind: WEB,
        metadata: retrieved.into_iter().collect(),
        ..Reference::default()
    }));
    Some(FetchedPage::new(url, title, is_paged))
}

/// Reports that a tool failed, such as `{"type":"web_search_tool_result_error","error_code":"max_uses_exceeded"}`. The
/// answer goes on.
fn emit_error(error: &Node<'_>, sink: &mut dyn Sink) {
    if let (Some(name), Some(message)) = (error.text(&["type"]), error.text(&["error_code"])) {
        sink.signal(Signal::Stage { name, message, detail: None });
    }
}

/// Parses a page's date, such as `April 30, 2025`. Relative ages such as `2 days ago` are no dates.
fn written_date(text: &str) -> Option<String> {
    let date = jiff::civil::Date::strptime("%B %d, %Y", text.trim()).ok()?;
    Some(date.to_string())
}

//! Reads the items of a response's output: messages, thinking, and the searches of the service's own tools.

use std::borrow::Cow;

use super::{
    Place, Responses,
    reference::{self, Kind},
};
use crate::provider::{
    JsonPath, Signal, Sink,
    doubao::cards,
    json::{MAX_STRING_NESTING, Node},
};

/// Which parts of an item were sent before.
#[derive(Clone, Copy)]
pub struct Repeats {
    pub text: bool,
    pub thinking: bool,
}

impl Responses {
    pub(super) fn read_item(
        &mut self,
        item: &Node<'_>,
        at: &JsonPath<'_>,
        output_index: u64,
        repeats: Repeats,
        sink: &mut dyn Sink,
    ) {
        match item.text(&["type"]).unwrap_or_default() {
            "message" => {
                let at = at.key("content");
                for (position, part) in list(item, "content").iter().enumerate() {
                    let place = (output_index, position as u64);
                    self.read_part(part, &at.index(position), place, repeats.text, sink);
                }
            }
            "reasoning" if !repeats.thinking => {
                for part in ["summary", "content"].iter().flat_map(|key| list(item, key)) {
                    self.emit_thinking(part.get("text"), output_index, sink);
                }
            }
            "web_search_call" => emit_web_search(item, sink),
            "file_search_call" => {
                emit_round(item, queries(item), sink);
                for (position, result) in (1..).zip(list(item, "results")) {
                    reference::emit(result, Kind::File, position, || None, sink);
                }
            }
            "knowledge_search_call" => emit_round(item, queries(item), sink),
            "custom_tool_call" if is_server_search(item) => {
                let input = item.get("input").unwrap_or(&Node::Null);
                input.with_decoded(MAX_STRING_NESTING, |input, _| {
                    let queries = queries(input);
                    if !queries.is_empty() {
                        emit_round(item, queries, sink);
                    }
                });
            }
            "search_results" => emit_results(item, sink),
            "fetch_url_results" => emit_pages(item, sink),
            "doubao_app_call" => self.read_doubao_item(item, at, output_index, repeats, sink),
            _ => {}
        }
    }

    /// Reads a part of a message: its text and annotations, or a refusal.
    pub(super) fn read_part(
        &mut self,
        part: &Node<'_>,
        at: &JsonPath<'_>,
        place: Place,
        repeats: bool,
        sink: &mut dyn Sink,
    ) {
        match part.text(&["type"]) {
            Some("output_text") => {
                self.emit_text(part, "text", at, place, repeats, sink);
                for (position, annotation) in (0..).zip(list(part, "annotations")) {
                    self.emit_annotation(annotation, place, position, sink);
                }
            }
            Some("refusal") => self.emit_text(part, "refusal", at, place, repeats, sink),
            _ => {}
        }
    }

    pub(super) fn emit_annotation(&mut self, node: &Node<'_>, place: Place, position: u64, sink: &mut dyn Sink) {
        // Null entries, and files that the model wrote and that the client can download.
        if !node.is_map() || node.text(&["type"]) == Some("file_path") {
            return;
        }
        let nested = node.first(&["url_citation", "file_citation", "doc_citation"]).filter(|inner| inner.is_map());
        let citation = nested.unwrap_or(node);
        let kind = match node.text(&["type"]) {
            Some("file_citation" | "container_file_citation" | "doc_citation") => Kind::DocumentCitation,
            _ => Kind::PageCitation,
        };
        if let Some(url) = reference::url(citation) {
            self.target.announce(url);
        }
        let position = u32::try_from(position).unwrap_or(u32::MAX);
        // Frames repeat an annotation, some of them in another search round.
        let id = || Some(format!("{}/{}/{position}", place.0, place.1));
        reference::emit(citation, kind, position.saturating_add(1), id, sink);
    }

    fn read_doubao_item(
        &mut self,
        item: &Node<'_>,
        at: &JsonPath<'_>,
        output_index: u64,
        repeats: Repeats,
        sink: &mut dyn Sink,
    ) {
        let at = at.key("blocks");
        for (position, block) in list(item, "blocks").iter().enumerate() {
            let place = (output_index, position as u64);
            match block.text(&["type"]).unwrap_or_default() {
                "output_text" => self.emit_text(block, "text", &at.index(position), place, repeats.text, sink),
                "reasoning_text" if !repeats.thinking => {
                    self.emit_thinking(block.first(&["reasoning_text", "text"]), output_index, sink);
                }
                "search" | "reasoning_search" => emit_doubao_search(block, item.text(&["id"]), place.1, sink),
                _ => {}
            }
        }
    }
}

/// Reads a search of Ark's Doubao tool, whose results are the cards of Doubao's web chat. The event and the block in the
/// item have the same key.
pub fn emit_doubao_search(holder: &Node<'_>, item_id: Option<&str>, block_index: u64, sink: &mut dyn Sink) {
    let key = format!("{}/{block_index}", item_id.unwrap_or_default());
    cards::read_search(holder, MAX_STRING_NESTING, &key, sink);
}

/// Reads Perplexity's results, whose ids the markers count. All its searches share one key, because their events have no
/// id, and the item that follows repeats them.
pub fn emit_results(holder: &Node<'_>, sink: &mut dyn Sink) {
    sink.signal(Signal::SearchRound { key: "search_results", summary: None, queries: queries(holder) });
    for (position, result) in (1..).zip(list(holder, "results")) {
        reference::emit(result, Kind::Result, position, || None, sink);
    }
}

/// Reads the pages that Perplexity fetched.
pub fn emit_pages(holder: &Node<'_>, sink: &mut dyn Sink) {
    for (position, page) in (1..).zip(list(holder, "contents")) {
        reference::emit(page, Kind::Page, position, || None, sink);
    }
}

/// True for a call that the client must answer.
pub fn is_client_call(item: &Node<'_>) -> bool {
    match item.text(&["type"]) {
        Some("function_call") => true,
        Some("custom_tool_call") => !is_server_search(item),
        _ => false,
    }
}

/// True for xAI's searches of X, which have the type of a client's tool.
fn is_server_search(item: &Node<'_>) -> bool {
    const NAMES: &[&str] = &["x_keyword_search", "x_semantic_search", "x_user_search", "x_thread_fetch"];
    item.text(&["name"]).is_some_and(|name| NAMES.contains(&name))
}

/// Reads a search, or a page that the model opened. xAI has the query in `arguments`, a JSON string, and may have an empty
/// `action`. A page that xAI opened is read from its annotation: its links number the pages in another order.
fn emit_web_search(item: &Node<'_>, sink: &mut dyn Sink) {
    let action = item.get("action").unwrap_or(&Node::Null);
    if let Some(url) = reference::url(action) {
        return reference::emit_page(url, sink);
    }
    let mut queries = queries(action);
    if queries.is_empty() {
        let mut is_page = false;
        queries = item.get("arguments").unwrap_or(&Node::Null).with_decoded(MAX_STRING_NESTING, |arguments, _| {
            is_page = reference::url(arguments).is_some();
            let owned = |query: Cow<'_, str>| Cow::Owned(query.into_owned());
            self::queries(arguments).into_iter().map(owned).collect()
        });
        if is_page {
            return;
        }
    }
    emit_round(item, queries, sink);
    for (position, source) in (1..).zip(list(action, "sources")) {
        reference::emit(source, Kind::Page, position, || None, sink);
    }
}

fn emit_round(item: &Node<'_>, queries: Vec<Cow<'_, str>>, sink: &mut dyn Sink) {
    sink.signal(Signal::SearchRound { key: &item.id_cow(&["id"]).unwrap_or_default(), summary: None, queries });
}

/// The queries in `queries`, or else the one in `query`.
fn queries<'n>(holder: &'n Node<'_>) -> Vec<Cow<'n, str>> {
    let texts = list(holder, "queries").iter().filter_map(Node::as_str);
    let several: Vec<_> = texts.filter(|text| !text.trim().is_empty()).map(Cow::Borrowed).collect();
    if several.is_empty() { holder.text(&["query"]).map(Cow::Borrowed).into_iter().collect() } else { several }
}

fn list<'n, 'j>(holder: &'n Node<'j>, key: &str) -> &'n [Node<'j>] {
    holder.get(key).map(Node::as_list).unwrap_or_default()
}

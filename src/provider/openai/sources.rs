//! Reads references from every place where OpenAI-like upstreams put them: lists in the chunk, annotations in a choice.

use std::{
    borrow::Cow,
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use super::item::{Item, Numbering};
use crate::{
    citation::{ledger::MAX_CITATIONS, url::link},
    provider::{
        Signal, Sink,
        json::{MAX_STRING_NESTING, Node},
    },
};

/// Lists remembered as read, because Perplexity and Hunyuan repeat theirs in every chunk. Reading a list again has no
/// effect, it only costs time.
const MAX_READ_LISTS: usize = 16;

/// The references of one stream.
#[derive(Default)]
pub struct Sources {
    /// Digests of the lists that were read, oldest first.
    read_lists: Vec<u64>,
    has_annotations: bool,
    /// Position of a page in `citations` by canonical URL, for at most `MAX_CITATIONS` pages.
    citation_positions: HashMap<String, u32>,
}

impl Sources {
    /// True if a delta had annotations.
    pub fn has_annotations(&self) -> bool {
        self.has_annotations
    }

    /// Reads the lists of a chunk, a delta or a message.
    pub fn read_lists(&mut self, node: &Node<'_>, sink: &mut dyn Sink) {
        self.read_numbered_lists(node, sink);
        let info = node.get("search_info").unwrap_or(&Node::Null);
        let lists = [("references", node.get("references")), ("web_search", node.get("web_search"))];
        for (name, list) in lists.into_iter().chain([("search_info", info.get("search_results"))]) {
            let list = list.map(Node::as_list).unwrap_or_default();
            if self.is_new(name, list) {
                emit_round(Vec::new(), sink);
                for (position, node) in (1..).zip(list) {
                    let item = Item::new(node).with_site_as_text(name == "search_info");
                    item.emit(name, Numbering::Position(position), position, sink);
                }
            }
        }
    }

    /// Reads `citations`, which the markers number, and `search_results`, which have more details of the same pages. Results
    /// are numbered by their position only if there are no citations.
    fn read_numbered_lists(&mut self, node: &Node<'_>, sink: &mut dyn Sink) {
        let citations = node.get("citations").map(Node::as_list).unwrap_or_default();
        let results = node.get("search_results").map(Node::as_list).unwrap_or_default();
        let has_new_citations = self.is_new("citations", citations);
        let has_new_results = self.is_new("search_results", results);
        if !has_new_citations && !has_new_results {
            return;
        }
        emit_round(Vec::new(), sink);
        for (position, node) in (1..).zip(citations) {
            let item = Item::new(node);
            if self.citation_positions.len() < MAX_CITATIONS
                && let Some(page) = item.url.and_then(canonical)
            {
                self.citation_positions.entry(page).or_insert(position);
            }
            item.emit("citations", Numbering::Number(position), position, sink);
        }
        for (position, node) in (1..).zip(results) {
            let mut item = Item::new(node);
            if item.url.is_none() {
                item.url = citations.get(position as usize - 1).and_then(|citation| Item::new(citation).url);
            }
            let numbering = match item.url.and_then(canonical).and_then(|page| self.citation_positions.get(&page)) {
                Some(number) => Numbering::Number(*number),
                None if self.citation_positions.is_empty() => Numbering::Number(position),
                None => Numbering::Arrival,
            };
            item.emit("search_results", numbering, position, sink);
        }
    }

    pub fn read_delta(&mut self, delta: &Node<'_>, sink: &mut dyn Sink) {
        self.has_annotations |= delta.get("annotations").is_some_and(|list| !list.as_list().is_empty());
        self.read_message(delta, sink);
    }

    /// Reads the lists, annotations, excerpts and reasoning steps of a delta or a message.
    pub fn read_message(&mut self, holder: &Node<'_>, sink: &mut dyn Sink) {
        self.read_lists(holder, sink);
        let annotations = holder.get("annotations").map(Node::as_list).unwrap_or_default();
        if self.is_new("annotations", annotations) {
            emit_round(Vec::new(), sink);
            for (position, node) in (1..).zip(annotations) {
                emit_annotation(node, position, sink);
            }
        }
        if let Some(reference) = holder.get("reference") {
            self.read_knowledge_chunks(reference, sink);
        }
        let steps = holder.get("reasoning_steps").map(Node::as_list).unwrap_or_default();
        if self.is_new("reasoning_steps", steps) {
            steps.iter().for_each(|step| emit_reasoning_step(step, sink));
        }
    }

    /// Reads RAGFlow's chunks: a map by number, or a list. Both count from zero, as the marker `[ID:0]` does.
    fn read_knowledge_chunks(&mut self, reference: &Node<'_>, sink: &mut dyn Sink) {
        let Some(chunks) =
            reference.get("chunks").filter(|chunks| self.is_new("chunks", std::slice::from_ref(*chunks)))
        else {
            return;
        };
        emit_round(Vec::new(), sink);
        let mut emit = |number: u32, node: &Node<'_>| {
            Item::new(node).in_knowledge_base().emit("chunks", Numbering::Number(number), number + 1, sink);
        };
        match chunks {
            Node::Map(_) => {
                for ((key, node), index) in chunks.pairs().iter().zip(0..) {
                    emit(key.parse().ok().filter(|n| *n < 1_000_000).unwrap_or(index), node);
                }
            }
            chunks => (0..).zip(chunks.as_list()).for_each(|(index, node)| emit(index, node)),
        }
    }

    /// Reads the turn with the results of MiniMax's search: a list in a string.
    pub fn read_tool_results(&mut self, message: &Node<'_>, sink: &mut dyn Sink) {
        let Some(content) = message.get("content") else { return };
        content.with_decoded(MAX_STRING_NESTING, |list, _| {
            if self.is_new("tool", list.as_list()) {
                emit_round(Vec::new(), sink);
                for (position, node) in (1..).zip(list.as_list()) {
                    Item::new(node).emit("tool", Numbering::Position(position), position, sink);
                }
            }
        });
    }

    /// Reads the queries of a server-side search: `{"query_list":["…"]}` in the arguments of its call.
    pub fn read_queries(&self, message: &Node<'_>, sink: &mut dyn Sink) {
        let calls = message.get("tool_calls").map(Node::as_list).unwrap_or_default();
        for call in calls.iter().filter(|call| call.text(&["type"]) == Some("web_search")) {
            if let Some(arguments) = call.get("function").and_then(|function| function.get("arguments")) {
                arguments.with_decoded(MAX_STRING_NESTING, |arguments, _| {
                    emit_round(texts(arguments.get("query_list")), sink);
                });
            }
        }
    }

    /// Remembers the list. Returns false if it is empty or was read before under the same name.
    fn is_new(&mut self, name: &str, list: &[Node<'_>]) -> bool {
        if list.is_empty() {
            return false;
        }
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        list.iter().for_each(|node| hash_node(node, &mut hasher));
        let digest = hasher.finish();
        if self.read_lists.contains(&digest) {
            return false;
        }
        if self.read_lists.len() >= MAX_READ_LISTS {
            self.read_lists.remove(0);
        }
        self.read_lists.push(digest);
        true
    }
}

fn emit_annotation(node: &Node<'_>, position: u32, sink: &mut dyn Sink) {
    // Skip files that the model received or created, which are no sources, and null entries.
    const FILES: &[&str] = &["file", "file_annotation", "file_path", "container_file_citation"];
    if !node.is_map() || node.text(&["type"]).is_some_and(|kind| FILES.contains(&kind)) {
        return;
    }
    let inner = node.first(&["url_citation", "file_citation", "doc_citation"]).filter(|inner| inner.is_map());
    Item::new(inner.unwrap_or(node)).with_annotation(node).emit("annotations", Numbering::Arrival, position, sink);
}

/// Reads one of Perplexity's steps before an answer: a thought, a search or a page. The pages get their numbers from the
/// list that follows.
fn emit_reasoning_step(step: &Node<'_>, sink: &mut dyn Sink) {
    if let Some(message) = step.text(&["thought"]) {
        sink.signal(Signal::Stage { name: step.text(&["type"]).unwrap_or("thinking"), message, detail: None });
    }
    let search = step.get("web_search");
    let found = search.and_then(|search| search.get("search_results"));
    let fetched = step.get("fetch_url_content").and_then(|fetch| fetch.get("contents"));
    let queries = texts(search.and_then(|search| search.get("search_keywords")));
    let lists = [found, fetched].map(|list| list.map(Node::as_list).unwrap_or_default());
    if !queries.is_empty() || lists.iter().any(|list| !list.is_empty()) {
        emit_round(queries, sink);
    }
    for (position, node) in (1..).zip(lists.into_iter().flatten()) {
        Item::new(node).emit("reasoning_steps", Numbering::Arrival, position, sink);
    }
}

/// Sends a search round. All searches of a message share one key, because nothing distinguishes them.
fn emit_round(queries: Vec<Cow<'_, str>>, sink: &mut dyn Sink) {
    sink.signal(Signal::SearchRound { key: "search", summary: None, queries });
}

fn texts<'n>(list: Option<&'n Node<'_>>) -> Vec<Cow<'n, str>> {
    let list = list.map(Node::as_list).unwrap_or_default();
    list.iter().filter_map(Node::as_str).map(Cow::Borrowed).collect()
}

fn canonical(url: &str) -> Option<String> {
    link(url, None).map(|link| link.canonical)
}

/// Hashes a value with its types, so that different lists have different digests.
fn hash_node(node: &Node<'_>, hasher: &mut DefaultHasher) {
    std::mem::discriminant(node).hash(hasher);
    match node {
        Node::Null => {}
        Node::Bool(value) => value.hash(hasher),
        Node::Unsigned(value) => value.hash(hasher),
        Node::Signed(value) => value.hash(hasher),
        Node::Float(value) => value.to_bits().hash(hasher),
        Node::Str(value) => value.hash(hasher),
        Node::List(items) => {
            items.len().hash(hasher);
            items.iter().for_each(|item| hash_node(item, hasher));
        }
        Node::Map(pairs) => {
            pairs.len().hash(hasher);
            for (key, value) in node.pairs() {
                key.hash(hasher);
                hash_node(value, hasher);
            }
        }
    }
}

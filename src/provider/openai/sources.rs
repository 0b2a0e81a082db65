//! References, wherever an OpenAI-like upstream puts them: lists beside the choices, annotations in them.

use std::{
    borrow::Cow,
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use super::item::{Item, Numbered};
use crate::{
    citation::{ledger::MAX_CITATIONS, url::link},
    provider::{
        Signal, Sink,
        json::{MAX_STRING_NESTING, Node},
    },
};

/// Lists remembered as read. Perplexity and Hunyuan send theirs with every chunk; one that was forgotten is read
/// again, which changes nothing.
const MAX_READ: usize = 16;

#[derive(Default)]
pub struct Sources {
    read: Vec<u64>,
    annotated: bool,
    /// Where in `citations` a page stands, by canonical URL. Beyond the cap of citations it has no place.
    places: HashMap<String, u32>,
}

impl Sources {
    /// Did a delta have annotations?
    pub fn annotated(&self) -> bool {
        self.annotated
    }

    /// What stands beside the choices of a chunk.
    pub fn lists(&mut self, node: &Node<'_>, sink: &mut dyn Sink) {
        self.numbered(node, sink);
        let info = node.get("search_info").unwrap_or(&Node::Null);
        let plain = [("references", node.get("references")), ("web_search", node.get("web_search"))];
        for (name, list) in plain.into_iter().chain([("search_info", info.get("search_results"))]) {
            let list = list.map(Node::as_list).unwrap_or_default();
            if self.is_new(name, list) {
                round(Vec::new(), sink);
                for (position, node) in (1..).zip(list) {
                    let item = Item::of(node).with_site_as_text(name == "search_info");
                    item.tell(name, Numbered::Place(position), position, sink);
                }
            }
        }
    }

    /// `citations` are what the markers count; `search_results` say more of the same pages, and are counted where
    /// there are no citations.
    fn numbered(&mut self, node: &Node<'_>, sink: &mut dyn Sink) {
        let citations = node.get("citations").map(Node::as_list).unwrap_or_default();
        let results = node.get("search_results").map(Node::as_list).unwrap_or_default();
        let (new, more) = (self.is_new("citations", citations), self.is_new("search_results", results));
        if !new && !more {
            return;
        }
        round(Vec::new(), sink);
        for (position, node) in (1..).zip(citations) {
            let item = Item::of(node);
            if self.places.len() < MAX_CITATIONS
                && let Some(page) = item.url.and_then(canonical)
            {
                self.places.entry(page).or_insert(position);
            }
            item.tell("citations", Numbered::As(position), position, sink);
        }
        for (position, node) in (1..).zip(results) {
            let mut item = Item::of(node);
            if item.url.is_none() {
                item.url = citations.get(position as usize - 1).and_then(|citation| Item::of(citation).url);
            }
            let numbered = match item.url.and_then(canonical).and_then(|page| self.places.get(&page)) {
                Some(place) => Numbered::As(*place),
                None if self.places.is_empty() => Numbered::As(position),
                None => Numbered::Not,
            };
            item.tell("search_results", numbered, position, sink);
        }
    }

    pub fn delta(&mut self, delta: &Node<'_>, sink: &mut dyn Sink) {
        self.annotated |= delta.get("annotations").is_some_and(|list| !list.as_list().is_empty());
        self.message(delta, sink);
    }

    /// What a delta or a message has.
    pub fn message(&mut self, holder: &Node<'_>, sink: &mut dyn Sink) {
        self.lists(holder, sink);
        let annotations = holder.get("annotations").map(Node::as_list).unwrap_or_default();
        if self.is_new("annotations", annotations) {
            round(Vec::new(), sink);
            for (position, node) in (1..).zip(annotations) {
                annotation(node, position, sink);
            }
        }
        if let Some(reference) = holder.get("reference") {
            self.chunks(reference, sink);
        }
        let steps = holder.get("reasoning_steps").map(Node::as_list).unwrap_or_default();
        if self.is_new("reasoning_steps", steps) {
            steps.iter().for_each(|step| reasoning(step, sink));
        }
    }

    /// RAGFlow: a map by number, or a list, from zero as its `[ID:0]`.
    fn chunks(&mut self, reference: &Node<'_>, sink: &mut dyn Sink) {
        let Some(chunks) =
            reference.get("chunks").filter(|chunks| self.is_new("chunks", std::slice::from_ref(*chunks)))
        else {
            return;
        };
        round(Vec::new(), sink);
        let mut tell = |number: u32, node: &Node<'_>| {
            Item::of(node).of_knowledge().tell("chunks", Numbered::As(number), number + 1, sink);
        };
        match chunks {
            Node::Map(_) => {
                for ((key, node), place) in chunks.pairs().iter().zip(0..) {
                    tell(key.parse().ok().filter(|n| *n < 1_000_000).unwrap_or(place), node);
                }
            }
            chunks => (0..).zip(chunks.as_list()).for_each(|(place, node)| tell(place, node)),
        }
    }

    /// What MiniMax's search said, as a turn of its own: a list of results in a string.
    pub fn tool(&mut self, delta: &Node<'_>, sink: &mut dyn Sink) {
        let Some(content) = delta.get("content") else { return };
        content.with_decoded(MAX_STRING_NESTING, |list, _| {
            if self.is_new("tool", list.as_list()) {
                round(Vec::new(), sink);
                for (position, node) in (1..).zip(list.as_list()) {
                    Item::of(node).tell("tool", Numbered::Place(position), position, sink);
                }
            }
        });
    }

    /// What a server-side search was asked: `{"query_list":["…"]}` in the arguments of its call.
    pub fn queries(&self, message: &Node<'_>, sink: &mut dyn Sink) {
        let calls = message.get("tool_calls").map(Node::as_list).unwrap_or_default();
        for call in calls.iter().filter(|call| call.text(&["type"]) == Some("web_search")) {
            if let Some(arguments) = call.get("function").and_then(|function| function.get("arguments")) {
                arguments
                    .with_decoded(MAX_STRING_NESTING, |arguments, _| round(texts(arguments.get("query_list")), sink));
            }
        }
    }

    /// Is this list not the one that came before, under the same name?
    fn is_new(&mut self, name: &str, list: &[Node<'_>]) -> bool {
        if list.is_empty() {
            return false;
        }
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        list.iter().for_each(|node| digest(node, &mut hasher));
        let digest = hasher.finish();
        if self.read.contains(&digest) {
            return false;
        }
        if self.read.len() >= MAX_READ {
            self.read.remove(0);
        }
        self.read.push(digest);
        true
    }
}

fn annotation(node: &Node<'_>, position: u32, sink: &mut dyn Sink) {
    // Files that the model was given or made: nothing that it cites. The list may also hold null.
    const NO_SOURCE: &[&str] = &["file", "file_annotation", "file_path", "container_file_citation"];
    if !node.is_map() || node.text(&["type"]).is_some_and(|kind| NO_SOURCE.contains(&kind)) {
        return;
    }
    let inner = node.first(&["url_citation", "file_citation", "doc_citation"]).filter(|inner| inner.is_map());
    Item::of(inner.unwrap_or(node)).marked(node).tell("annotations", Numbered::Not, position, sink);
}

/// Perplexity's steps before an answer: what it thinks, searches and reads. Their numbers are those of the list that
/// follows.
fn reasoning(step: &Node<'_>, sink: &mut dyn Sink) {
    if let Some(message) = step.text(&["thought"]) {
        sink.signal(Signal::Stage { name: step.text(&["type"]).unwrap_or("thinking"), message, detail: None });
    }
    let search = step.get("web_search");
    let found = search.and_then(|search| search.get("search_results"));
    let fetched = step.get("fetch_url_content").and_then(|fetch| fetch.get("contents"));
    let queries = texts(search.and_then(|search| search.get("search_keywords")));
    let lists = [found, fetched].map(|list| list.map(Node::as_list).unwrap_or_default());
    if !queries.is_empty() || lists.iter().any(|list| !list.is_empty()) {
        round(queries, sink);
    }
    for (position, node) in (1..).zip(lists.into_iter().flatten()) {
        Item::of(node).tell("reasoning_steps", Numbered::Not, position, sink);
    }
}

/// All that a message names is one search: nothing tells its searches apart.
fn round(queries: Vec<Cow<'_, str>>, sink: &mut dyn Sink) {
    sink.signal(Signal::SearchRound { key: "search", summary: None, queries });
}

fn texts<'n>(list: Option<&'n Node<'_>>) -> Vec<Cow<'n, str>> {
    let list = list.map(Node::as_list).unwrap_or_default();
    list.iter().filter_map(Node::as_str).map(Cow::Borrowed).collect()
}

fn canonical(url: &str) -> Option<String> {
    link(url, None).map(|link| link.canonical)
}

fn digest(node: &Node<'_>, hasher: &mut DefaultHasher) {
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
            items.iter().for_each(|item| digest(item, hasher));
        }
        Node::Map(pairs) => {
            pairs.len().hash(hasher);
            for (key, value) in node.pairs() {
                key.hash(hasher);
                digest(value, hasher);
            }
        }
    }
}

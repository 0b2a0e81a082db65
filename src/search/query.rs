//! Finds the query in a chat request's body: the last user message in the formats of known chat clients, or the value at a
//! configured JSON pointer. Called by `relay::supplement`.

use crate::{
    citation::text,
    config::pointer::Pointer,
    provider::json::{self, MAX_STRING_NESTING, Node},
};

/// Characters of a message that become the query, from its start. The service refuses longer queries.
pub const MAX_CHARS: usize = 400;

/// Keys of a list of messages, whose last user message is the query.
const MESSAGES: &[&str] = &["messages", "additional_messages", "contents", "input"];
/// Keys of the query itself or of one message.
const SINGLE: &[&str] = &["query", "question", "prompt", "input", "message", "content", "text"];

/// The query in a request's body, on one line.
pub fn find(body: &[u8], pointer: Option<&Pointer>) -> Option<String> {
    let body = std::str::from_utf8(body).ok()?.trim_start_matches('\u{feff}');
    let message = json::with_parsed(body, |node| match pointer {
        Some(pointer) => text_at(node, pointer.steps(), MAX_STRING_NESTING),
        None => known_text(node),
    })??;
    // A word has at least one character, so no more words than that are needed.
    let words = message.split_whitespace().take(MAX_CHARS).collect::<Vec<_>>().join(" ");
    let line = text::single_line(&words, words.len());
    let query = text::first_chars(&line, MAX_CHARS).trim();
    (!query.is_empty()).then(|| query.to_owned())
}

/// The text at a JSON pointer. `left`: how many more strings may be decoded as JSON.
fn text_at(node: &Node<'_>, steps: &[String], left: u8) -> Option<String> {
    let Some((step, rest)) = steps.split_first() else { return text_of(node) };
    node.with_decoded(left, |node, left| {
        let next = match node {
            Node::List(items) if step == "-" => items.last(),
            Node::List(items) => items.get(step.parse::<usize>().ok()?),
            node => node.get(step),
        };
        text_at(next?, rest, left)
    })
}

/// The query of a body in a known format.
fn known_text(body: &Node<'_>) -> Option<String> {
    let listed = MESSAGES.iter().filter_map(|key| body.get(key));
    let mut listed =
        listed.filter_map(|list| list.with_decoded(MAX_STRING_NESTING, |list, _| last_user(list.as_list())));
    listed.next().or_else(|| SINGLE.iter().filter_map(|key| body.get(key)).find_map(text_of))
}

/// The query in a text, a message, a list of messages or the parts of a message.
fn text_of(node: &Node<'_>) -> Option<String> {
    match node {
        Node::Str(text) => non_blank(text),
        Node::Map(_) => message(node),
        Node::List(items) if items.iter().any(is_message) => last_user(items),
        Node::List(items) => parts(items),
        _ => None,
    }
}

fn non_blank(text: &str) -> Option<String> {
    (!text.trim().is_empty()).then(|| text.to_owned())
}

fn is_message(node: &Node<'_>) -> bool {
    ["role", "content", "content_block", "parts"].iter().any(|key| node.get(key).is_some())
}

/// The last user message with text. An attachment may be a message without text.
fn last_user(messages: &[Node<'_>]) -> Option<String> {
    messages.iter().rev().filter(|node| is_user(node)).find_map(message)
}

fn role<'n>(message: &'n Node<'_>) -> Option<&'n str> {
    message.text(&["role"]).or_else(|| message.get("author")?.text(&["role"]))
}

/// True for a user's message. Doubao's have no role, and requests contain only the user's.
fn is_user(message: &Node<'_>) -> bool {
    role(message).is_none_or(|role| role.eq_ignore_ascii_case("user") || role.eq_ignore_ascii_case("human"))
}

/// The text of a message.
fn message(node: &Node<'_>) -> Option<String> {
    let content = match node.get("content") {
        // Doubao's Samantha API puts `{"text":"…"}` into a string. In messages with a role, JSON is the user's own text.
        Some(content @ Node::Str(text)) if role(node).is_none() => {
            let inner = content.with_decoded(MAX_STRING_NESTING, |inner, _| inner.text(&["text"]).and_then(non_blank));
            inner.or_else(|| non_blank(text))
        }
        Some(Node::Str(text)) => non_blank(text),
        Some(Node::List(items)) => parts(items),
        Some(inner) => inner.text(&["text"]).and_then(non_blank).or_else(|| parts(inner.get("parts")?.as_list())),
        None => None,
    };
    content
        .or_else(|| parts(node.get("parts")?.as_list()))
        .or_else(|| {
            node.get("content_block")?
                .with_decoded(MAX_STRING_NESTING, |blocks, left| text_blocks(blocks.as_list(), left))
        })
        .or_else(|| node.text(&["text"]).and_then(non_blank))
        .or_else(|| node.as_str().and_then(non_blank))
}

/// The text parts of `["…"]`, `[{"type":"text","text":"…"}]` or `[{"text":"…"}]`.
fn parts(items: &[Node<'_>]) -> Option<String> {
    non_blank(&items.iter().filter_map(part).collect::<Vec<_>>().join("\n"))
}

fn part<'n>(node: &'n Node<'_>) -> Option<&'n str> {
    let is_text = node.text(&["type"]).is_none_or(|kind| matches!(kind, "text" | "input_text"));
    node.as_str().or_else(|| node.text(&["text"]).filter(|_| is_text))
}

/// The text of Doubao web's blocks: `[{"content":{"text_block":{"text":"…"}}}]`, with JSON strings at any level.
fn text_blocks(blocks: &[Node<'_>], left: u8) -> Option<String> {
    let text = |block: &Node<'_>| {
        block.get("content")?.with_decoded(left, |content, left| {
            content.get("text_block")?.with_decoded(left, |block, _| block.text(&["text"]).and_then(non_blank))
        })
    };
    non_blank(&blocks.iter().filter_map(text).collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
#[path = "query_tests.rs"]
mod tests;

//! What a chat request asks: the last user message of the bodies that chat clients send, or what a JSON pointer names.

use crate::{
    citation::text,
    config::pointer::Pointer,
    provider::json::{self, MAX_STRING_NESTING, Node},
};

/// Characters of a message that are searched for, the first ones: the service refuses longer queries.
pub const MAX_CHARS: usize = 400;

/// Lists of messages, the last user's message being the query.
const MESSAGES: &[&str] = &["messages", "additional_messages", "contents", "input"];
/// The query itself, or one message.
const PLAIN: &[&str] = &["query", "question", "prompt", "input", "message", "content", "text"];

/// The query in a request's body, on one line; `None` where there is none.
pub fn find(body: &[u8], pointer: Option<&Pointer>) -> Option<String> {
    let body = std::str::from_utf8(body).ok()?.trim_start_matches('\u{feff}');
    let said = json::with_parsed(body, |node| match pointer {
        Some(pointer) => named(node, pointer.steps(), MAX_STRING_NESTING),
        None => usual(node),
    })??;
    // More words than characters are not needed.
    let words = said.split_whitespace().take(MAX_CHARS).collect::<Vec<_>>().join(" ");
    let line = text::single_line(&words, words.len());
    let query = text::first_chars(&line, MAX_CHARS).trim();
    (!query.is_empty()).then(|| query.to_owned())
}

fn named(node: &Node<'_>, steps: &[String], left: u8) -> Option<String> {
    let Some((step, rest)) = steps.split_first() else { return said(node) };
    node.with_decoded(left, |node, left| {
        let next = match node {
            Node::List(items) if step == "-" => items.last(),
            Node::List(items) => items.get(step.parse::<usize>().ok()?),
            node => node.get(step),
        };
        named(next?, rest, left)
    })
}

fn usual(body: &Node<'_>) -> Option<String> {
    let listed = MESSAGES.iter().filter_map(|key| body.get(key));
    let mut listed =
        listed.filter_map(|list| list.with_decoded(MAX_STRING_NESTING, |list, _| last_user(list.as_list())));
    listed.next().or_else(|| PLAIN.iter().filter_map(|key| body.get(key)).find_map(said))
}

/// A text, a message, a list of messages, or the parts of one.
fn said(node: &Node<'_>) -> Option<String> {
    match node {
        Node::Str(text) => full(text),
        Node::Map(_) => message(node),
        Node::List(items) if items.iter().any(is_message) => last_user(items),
        Node::List(items) => parts(items),
        _ => None,
    }
}

fn full(text: &str) -> Option<String> {
    (!text.trim().is_empty()).then(|| text.to_owned())
}

fn is_message(node: &Node<'_>) -> bool {
    ["role", "content", "content_block", "parts"].iter().any(|key| node.get(key).is_some())
}

/// An attachment may be a message without text: then it is the one before.
fn last_user(messages: &[Node<'_>]) -> Option<String> {
    messages.iter().rev().filter(|node| is_user(node)).find_map(message)
}

fn role<'n>(message: &'n Node<'_>) -> Option<&'n str> {
    message.text(&["role"]).or_else(|| message.get("author")?.text(&["role"]))
}

/// Doubao's messages have no role: what is sent is the user's.
fn is_user(message: &Node<'_>) -> bool {
    role(message).is_none_or(|role| role.eq_ignore_ascii_case("user") || role.eq_ignore_ascii_case("human"))
}

fn message(node: &Node<'_>) -> Option<String> {
    let content = match node.get("content") {
        // Samantha's: `{"text":"…"}` in a string. Elsewhere JSON in a text is what the user wrote.
        Some(content @ Node::Str(text)) if role(node).is_none() => {
            let inner = content.with_decoded(MAX_STRING_NESTING, |inner, _| inner.text(&["text"]).and_then(full));
            inner.or_else(|| full(text))
        }
        Some(Node::Str(text)) => full(text),
        Some(Node::List(items)) => parts(items),
        Some(inner) => inner.text(&["text"]).and_then(full).or_else(|| parts(inner.get("parts")?.as_list())),
        None => None,
    };
    content
        .or_else(|| parts(node.get("parts")?.as_list()))
        .or_else(|| {
            node.get("content_block")?
                .with_decoded(MAX_STRING_NESTING, |blocks, left| text_blocks(blocks.as_list(), left))
        })
        .or_else(|| node.text(&["text"]).and_then(full))
        .or_else(|| node.as_str().and_then(full))
}

/// `["…"]`, `[{"type":"text","text":"…"}]`, `[{"text":"…"}]`: what is text of it.
fn parts(items: &[Node<'_>]) -> Option<String> {
    full(&items.iter().filter_map(part).collect::<Vec<_>>().join("\n"))
}

fn part<'n>(node: &'n Node<'_>) -> Option<&'n str> {
    let is_text = node.text(&["type"]).is_none_or(|kind| matches!(kind, "text" | "input_text"));
    node.as_str().or_else(|| node.text(&["text"]).filter(|_| is_text))
}

/// Doubao web's blocks, the text of which is two levels down.
fn text_blocks(blocks: &[Node<'_>], left: u8) -> Option<String> {
    let text = |block: &Node<'_>| {
        block.get("content")?.with_decoded(left, |content, left| {
            content.get("text_block")?.with_decoded(left, |block, _| block.text(&["text"]).and_then(full))
        })
    };
    full(&blocks.iter().filter_map(text).collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
#[path = "query_tests.rs"]
mod tests;

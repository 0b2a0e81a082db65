//! Parses a client's chat request, as far as the proxy needs it. Called by `api::facade`.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::provider::{
    json::{self, Node},
    splice::Pairs,
};

/// Keys that may hold the conversation's id, in the request and in `metadata`.
const SESSION_KEYS: &[&str] = &["session_id", "conversation_id", "conversation"];
/// Keys that must not be duplicated, because JSON parsers disagree on which value counts.
const UNIQUE_KEYS: &[&str] = &["model", "messages", "stream"];

/// Why a request is refused. The facade turns it into a 400 response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidRequest {
    /// The key that is wrong. `None`: the body is not a JSON object.
    pub param: Option<&'static str>,
    pub message: String,
}

impl InvalidRequest {
    pub fn new(param: &'static str, why: &str) -> Self {
        Self { param: Some(param), message: format!("{param} {why}") }
    }
}

/// A chat request. Other members than `model` and `stream` stay unparsed until a method reads them.
#[derive(Debug)]
pub struct ChatRequest<'b> {
    json: &'b str,
    /// All members of the body, in their order.
    members: Vec<(Cow<'b, str>, &'b RawValue)>,
    pub model: String,
    pub stream: bool,
}

impl<'b> ChatRequest<'b> {
    /// Parses a body and checks `model`, `stream` and that there are messages.
    pub fn read(body: &'b [u8]) -> Result<Self, InvalidRequest> {
        let malformed =
            |why: &str| InvalidRequest { param: None, message: format!("the body is no JSON object: {why}") };
        let json = std::str::from_utf8(body).map_err(|_| malformed("it is not UTF-8"))?;
        let Pairs(members) = serde_json::from_str(json).map_err(|error| match error.is_data() {
            // The parser's own text would quote the value.
            true => malformed("it is something else"),
            false => malformed(&error.to_string()),
        })?;
        for key in UNIQUE_KEYS {
            if members.iter().filter(|(name, _)| name == key).count() > 1 {
                return Err(InvalidRequest::new(key, "is given twice"));
            }
        }
        let mut request = Self { json, members, model: String::new(), stream: false };
        request.model = match request.parsed("model", |node| node.as_str().map(str::to_owned)) {
            Some(Some(model)) if !model.is_empty() => model,
            _ => return Err(InvalidRequest::new("model", "is missing; GET /v1/models lists what there is")),
        };
        request.stream = match request.get("stream").map(RawValue::get) {
            None | Some("null" | "false") => false,
            Some("true") => true,
            Some(_) => return Err(InvalidRequest::new("stream", "is true or false")),
        };
        let messages: Option<Vec<&RawValue>> =
            request.get("messages").and_then(|messages| serde_json::from_str(messages.get()).ok());
        match messages.as_deref() {
            None => Err(InvalidRequest::new("messages", "is missing; it is a list of messages")),
            Some([]) => Err(InvalidRequest::new("messages", "is empty")),
            Some(_) => Ok(request),
        }
    }

    /// The body, unchanged.
    pub fn json(&self) -> &'b str {
        self.json
    }

    /// The raw value of `key`, the last one of duplicates.
    pub fn get(&self, key: &str) -> Option<&'b RawValue> {
        self.members.iter().rev().find(|(name, _)| name == key).map(|(_, value)| *value)
    }

    /// Calls `read` with the parsed value of `key`. `None`: it is absent, or exceeds the caps of [`json`].
    fn parsed<T>(&self, key: &str, read: impl FnOnce(&Node<'_>) -> T) -> Option<T> {
        json::with_parsed(self.get(key)?.get(), read)
    }

    pub fn user(&self) -> Option<String> {
        self.parsed("user", |node| node.as_str().filter(|user| !user.is_empty()).map(str::to_owned)).flatten()
    }

    /// The conversation's id, from the request or its `metadata`.
    pub fn session(&self) -> Option<String> {
        let in_metadata =
            || self.parsed("metadata", |node| SESSION_KEYS.iter().find_map(|key| id(node.get(key)?))).flatten();
        SESSION_KEYS.iter().find_map(|key| self.parsed(key, id).flatten()).or_else(in_metadata)
    }

    /// The text of the last user message that has any.
    pub fn query(&self) -> Result<String, InvalidRequest> {
        let last = self.messages(|messages| {
            let users = messages.iter().rev().filter(|message| message.text(&["role"]) == Some("user"));
            users.map(message_text).find(|text| !text.trim().is_empty())
        })?;
        last.ok_or_else(|| InvalidRequest::new("messages", "has no text of the user"))
    }

    /// The texts of the system and developer messages.
    pub fn system(&self) -> Result<Option<String>, InvalidRequest> {
        self.messages(|messages| {
            let is_system = |message: &&Node<'_>| matches!(message.text(&["role"]), Some("system" | "developer"));
            let texts = messages.iter().filter(is_system).map(message_text);
            let texts: Vec<String> = texts.filter(|text| !text.is_empty()).collect();
            (!texts.is_empty()).then(|| texts.join("\n\n"))
        })
    }

    /// Calls `read` with the messages.
    fn messages<T>(&self, read: impl FnOnce(&[Node<'_>]) -> T) -> Result<T, InvalidRequest> {
        let result = self.parsed("messages", |node| read(node.as_list()));
        result.ok_or_else(|| InvalidRequest::new("messages", "is nested too deeply, or has too many values"))
    }
}

/// Reads an id: a text, a number, or an object with an `id`.
fn id(node: &Node<'_>) -> Option<String> {
    match node {
        Node::Str(text) => (!text.is_empty()).then(|| text.to_string()),
        Node::Unsigned(number) => Some(number.to_string()),
        Node::Map(_) => node.id(&["id"]),
        _ => None,
    }
}

/// The text of a message: `content` is a text, or a list of parts. Parts that are no text are skipped.
fn message_text(message: &Node<'_>) -> String {
    match message.get("content") {
        Some(Node::Str(text)) => text.to_string(),
        Some(Node::List(parts)) => {
            let is_text = |part: &&Node<'_>| matches!(part.text(&["type"]), None | Some("text" | "input_text"));
            let texts = parts.iter().filter(is_text).filter_map(|part| part.as_str().or_else(|| part.text(&["text"])));
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

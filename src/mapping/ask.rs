//! The request, as far as it has to be understood.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::provider::{
    json::{self, Node},
    splice::Pairs,
};

/// Where a client may name its conversation: at the top, and in `metadata`.
const SESSIONS: &[&str] = &["session_id", "conversation_id", "conversation"];
/// Keys whose meaning must not depend on who reads the document.
const ONCE: &[&str] = &["model", "messages", "stream"];

/// Why a request cannot be answered: a key, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub param: Option<&'static str>,
    pub message: String,
}

impl Refusal {
    pub fn of(param: &'static str, why: &str) -> Self {
        Self { param: Some(param), message: format!("{param} {why}") }
    }
}

/// A chat request. What it says beyond this is left as it was written.
#[derive(Debug)]
pub struct Ask<'b> {
    json: &'b str,
    members: Vec<(Cow<'b, str>, &'b RawValue)>,
    pub model: String,
    pub stream: bool,
}

impl<'b> Ask<'b> {
    pub fn read(body: &'b [u8]) -> Result<Self, Refusal> {
        let malformed = |why: &str| Refusal { param: None, message: format!("the body is no JSON object: {why}") };
        let json = std::str::from_utf8(body).map_err(|_| malformed("it is not UTF-8"))?;
        let Pairs(members) = serde_json::from_str(json).map_err(|error| match error.is_data() {
            // The parser would repeat what stands there instead.
            true => malformed("it is something else"),
            false => malformed(&error.to_string()),
        })?;
        for key in ONCE {
            if members.iter().filter(|(name, _)| name == key).count() > 1 {
                return Err(Refusal::of(key, "is given twice"));
            }
        }
        let mut ask = Self { json, members, model: String::new(), stream: false };
        ask.model = match ask.parsed("model", |node| node.as_str().map(str::to_owned)) {
            Some(Some(model)) if !model.is_empty() => model,
            _ => return Err(Refusal::of("model", "is missing; GET /v1/models lists what there is")),
        };
        ask.stream = match ask.get("stream").map(RawValue::get) {
            None | Some("null" | "false") => false,
            Some("true") => true,
            Some(_) => return Err(Refusal::of("stream", "is true or false")),
        };
        let messages: Option<Vec<&RawValue>> =
            ask.get("messages").and_then(|messages| serde_json::from_str(messages.get()).ok());
        match messages.as_deref() {
            None => Err(Refusal::of("messages", "is missing; it is a list of messages")),
            Some([]) => Err(Refusal::of("messages", "is empty")),
            Some(_) => Ok(ask),
        }
    }

    /// All of it.
    pub fn json(&self) -> &'b str {
        self.json
    }

    pub fn get(&self, key: &str) -> Option<&'b RawValue> {
        self.members.iter().rev().find(|(name, _)| name == key).map(|(_, value)| *value)
    }

    fn parsed<T>(&self, key: &str, read: impl FnOnce(&Node<'_>) -> T) -> Option<T> {
        json::with_parsed(self.get(key)?.get(), read)
    }

    pub fn user(&self) -> Option<String> {
        self.parsed("user", |node| node.as_str().filter(|user| !user.is_empty()).map(str::to_owned)).flatten()
    }

    /// The conversation that the client names.
    pub fn session(&self) -> Option<String> {
        let in_metadata =
            || self.parsed("metadata", |node| SESSIONS.iter().find_map(|key| id(node.get(key)?))).flatten();
        SESSIONS.iter().find_map(|key| self.parsed(key, id).flatten()).or_else(in_metadata)
    }

    /// What the user said last.
    pub fn query(&self) -> Result<String, Refusal> {
        let last = self.turns(|turns| {
            let users = turns.iter().rev().filter(|turn| turn.text(&["role"]) == Some("user"));
            users.map(text).find(|text| !text.trim().is_empty())
        })?;
        last.ok_or_else(|| Refusal::of("messages", "has no text of the user"))
    }

    /// What the system was told to be.
    pub fn system(&self) -> Result<Option<String>, Refusal> {
        self.turns(|turns| {
            let is_system = |turn: &&Node<'_>| matches!(turn.text(&["role"]), Some("system" | "developer"));
            let texts: Vec<String> = turns.iter().filter(is_system).map(text).filter(|text| !text.is_empty()).collect();
            (!texts.is_empty()).then(|| texts.join("\n\n"))
        })
    }

    fn turns<T>(&self, read: impl FnOnce(&[Node<'_>]) -> T) -> Result<T, Refusal> {
        let turns = self.parsed("messages", |node| read(node.as_list()));
        turns.ok_or_else(|| Refusal::of("messages", "is nested too deeply, or has too many values"))
    }
}

/// A text, a number, or an object with an `id`.
fn id(node: &Node<'_>) -> Option<String> {
    match node {
        Node::Str(text) => (!text.is_empty()).then(|| text.to_string()),
        Node::Unsigned(number) => Some(number.to_string()),
        Node::Map(_) => node.id(&["id"]),
        _ => None,
    }
}

/// `content` is a text, or a list of parts of which some are.
fn text(turn: &Node<'_>) -> String {
    match turn.get("content") {
        Some(Node::Str(text)) => text.to_string(),
        Some(Node::List(parts)) => {
            let is_text = |part: &&Node<'_>| matches!(part.text(&["type"]), None | Some("text" | "input_text"));
            let texts = parts.iter().filter(is_text).filter_map(|part| part.as_str().or_else(|| part.text(&["text"])));
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

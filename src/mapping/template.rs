//! A JSON document with placeholders for a request's values. Placeholders are filled in the parsed tree and not in text, so
//! a client's text cannot change the structure of the document.

use std::{fmt, sync::Arc};

use serde::{Serialize, Serializer, ser::SerializeMap, ser::SerializeSeq};
use serde_json::{Value, value::RawValue};

use super::{ChatRequest, InvalidRequest, RequestContext};

/// A placeholder: the name between `{{` and `}}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// The client's messages, unchanged: a list.
    Messages,
    /// The text of the last user message.
    Query,
    /// The texts of the system messages.
    System,
    Model,
    User,
    /// The conversation's id.
    Session,
    /// `true` if the client requests a stream, else `false`.
    Stream,
    /// citetap's id of the request.
    Request,
}

impl Slot {
    /// All names, for error texts.
    pub const NAMES: &[&str] = &["messages", "query", "system", "model", "user", "session", "stream", "request"];

    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "messages" => Self::Messages,
            "query" => Self::Query,
            "system" => Self::System,
            "model" => Self::Model,
            "user" => Self::User,
            "session" => Self::Session,
            "stream" => Self::Stream,
            "request" => Self::Request,
            _ => return None,
        })
    }
}

/// Why a template is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplateError {
    /// The parser's message, with its position.
    NotJson(String),
    /// A placeholder with an unknown name.
    Unknown(String),
    /// `{{` without `}}`.
    Unclosed,
    /// A placeholder in the key of a member.
    InKey,
    /// A placeholder for a list or a boolean inside a longer text.
    NotText(String),
    /// No placeholder for the messages or the query.
    NoQuery,
}

/// A parsed template, cheap to clone. May contain credentials, so `Debug` prints none of it.
#[derive(Clone)]
pub struct Template(Arc<Node>);

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Template").finish_non_exhaustive()
    }
}

/// A value of a template.
enum Node {
    /// A value without placeholders.
    Fixed(Value),
    /// A placeholder that is the complete value.
    Slot(Slot),
    /// A text with placeholders in it.
    Text(Vec<Piece>),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

/// A part of a text.
enum Piece {
    Fixed(String),
    Slot(Slot),
}

impl Template {
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let json: Value = serde_json::from_str(text).map_err(|error| TemplateError::NotJson(error.to_string()))?;
        let root = Node::parse(json)?;
        if !root.has(Slot::Messages) && !root.has(Slot::Query) {
            return Err(TemplateError::NoQuery);
        }
        Ok(Self(Arc::new(root)))
    }

    /// Serializes the template with the values of a request.
    pub(super) fn fill(
        &self,
        request: &ChatRequest<'_>,
        model: &str,
        context: RequestContext<'_>,
    ) -> Result<Vec<u8>, InvalidRequest> {
        let has = |slot| self.0.has(slot);
        let values = Values {
            messages: request.get("messages"),
            query: if has(Slot::Query) { Some(request.query()?) } else { None },
            system: if has(Slot::System) { request.system()? } else { None },
            model,
            user: request.user(),
            session: context.session.map(str::to_owned).or_else(|| request.session()),
            stream: request.stream,
            request_id: context.request_id,
        };
        // Cannot fail: all keys are strings.
        Ok(serde_json::to_vec(&Filled { node: &self.0, values: &values }).unwrap_or_default())
    }
}

impl Node {
    fn parse(json: Value) -> Result<Self, TemplateError> {
        Ok(match json {
            Value::String(text) => Self::parse_text(&text)?,
            Value::Array(items) => Self::List(items.into_iter().map(Self::parse).collect::<Result<_, _>>()?),
            Value::Object(members) => {
                let member = |(name, value): (String, Value)| match name.contains("{{") {
                    true => Err(TemplateError::InKey),
                    false => Ok((name, Self::parse(value)?)),
                };
                Self::Map(members.into_iter().map(member).collect::<Result<_, _>>()?)
            }
            fixed => Self::Fixed(fixed),
        })
    }

    fn parse_text(text: &str) -> Result<Self, TemplateError> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let (name, after) = after.split_once("}}").ok_or(TemplateError::Unclosed)?;
            let slot = Slot::parse(name.trim()).ok_or_else(|| TemplateError::Unknown(name.trim().to_owned()))?;
            if !before.is_empty() {
                pieces.push(Piece::Fixed(before.to_owned()));
            }
            pieces.push(Piece::Slot(slot));
            rest = after;
        }
        if pieces.is_empty() {
            return Ok(Self::Fixed(Value::String(text.to_owned())));
        }
        if !rest.is_empty() {
            pieces.push(Piece::Fixed(rest.to_owned()));
        }
        if let [Piece::Slot(slot)] = &*pieces {
            return Ok(Self::Slot(*slot));
        }
        for piece in &pieces {
            match piece {
                Piece::Slot(Slot::Messages) => return Err(TemplateError::NotText("messages".to_owned())),
                Piece::Slot(Slot::Stream) => return Err(TemplateError::NotText("stream".to_owned())),
                _ => {}
            }
        }
        Ok(Self::Text(pieces))
    }

    fn has(&self, slot: Slot) -> bool {
        match self {
            Self::Fixed(_) => false,
            Self::Slot(own) => *own == slot,
            Self::Text(pieces) => pieces.iter().any(|piece| matches!(piece, Piece::Slot(own) if *own == slot)),
            Self::List(items) => items.iter().any(|item| item.has(slot)),
            Self::Map(members) => members.iter().any(|(_, member)| member.has(slot)),
        }
    }
}

/// The values of one request.
struct Values<'a> {
    messages: Option<&'a RawValue>,
    query: Option<String>,
    system: Option<String>,
    model: &'a str,
    user: Option<String>,
    session: Option<String>,
    stream: bool,
    request_id: &'a str,
}

impl Values<'_> {
    /// The value of a slot that is a text. `None`: the request has none.
    fn text(&self, slot: Slot) -> Option<&str> {
        match slot {
            Slot::Query => self.query.as_deref(),
            Slot::System => self.system.as_deref(),
            Slot::Model => Some(self.model),
            Slot::User => self.user.as_deref(),
            Slot::Session => self.session.as_deref(),
            Slot::Request => Some(self.request_id),
            Slot::Messages | Slot::Stream => None,
        }
    }
}

/// A node with its values, for serialization.
struct Filled<'a> {
    node: &'a Node,
    values: &'a Values<'a>,
}

impl Filled<'_> {
    /// True for a placeholder without a value. It is omitted, because upstreams treat `null` as a value.
    fn is_absent(&self) -> bool {
        match self.node {
            Node::Slot(Slot::Stream) => false,
            Node::Slot(Slot::Messages) => self.values.messages.is_none(),
            Node::Slot(slot) => self.values.text(*slot).is_none(),
            _ => false,
        }
    }
}

impl Serialize for Filled<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let values = self.values;
        match self.node {
            Node::Fixed(value) => value.serialize(serializer),
            Node::Slot(Slot::Messages) => values.messages.serialize(serializer),
            Node::Slot(Slot::Stream) => values.stream.serialize(serializer),
            Node::Slot(slot) => values.text(*slot).serialize(serializer),
            Node::Text(pieces) => {
                let text = |piece: &Piece| match piece {
                    Piece::Fixed(text) => text.clone(),
                    Piece::Slot(slot) => values.text(*slot).unwrap_or_default().to_owned(),
                };
                pieces.iter().map(text).collect::<String>().serialize(serializer)
            }
            Node::List(items) => {
                let mut list = serializer.serialize_seq(None)?;
                for item in items.iter().map(|node| Filled { node, values }).filter(|item| !item.is_absent()) {
                    list.serialize_element(&item)?;
                }
                list.end()
            }
            Node::Map(members) => {
                let mut map = serializer.serialize_map(None)?;
                for (name, node) in members {
                    let member = Filled { node, values };
                    if !member.is_absent() {
                        map.serialize_entry(name, &member)?;
                    }
                }
                map.end()
            }
        }
    }
}

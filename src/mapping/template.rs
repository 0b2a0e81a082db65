//! A JSON document with placeholders. It is filled as a tree, not as a text: whatever a user says stays one value.

use std::{fmt, sync::Arc};

use serde::{Serialize, Serializer, ser::SerializeMap, ser::SerializeSeq};
use serde_json::{Value, value::RawValue};

use super::{Ask, Beside, Refusal};

/// What can stand between `{{` and `}}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// The messages as they came: a list.
    Messages,
    /// What the user said last.
    Query,
    /// What the system was told to be.
    System,
    Model,
    User,
    /// The conversation that the client names.
    Session,
    /// Does the client want a stream? `true` or `false`.
    Stream,
    /// Our id of the request.
    Request,
}

impl Slot {
    pub const NAMES: &[&str] = &["messages", "query", "system", "model", "user", "session", "stream", "request"];

    fn named(name: &str) -> Option<Self> {
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplateError {
    /// Where, and what serde says.
    NotJson(String),
    Unknown(String),
    /// `{{` without its end.
    Open,
    /// A placeholder in the name of a member.
    InName,
    /// A list or a truth value in the midst of a text.
    NotText(String),
    /// Nothing of the question is in it.
    AsksNothing,
}

/// Cheap to clone. It may hold credentials, so it is never shown.
#[derive(Clone)]
pub struct Template(Arc<Node>);

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Template").finish_non_exhaustive()
    }
}

enum Node {
    Fixed(Value),
    Slot(Slot),
    Text(Vec<Piece>),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

enum Piece {
    Fixed(String),
    Slot(Slot),
}

impl Template {
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let json: Value = serde_json::from_str(text).map_err(|error| TemplateError::NotJson(error.to_string()))?;
        let root = Node::of(json)?;
        if !root.has(Slot::Messages) && !root.has(Slot::Query) {
            return Err(TemplateError::AsksNothing);
        }
        Ok(Self(Arc::new(root)))
    }

    pub(super) fn fill(&self, ask: &Ask<'_>, model: &str, beside: Beside<'_>) -> Result<Vec<u8>, Refusal> {
        let has = |slot| self.0.has(slot);
        let values = Values {
            messages: ask.get("messages"),
            query: if has(Slot::Query) { Some(ask.query()?) } else { None },
            system: if has(Slot::System) { ask.system()? } else { None },
            model,
            user: ask.user(),
            session: beside.session.map(str::to_owned).or_else(|| ask.session()),
            stream: ask.stream,
            request: beside.request,
        };
        // String keys and plain values: this cannot fail.
        Ok(serde_json::to_vec(&Filled { node: &self.0, values: &values }).unwrap_or_default())
    }
}

impl Node {
    fn of(json: Value) -> Result<Self, TemplateError> {
        Ok(match json {
            Value::String(text) => Self::text(&text)?,
            Value::Array(items) => Self::List(items.into_iter().map(Self::of).collect::<Result<_, _>>()?),
            Value::Object(members) => {
                let member = |(name, value): (String, Value)| match name.contains("{{") {
                    true => Err(TemplateError::InName),
                    false => Ok((name, Self::of(value)?)),
                };
                Self::Map(members.into_iter().map(member).collect::<Result<_, _>>()?)
            }
            fixed => Self::Fixed(fixed),
        })
    }

    fn text(text: &str) -> Result<Self, TemplateError> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let (name, after) = after.split_once("}}").ok_or(TemplateError::Open)?;
            let slot = Slot::named(name.trim()).ok_or_else(|| TemplateError::Unknown(name.trim().to_owned()))?;
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

struct Values<'a> {
    messages: Option<&'a RawValue>,
    query: Option<String>,
    system: Option<String>,
    model: &'a str,
    user: Option<String>,
    session: Option<String>,
    stream: bool,
    request: &'a str,
}

impl Values<'_> {
    /// As a text; `None` where there is none.
    fn text(&self, slot: Slot) -> Option<&str> {
        match slot {
            Slot::Query => self.query.as_deref(),
            Slot::System => self.system.as_deref(),
            Slot::Model => Some(self.model),
            Slot::User => self.user.as_deref(),
            Slot::Session => self.session.as_deref(),
            Slot::Request => Some(self.request),
            Slot::Messages | Slot::Stream => None,
        }
    }
}

struct Filled<'a> {
    node: &'a Node,
    values: &'a Values<'a>,
}

impl Filled<'_> {
    /// A placeholder that nothing fills: it is left out, as upstreams take `null` for a value.
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

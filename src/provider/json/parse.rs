//! Parses JSON text into a borrowed tree with serde_json.
//!
//! Benchmark over the data of every frame in `tests/fixtures` and `src/replay/captures`, including JSON in strings:
//! nanoseconds per frame, best of 60 rounds; in brackets the ratio to a parser written for this tree.
//!
//! | frames | bytes | own parser | this | sonic-rs, this visitor | jiter, its own tree | serde_json `Value` |
//! |---|---|---|---|---|---|---|
//! | 4,985 under 512 bytes | 135 | 422 | 486 (1.15) | 630 (1.49) | 575 (1.36) | 881 (2.09) |
//! | 349 of 512 bytes and more | 2,262 | 6,859 | 6,308 (0.92) | 5,811 (0.85) | 9,293 (1.35) | 12,846 (1.87) |
//! | all | 274 | 1,212 | 1,208 (1.00) | 886 (0.73) | 1,547 (1.28) | 3,195 (2.64) |

use std::{borrow::Cow, cell::Cell, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::{MAX_DEPTH, MAX_NODES, Node};

/// Initial capacity for the keys of the root object.
const FRAME_KEYS: usize = 12;
/// Initial capacity for the keys of any other object.
const KEYS: usize = 4;

/// Parses one document. `None`: malformed, too deep, too large, or followed by other text.
pub fn parse(text: &str) -> Option<Node<'_>> {
    let nodes_left = Cell::new(MAX_NODES);
    let mut json = serde_json::Deserializer::from_str(text);
    let node = Value { depth_left: MAX_DEPTH, nodes_left: &nodes_left }.deserialize(&mut json).ok()?;
    json.end().ok()?;
    Some(node)
}

/// Deserializes one value within the caps.
#[derive(Clone, Copy)]
struct Value<'c> {
    /// Levels of lists and objects that may still be opened.
    depth_left: u32,
    /// Values that the document may still have.
    nodes_left: &'c Cell<u32>,
}

impl Value<'_> {
    fn inner<E: Error>(self) -> Result<Self, E> {
        let depth_left = self.depth_left.checked_sub(1).ok_or_else(|| E::custom("too deep"))?;
        Ok(Self { depth_left, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = Node<'de>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Node<'de>, D::Error> {
        let nodes_left = self.nodes_left.get().checked_sub(1);
        self.nodes_left.set(nodes_left.ok_or_else(|| D::Error::custom("too many values"))?);
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = Node<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node<'de>, E> {
        Ok(Node::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node<'de>, E> {
        Ok(Node::Unsigned(value))
    }

    /// serde_json calls this only for negative numbers.
    fn visit_i64<E>(self, value: i64) -> Result<Node<'de>, E> {
        Ok(Node::Signed(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node<'de>, E> {
        Ok(Node::Float(value))
    }

    fn visit_unit<E>(self) -> Result<Node<'de>, E> {
        Ok(Node::Null)
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Node<'de>, E> {
        Ok(Node::Str(Cow::Borrowed(text)))
    }

    /// serde_json calls this for strings with escapes.
    fn visit_str<E>(self, text: &str) -> Result<Node<'de>, E> {
        Ok(Node::Str(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node<'de>, A::Error> {
        let inner = self.inner()?;
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(inner)? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node<'de>, A::Error> {
        let inner = self.inner()?;
        let mut pairs = Vec::with_capacity(if self.depth_left == MAX_DEPTH { FRAME_KEYS } else { KEYS });
        while let Some(key) = map.next_key_seed(Key)? {
            pairs.push((key, map.next_value_seed(inner)?));
        }
        Ok(Node::Map(pairs))
    }
}

/// Deserializes the key of a member.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Cow<'de, str>, D::Error> {
        json.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(key))
    }

    fn visit_str<E>(self, key: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(key.to_owned()))
    }
}

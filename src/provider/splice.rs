//! Replaces strings of a JSON document and keeps every other byte. `mapping` renames models with it, `pipeline` rewrites
//! markers.

use std::{borrow::Cow, fmt, ops::Range};

use serde::{
    Deserialize,
    de::{Deserializer, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{json::MAX_STRING_NESTING, json_path::Step};

/// Replaces the string at each path with its text. `None`: a path does not lead to a string, so the caller keeps the
/// document as it is.
pub fn replace<'e>(json: &str, edits: impl IntoIterator<Item = (&'e [Step], &'e str)>) -> Option<String> {
    let mut replacements: Vec<(Range<usize>, String)> = Vec::new();
    for (steps, text) in edits {
        let target = find(json, steps, MAX_STRING_NESTING)?;
        replacements.push((target.range, encode_literal(text, target.nesting)?));
    }
    replacements.sort_by_key(|(range, _)| range.start);
    let mut out = String::with_capacity(json.len() + replacements.iter().map(|(_, text)| text.len()).sum::<usize>());
    let mut from = 0;
    for (range, text) in replacements {
        out.push_str(json.get(from..range.start)?);
        out.push_str(&text);
        from = range.end;
    }
    out.push_str(json.get(from..)?);
    Some(out)
}

/// Position of a string literal in a document.
struct StringRange {
    /// Bytes of the literal, including its quotes.
    range: Range<usize>,
    /// Number of string literals around it.
    nesting: u8,
}

fn find(json: &str, steps: &[Step], left: u8) -> Option<StringRange> {
    let value: &RawValue = serde_json::from_str(json).ok()?;
    find_in(json, value, steps, left)
}

fn find_in(json: &str, value: &RawValue, steps: &[Step], left: u8) -> Option<StringRange> {
    let raw = value.get();
    // A `RawValue` borrows from `json`, so the distance of their pointers is its offset.
    let start = (raw.as_ptr() as usize).checked_sub(json.as_ptr() as usize)?;
    let Some((step, rest)) = steps.split_first() else {
        return raw.starts_with('"').then_some(StringRange { range: start..start + raw.len(), nesting: 0 });
    };
    if raw.starts_with('"') {
        let inner: String = serde_json::from_str(raw).ok()?;
        let found = find(&inner, steps, left.checked_sub(1)?)?;
        let from = start + raw_offset(raw, found.range.start)?;
        let to = start + raw_offset(raw, found.range.end)?;
        return Some(StringRange { range: from..to, nesting: found.nesting + 1 });
    }
    let inner = match *step {
        Step::Key(key) => {
            let Pairs(pairs) = serde_json::from_str(raw).ok()?;
            // The last of duplicate keys wins, as in `Node::get`.
            pairs.into_iter().rev().find(|(name, _)| name == key)?.1
        }
        Step::Index(index) => {
            let items: Vec<&RawValue> = serde_json::from_str(raw).ok()?;
            *items.get(index)?
        }
    };
    find_in(json, inner, rest, left)
}

/// Maps an offset in a string's value to the offset in its literal. `None` inside an escape sequence.
fn raw_offset(literal: &str, offset: usize) -> Option<usize> {
    let bytes = literal.as_bytes();
    let unit = |at: usize| u16::from_str_radix(literal.get(at + 2..at + 6)?, 16).ok();
    let (mut at, mut value) = (1, 0);
    while value < offset {
        let (raw, read) = match (bytes.get(at)?, bytes.get(at + 1)) {
            (b'\\', Some(b'u')) => match unit(at)? {
                0xD800..=0xDFFF => (12, 4),
                code => (6, char::from_u32(code.into())?.len_utf8()),
            },
            (b'\\', _) => (2, 1),
            _ => (1, 1),
        };
        at += raw;
        value += read;
    }
    (value == offset).then_some(at)
}

/// Encodes `text` as a string literal, escaped once more for each of the `nesting` literals around it.
fn encode_literal(text: &str, nesting: u8) -> Option<String> {
    let mut literal = serde_json::to_string(text).ok()?;
    for _ in 0..nesting {
        literal = serde_json::to_string(&literal).ok()?;
        literal = literal.get(1..literal.len() - 1)?.to_owned();
    }
    Some(literal)
}

/// The members of an object in their order, with their values unparsed.
pub struct Pairs<'a>(pub Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Pairs<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Pairs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<'de>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: fn(&'static str) -> Step = Step::Key;

    fn replace_one(json: &str, steps: &[Step], text: &str) -> Option<String> {
        replace(json, [(steps, text)])
    }

    #[test]
    fn replace_keeps_every_other_byte() {
        let json = "{ \"a\" : [1, {\"t\":\"\\u4f60\\/好[1]\"} ,2.50],\t\"t\":\"x\" } ";
        assert_eq!(
            replace_one(json, &[KEY("a"), Step::Index(1), KEY("t")], "a\"b\n").as_deref(),
            Some("{ \"a\" : [1, {\"t\":\"a\\\"b\\n\"} ,2.50],\t\"t\":\"x\" } ")
        );
    }

    #[test]
    fn replace_in_nested_strings_keeps_other_bytes() {
        let innermost = r#"{"text":"foo [1]","k":"\u4e2d\/"}"#;
        let inner = serde_json::json!({ "message": { "id": "7", "content": innermost } }).to_string();
        let json = format!(r#"{{"event_type":2001, "event_data":{}}}"#, serde_json::json!(inner));
        let steps = [KEY("event_data"), KEY("message"), KEY("content"), KEY("text")];
        let out = replace_one(&json, &steps, "foo [[1]](https://a.example/\"q\")").unwrap_or_default();
        let restore = |text: &str| text.replace("[[1]](https://a.example/\\\\\\\\\\\\\\\"q\\\\\\\\\\\\\\\")", "[1]");
        assert_eq!(restore(&out), json, "{out}");
        let reread: serde_json::Value = serde_json::from_str(&out).unwrap_or_default();
        let reread: serde_json::Value =
            serde_json::from_str(reread["event_data"].as_str().unwrap_or_default()).unwrap_or_default();
        let reread: serde_json::Value =
            serde_json::from_str(reread["message"]["content"].as_str().unwrap_or_default()).unwrap_or_default();
        assert_eq!(reread["text"], "foo [[1]](https://a.example/\"q\")");
        assert_eq!(reread["k"], "中/");
    }

    #[test]
    fn replace_takes_several_edits_in_any_order() {
        let json = r#"{"a":"1","b":"{\"c\":\"2\",\"d\":\"😀\\ud83d\\ude00 3\"}"}"#;
        let (a, c, d) = ([KEY("a")], [KEY("b"), KEY("c")], [KEY("b"), KEY("d")]);
        let out = replace(json, [(&d[..], "z"), (&a[..], "x"), (&c[..], "y")]);
        assert_eq!(out.as_deref(), Some(r#"{"a":"x","b":"{\"c\":\"y\",\"d\":\"z\"}"}"#));
    }

    #[test]
    fn replace_duplicate_key_edits_the_last() {
        assert_eq!(replace_one(r#"{"t":"a","t":"b"}"#, &[KEY("t")], "c").as_deref(), Some(r#"{"t":"a","t":"c"}"#));
    }

    #[test]
    fn replace_path_without_string_returns_none() {
        for (json, steps) in [
            (r#"{"t":1}"#, &[KEY("t")][..]),
            (r#"{"t":"a"}"#, &[KEY("u")]),
            (r#"{"t":"a"}"#, &[KEY("t"), KEY("u")]),
            (r#"{"t":["a"]}"#, &[KEY("t"), Step::Index(1)]),
            (r#"{"t":"a"#, &[KEY("t")]),
            (r#"{"t":"\ud800"}"#, &[KEY("t"), KEY("u")]),
        ] {
            assert_eq!(replace_one(json, steps, "x"), None, "{json}");
        }
    }
}

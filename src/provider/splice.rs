//! Puts another text in the place of one string of a JSON document, and keeps every other byte.

use std::{borrow::Cow, fmt, ops::Range};

use serde::{
    Deserialize,
    de::{Deserializer, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{json::MAX_STRING_NESTING, json_path::Step};

/// The document with `text` in the place of each string that the steps lead to. `None`: one of them leads
/// nowhere, and nothing should be changed.
pub fn replace<'e>(json: &str, edits: impl IntoIterator<Item = (&'e [Step], &'e str)>) -> Option<String> {
    let mut places: Vec<(Range<usize>, String)> = Vec::new();
    for (steps, text) in edits {
        let place = find(json, steps, MAX_STRING_NESTING)?;
        places.push((place.range, literal(text, place.nested)?));
    }
    places.sort_by_key(|(range, _)| range.start);
    let mut out = String::with_capacity(json.len() + places.iter().map(|(_, text)| text.len()).sum::<usize>());
    let mut from = 0;
    for (range, text) in places {
        out.push_str(json.get(from..range.start)?);
        out.push_str(&text);
        from = range.end;
    }
    out.push_str(json.get(from..)?);
    Some(out)
}

/// A string literal, quotes included, and in how many string literals it stands.
struct StringRange {
    range: Range<usize>,
    nested: u8,
}

fn find(json: &str, steps: &[Step], left: u8) -> Option<StringRange> {
    let value: &RawValue = serde_json::from_str(json).ok()?;
    find_in(json, value, steps, left)
}

fn find_in(json: &str, value: &RawValue, steps: &[Step], left: u8) -> Option<StringRange> {
    let raw = value.get();
    // A raw value is a piece of the document that it was read from.
    let start = (raw.as_ptr() as usize).checked_sub(json.as_ptr() as usize)?;
    let Some((step, rest)) = steps.split_first() else {
        return raw.starts_with('"').then_some(StringRange { range: start..start + raw.len(), nested: 0 });
    };
    if raw.starts_with('"') {
        let inner: String = serde_json::from_str(raw).ok()?;
        let place = find(&inner, steps, left.checked_sub(1)?)?;
        let from = start + raw_offset(raw, place.range.start)?;
        let to = start + raw_offset(raw, place.range.end)?;
        return Some(StringRange { range: from..to, nested: place.nested + 1 });
    }
    let inner = match *step {
        Step::Key(key) => {
            let Pairs(pairs) = serde_json::from_str(raw).ok()?;
            // Of duplicates the last, as everywhere.
            pairs.into_iter().rev().find(|(name, _)| name == key)?.1
        }
        Step::Index(index) => {
            let items: Vec<&RawValue> = serde_json::from_str(raw).ok()?;
            *items.get(index)?
        }
    };
    find_in(json, inner, rest, left)
}

/// Where in a string literal the byte stands that is at `offset` of its value.
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

/// `text` as a string literal, and that as the content of a literal, so many times.
fn literal(text: &str, nested: u8) -> Option<String> {
    let mut literal = serde_json::to_string(text).ok()?;
    for _ in 0..nested {
        literal = serde_json::to_string(&literal).ok()?;
        literal = literal.get(1..literal.len() - 1)?.to_owned();
    }
    Some(literal)
}

/// An object, its values as they are written.
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

    fn swapped(json: &str, steps: &[Step], text: &str) -> Option<String> {
        replace(json, [(steps, text)])
    }

    #[test]
    fn every_other_byte_stays() {
        let json = "{ \"a\" : [1, {\"t\":\"\\u4f60\\/好[1]\"} ,2.50],\t\"t\":\"x\" } ";
        assert_eq!(
            swapped(json, &[KEY("a"), Step::Index(1), KEY("t")], "a\"b\n").as_deref(),
            Some("{ \"a\" : [1, {\"t\":\"a\\\"b\\n\"} ,2.50],\t\"t\":\"x\" } ")
        );
    }

    #[test]
    fn strings_in_strings_are_opened_and_their_other_bytes_stay() {
        let innermost = r#"{"text":"foo [1]","k":"\u4e2d\/"}"#;
        let inner = serde_json::json!({ "message": { "id": "7", "content": innermost } }).to_string();
        let json = format!(r#"{{"event_type":2001, "event_data":{}}}"#, serde_json::json!(inner));
        let steps = [KEY("event_data"), KEY("message"), KEY("content"), KEY("text")];
        let out = swapped(&json, &steps, "foo [[1]](https://a.example/\"q\")").unwrap_or_default();
        let same = |text: &str| text.replace("[[1]](https://a.example/\\\\\\\\\\\\\\\"q\\\\\\\\\\\\\\\")", "[1]");
        assert_eq!(same(&out), json, "{out}");
        let reread: serde_json::Value = serde_json::from_str(&out).unwrap_or_default();
        let reread: serde_json::Value =
            serde_json::from_str(reread["event_data"].as_str().unwrap_or_default()).unwrap_or_default();
        let reread: serde_json::Value =
            serde_json::from_str(reread["message"]["content"].as_str().unwrap_or_default()).unwrap_or_default();
        assert_eq!(reread["text"], "foo [[1]](https://a.example/\"q\")");
        assert_eq!(reread["k"], "中/");
    }

    #[test]
    fn several_places_at_once_in_any_order() {
        let json = r#"{"a":"1","b":"{\"c\":\"2\",\"d\":\"😀\\ud83d\\ude00 3\"}"}"#;
        let (a, c, d) = ([KEY("a")], [KEY("b"), KEY("c")], [KEY("b"), KEY("d")]);
        let out = replace(json, [(&d[..], "z"), (&a[..], "x"), (&c[..], "y")]);
        assert_eq!(out.as_deref(), Some(r#"{"a":"x","b":"{\"c\":\"y\",\"d\":\"z\"}"}"#));
    }

    #[test]
    fn the_last_of_duplicate_keys_is_meant() {
        assert_eq!(swapped(r#"{"t":"a","t":"b"}"#, &[KEY("t")], "c").as_deref(), Some(r#"{"t":"a","t":"c"}"#));
    }

    #[test]
    fn what_leads_nowhere_changes_nothing() {
        for (json, steps) in [
            (r#"{"t":1}"#, &[KEY("t")][..]),
            (r#"{"t":"a"}"#, &[KEY("u")]),
            (r#"{"t":"a"}"#, &[KEY("t"), KEY("u")]),
            (r#"{"t":["a"]}"#, &[KEY("t"), Step::Index(1)]),
            (r#"{"t":"a"#, &[KEY("t")]),
            (r#"{"t":"\ud800"}"#, &[KEY("t"), KEY("u")]),
        ] {
            assert_eq!(swapped(json, steps, "x"), None, "{json}");
        }
    }
}

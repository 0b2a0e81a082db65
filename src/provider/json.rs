//! Untrusted JSON as a borrowed tree: depth and size are capped, the last of duplicate keys wins, and accessors skip
//! values of the wrong type.

mod parse;

use std::borrow::Cow;

pub use parse::parse;

/// Deeper documents are rejected.
pub const MAX_DEPTH: u32 = 64;
/// Documents with more values are rejected: a frame of 4 MiB could otherwise become a tree of 60 MiB.
pub const MAX_NODES: u32 = 262_144;
/// Levels of JSON in strings that are decoded, counted from the frame.
pub const MAX_STRING_NESTING: u8 = 3;

/// A JSON value.
#[derive(Debug, Clone, PartialEq)]
pub enum Node<'a> {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Str(Cow<'a, str>),
    List(Vec<Node<'a>>),
    Map(Vec<(Cow<'a, str>, Node<'a>)>),
}

/// Parses `text` and calls `read`. If parsing fails, retries with lone surrogates (`\ud800`) replaced, because serde_json
/// rejects them.
pub fn with_parsed<T>(text: &str, read: impl FnOnce(&Node<'_>) -> T) -> Option<T> {
    if let Some(node) = parse(text) {
        return Some(read(&node));
    }
    let repaired = replace_lone_surrogates(text)?;
    parse(&repaired).map(|node| read(&node))
}

impl<'a> Node<'a> {
    /// The value of `key`: the last one of duplicates. `None` if this is not a map.
    pub fn get(&self, key: &str) -> Option<&Node<'a>> {
        match self {
            Self::Map(pairs) => pairs.iter().rev().find(|(k, _)| k == key).map(|(_, v)| v),
            _ => None,
        }
    }

    /// All members in their order; empty if this is not a map.
    pub fn pairs(&self) -> &[(Cow<'a, str>, Node<'a>)] {
        match self {
            Self::Map(pairs) => pairs,
            _ => &[],
        }
    }

    /// The value of the first of `keys` that is present and not null.
    pub fn first(&self, keys: &[&str]) -> Option<&Node<'a>> {
        self.first_with_key(keys).map(|(_, node)| node)
    }

    /// Like [`Self::first`], with the key.
    pub fn first_with_key<'k>(&self, keys: &[&'k str]) -> Option<(&'k str, &Node<'a>)> {
        keys.iter().filter_map(|key| Some((*key, self.get(key)?))).find(|(_, node)| **node != Self::Null)
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(s) => Some(s),
            _ => None,
        }
    }

    /// The value of the first of `keys` that is a string and not blank.
    pub fn text(&self, keys: &[&str]) -> Option<&str> {
        keys.iter().filter_map(|key| self.get(key)?.as_str()).find(|s| !s.trim().is_empty())
    }

    /// The value of the first of `keys` that is an id: a non-empty string, or an integer in decimal.
    pub fn id(&self, keys: &[&str]) -> Option<String> {
        self.id_cow(keys).map(Cow::into_owned)
    }

    /// Like [`Self::id`] without a copy, for ids that are usually only compared.
    pub fn id_cow(&self, keys: &[&str]) -> Option<Cow<'_, str>> {
        keys.iter().filter_map(|key| self.get(key)).find_map(|node| match node {
            Self::Str(s) if !s.is_empty() => Some(Cow::Borrowed(&**s)),
            Self::Unsigned(n) => Some(Cow::Owned(n.to_string())),
            Self::Signed(n) => Some(Cow::Owned(n.to_string())),
            _ => None,
        })
    }

    /// An unsigned integer, or a string that is one.
    pub fn as_number(&self) -> Option<u64> {
        match self {
            Self::Unsigned(n) => Some(*n),
            Self::Str(s) => s.trim().parse().ok(),
            _ => None,
        }
    }

    /// The value of the first of `keys` that is a number from 1 to 999,999.
    pub fn index(&self, keys: &[&str]) -> Option<u32> {
        keys.iter()
            .filter_map(|key| self.get(key)?.as_number())
            .find(|n| (1..1_000_000).contains(n))
            .and_then(|n| u32::try_from(n).ok())
    }

    /// True if the value of `key` is `true`, 1, "1" or "true".
    pub fn truthy(&self, key: &str) -> bool {
        match self.get(key) {
            Some(Self::Bool(b)) => *b,
            Some(Self::Unsigned(n)) => *n == 1,
            Some(Self::Str(s)) => s == "1" || s.eq_ignore_ascii_case("true"),
            _ => false,
        }
    }

    /// The items of a list; empty if this is not a list.
    pub fn as_list(&self) -> &[Node<'a>] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }

    pub fn is_map(&self) -> bool {
        matches!(self, Self::Map(_))
    }

    /// Calls `read` with this value. A string is first decoded as a JSON object or list, because upstreams encode some
    /// values twice without notice. `left` is the number of strings that may still be decoded.
    pub fn with_decoded<T: Default>(&self, left: u8, read: impl FnOnce(&Node<'_>, u8) -> T) -> T {
        match self {
            Self::Str(s) => {
                let looks_like_json = matches!(s.trim_start().as_bytes().first(), Some(b'{' | b'['));
                if left == 0 || !looks_like_json {
                    return T::default();
                }
                with_parsed(s, |inner| read(inner, left - 1)).unwrap_or_default()
            }
            _ => read(self, left),
        }
    }
}

/// Replaces each lone surrogate with `\ufffd`. `None`: there is none.
fn replace_lone_surrogates(text: &str) -> Option<String> {
    fn unit(text: &str, at: usize) -> Option<u16> {
        let hex = text.get(at..)?.strip_prefix("\\u")?.get(..4)?;
        u16::from_str_radix(hex, 16).ok()
    }
    let mut out = String::with_capacity(text.len());
    let (mut from, mut at, mut replaced) = (0, 0, false);
    while let Some(skip) = memchr::memchr(b'\\', text.as_bytes().get(at..)?) {
        at += skip;
        let step = match unit(text, at) {
            Some(0xD800..=0xDBFF) if matches!(unit(text, at + 6), Some(0xDC00..=0xDFFF)) => 12,
            Some(0xD800..=0xDFFF) => {
                out.push_str(text.get(from..at)?);
                out.push_str("\\ufffd");
                from = at + 6;
                replaced = true;
                6
            }
            // Any other escape has at least two characters; the second one of `\\` must not start an escape.
            _ => 2,
        };
        at += step;
    }
    out.push_str(text.get(from..)?);
    replaced.then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn get_duplicate_key_returns_the_last() {
        let node = parse(r#"{"url":"a","url":"b"}"#);
        assert_eq!(node.and_then(|n| n.text(&["url"]).map(str::to_owned)).as_deref(), Some("b"));
    }

    #[test]
    fn parse_depth_is_capped_at_the_limit() {
        let nested = |n: usize| "[".repeat(n) + &"]".repeat(n);
        assert!(parse(&nested(64)).is_some());
        assert!(parse(&nested(65)).is_none());
        assert!(parse(&nested(100_000)).is_none());
    }

    #[test]
    fn parse_too_many_values_returns_none() {
        let list = |n: usize| format!("[{}0]", "0,".repeat(n - 1));
        assert!(parse(&list(MAX_NODES as usize - 1)).is_some());
        assert!(parse(&list(MAX_NODES as usize)).is_none());
    }

    #[test]
    fn lone_surrogates_become_replacement_characters() {
        let read = |text| with_parsed(text, |n| n.text(&["t"]).map(str::to_owned)).flatten();
        assert_eq!(read(r#"{"t":"a\ud800b"}"#).as_deref(), Some("a\u{fffd}b"));
        assert_eq!(read(r#"{"t":"\ud83d\ude00\udc00"}"#).as_deref(), Some("😀\u{fffd}"));
        assert_eq!(read(r#"{"t":"\\ud800"}"#).as_deref(), Some("\\ud800"));
        assert_eq!(read(r#"{"t":"中\ud8"#), None);
    }

    #[test]
    fn id_of_a_big_integer_is_exact() {
        let node = parse(r#"{"id":35744004404204546,"big":18446744073709551615}"#);
        let node = node.as_ref();
        assert_eq!(node.and_then(|n| n.id(&["id"])).as_deref(), Some("35744004404204546"));
        assert_eq!(node.and_then(|n| n.id(&["big"])).as_deref(), Some("18446744073709551615"));
    }

    #[test]
    fn with_decoded_opens_three_levels_at_most() {
        fn depth(node: &Node<'_>, left: u8) -> u32 {
            node.get("in").map_or(0, |inner| 1 + inner.with_decoded(left, depth))
        }
        let mut text = "{}".to_owned();
        for _ in 0..5 {
            text = serde_json::json!({ "in": text }).to_string();
        }
        let node = parse(&text);
        assert_eq!(node.map(|node| depth(&node, MAX_STRING_NESTING)), Some(4), "the fourth string is not decoded");
    }
}

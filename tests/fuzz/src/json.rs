//! Target `json`: parsing of untrusted JSON, JSON nested in strings, and the replacement of one string.

use citetap::provider::{
    error_document::ErrorDocument,
    json::{self, MAX_DEPTH, MAX_NODES, MAX_STRING_NESTING, Node},
    json_path::Step,
    splice,
};
use serde_json::Value;

use crate::input::{Dice, split};

/// Path steps need static keys, so only these are followed.
const KEYS: &[&str] =
    &["a", "b", "t", "in", "text", "content", "message", "event_data", "choices", "delta", "data", "url", ""];
/// Inputs are repeated up to this number of bytes.
const MAX_GROWN: usize = 64 * 1024;

pub fn run(data: &[u8]) {
    let Some((head, body)) = split(data) else { return };
    let text = String::from_utf8_lossy(body);
    let times = usize::from(head[0]) * usize::from(head[1]);
    let grown = text.repeat((MAX_GROWN / text.len().max(1)).min(times).max(1));
    check_against_serde(&grown);
    let _ = ErrorDocument::parse(&grown);
    check_nesting(&grown);
    check_replacement(&text, &mut Dice::new(u32::from_le_bytes(head)));
}

/// Our parser accepts the same documents as serde_json, with the same values. Exceptions: documents over our caps, and lone
/// surrogates, which `with_parsed` replaces.
fn check_against_serde(text: &str) {
    let ours = json::parse(text);
    match (&ours, serde_json::from_str::<Value>(text)) {
        (Some(node), Ok(value)) => assert_eq!(value_of(node), value),
        (Some(_), Err(error)) => panic!("serde_json rejects it: {error}"),
        (None, Ok(_)) => {
            let (depth, nodes) = measure(text);
            assert!(depth > MAX_DEPTH || nodes > MAX_NODES, "rejected: depth {depth}, {nodes} values");
        }
        (None, Err(_)) => {}
    }
    let lenient = json::with_parsed(text, value_of);
    if let Some(node) = &ours {
        assert_eq!(lenient, Some(value_of(node)));
    } else if lenient.is_some() {
        assert!(text.contains("\\ud") || text.contains("\\uD"), "parsed leniently without a surrogate");
    }
}

fn value_of(node: &Node<'_>) -> Value {
    match node {
        Node::Null => Value::Null,
        Node::Bool(b) => (*b).into(),
        Node::Unsigned(n) => (*n).into(),
        Node::Signed(n) => (*n).into(),
        Node::Float(n) => (*n).into(),
        Node::Str(s) => s.to_string().into(),
        Node::List(items) => items.iter().map(value_of).collect(),
        Node::Map(pairs) => pairs.iter().map(|(key, value)| (key.to_string(), value_of(value))).collect(),
    }
}

/// The depth of a valid document, and an upper bound on its number of values.
fn measure(text: &str) -> (u32, u32) {
    let (mut depth, mut deepest, mut values, mut quoted, mut escaped) = (0_u32, 0, 1, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'[' | b'{' => {
                depth += 1;
                values += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth -= 1,
            b',' => values += 1,
            _ => {}
        }
    }
    (deepest, values)
}

/// JSON nested in strings is parsed at most [`MAX_STRING_NESTING`] levels deep, anywhere in the document.
fn check_nesting(text: &str) {
    fn walk(node: &Node<'_>, left: u8, opened: u8) {
        assert!(opened + left == MAX_STRING_NESTING);
        match node {
            Node::Str(_) => node.with_decoded(left, |inner, left| {
                assert!(!matches!(inner, Node::Str(_)));
                walk(inner, left, opened + 1);
            }),
            Node::List(items) => items.iter().for_each(|item| walk(item, left, opened)),
            Node::Map(pairs) => pairs.iter().for_each(|(_, value)| walk(value, left, opened)),
            _ => {}
        }
    }
    json::with_parsed(text, |node| walk(node, MAX_STRING_NESTING, 0));
}

/// Replacing a string changes that string and no other byte.
fn check_replacement(text: &str, dice: &mut Dice) {
    let Some(node) = json::parse(text) else { return };
    let mut steps = Vec::new();
    random_path(&node, dice, &mut steps, MAX_STRING_NESTING);
    let new = dice.of(&["", "x", "[[1]](https://a.example/)", "\"\\\n\u{1}火", "\\ud83d\\ude00"]);
    let Some(out) = splice::replace(text, [(&*steps, new)]) else { return };
    let mut expected: Value = serde_json::from_str(text).unwrap();
    // serde_json rejects a lone surrogate in nested JSON, which we replace, so there is no expected value then.
    let Some(()) = set_at(&mut expected, &steps, new) else { return };
    assert!(
        is_equal(&serde_json::from_str(&out).unwrap(), &expected, MAX_STRING_NESTING),
        "{out} for {text} at {steps:?}"
    );
    let same =
        |a: &mut dyn Iterator<Item = u8>, b: &mut dyn Iterator<Item = u8>| a.zip(b).take_while(|(a, b)| a == b).count();
    let front = same(&mut text.bytes(), &mut out.bytes());
    let back = same(&mut text.bytes().rev(), &mut out.bytes().rev());
    assert!(
        front + back + string_len_at(&node, &steps, MAX_STRING_NESTING) * 48 + 64 >= text.len(),
        "other bytes changed"
    );
    assert_eq!(splice::replace(&out, [(&*steps, new)]), Some(out.clone()), "replacing is idempotent");
}

/// Builds a random path to a string.
fn random_path(node: &Node<'_>, dice: &mut Dice, steps: &mut Vec<Step>, left: u8) {
    match node {
        Node::List(items) if !items.is_empty() => {
            let index = dice.below(items.len());
            steps.push(Step::Index(index));
            random_path(&items[index], dice, steps, left);
        }
        Node::Map(pairs) if !pairs.is_empty() => {
            let key = &pairs[dice.below(pairs.len())].0;
            let Some(key) = KEYS.iter().find(|known| *known == key) else { return };
            steps.push(Step::Key(key));
            if let Some(inner) = node.get(key) {
                random_path(inner, dice, steps, left);
            }
        }
        Node::Str(_) if left > 0 => node.with_decoded(left, |inner, left| random_path(inner, dice, steps, left)),
        _ => {}
    }
}

fn set_at(value: &mut Value, steps: &[Step], new: &str) -> Option<()> {
    let Some((step, rest)) = steps.split_first() else {
        *value = new.into();
        return Some(());
    };
    if let Value::String(inner) = value {
        let mut opened: Value = serde_json::from_str(inner).ok()?;
        set_at(&mut opened, steps, new)?;
        *value = opened.to_string().into();
        return Some(());
    }
    let inner = match step {
        Step::Key(key) => value.get_mut(*key),
        Step::Index(index) => value.get_mut(*index),
    };
    set_at(inner.unwrap(), rest, new)
}

/// Equality in which strings with nested JSON are equal if the nested values are.
fn is_equal(a: &Value, b: &Value, left: u8) -> bool {
    match (a, b) {
        (Value::String(a), Value::String(b)) if left > 0 && a != b => {
            let open = |text: &String| serde_json::from_str::<Value>(text).ok();
            open(a).zip(open(b)).is_some_and(|(a, b)| is_equal(&a, &b, left - 1))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_equal(a, b, left)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|((k, a), (l, b))| k == l && is_equal(a, b, left))
        }
        // A number with many digits may be rounded when it is written and parsed again.
        (Value::Number(a), Value::Number(b)) if a.is_f64() && b.is_f64() => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            a == b || (a - b).abs() <= a.abs() * 1e-12
        }
        _ => a == b,
    }
}

/// The length of the string at this path.
fn string_len_at(node: &Node<'_>, steps: &[Step], left: u8) -> usize {
    match (steps.split_first(), node) {
        (None, Node::Str(text)) => text.len(),
        (None, _) => 0,
        (Some(_), Node::Str(_)) => node.with_decoded(left, |inner, left| string_len_at(inner, steps, left)),
        (Some((Step::Key(key), rest)), _) => node.get(key).map_or(0, |inner| string_len_at(inner, rest, left)),
        (Some((Step::Index(index), rest)), _) => {
            node.as_list().get(*index).map_or(0, |inner| string_len_at(inner, rest, left))
        }
    }
}

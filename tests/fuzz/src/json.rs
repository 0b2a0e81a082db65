//! Strangers' JSON: what is read of it, strings that hold JSON, and one string replaced where it stands.

use citetap::provider::{
    error_document::ErrorDocument,
    json::{self, MAX_DEPTH, MAX_NODES, MAX_STRING_NESTING, Node},
    json_path::Step,
    splice,
};
use serde_json::Value;

use crate::input::{Dice, split};

/// Steps are made of keys that the program knows.
const KEYS: &[&str] =
    &["a", "b", "t", "in", "text", "content", "message", "event_data", "choices", "delta", "data", "url", ""];
/// Repeated inputs grow to this.
const MAX_GROWN: usize = 64 * 1024;

pub fn run(data: &[u8]) {
    let Some((head, body)) = split(data) else { return };
    let text = String::from_utf8_lossy(body);
    let times = usize::from(head[0]) * usize::from(head[1]);
    let grown = text.repeat((MAX_GROWN / text.len().max(1)).min(times).max(1));
    agrees(&grown);
    let _ = ErrorDocument::parse(&grown);
    opens(&grown);
    replaces(&text, &mut Dice::new(u32::from_le_bytes(head)));
}

/// What serde_json reads we read, and as the same, up to our caps; and what it does not read we do not, but for lone
/// surrogates.
fn agrees(text: &str) {
    let ours = json::parse(text);
    match (&ours, serde_json::from_str::<Value>(text)) {
        (Some(node), Ok(value)) => assert_eq!(value_of(node), value),
        (Some(_), Err(error)) => panic!("read by us alone: {error}"),
        (None, Ok(_)) => {
            let (depth, nodes) = measure(text);
            assert!(depth > MAX_DEPTH || nodes > MAX_NODES, "not read: depth {depth}, {nodes} values");
        }
        (None, Err(_)) => {}
    }
    let mended = json::with_parsed(text, value_of);
    if let Some(node) = &ours {
        assert_eq!(mended, Some(value_of(node)));
    } else if mended.is_some() {
        assert!(text.contains("\\ud") || text.contains("\\uD"), "mended without a surrogate");
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

/// How deep a valid document is, and the most values that it may have.
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

/// Strings are opened three times at most, wherever they stand.
fn opens(text: &str) {
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

/// One string is another afterwards, and every other byte is as it was.
fn replaces(text: &str, dice: &mut Dice) {
    let Some(node) = json::parse(text) else { return };
    let mut steps = Vec::new();
    descend(&node, dice, &mut steps, MAX_STRING_NESTING);
    let new = dice.of(&["", "x", "[[1]](https://a.example/)", "\"\\\n\u{1}火", "\\ud83d\\ude00"]);
    let Some(out) = splice::replace(text, [(&*steps, new)]) else { return };
    let mut expected: Value = serde_json::from_str(text).unwrap();
    // Half a surrogate in a string's own JSON is mended by us and refused by serde_json, which then cannot say what is right.
    let Some(()) = put(&mut expected, &steps, new) else { return };
    assert!(
        alike(&serde_json::from_str(&out).unwrap(), &expected, MAX_STRING_NESTING),
        "{out} for {text} at {steps:?}"
    );
    let same =
        |a: &mut dyn Iterator<Item = u8>, b: &mut dyn Iterator<Item = u8>| a.zip(b).take_while(|(a, b)| a == b).count();
    let front = same(&mut text.bytes(), &mut out.bytes());
    let back = same(&mut text.bytes().rev(), &mut out.bytes().rev());
    assert!(front + back + string_at(&node, &steps, MAX_STRING_NESTING) * 48 + 64 >= text.len(), "other bytes changed");
    assert_eq!(splice::replace(&out, [(&*steps, new)]), Some(out.clone()), "nothing changes the second time");
}

/// A way to some string.
fn descend(node: &Node<'_>, dice: &mut Dice, steps: &mut Vec<Step>, left: u8) {
    match node {
        Node::List(items) if !items.is_empty() => {
            let index = dice.below(items.len());
            steps.push(Step::Index(index));
            descend(&items[index], dice, steps, left);
        }
        Node::Map(pairs) if !pairs.is_empty() => {
            let key = &pairs[dice.below(pairs.len())].0;
            let Some(key) = KEYS.iter().find(|known| *known == key) else { return };
            steps.push(Step::Key(key));
            if let Some(inner) = node.get(key) {
                descend(inner, dice, steps, left);
            }
        }
        Node::Str(_) if left > 0 => node.with_decoded(left, |inner, left| descend(inner, dice, steps, left)),
        _ => {}
    }
}

fn put(value: &mut Value, steps: &[Step], new: &str) -> Option<()> {
    let Some((step, rest)) = steps.split_first() else {
        *value = new.into();
        return Some(());
    };
    if let Value::String(inner) = value {
        let mut opened: Value = serde_json::from_str(inner).ok()?;
        put(&mut opened, steps, new)?;
        *value = opened.to_string().into();
        return Some(());
    }
    let inner = match step {
        Step::Key(key) => value.get_mut(*key),
        Step::Index(index) => value.get_mut(*index),
    };
    put(inner.unwrap(), rest, new)
}

/// The same, where strings that hold JSON are the same if what they hold is.
fn alike(a: &Value, b: &Value, left: u8) -> bool {
    match (a, b) {
        (Value::String(a), Value::String(b)) if left > 0 && a != b => {
            let open = |text: &String| serde_json::from_str::<Value>(text).ok();
            open(a).zip(open(b)).is_some_and(|(a, b)| alike(&a, &b, left - 1))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b, left)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|((k, a), (l, b))| k == l && alike(a, b, left))
        }
        // Written anew, a number of many digits may be read as its neighbour.
        (Value::Number(a), Value::Number(b)) if a.is_f64() && b.is_f64() => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            a == b || (a - b).abs() <= a.abs() * 1e-12
        }
        _ => a == b,
    }
}

/// The length of the string that the steps lead to.
fn string_at(node: &Node<'_>, steps: &[Step], left: u8) -> usize {
    match (steps.split_first(), node) {
        (None, Node::Str(text)) => text.len(),
        (None, _) => 0,
        (Some(_), Node::Str(_)) => node.with_decoded(left, |inner, left| string_at(inner, steps, left)),
        (Some((Step::Key(key), rest)), _) => node.get(key).map_or(0, |inner| string_at(inner, rest, left)),
        (Some((Step::Index(index), rest)), _) => {
            node.as_list().get(*index).map_or(0, |inner| string_at(inner, rest, left))
        }
    }
}

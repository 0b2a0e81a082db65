//! Escapes text for PostgreSQL, which rejects NUL.
//!
//! Each of U+0000 to U+0003 becomes three characters: a start mark and two of the other two. The encoding is injective
//! and preserves order and substrings.

use std::{borrow::Cow, fmt::Write as _};

use sha2::{Digest as _, Sha256};

const START: char = '\u{1}';
const LOW: char = '\u{2}';
const HIGH: char = '\u{3}';

/// Longer keys are truncated and completed with their hash (an index row is limited to a third of a page).
const KEY_MAX: usize = 400;

pub(super) fn escape(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|byte| byte <= 3) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for one in text.chars() {
        match one {
            '\0' => out.extend([START, LOW, LOW]),
            START => out.extend([START, LOW, HIGH]),
            LOW => out.extend([START, HIGH, LOW]),
            HIGH => out.extend([START, HIGH, HIGH]),
            other => out.push(other),
        }
    }
    Cow::Owned(out)
}

pub(super) fn unescape(text: String) -> String {
    if !text.contains(START) {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(one) = rest.next() {
        out.push(match one {
            START => match (rest.next(), rest.next()) {
                (Some(LOW), Some(LOW)) => '\0',
                (Some(LOW), _) => START,
                (_, Some(LOW)) => LOW,
                _ => HIGH,
            },
            other => other,
        });
    }
    out
}

/// Encodes text for an indexed column.
pub(super) fn key(text: &str) -> Cow<'_, str> {
    if text.len() <= KEY_MAX {
        return escape(text);
    }
    let mut out = escape(&text[..text.floor_char_boundary(KEY_MAX / 2)]).into_owned();
    // No escaped text contains this sequence.
    out.push(HIGH);
    for byte in Sha256::digest(text) {
        // Writing to a String cannot fail.
        let _ = write!(out, "{byte:02x}");
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn escape_is_reversible_and_keeps_order(a in "[\0\u{1}\u{2}\u{3}\u{4}a中]{0,6}", b in "[\0\u{1}\u{2}\u{3}\u{4}a中]{0,3}") {
            let (one, other) = (escape(&a), escape(&b));
            prop_assert!(!one.contains('\0'));
            prop_assert_eq!(unescape(one.clone().into_owned()), a.clone());
            prop_assert_eq!(one.cmp(&other), a.cmp(&b));
            prop_assert_eq!(one.contains(&*other), a.contains(&b));
        }
    }

    #[test]
    fn long_key_is_truncated_and_stays_unique() {
        let long = "汉\0".repeat(KEY_MAX);
        assert_eq!(key(&long[..KEY_MAX]), escape(&long[..KEY_MAX]), "at the limit");
        let (one, other) = (key(&long[..KEY_MAX + 4]), key(&long[..KEY_MAX + 8]));
        assert!(one != other && one.len() <= KEY_MAX + 65, "{}", one.len());
    }
}

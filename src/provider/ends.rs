//! Whether frames could end an answer, told from their bytes alone and far sooner than by reading them. "No" must be
//! certain; "yes" only means that they are to be read.

use aho_corasick::{Span, packed::Searcher};
use memchr::memmem;

use crate::sse::fields::{Lines, field};

/// A part of a frame that may mean the end, unless something harmless follows it.
pub type Sign = (&'static [u8], fn(&[u8]) -> bool);

/// Signs that are looked for together, in one pass.
pub struct Signs {
    each: &'static [Sign],
    /// `None`: this machine has no way to do that.
    searcher: Option<Searcher>,
}

/// Nothing that follows is harmless.
pub const NEVER: fn(&[u8]) -> bool = |_| false;

/// An escaped character that a key or a value could be made of. ASCII that encoders escape on their own is not.
pub const ESCAPE: Sign = (b"\\u00", |rest| {
    let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
    let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
    byte.is_some_and(|byte| matches!(byte, ..0x20 | b'&' | b'<' | b'>' | b'\'' | b'=' | 0x80..))
});

impl Signs {
    pub fn new(each: &'static [Sign]) -> Self {
        Self { each, searcher: Searcher::new(each.iter().map(|(sign, _)| sign)) }
    }

    /// Is there one?
    pub fn are_in(&self, frames: &[u8]) -> bool {
        let Some(searcher) = &self.searcher else { return self.are_in_by_one(frames) };
        let mut span = Span { start: 0, end: frames.len() };
        while let Some(found) = searcher.find_in(frames, span) {
            let sign = self.each.get(found.pattern().as_usize());
            if sign.is_none_or(|(_, is_harmless)| !is_harmless(frames.get(found.end()..).unwrap_or_default())) {
                return true;
            }
            // Another may begin within this one.
            span.start = found.start() + 1;
        }
        false
    }

    /// The same, one after the other.
    fn are_in_by_one(&self, frames: &[u8]) -> bool {
        self.each.iter().any(|(sign, is_harmless)| {
            let rest = |at: usize| frames.get(at + sign.len()..).unwrap_or_default();
            memmem::find_iter(frames, sign).any(|at| !is_harmless(rest(at)))
        })
    }
}

/// Has a frame one of these event names? A stream may begin with a byte order mark, which belongs to no line.
pub fn named(frames: &[u8], names: &[&[u8]]) -> bool {
    let frames = frames.strip_prefix("\u{feff}".as_bytes()).unwrap_or(frames);
    Lines(frames).any(|line| matches!(field(line), (b"event", name) if names.contains(&name)))
}

/// What stands behind a key and its closing quote; nothing where that is no value.
pub fn value(rest: &[u8]) -> &[u8] {
    rest.trim_ascii_start().strip_prefix(b":").unwrap_or_default().trim_ascii_start()
}

/// The same behind a key without its quote, in JSON that may stand in strings of JSON. What is a string there, and
/// what is none, is the same here.
pub fn inner_value(mut rest: &[u8]) -> &[u8] {
    while let Some((b'"' | b'\\' | b':' | b' ' | b'\t' | b'\n' | b'\r', more)) = rest.split_first() {
        rest = more;
    }
    rest
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::select};

    use super::*;

    const SIGNS: &[Sign] = &[(b"ab\"", |rest| rest.starts_with(b"0")), (b"\"ba\"", NEVER), ESCAPE];

    proptest! {
        /// Also where they overlap, and at any place in the bytes that are looked at together.
        #[test]
        fn together_or_one_by_one_the_same_signs_are_found(
            pieces in vec(select(vec!["a", "b", "\"", "0", "ab\"", "\"ba\"", "\\u00", "3c", "41", "xxxxxxxxxxxxxxxxxxxxx"]), 0..40),
        ) {
            let (text, signs) = (pieces.concat(), Signs::new(SIGNS));
            prop_assert_eq!(signs.are_in(text.as_bytes()), signs.are_in_by_one(text.as_bytes()), "{}", text);
        }
    }
}

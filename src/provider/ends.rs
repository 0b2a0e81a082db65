//! Whether frames could end an answer, told from their bytes alone and far sooner than by reading them. "No" must be
//! certain; "yes" only means that they are to be read.

use memchr::memmem::Finder;

use crate::sse::fields::{Lines, field};

/// A name, or a part of a frame, that may mean the end.
pub type Needle = std::sync::LazyLock<Finder<'static>>;

/// Makes one.
macro_rules! needle {
    ($text:literal) => {
        std::sync::LazyLock::new(|| memchr::memmem::Finder::new($text))
    };
}
pub(super) use needle;

/// Has a frame one of these event names? A stream may begin with a byte order mark, which belongs to no line.
pub fn named(frames: &[u8], names: &[&[u8]]) -> bool {
    let frames = frames.strip_prefix("\u{feff}".as_bytes()).unwrap_or(frames);
    Lines(frames).any(|line| matches!(field(line), (b"event", name) if names.contains(&name)))
}

/// Is there a `needle` that is not followed by something harmless?
pub fn any(frames: &[u8], needle: &Needle, is_harmless: impl Fn(&[u8]) -> bool) -> bool {
    let length = needle.needle().len();
    needle.find_iter(frames).any(|at| !is_harmless(frames.get(at + length..).unwrap_or_default()))
}

pub fn has(frames: &[u8], needle: &Needle) -> bool {
    needle.find(frames).is_some()
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

/// Is a character escaped that a key or a value could be made of? ASCII that encoders escape on their own is not.
pub fn hides(frames: &[u8]) -> bool {
    static ESCAPE: Needle = needle!(b"\\u00");
    any(frames, &ESCAPE, |rest| {
        let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        byte.is_some_and(|byte| matches!(byte, ..0x20 | b'&' | b'<' | b'>' | b'\'' | b'=' | 0x80..))
    })
}

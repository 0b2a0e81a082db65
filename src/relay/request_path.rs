//! Finds paths that an upstream could read as leaving its base path. A path is relayed unchanged, so every way in which a
//! server may decode it counts. Called by `relay` with the path after the route's prefix.

use std::borrow::Cow;

use percent_encoding::percent_decode;

/// How often a path is decoded. Two servers in a row decode twice, and no known server decodes more often by itself.
const DECODINGS: usize = 3;

/// Spellings that percent-decoding leaves: overlong UTF-8, the `%u` escapes of IIS, full-width forms.
const SPELLINGS: &[(&[u8], u8)] = &[
    (b"\xC0\xAE", b'.'),
    (b"\xC0\xAF", b'/'),
    (b"\xC1\x9C", b'\\'),
    (b"\xE0\x80\xAE", b'.'),
    (b"\xE0\x80\xAF", b'/'),
    (b"%u002e", b'.'),
    (b"%u002f", b'/'),
    (b"%u005c", b'\\'),
    ("．".as_bytes(), b'.'),
    ("／".as_bytes(), b'/'),
    ("＼".as_bytes(), b'\\'),
];

/// True if the path has a `..` segment in any spelling.
pub fn has_parent_segments(path: &str) -> bool {
    let is_plain = |b: &u8| b.is_ascii() && *b != b'%';
    if path.as_bytes().iter().all(is_plain) {
        return path.contains("..") && has_plain_parent_segment(path.as_bytes());
    }
    let mut path = Cow::Borrowed(path.as_bytes());
    for _ in 0..DECODINGS {
        if has_plain_parent_segment(&path) || has_plain_parent_segment(&normalized(&path)) {
            return true;
        }
        match percent_decode(&path).into() {
            Cow::Borrowed(_) => return false,
            Cow::Owned(decoded) => path = Cow::Owned(decoded),
        }
    }
    has_plain_parent_segment(&path) || has_plain_parent_segment(&normalized(&path))
}

/// True if a segment is `..` without further decoding.
fn has_plain_parent_segment(path: &[u8]) -> bool {
    path.split(|b| matches!(b, b'/' | b'\\')).any(|segment| {
        // Cut at path parameters, and where a server that reads a C string or a URL ends the name.
        let name = segment.split(|b| matches!(b, b';' | b'\0' | b'?' | b'#')).next().unwrap_or_default();
        let is_blank = |b: &u8| b.is_ascii_control() || *b == b' ';
        let from = name.iter().position(|b| !is_blank(b)).unwrap_or_default();
        let to = name.iter().rposition(|b| !is_blank(b)).map_or(from, |last| last + 1);
        name.get(from..to) == Some(b"..")
    })
}

/// The path with [`SPELLINGS`] replaced by `.`, `/` and `\`.
fn normalized(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        let starts_with =
            |spelling: &[u8]| rest.get(..spelling.len()).is_some_and(|part| part.eq_ignore_ascii_case(spelling));
        match SPELLINGS.iter().find(|(spelling, _)| starts_with(spelling)) {
            Some((spelling, ascii)) => {
                plain.push(*ascii);
                rest = rest.get(spelling.len()..).unwrap_or_default();
            }
            None => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_segments_are_found_in_any_spelling() {
        for path in [
            "..",
            "/..",
            "/../",
            "/a/..",
            "/a\\..\\b",
            "/%2e%2E/",
            "/.%2e",
            "/..;/",
            "/..;a=b/c",
            "/..%3b/",
            "/..%2f",
            "/a%2f..",
            "/a%5C..",
            "/%252e%252e/",
            "/..%252f",
            "/..%25252f",
            "/..%00/",
            "/..%00.png",
            "/..%20/",
            "/%09../",
            "/..%3f",
            "/..%23",
            "/%c0%ae%c0%ae/",
            "/..%c0%af",
            "/..%C1%9C",
            "/%e0%80%ae./",
            "/%u002e%u002E/",
            "/．．/",
            "/%ef%bc%8e./",
            "/..／x",
            "/%25u002e./",
        ] {
            assert!(has_parent_segments(path), "{path}");
        }
    }

    #[test]
    fn other_paths_have_no_parent_segments() {
        for path in [
            "",
            "/",
            "/.",
            "/./x",
            "/%2e/",
            "/...",
            "/a..b",
            "/..a",
            "/a..",
            "/a../b",
            "/a..%2fb",
            "/v1..2",
            "/%2e%2ex",
            "/%25",
            "/%",
            "/%zz",
            "/%u002e/",
            "/%c0%ae",
            "/;..",
            "/a;b=../c..d",
            "/..%e4%bd%a0",
            "/你好/..好",
            "/%252525252e%2e/",
        ] {
            assert!(!has_parent_segments(path), "{path}");
        }
    }
}

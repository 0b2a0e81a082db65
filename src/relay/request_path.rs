//! Paths that an upstream could read as leaving its base path. A path is relayed as it came, so every reading counts.

use std::borrow::Cow;

use percent_encoding::percent_decode;

/// How often a path is decoded. Two servers in a row decode twice; no known one decodes more than that by itself.
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

/// Does the path have a `..` segment, in any spelling?
pub fn has_parent_segments(path: &str) -> bool {
    let plain = |b: &u8| b.is_ascii() && *b != b'%';
    if path.as_bytes().iter().all(plain) {
        return path.contains("..") && is_climbing(path.as_bytes());
    }
    let mut path = Cow::Borrowed(path.as_bytes());
    for _ in 0..DECODINGS {
        if is_climbing(&path) || is_climbing(&respelled(&path)) {
            return true;
        }
        match percent_decode(&path).into() {
            Cow::Borrowed(_) => return false,
            Cow::Owned(decoded) => path = Cow::Owned(decoded),
        }
    }
    is_climbing(&path) || is_climbing(&respelled(&path))
}

fn is_climbing(path: &[u8]) -> bool {
    path.split(|b| matches!(b, b'/' | b'\\')).any(|segment| {
        // Path parameters, and where a decoded name ends for whoever reads it as a C string or as a URL.
        let name = segment.split(|b| matches!(b, b';' | b'\0' | b'?' | b'#')).next().unwrap_or_default();
        let is_blank = |b: &u8| b.is_ascii_control() || *b == b' ';
        let from = name.iter().position(|b| !is_blank(b)).unwrap_or_default();
        let to = name.iter().rposition(|b| !is_blank(b)).map_or(from, |last| last + 1);
        name.get(from..to) == Some(b"..")
    })
}

/// The path with other spellings of `.`, `/` and `\` written out.
fn respelled(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        let begins =
            |spelling: &[u8]| rest.get(..spelling.len()).is_some_and(|part| part.eq_ignore_ascii_case(spelling));
        match SPELLINGS.iter().find(|(spelling, _)| begins(spelling)) {
            Some((spelling, meant)) => {
                plain.push(*meant);
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

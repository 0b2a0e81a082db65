//! Follows an answer as it streams and notes the numbers of its markers.

use std::collections::BTreeSet;

use super::reader::{Read, Reader};

#[derive(Debug, Default)]
pub struct Scanner {
    reader: Reader,
    /// A marker's number is at most 999.
    numbers: BTreeSet<u32>,
}

impl Scanner {
    pub fn feed(&mut self, piece: &str) {
        let numbers = &mut self.numbers;
        self.reader.push(piece, &mut |read| note(read, numbers));
    }

    /// Every number named so far; one that is still undecided counts if the text ended here.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        let mut numbers = self.numbers.clone();
        self.reader.clone().finish(&mut |read| note(read, &mut numbers));
        numbers.into_iter()
    }
}

fn note(read: Read<'_>, numbers: &mut BTreeSet<u32>) {
    if let Read::Marker(marker, _) = read {
        numbers.extend(marker.numbers());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn numbers_of(text: &str) -> Vec<u32> {
        let mut whole = Scanner::default();
        whole.feed(text);
        let expected: Vec<u32> = whole.numbers().collect();
        let mut single = Scanner::default();
        for c in text.chars() {
            single.feed(c.encode_utf8(&mut [0; 4]));
        }
        assert_eq!(single.numbers().collect::<Vec<_>>(), expected, "split: {text:?}");
        for (at, _) in text.char_indices() {
            let mut halves = Scanner::default();
            let (a, b) = text.split_at(at);
            halves.feed(a);
            halves.feed(b);
            assert_eq!(halves.numbers().collect::<Vec<_>>(), expected, "split at {at}: {text:?}");
        }
        expected
    }

    #[test]
    fn markers_count() {
        assert_eq!(numbers_of("火灾[2]。"), [2]);
        assert_eq!(numbers_of("a[1][2] b [3, 4] [citation:5]"), [1, 2, 3, 4, 5]);
        assert_eq!(numbers_of("end [7]"), [7]);
        assert_eq!(numbers_of("[[1]](https://a.example.com)"), [1]);
        assert_eq!(numbers_of("中文[12]，[citation:3]"), [3, 12]);
        assert_eq!(
            numbers_of("建单<span id=\"ai-qa-ref\">1</span>，<span id='ai-qa-ref'>[2]</span> a<b [3]"),
            [1, 2, 3]
        );
    }

    #[test]
    fn markdown_is_no_marker() {
        for text in [
            "[1](https://a.example.com)",
            "[text][1]",
            "\\[1]",
            "[1]: https://a.example.com",
            "[2024]",
            "[0]",
            "[a]",
            "[]",
            "[+1]",
            "[1",
            "text",
        ] {
            assert_eq!(numbers_of(text), Vec::<u32>::new(), "{text}");
        }
    }

    #[test]
    fn code_is_not_text() {
        assert_eq!(numbers_of("`a[1]` [2]"), [2]);
        assert_eq!(numbers_of("``x ` [1]`` [2]"), [2]);
        assert_eq!(numbers_of("```\na[1]\n```\nb[2]"), [2]);
        assert_eq!(numbers_of("~~~py\na[1]\n~~~\nb[2]"), [2]);
        assert_eq!(numbers_of("a ` b [1]\n\nc [2]"), [1, 2], "a span that never closed");
    }
}

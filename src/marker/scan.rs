//! Scans an answer for markers while it streams: their numbers, and where each number occurs first. Changes no text.

use std::collections::BTreeMap;

use super::{
    Mark,
    reader::{Reader, Segment},
};

/// Records the numbers of the markers in a text.
#[derive(Debug, Default)]
pub struct Scanner {
    reader: Reader,
    found: Found,
}

#[derive(Debug, Default, Clone)]
struct Found {
    /// Code points of the text.
    length: u64,
    /// Range of the first marker with a number, in code points. At most 999 entries, because numbers have three digits.
    first: BTreeMap<u32, (u64, u64)>,
}

impl Scanner {
    pub fn feed(&mut self, piece: &str) {
        let found = &mut self.found;
        self.reader.push(piece, &mut |segment| found.add(&segment));
    }

    /// The numbers found so far. An undecided marker is decided as if the text ended here.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        self.at_end().first.into_keys()
    }

    /// The first mark of each number, and the length of the text in code points.
    pub fn marks(&self) -> (impl Iterator<Item = Mark>, u64) {
        let Found { length, first } = self.at_end();
        (first.into_iter().map(|(number, (start, end))| Mark { number, start, end }), length)
    }

    /// The result if the text ended here.
    fn at_end(&self) -> Found {
        let mut found = self.found.clone();
        self.reader.clone().finish(&mut |segment| found.add(&segment));
        found
    }
}

impl Found {
    fn add(&mut self, segment: &Segment<'_>) {
        let (Segment::Text(text) | Segment::Marker(_, text)) = segment;
        let start = self.length;
        self.length += text.chars().count() as u64;
        if let Segment::Marker(marker, _) = segment {
            for number in marker.numbers() {
                self.first.entry(*number).or_insert((start, self.length));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of `text`, checked to be the same for every split.
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
    fn marker_numbers_are_found() {
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
    fn links_escapes_and_open_brackets_are_ignored() {
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
    fn markers_in_code_are_ignored() {
        assert_eq!(numbers_of("`a[1]` [2]"), [2]);
        assert_eq!(numbers_of("``x ` [1]`` [2]"), [2]);
        assert_eq!(numbers_of("```\na[1]\n```\nb[2]"), [2]);
        assert_eq!(numbers_of("~~~py\na[1]\n~~~\nb[2]"), [2]);
        assert_eq!(numbers_of("a ` b [1]\n\nc [2]"), [1, 2], "unclosed code span");
    }
}

//! Follows an answer as it streams and notes its markers: their numbers, and where each number stands first.

use std::collections::BTreeMap;

use super::{
    Mark,
    reader::{Read, Reader},
};

#[derive(Debug, Default)]
pub struct Scanner {
    reader: Reader,
    noted: Noted,
}

#[derive(Debug, Default, Clone)]
struct Noted {
    /// Code points.
    length: u64,
    /// Begin and end of the first marker; a marker's number is at most 999.
    first: BTreeMap<u32, (u64, u64)>,
}

impl Scanner {
    pub fn feed(&mut self, piece: &str) {
        let noted = &mut self.noted;
        self.reader.push(piece, &mut |read| noted.note(&read));
    }

    /// Every number named so far; one that is still undecided counts if the text ended here.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        self.ended().first.into_keys()
    }

    /// Where each number stands first, and how long the text is, in code points.
    pub fn marks(&self) -> (impl Iterator<Item = Mark>, u64) {
        let Noted { length, first } = self.ended();
        (first.into_iter().map(|(number, (start, end))| Mark { number, start, end }), length)
    }

    /// As if the text ended here.
    fn ended(&self) -> Noted {
        let mut noted = self.noted.clone();
        self.reader.clone().finish(&mut |read| noted.note(&read));
        noted
    }
}

impl Noted {
    fn note(&mut self, read: &Read<'_>) {
        let (Read::Text(text) | Read::Marker(_, text)) = read;
        let start = self.length;
        self.length += text.chars().count() as u64;
        if let Read::Marker(marker, _) = read {
            for number in marker.numbers() {
                self.first.entry(*number).or_insert((start, self.length));
            }
        }
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

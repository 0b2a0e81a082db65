//! Follows an answer as it streams and notes the numbers of `[1]`, `[1][2]`, `[1, 2]`, `[citation:1]` and
//! `<span id="ai-qa-ref">1</span>`, whatever the split over pieces. Code is not text: markers in code spans and
//! fences do not count. `[text][1]`, `[1](url)`, `[1]: url` and `\[1]` are Markdown, not markers.

use std::collections::BTreeSet;

/// Longest marker; an opening bracket followed by more is text.
const MAX_MARKER: usize = 64;
/// Numbers noted per message.
const MAX_NUMBERS: usize = 1000;
/// `[2024]` is a year.
const MAX_NUMBER: u32 = 999;

#[derive(Debug, Default)]
pub struct Scanner {
    numbers: BTreeSet<u32>,
    state: State,
    /// The last character before the state began.
    before: Before,
    /// Nothing but spaces since the line began.
    line_start: bool,
    begun: bool,
    /// An open fence: its character and length.
    fence: Option<(char, usize)>,
    /// An open code span: the length of its backticks, and what was found since. It is not code
    /// if its end never comes.
    span: Option<(usize, Vec<u32>)>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Text,
    /// A run of backticks or tildes.
    Run { of: char, length: usize, at_line_start: bool },
    /// Inside `[`.
    Open { inner: String, at_line_start: bool },
    /// After `]`: what follows decides.
    Closed { numbers: Vec<u32>, at_line_start: bool },
    /// Inside `<`.
    Tag { inner: String },
    /// Inside Lexiang's reference element.
    Element { inner: String },
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Before {
    #[default]
    Other,
    Backslash,
    /// The `]` of something that is not a marker.
    Bracket,
}

impl Scanner {
    pub fn feed(&mut self, piece: &str) {
        if !self.begun && !piece.is_empty() {
            self.begun = true;
            self.line_start = true;
        }
        // Most pieces are plain: nothing open, nothing that opens.
        if matches!(self.state, State::Text)
            && self.before == Before::Other
            && !piece.bytes().any(|b| matches!(b, b'[' | b']' | b'<' | b'`' | b'~' | b'\\' | b'\n'))
        {
            self.line_start &= piece.bytes().all(|b| b == b' ');
            return;
        }
        for c in piece.chars() {
            self.step(c);
        }
    }

    /// Every number named so far; one that is still open counts if the text ended here.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        let mut all = self.numbers.clone();
        if let Some((_, found)) = &self.span {
            all.extend(found);
        }
        if let (State::Closed { numbers, .. }, None) = (&self.state, self.fence) {
            all.extend(numbers);
        }
        all.into_iter()
    }

    fn step(&mut self, c: char) {
        match std::mem::take(&mut self.state) {
            State::Text => self.text(c),
            State::Run { of, length, at_line_start } if c == of => {
                self.state = State::Run { of, length: length + 1, at_line_start };
            }
            State::Run { of, length, at_line_start } => {
                self.run_ended(of, length, at_line_start);
                self.text(c);
            }
            State::Open { mut inner, at_line_start } => match c {
                ']' => match numbers(&inner) {
                    Some(numbers) => self.state = State::Closed { numbers, at_line_start },
                    None => self.before = Before::Bracket,
                },
                '[' | '`' | '\n' => self.text(c),
                _ if inner.len() < MAX_MARKER => {
                    inner.push(c);
                    self.state = State::Open { inner, at_line_start };
                }
                _ => self.text(c),
            },
            State::Tag { mut inner } => match c {
                '>' if inner.starts_with("span") && inner.contains("ai-qa-ref") => {
                    self.state = State::Element { inner: String::new() };
                }
                '>' | '<' | '[' | '`' | '\n' => self.text(c),
                _ if inner.len() < MAX_MARKER => {
                    inner.push(c);
                    self.state = State::Tag { inner };
                }
                _ => self.text(c),
            },
            State::Element { mut inner } => match c {
                '<' | '[' => {
                    if let Some(numbers) = numbers(&inner) {
                        self.found(numbers);
                    }
                    self.text(c);
                }
                _ if inner.len() < MAX_MARKER => {
                    inner.push(c);
                    self.state = State::Element { inner };
                }
                _ => self.text(c),
            },
            State::Closed { numbers, at_line_start } => match c {
                // A link, or the definition of one.
                '(' => self.text(c),
                ':' if at_line_start => self.text(c),
                _ => {
                    self.found(numbers);
                    self.before = Before::Other;
                    self.text(c);
                }
            },
        }
    }

    fn text(&mut self, c: char) {
        let before = std::mem::take(&mut self.before);
        let at_line_start = self.line_start;
        self.line_start = c == '\n' || (at_line_start && c == ' ');
        match c {
            '`' | '~' => self.state = State::Run { of: c, length: 1, at_line_start },
            '[' if before == Before::Other && self.fence.is_none() => {
                self.state = State::Open { inner: String::new(), at_line_start };
            }
            '<' if before != Before::Backslash && self.fence.is_none() => {
                self.state = State::Tag { inner: String::new() };
            }
            ']' => self.before = Before::Bracket,
            '\\' if before != Before::Backslash => self.before = Before::Backslash,
            // A blank line ends a paragraph, and with it a code span that was none.
            '\n' if at_line_start => {
                if let Some((_, found)) = self.span.take() {
                    self.found(found);
                }
            }
            _ => {}
        }
    }

    fn run_ended(&mut self, of: char, length: usize, at_line_start: bool) {
        match self.fence {
            Some((fence, open)) if of == fence && length >= open && at_line_start => self.fence = None,
            Some(_) => {}
            None if at_line_start && length >= 3 && self.span.is_none() => self.fence = Some((of, length)),
            None if of == '`' => match self.span.take() {
                Some((open, _)) if open == length => {}
                Some(other) => self.span = Some(other),
                None => self.span = Some((length, Vec::new())),
            },
            None => {}
        }
    }

    fn found(&mut self, numbers: Vec<u32>) {
        match &mut self.span {
            Some((_, found)) if found.len() < MAX_NUMBERS => found.extend(numbers),
            Some(_) => {}
            None if self.numbers.len() < MAX_NUMBERS => self.numbers.extend(numbers),
            None => {}
        }
    }
}

/// `1`, `1, 2`, `citation:1`.
fn numbers(inner: &str) -> Option<Vec<u32>> {
    let list = inner.strip_prefix("citation:").unwrap_or(inner);
    let numbers: Option<Vec<u32>> = list
        .split([',', '，', '、'])
        .map(|n| n.trim())
        .map(|n| n.parse().ok().filter(|v| (1..=MAX_NUMBER).contains(v) && n.bytes().all(|b| b.is_ascii_digit())))
        .collect();
    numbers.filter(|numbers| !numbers.is_empty())
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

    #[test]
    fn an_endless_bracket_is_bounded() {
        let mut scanner = Scanner::default();
        scanner.feed("[");
        for _ in 0..10_000 {
            scanner.feed("1");
        }
        assert!(matches!(scanner.state, State::Text));
    }
}

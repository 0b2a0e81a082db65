//! JSON text to a borrowed tree. What serde_json accepts is accepted and means the same, up to our caps; a fuzz target
//! holds the two against each other. A tree by way of serde costs three times this on every frame of every stream.

use std::borrow::Cow;

use super::{MAX_DEPTH, MAX_NODES, Node};

/// Keys of a frame's own object: room for them is made at once.
const FRAME_KEYS: usize = 12;
/// The same for an object within.
const KEYS: usize = 4;

/// Reads one document. `None`: malformed, too deep, too large, or followed by something.
pub fn parse(text: &str) -> Option<Node<'_>> {
    let mut parser = Parser { text, at: 0, left: MAX_NODES };
    let node = parser.value(MAX_DEPTH)?;
    parser.skip_blanks();
    (parser.at == text.len()).then_some(node)
}

/// Where a string ends whose first character is at `from`: at its closing quote. `None`: it is not whole.
pub fn string_end(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = plain_end(bytes, from);
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at),
            b'\\' => at = plain_end(bytes, at + 2),
            _ => return None,
        }
    }
}

/// A string from its first character to its closing quote, read. `None`: something in it is malformed.
pub fn string(text: &str) -> Option<Cow<'_, str>> {
    Parser { text, at: 0, left: 0 }.rest_of_string()
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    /// Values that there may still be.
    left: u32,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    /// The next byte that is no blank, not taken.
    fn next(&mut self) -> Option<u8> {
        self.skip_blanks();
        self.peek()
    }

    fn value(&mut self, depth: u32) -> Option<Node<'a>> {
        self.left = self.left.checked_sub(1)?;
        match self.next()? {
            b'"' => self.string().map(Node::Str),
            b'{' => self.map(depth),
            b'[' => self.list(depth),
            b't' => self.word("true", Node::Bool(true)),
            b'f' => self.word("false", Node::Bool(false)),
            b'n' => self.word("null", Node::Null),
            b'-' | b'0'..=b'9' => self.number(),
            _ => None,
        }
    }

    fn word(&mut self, word: &str, node: Node<'a>) -> Option<Node<'a>> {
        let found = self.text.as_bytes().get(self.at..)?.starts_with(word.as_bytes());
        self.at += word.len();
        found.then_some(node)
    }

    fn list(&mut self, depth: u32) -> Option<Node<'a>> {
        let depth = depth.checked_sub(1)?;
        let mut items = Vec::new();
        self.at += 1;
        if self.next()? == b']' {
            self.at += 1;
            return Some(Node::List(items));
        }
        loop {
            items.push(self.value(depth)?);
            let after = self.next()?;
            self.at += 1;
            match after {
                b',' => {}
                b']' => return Some(Node::List(items)),
                _ => return None,
            }
        }
    }

    fn map(&mut self, depth: u32) -> Option<Node<'a>> {
        let inner = depth.checked_sub(1)?;
        self.at += 1;
        if self.next()? == b'}' {
            self.at += 1;
            return Some(Node::Map(Vec::new()));
        }
        let mut pairs = Vec::with_capacity(if depth == MAX_DEPTH { FRAME_KEYS } else { KEYS });
        loop {
            if self.next()? != b'"' {
                return None;
            }
            let key = self.string()?;
            if self.next()? != b':' {
                return None;
            }
            self.at += 1;
            pairs.push((key, self.value(inner)?));
            let after = self.next()?;
            self.at += 1;
            match after {
                b',' => {}
                b'}' => return Some(Node::Map(pairs)),
                _ => return None,
            }
        }
    }

    /// From its opening quote; borrowed unless something in it is escaped.
    fn string(&mut self) -> Option<Cow<'a, str>> {
        self.at += 1;
        self.rest_of_string()
    }

    #[inline(always)]
    fn rest_of_string(&mut self) -> Option<Cow<'a, str>> {
        let start = self.at;
        self.at = plain_end(self.text.as_bytes(), start);
        let plain = self.text.get(start..self.at)?;
        match self.peek()? {
            b'"' => {
                self.at += 1;
                Some(Cow::Borrowed(plain))
            }
            b'\\' => self.escaped(plain).map(Cow::Owned),
            _ => None,
        }
    }

    /// The rest of a string, from its first backslash.
    fn escaped(&mut self, before: &str) -> Option<String> {
        let mut out = before.to_owned();
        loop {
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Some(out);
                }
                b'\\' => out.push(self.escape()?),
                _ => return None,
            }
            let start = self.at;
            self.at = plain_end(self.text.as_bytes(), start);
            out.push_str(self.text.get(start..self.at)?);
        }
    }

    fn escape(&mut self) -> Option<char> {
        let kind = *self.text.as_bytes().get(self.at + 1)?;
        self.at += 2;
        Some(match kind {
            b'"' | b'\\' | b'/' => char::from(kind),
            b'b' => '\u{8}',
            b'f' => '\u{C}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let high = self.unit()?;
                let pair = match high {
                    0xD800..=0xDBFF if self.text.get(self.at..)?.starts_with("\\u") => {
                        self.at += 2;
                        [high, self.unit()?]
                    }
                    _ => [high, 0],
                };
                // Half of a pair is no character.
                let units = if matches!(high, 0xD800..=0xDBFF) { &pair[..] } else { &pair[..1] };
                char::decode_utf16(units.iter().copied()).next()?.ok()?
            }
            _ => return None,
        })
    }

    /// The four digits of `\u`.
    fn unit(&mut self) -> Option<u16> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4)?;
        self.at += 4;
        digits.iter().try_fold(0, |unit, digit| {
            let digit = char::from(*digit).to_digit(16).and_then(|digit| u16::try_from(digit).ok())?;
            Some(unit << 4 | digit)
        })
    }

    fn number(&mut self) -> Option<Node<'a>> {
        let start = self.at;
        let rest = self.text.as_bytes().get(start..)?;
        let in_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let length = rest.iter().position(|byte| !in_number(byte)).unwrap_or(rest.len());
        self.at += length;
        let number = self.text.get(start..self.at)?;
        let digits = number.strip_prefix('-').unwrap_or(number);
        let whole = digits.bytes().all(|byte| byte.is_ascii_digit()) && (!digits.starts_with('0') || digits.len() == 1);
        if whole && digits.len() < number.len() {
            // Minus zero is no integer.
            if let Some(signed) = number.parse().ok().filter(|signed| *signed < 0) {
                return Some(Node::Signed(signed));
            }
        } else if whole && let Ok(unsigned) = number.parse() {
            return Some(Node::Unsigned(unsigned));
        }
        // Fractions, and what is too large for integers: seldom, and a matter of rounding.
        serde_json::from_str(number).ok().map(Node::Float)
    }
}

/// Where the characters end that stand for themselves: at a quote, a backslash, a control character, or the end.
pub fn plain_end(bytes: &[u8], from: usize) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    /// The high bit of the first byte that is 0 is set, and of none before it.
    const fn zeros(word: u64) -> u64 {
        word.wrapping_sub(ONES) & !word
    }
    let mut at = from;
    while let Some(word) = bytes.get(at..at + 8).and_then(|eight| eight.try_into().ok()).map(u64::from_le_bytes) {
        let control = word.wrapping_sub(ONES * 0x20) & !word;
        let quote = zeros(word ^ (ONES * b'"' as u64));
        let backslash = zeros(word ^ (ONES * b'\\' as u64));
        let found = (control | quote | backslash) & HIGH;
        if found != 0 {
            return at + (found.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    let special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
    bytes.get(at..).map_or(at, |rest| at + rest.iter().position(special).unwrap_or(rest.len()))
}

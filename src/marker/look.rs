//! Looking ahead without knowing what comes: a verdict is reached from what is there, or not yet.

/// Code points that a decision may look ahead, and with it the most that is ever held back of a text. What is
/// undecided beyond it is decided by the rule that its construct has for the case.
pub const HOLD: usize = 64;

/// What lies ahead of a place in the text.
#[derive(Debug, Clone, Copy)]
pub struct Ahead<'a> {
    pub text: &'a str,
    pub edge: Edge,
}

/// Why the text ahead ends where it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// More may come.
    Open,
    /// There is more, but nobody looks further.
    Cut,
    /// The text is over.
    End,
}

/// A look ahead that came to the edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Wait for more text.
    More,
    /// Too far to see.
    Far,
    /// The text ended: nothing opens that has to be closed.
    End,
}

/// What stands here, if it is one; [`Stop::End`] says no as well.
pub type Verdict<T> = Result<Option<T>, Stop>;

impl<'a> Ahead<'a> {
    /// At most `limit` code points of `text`. A verdict depends on these alone, so it is the same however
    /// the text came in pieces.
    pub fn new(text: &'a str, ended: bool, limit: usize) -> Self {
        match nth_end(text, limit) {
            Some(at) => Self { text: slice(text, 0, at), edge: Edge::Cut },
            None => Self { text, edge: if ended { Edge::End } else { Edge::Open } },
        }
    }

    pub fn bytes(self) -> &'a [u8] {
        self.text.as_bytes()
    }

    pub fn from(self, at: usize) -> Self {
        Self { text: slice(self.text, at, self.text.len()), edge: self.edge }
    }

    pub fn byte(self, at: usize) -> Result<u8, Stop> {
        self.bytes().get(at).copied().ok_or(self.stop())
    }

    pub fn stop(self) -> Stop {
        match self.edge {
            Edge::Open => Stop::More,
            Edge::Cut => Stop::Far,
            Edge::End => Stop::End,
        }
    }

    /// Does `word` stand at `at`?
    pub fn has(self, at: usize, word: &str) -> Result<bool, Stop> {
        let rest = self.bytes().get(at..).unwrap_or_default();
        let common = rest.iter().zip(word.as_bytes()).take_while(|(a, b)| a == b).count();
        match common {
            _ if common == word.len() => Ok(true),
            _ if common == rest.len() => Err(self.stop()),
            _ => Ok(false),
        }
    }

    /// The number of bytes from `at` on that `is` takes, if something else ends them.
    pub fn run(self, at: usize, is: impl Fn(u8) -> bool) -> Result<usize, Stop> {
        let rest = self.bytes().get(at..).unwrap_or_default();
        rest.iter().position(|b| !is(*b)).ok_or(self.stop())
    }
}

/// Where the `n`th code point ends, from 1; `None`: there are fewer. Counted by many at a time, as it is asked at every bracket.
fn nth_end(text: &str, n: usize) -> Option<usize> {
    const MANY: usize = 32;
    let begins = |byte: &u8| (*byte as i8) >= -0x40;
    let bytes = text.as_bytes();
    if bytes.len() < n {
        return None;
    }
    let (mut at, mut left) = (0, n);
    while let Some(many) = bytes.get(at..at + MANY).and_then(|many| <&[u8; MANY]>::try_from(many).ok()) {
        let count = usize::from(many.iter().map(|byte| u8::from(begins(byte))).sum::<u8>());
        if count > left {
            break;
        }
        left -= count;
        at += MANY;
    }
    for (place, byte) in (at..).zip(bytes.get(at..)?) {
        if begins(byte) {
            if left == 0 {
                return Some(place);
            }
            left -= 1;
        }
    }
    (left == 0).then_some(bytes.len())
}

/// A part of the text; empty where the places are none, so nothing here can panic.
pub fn slice(text: &str, from: usize, to: usize) -> &str {
    text.get(from..to).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_ends_with_its_last_code_point() {
        for piece in ["a", "é", "中", "😀", "a中", "é😀a"] {
            for length in 0..140 {
                let text: String = piece.chars().cycle().take(length).collect();
                for n in [1, 2, 63, 64, 65] {
                    let expected = text.char_indices().nth(n - 1).map(|(at, last)| at + last.len_utf8());
                    assert_eq!(nth_end(&text, n), expected, "{n} of {text}");
                }
            }
        }
    }
}

//! Bounded lookahead: parsers decide from the text received so far, or report why they cannot. All parsers of `marker`
//! read through [`Lookahead`].

/// Code points that a decision may read ahead, and so the most that is held back of a text. A construct without an end
/// within them is decided by its own rule (see *Lookahead* in the module documentation).
pub const MAX_LOOKAHEAD: usize = 64;

/// The text after a position, up to a limit.
#[derive(Debug, Clone, Copy)]
pub struct Lookahead<'a> {
    pub text: &'a str,
    pub edge: Edge,
}

/// Why the lookahead ends where it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// More text may follow.
    Open,
    /// The limit is reached.
    Cut,
    /// The text is complete.
    End,
}

/// Why a parser could not decide: it read up to the [`Edge`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The text received so far is too short.
    NeedMore,
    /// The end of the construct is beyond the limit.
    TooFar,
    /// The text ended inside the construct, so it is none.
    End,
}

/// The construct found, if any; `Err(Stop::End)` also means none.
pub type ParseResult<T> = Result<Option<T>, Stop>;

impl<'a> Lookahead<'a> {
    /// At most `limit` code points of `text`. Decisions depend on these alone, so they do not depend on how the text was
    /// split.
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

    /// The reason for a parser that reads past the end.
    pub fn stop(self) -> Stop {
        match self.edge {
            Edge::Open => Stop::NeedMore,
            Edge::Cut => Stop::TooFar,
            Edge::End => Stop::End,
        }
    }

    /// True if the text at `at` starts with `word`.
    pub fn has(self, at: usize, word: &str) -> Result<bool, Stop> {
        let rest = self.bytes().get(at..).unwrap_or_default();
        let common = rest.iter().zip(word.as_bytes()).take_while(|(a, b)| a == b).count();
        match common {
            _ if common == word.len() => Ok(true),
            _ if common == rest.len() => Err(self.stop()),
            _ => Ok(false),
        }
    }

    /// The number of bytes from `at` on that match `is`; an error if no other byte ends the run.
    pub fn run(self, at: usize, is: impl Fn(u8) -> bool) -> Result<usize, Stop> {
        let rest = self.bytes().get(at..).unwrap_or_default();
        rest.iter().position(|b| !is(*b)).ok_or(self.stop())
    }
}

/// Returns where the `n`th code point ends (from 1), or `None` if there are fewer. Counts 32 bytes at a time, because it runs
/// at every bracket.
fn nth_end(text: &str, n: usize) -> Option<usize> {
    const BLOCK: usize = 32;
    let is_char_start = |byte: &u8| (*byte as i8) >= -0x40;
    let bytes = text.as_bytes();
    if bytes.len() < n {
        return None;
    }
    let (mut at, mut left) = (0, n);
    while let Some(block) = bytes.get(at..at + BLOCK).and_then(|block| <&[u8; BLOCK]>::try_from(block).ok()) {
        let count = usize::from(block.iter().map(|byte| u8::from(is_char_start(byte))).sum::<u8>());
        if count > left {
            break;
        }
        left -= count;
        at += BLOCK;
    }
    for (position, byte) in (at..).zip(bytes.get(at..)?) {
        if is_char_start(byte) {
            if left == 0 {
                return Some(position);
            }
            left -= 1;
        }
    }
    (left == 0).then_some(bytes.len())
}

/// A part of `text`; empty if the range is invalid, so that nothing here panics.
pub fn slice(text: &str, from: usize, to: usize) -> &str {
    text.get(from..to).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookahead_ends_after_its_last_code_point() {
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

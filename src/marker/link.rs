//! Links, images and the definitions of links.

use super::{
    block::Blocks,
    html,
    look::{Ahead, Stop, Verdict},
    span::{code, dollars},
    walk::{Step, Walk},
};

/// Brackets inside each other; one deeper counts as too far to see.
const MAX_BRACKETS: usize = 16;
/// Parentheses inside each other in the URL of a link, as CommonMark's own readers have it.
const MAX_PARENS: u8 = 32;

/// Open brackets.
#[derive(Debug, Clone, Copy, Default)]
pub struct Brackets {
    stack: [Bracket; MAX_BRACKETS],
    depth: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Bracket {
    #[default]
    Link,
    Image,
    /// A link was found inside it, so it can be none.
    Off,
}

impl Brackets {
    pub fn is_empty(&self) -> bool {
        self.depth == 0
    }

    pub fn clear(&mut self) {
        self.depth = 0;
    }

    pub fn push(&mut self, bracket: Bracket) -> bool {
        let Some(slot) = self.stack.get_mut(self.depth) else { return false };
        *slot = bracket;
        self.depth += 1;
        true
    }

    pub fn pop(&mut self) -> Option<Bracket> {
        self.depth = self.depth.checked_sub(1)?;
        self.stack.get(self.depth).copied()
    }

    /// A link holds no other link.
    pub fn linked(&mut self) {
        for bracket in self.stack.iter_mut().filter(|bracket| **bracket == Bracket::Link) {
            *bracket = Bracket::Off;
        }
    }

    /// Could one of the outer `count` still be a link?
    fn live(&self, count: usize) -> bool {
        let depth = self.depth.min(count);
        self.stack.iter().take(depth).any(|bracket| *bracket != Bracket::Off)
    }
}

/// How an open bracket ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closing {
    /// As a link's text; the link ends here.
    Link(usize),
    /// As a link's text; the `(` of its URL is here, and its end too far to see.
    Url(usize),
}

/// How one of the open brackets becomes a link, if one does, when the text goes on at `at`.
pub fn closing(ahead: Ahead<'_>, at: usize, open: Brackets, blocks: &Blocks, cells: bool) -> Verdict<Closing> {
    // How many of the open ones were open at first.
    let mut ours = open.depth;
    let mut open = open;
    let mut walk = Walk::new(ahead, blocks, cells, at);
    let mut last = 0;
    while open.live(ours) {
        let Step::Byte(at, byte) = walk.step()? else { return Ok(None) };
        let here = ahead.from(at);
        let skip = match byte {
            b'\\' => {
                walk.escaped()?;
                None
            }
            b'`' => match code(here, blocks, cells) {
                Ok(None) => Some(here.run(0, |b| b == b'`')?),
                other => other?,
            },
            b'$' => dollars(here, blocks, cells)?,
            b'<' => html::inline(here, blocks, cells)?,
            b'[' => {
                let bracket = if last == b'!' { Bracket::Image } else { Bracket::Link };
                if !open.push(bracket) {
                    return Err(Stop::Far);
                }
                None
            }
            b']' => {
                let inner = open.depth > ours;
                let bracket = open.pop();
                ours = ours.min(open.depth);
                if bracket.is_none_or(|bracket| bracket == Bracket::Off) || ahead.byte(at + 1)? != b'(' {
                    None
                } else {
                    match tail(ahead.from(at + 1), blocks, cells) {
                        Err(Stop::Far) if !inner => return Ok(Some(Closing::Url(at + 1))),
                        Err(Stop::End) | Ok(None) => None,
                        Err(stop) => return Err(stop),
                        Ok(Some(length)) if !inner => return Ok(Some(Closing::Link(at + 1 + length))),
                        Ok(Some(length)) => {
                            if bracket == Some(Bracket::Link) {
                                open.linked();
                            }
                            Some(1 + length)
                        }
                    }
                }
            }
            _ => None,
        };
        if let Some(skip) = skip {
            walk.at = at + skip;
        }
        last = byte;
    }
    Ok(None)
}

/// `(url "title")` after a link's text: its length.
pub fn tail(ahead: Ahead<'_>, blocks: &Blocks, cells: bool) -> Verdict<usize> {
    let mut tail = Tail::default();
    let mut walk = Walk::new(ahead, blocks, cells, 1);
    loop {
        let Step::Byte(_, byte) = walk.step()? else { return Ok(None) };
        match tail.step(byte) {
            Some(Tail::Done) => return Ok(Some(walk.at)),
            Some(next) => tail = next,
            None => return Ok(None),
        }
    }
}

/// The part of a link in parentheses, byte by byte after the `(`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tail {
    #[default]
    Begin,
    /// A URL, and how many parentheses are open in it.
    Url(u8),
    UrlEscape(u8),
    Angle,
    AngleEscape,
    AfterUrl,
    /// A title, and what ends it.
    Title(u8),
    TitleEscape(u8),
    AfterTitle,
    Done,
}

impl Tail {
    /// The state after one more byte; none if this is no link.
    pub fn step(self, byte: u8) -> Option<Self> {
        let space = byte.is_ascii_whitespace();
        match self {
            Self::Begin => match byte {
                b'<' => Some(Self::Angle),
                b')' => Some(Self::Done),
                _ if space => Some(Self::Begin),
                b => Self::Url(0).step(b),
            },
            Self::Url(depth) => match byte {
                b'\\' => Some(Self::UrlEscape(depth)),
                b'(' if depth < MAX_PARENS => Some(Self::Url(depth + 1)),
                b'(' => None,
                b')' if depth == 0 => Some(Self::Done),
                b')' => Some(Self::Url(depth - 1)),
                _ if space && depth == 0 => Some(Self::AfterUrl),
                b if b <= b' ' => None,
                _ => Some(self),
            },
            // What is no punctuation is not escaped by it.
            Self::UrlEscape(depth) if byte.is_ascii_punctuation() => Some(Self::Url(depth)),
            Self::UrlEscape(depth) => Self::Url(depth).step(byte),
            Self::Angle => match byte {
                b'>' => Some(Self::AfterUrl),
                b'<' | b'\n' => None,
                b'\\' => Some(Self::AngleEscape),
                _ => Some(self),
            },
            Self::AngleEscape if byte.is_ascii_punctuation() => Some(Self::Angle),
            Self::AngleEscape => Self::Angle.step(byte),
            Self::AfterUrl => match byte {
                b')' => Some(Self::Done),
                b'"' | b'\'' => Some(Self::Title(byte)),
                b'(' => Some(Self::Title(b')')),
                _ if space => Some(self),
                _ => None,
            },
            Self::Title(end) => match byte {
                b'\\' => Some(Self::TitleEscape(end)),
                b'(' if end == b')' => None,
                b if b == end => Some(Self::AfterTitle),
                _ => Some(self),
            },
            Self::TitleEscape(end) if byte.is_ascii_punctuation() => Some(Self::Title(end)),
            Self::TitleEscape(end) => Self::Title(end).step(byte),
            Self::AfterTitle => match byte {
                b')' => Some(Self::Done),
                _ if space => Some(self),
                _ => None,
            },
            Self::Done => None,
        }
    }
}

/// `[label]: url "title"`, with nothing after it on the line: the bytes that it takes.
pub fn definition(ahead: Ahead<'_>, blocks: &Blocks) -> Verdict<usize> {
    let mut at = 1;
    let mut label = false;
    loop {
        match ahead.byte(at)? {
            b']' => break,
            b'[' | b'\n' => return Ok(None),
            b'\\' => at += 1,
            b => label |= !b.is_ascii_whitespace(),
        }
        at += 1;
    }
    if !label || ahead.byte(at + 1)? != b':' {
        return Ok(None);
    }
    let mut tail = Tail::default();
    let mut walk = Walk::new(ahead, blocks, false, at + 2);
    // Where it ends if what follows on the next line is no title.
    let mut whole = None;
    let mut tight = false;
    loop {
        let at = walk.at;
        if matches!(ahead.byte(at), Ok(b'\n' | b'\r') | Err(Stop::End)) {
            match tail {
                Tail::AfterTitle => return Ok(Some(at)),
                Tail::Url(0) | Tail::UrlEscape(0) | Tail::AfterUrl => whole = whole.or(Some(at)),
                Tail::Begin | Tail::Title(_) | Tail::TitleEscape(_) => {}
                _ => return Ok(whole),
            }
        }
        tail = match walk.step() {
            // Nothing has spoilt it so far, and a URL may be longer than anyone looks.
            Err(Stop::Far) => return Ok(whole.or(Some(at))),
            Err(Stop::End) | Ok(Step::End) => return Ok(whole),
            Err(stop) => return Err(stop),
            // A title does not follow `<url>` at once.
            Ok(Step::Byte(_, byte)) if tight && !byte.is_ascii_whitespace() => return Ok(whole),
            Ok(Step::Byte(_, byte)) => match tail.step(byte) {
                None | Some(Tail::Done) => return Ok(whole),
                Some(next) => {
                    tight = tail == Tail::Angle && next == Tail::AfterUrl;
                    next
                }
            },
        };
    }
}

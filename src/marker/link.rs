//! Parsers of links, images and link reference definitions (CommonMark).

use super::{
    block::Blocks,
    html,
    lookahead::{Lookahead, ParseResult, Stop},
    span::{code, dollars},
    walk::{Next, Walk},
};

/// Nesting depth of brackets; a deeper one counts as beyond the lookahead.
const MAX_BRACKETS: usize = 16;
/// Nesting depth of parentheses in a link's URL, as in CommonMark's reference implementations.
const MAX_PARENS: u8 = 32;

/// A stack of open brackets.
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
    /// Not a link, because it contains one.
    Inactive,
}

impl Brackets {
    pub fn is_empty(&self) -> bool {
        self.depth == 0
    }

    pub fn clear(&mut self) {
        self.depth = 0;
    }

    /// Returns false if the stack is full.
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

    /// Called when a link was found: links do not nest, so the brackets around it are no links.
    pub fn deactivate_links(&mut self) {
        for bracket in self.stack.iter_mut().filter(|bracket| **bracket == Bracket::Link) {
            *bracket = Bracket::Inactive;
        }
    }

    /// True if one of the outermost `count` brackets may still be a link.
    fn has_active(&self, count: usize) -> bool {
        let depth = self.depth.min(count);
        self.stack.iter().take(depth).any(|bracket| *bracket != Bracket::Inactive)
    }
}

/// How an open bracket becomes a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkEnd {
    /// The link ends at this offset.
    Link(usize),
    /// The `(` of the URL is at this offset, and its end is beyond the lookahead.
    Url(usize),
}

/// Returns how one of the `open` brackets becomes a link, if any does. The text after them begins at `at`.
pub fn find_end(ahead: Lookahead<'_>, at: usize, open: Brackets, blocks: &Blocks, cells: bool) -> ParseResult<LinkEnd> {
    // How many of the initial brackets are still open.
    let mut outer = open.depth;
    let mut open = open;
    let mut walk = Walk::new(ahead, blocks, cells, at);
    let mut last = 0;
    while open.has_active(outer) {
        let Next::Byte(at, byte) = walk.step()? else { return Ok(None) };
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
                    return Err(Stop::TooFar);
                }
                None
            }
            b']' => {
                let is_inner = open.depth > outer;
                let bracket = open.pop();
                outer = outer.min(open.depth);
                if bracket.is_none_or(|bracket| bracket == Bracket::Inactive) || ahead.byte(at + 1)? != b'(' {
                    None
                } else {
                    match tail(ahead.from(at + 1), blocks, cells) {
                        Err(Stop::TooFar) if !is_inner => return Ok(Some(LinkEnd::Url(at + 1))),
                        Err(Stop::End) | Ok(None) => None,
                        Err(stop) => return Err(stop),
                        Ok(Some(length)) if !is_inner => return Ok(Some(LinkEnd::Link(at + 1 + length))),
                        Ok(Some(length)) => {
                            if bracket == Some(Bracket::Link) {
                                open.deactivate_links();
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

/// Returns the length of `(url "title")` after a link's text.
pub fn tail(ahead: Lookahead<'_>, blocks: &Blocks, cells: bool) -> ParseResult<usize> {
    let mut tail = Tail::default();
    let mut walk = Walk::new(ahead, blocks, cells, 1);
    loop {
        let Next::Byte(_, byte) = walk.step()? else { return Ok(None) };
        match tail.step(byte) {
            Some(Tail::Done) => return Ok(Some(walk.at)),
            Some(next) => tail = next,
            None => return Ok(None),
        }
    }
}

/// State of the parser of `url "title")`, byte by byte after the `(`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tail {
    #[default]
    Begin,
    /// In the URL, with the number of open parentheses.
    Url(u8),
    UrlEscape(u8),
    /// In `<url>`.
    Angle,
    AngleEscape,
    AfterUrl,
    /// In the title, with its closing quote.
    Title(u8),
    TitleEscape(u8),
    AfterTitle,
    Done,
}

impl Tail {
    /// Returns the state after one more byte; `None` if this is no link.
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
            // A backslash escapes only punctuation.
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

/// Returns the length of a link reference definition, `[label]: url "title"`, with nothing after it on the line.
pub fn definition(ahead: Lookahead<'_>, blocks: &Blocks) -> ParseResult<usize> {
    let mut at = 1;
    let mut has_label = false;
    loop {
        match ahead.byte(at)? {
            b']' => break,
            b'[' | b'\n' => return Ok(None),
            b'\\' => at += 1,
            b => has_label |= !b.is_ascii_whitespace(),
        }
        at += 1;
    }
    if !has_label || ahead.byte(at + 1)? != b':' {
        return Ok(None);
    }
    let mut tail = Tail::default();
    let mut walk = Walk::new(ahead, blocks, false, at + 2);
    // The end of the definition if no title follows on the next line.
    let mut end_of_url = None;
    let mut is_after_angle = false;
    loop {
        let at = walk.at;
        if matches!(ahead.byte(at), Ok(b'\n' | b'\r') | Err(Stop::End)) {
            match tail {
                Tail::AfterTitle => return Ok(Some(at)),
                Tail::Url(0) | Tail::UrlEscape(0) | Tail::AfterUrl => end_of_url = end_of_url.or(Some(at)),
                Tail::Begin | Tail::Title(_) | Tail::TitleEscape(_) => {}
                _ => return Ok(end_of_url),
            }
        }
        tail = match walk.step() {
            // Valid so far; a URL may be longer than the lookahead.
            Err(Stop::TooFar) => return Ok(end_of_url.or(Some(at))),
            Err(Stop::End) | Ok(Next::End) => return Ok(end_of_url),
            Err(stop) => return Err(stop),
            // Whitespace separates `<url>` from the title.
            Ok(Next::Byte(_, byte)) if is_after_angle && !byte.is_ascii_whitespace() => return Ok(end_of_url),
            Ok(Next::Byte(_, byte)) => match tail.step(byte) {
                None | Some(Tail::Done) => return Ok(end_of_url),
                Some(next) => {
                    is_after_angle = tail == Tail::Angle && next == Tail::AfterUrl;
                    next
                }
            },
        };
    }
}

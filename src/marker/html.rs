//! Parsers of HTML in Markdown: inline tags, comments and autolinks, and HTML blocks (CommonMark).

use super::{
    block::Blocks,
    lookahead::{Lookahead, ParseResult, Stop},
    walk::{Next, Walk},
};

/// What ends an HTML block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HtmlEnd {
    /// A blank line.
    Blank,
    /// The line that contains this text.
    Text(&'static str),
}

/// Elements whose text is not prose: links, code and math.
const RAW_ELEMENTS: [&str; 10] = ["a", "code", "kbd", "math", "pre", "samp", "script", "style", "svg", "var"];

/// Begin and end of blocks that may contain blank lines.
const ENCLOSED: [(&str, &str); 7] = [
    ("pre", "</pre>"),
    ("style", "</style>"),
    ("script", "</script>"),
    ("textarea", "</textarea>"),
    ("!--", "-->"),
    ("?", "?>"),
    ("![CDATA[", "]]>"),
];

/// Elements that begin a block even inside a paragraph (CommonMark).
#[rustfmt::skip]
const BLOCKS: [&str; 62] = [
    "address", "article", "aside", "base", "basefont", "blockquote", "body", "caption", "center", "col", "colgroup",
    "dd", "details", "dialog", "dir", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "frame",
    "frameset", "h1", "h2", "h3", "h4", "h5", "h6", "head", "header", "hr", "html", "iframe", "legend", "li", "link",
    "main", "menu", "menuitem", "nav", "noframes", "ol", "optgroup", "option", "p", "param", "search", "section",
    "summary", "table", "tbody", "td", "tfoot", "th", "thead", "title", "tr", "track", "ul",
];

/// Returns the end of the HTML block that a line with `<` begins, if any. A lone tag does not interrupt a paragraph.
pub fn block_start(ahead: Lookahead<'_>, in_paragraph: bool) -> ParseResult<HtmlEnd> {
    let is_name = |b: u8| b.is_ascii_alphanumeric();
    for (begin, end) in ENCLOSED {
        let at = 1 + begin.len();
        let begins = match ahead.bytes().get(1..) {
            Some(rest) if rest.len() < begin.len() && begin.as_bytes().starts_with(&rest.to_ascii_lowercase()) => {
                Err(ahead.stop())
            }
            Some(rest) => Ok(rest.get(..begin.len()).is_some_and(|r| r.eq_ignore_ascii_case(begin.as_bytes()))),
            None => Err(ahead.stop()),
        };
        let begins = false_at_end(begins)?;
        if begins && begin.ends_with(|c: char| c.is_ascii_alphabetic()) {
            match ahead.byte(at) {
                Ok(b) if b == b'>' || b.is_ascii_whitespace() => return Ok(Some(HtmlEnd::Text(end))),
                Err(Stop::End) => return Ok(Some(HtmlEnd::Text(end))),
                Ok(_) => {}
                Err(stop) => return Err(stop),
            }
        } else if begins {
            return Ok(Some(HtmlEnd::Text(end)));
        }
    }
    if ahead.byte(1)? == b'!' && ahead.byte(2)?.is_ascii_alphabetic() {
        return Ok(Some(HtmlEnd::Text(">")));
    }
    let start = if ahead.byte(1)? == b'/' { 2 } else { 1 };
    let length = match ahead.run(start, is_name) {
        Err(Stop::End) => ahead.bytes().len().saturating_sub(start),
        other => other?,
    };
    let name = ahead.bytes().get(start..start + length).unwrap_or_default().to_ascii_lowercase();
    if BLOCKS.iter().any(|known| known.as_bytes() == name) {
        let at = start + length;
        let is_complete = match ahead.byte(at) {
            Ok(b'/') => false_at_end(ahead.byte(at + 1).map(|b| b == b'>'))?,
            Ok(b) => b == b'>' || b.is_ascii_whitespace(),
            Err(Stop::End) => true,
            Err(stop) => return Err(stop),
        };
        if is_complete {
            return Ok(Some(HtmlEnd::Blank));
        }
    }
    if in_paragraph || !ahead.byte(start)?.is_ascii_alphabetic() {
        return Ok(None);
    }
    let mut tag = Tag::default();
    for (at, byte) in ahead.bytes().iter().enumerate().skip(1) {
        match tag.step(*byte) {
            _ if *byte == b'\n' => return Ok(None),
            Some(next) => tag = next,
            None => return Ok(None),
        }
        if tag == Tag::Done {
            let blank = ahead.run(at + 1, |b| matches!(b, b' ' | b'\t' | b'\r'));
            return match blank {
                Ok(blank) => Ok((ahead.byte(at + 1 + blank)? == b'\n').then_some(HtmlEnd::Blank)),
                Err(Stop::End) => Ok(Some(HtmlEnd::Blank)),
                Err(stop) => Err(stop),
            };
        }
        if matches!(tag, Tag::Scheme(_) | Tag::Link | Tag::Mail | Tag::Until(_)) {
            return Ok(None);
        }
    }
    Err(ahead.stop())
}

/// A construct that the end of the text cuts is absent.
fn false_at_end(verdict: Result<bool, Stop>) -> Result<bool, Stop> {
    if verdict == Err(Stop::End) { Ok(false) } else { verdict }
}

/// Length of an autolink's scheme.
const SCHEME_LEN: std::ops::RangeInclusive<u8> = 2..=32;

/// State of the parser of a tag, a comment or an autolink, byte by byte from the `<` on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tag {
    /// After `<`.
    #[default]
    Begin,
    /// In a name of this length, which may still be the scheme of an autolink.
    Name(u8),
    /// In a name that is no tag: the scheme of an autolink, or the beginning of a mail address.
    Scheme(u8),
    Space,
    Attribute,
    /// After an attribute's name.
    AfterName,
    Equals,
    Value,
    Quoted(u8),
    AfterQuote,
    /// After a `/` that `>` must follow.
    Slash,
    CloseBegin,
    CloseName,
    CloseSpace,
    /// After `<!`.
    Bang,
    /// After `<!-`.
    Dash,
    /// In a comment, declaration or similar.
    Until(Until),
    Link,
    Mail,
    Done,
}

/// A terminator, and how many of its bytes have been matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Until {
    end: &'static str,
    matched: usize,
}

impl Tag {
    /// Returns the state after one more byte; `None` if this is no tag.
    pub fn step(self, byte: u8) -> Option<Self> {
        let space = byte.is_ascii_whitespace();
        let until = |end| Some(Self::Until(Until { end, matched: 0 }));
        match self {
            Self::Begin => match byte {
                b'/' => Some(Self::CloseBegin),
                b'!' => Some(Self::Bang),
                b'?' => until("?>"),
                b if b.is_ascii_alphabetic() => Some(Self::Name(1)),
                _ => None,
            },
            Self::Name(length) => match byte {
                b'>' => Some(Self::Done),
                b'/' => Some(Self::Slash),
                b if b.is_ascii_alphanumeric() || b == b'-' => Some(Self::Name(length.saturating_add(1))),
                _ if space => Some(Self::Space),
                b => Self::Scheme(length).step(b),
            },
            Self::Scheme(length) => match byte {
                b':' => SCHEME_LEN.contains(&length).then_some(Self::Link),
                b if b.is_ascii_alphanumeric() || b"-+.".contains(&b) => Some(Self::Scheme(length.saturating_add(1))),
                b => Self::Mail.step(b),
            },
            Self::Space => match byte {
                b'>' => Some(Self::Done),
                b'/' => Some(Self::Slash),
                b if b.is_ascii_alphabetic() || b == b'_' || b == b':' => Some(Self::Attribute),
                _ if space => Some(Self::Space),
                _ => None,
            },
            Self::Attribute | Self::AfterName => match byte {
                b'>' => Some(Self::Done),
                b'/' => Some(Self::Slash),
                b'=' => Some(Self::Equals),
                _ if space => Some(Self::AfterName),
                b if self == Self::AfterName => Self::Space.step(b),
                b if b.is_ascii_alphanumeric() || matches!(b, b'_' | b':' | b'.' | b'-') => Some(Self::Attribute),
                _ => None,
            },
            Self::Equals => match byte {
                b'"' | b'\'' => Some(Self::Quoted(byte)),
                b'=' | b'<' | b'>' | b'`' => None,
                _ if space => Some(Self::Equals),
                _ => Some(Self::Value),
            },
            Self::Value => match byte {
                b'>' => Some(Self::Done),
                b'"' | b'\'' | b'=' | b'<' | b'`' => None,
                _ if space => Some(Self::Space),
                _ => Some(Self::Value),
            },
            Self::Quoted(quote) => Some(if byte == quote { Self::AfterQuote } else { self }),
            Self::AfterQuote => match byte {
                b'>' => Some(Self::Done),
                b'/' => Some(Self::Slash),
                _ if space => Some(Self::Space),
                _ => None,
            },
            Self::Slash => (byte == b'>').then_some(Self::Done),
            Self::CloseBegin => byte.is_ascii_alphabetic().then_some(Self::CloseName),
            Self::CloseName | Self::CloseSpace => match byte {
                b'>' => Some(Self::Done),
                _ if space => Some(Self::CloseSpace),
                b if self == Self::CloseName && (b.is_ascii_alphanumeric() || b == b'-') => Some(self),
                _ => None,
            },
            Self::Bang => match byte {
                b'-' => Some(Self::Dash),
                b'[' => until("]]>"),
                b if b.is_ascii_alphabetic() => until(">"),
                _ => None,
            },
            // `<!-->` is a comment: its dashes belong to the end as well.
            Self::Dash => (byte == b'-').then_some(Self::Until(Until { end: "-->", matched: 2 })),
            Self::Until(until) => Some(until.step(byte)),
            Self::Link => match byte {
                b'>' => Some(Self::Done),
                b'<' => None,
                b if b <= b' ' => None,
                _ => Some(self),
            },
            Self::Mail => match byte {
                b'>' => Some(Self::Done),
                b if b.is_ascii_alphanumeric() || b".!#$%&'*+/=?^_`{|}~-@".contains(&b) => Some(self),
                _ => None,
            },
            Self::Done => None,
        }
    }
}

impl Until {
    fn step(mut self, byte: u8) -> Tag {
        let end = self.end.as_bytes();
        while self.matched > 0 && end.get(self.matched) != Some(&byte) {
            // After `--`, another `-` still leaves two matched dashes.
            let repeats = end.get(..self.matched).is_some_and(|seen| seen.iter().all(|b| *b == byte));
            if repeats {
                return Tag::Until(self);
            }
            self.matched = 0;
        }
        if end.get(self.matched) == Some(&byte) {
            self.matched += 1;
        }
        if self.matched == end.len() { Tag::Done } else { Tag::Until(self) }
    }
}

/// Returns the length of an inline tag, comment or autolink.
pub fn inline(ahead: Lookahead<'_>, blocks: &Blocks, cells: bool) -> ParseResult<usize> {
    let mut tag = Tag::default();
    let mut walk = Walk::new(ahead, blocks, cells, 1);
    loop {
        let Next::Byte(_, byte) = walk.step()? else { return Ok(None) };
        match tag.step(byte) {
            Some(Tag::Done) => return Ok(Some(walk.at)),
            Some(next) => tag = next,
            None => return Ok(None),
        }
    }
}

/// Returns the element that a tag opens, if the text of that element is not prose.
pub fn opened_element(tag: &str) -> Option<&'static str> {
    let inner = tag.strip_prefix('<')?;
    let length = inner.bytes().take_while(u8::is_ascii_alphanumeric).count();
    let after = inner.as_bytes().get(length)?;
    let is_empty = tag.ends_with("/>");
    let name = inner.get(..length)?;
    let known = RAW_ELEMENTS.into_iter().find(|known| known.eq_ignore_ascii_case(name))?;
    (!is_empty && (*after == b'>' || *after == b'/' || after.is_ascii_whitespace())).then_some(known)
}

/// Returns the length of the closing tag of `element`, if it is ahead.
pub fn closing_tag(ahead: Lookahead<'_>, element: &str) -> ParseResult<usize> {
    if ahead.byte(0)? != b'<' || ahead.byte(1)? != b'/' {
        return Ok(None);
    }
    let length = ahead.run(2, |b| b.is_ascii_alphanumeric())?;
    let name = ahead.bytes().get(2..2 + length).unwrap_or_default();
    if !name.eq_ignore_ascii_case(element.as_bytes()) {
        return Ok(None);
    }
    let spaces = ahead.run(2 + length, |b| b.is_ascii_whitespace())?;
    let at = 2 + length + spaces;
    Ok((ahead.byte(at)? == b'>').then_some(at + 1))
}

//! The lines of a Markdown text: which of them is prose, and where a paragraph ends.
//!
//! Follows CommonMark's block structure (quotes, lists, fences, indented code, HTML blocks, headings) and the rows
//! of tables, one line at a time, from the beginning of the line alone.

use super::{
    cursor::Cursor,
    html::{self, HtmlEnd},
    look::{Ahead, Edge, Stop},
};

/// Quotes and list items inside each other; deeper ones are not told apart.
const MAX_DEPTH: usize = 16;

#[derive(Debug, Clone, Copy, Default)]
pub struct Blocks {
    containers: [Container; MAX_DEPTH],
    depth: usize,
    pub leaf: Leaf,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Container {
    #[default]
    Quote,
    /// A list item, and how far its content is indented.
    Item(u8),
}

/// The block that the last line left open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Leaf {
    #[default]
    Gap,
    /// A list item that has nothing but its mark so far: a blank line ends it.
    Bare,
    Paragraph,
    /// A line that begins with `|`: the head of a table, or its like.
    Row,
    Table,
    Fence {
        mark: u8,
        length: usize,
    },
    Indented,
    Html(HtmlEnd),
}

/// How a line begins.
#[derive(Debug, Clone, Copy)]
pub struct Line {
    pub blocks: Blocks,
    /// Bytes before its content: indentation, and the marks of quotes and lists.
    pub prefix: usize,
    pub content: Content,
    /// It is the next line of the paragraph before it.
    pub goes_on: bool,
    /// A paragraph begins with it.
    pub begins: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Nothing in it is read: code, HTML, rules.
    Raw,
    Prose,
    /// Prose in cells.
    Cells,
}

impl Blocks {
    /// Reads the beginning of the line that is ahead.
    pub fn line(&self, ahead: Ahead<'_>) -> Result<Line, Stop> {
        let mut cursor = Cursor::new(ahead);
        let matched = self.matched(&mut cursor)?;
        let whole = matched == self.depth;
        let blank = cursor.blank()?;
        let mut next = *self;
        match self.leaf {
            Leaf::Fence { mark, length } if whole => {
                let mut inner = cursor;
                let closes = inner.spaces(4)? < 4 && {
                    let run = inner.run(mark)?;
                    run >= length && inner.blank()?
                };
                if closes {
                    next.leaf = Leaf::Gap;
                }
                return Ok(next.raw(cursor));
            }
            Leaf::Html(end) if whole && !(blank && end == HtmlEnd::Blank) => return Ok(next.raw(cursor)),
            Leaf::Indented if whole && (blank || cursor.clone().spaces(4)? == 4) => return Ok(next.raw(cursor)),
            _ => {}
        }
        if blank {
            next.depth = if self.leaf == Leaf::Bare && whole { matched.saturating_sub(1) } else { matched };
            next.leaf = Leaf::Gap;
            return Ok(next.raw(cursor));
        }
        let prose = matches!(self.leaf, Leaf::Paragraph | Leaf::Row | Leaf::Table);
        let Opened { mut next, mut cursor, any, indent } = self.open(cursor, matched, prose)?;
        if any && cursor.blank()? {
            let item = matches!(next.containers.get(next.depth.wrapping_sub(1)), Some(Container::Item(_)));
            next.leaf = if item { Leaf::Bare } else { Leaf::Gap };
            return Ok(next.raw(cursor));
        }
        // The line may belong to the open paragraph, and if its containers do not match, to it all the same.
        let open = prose && !any;
        if indent < 4
            && let Some((leaf, content)) = leaf(cursor, open, whole, self.leaf)?
        {
            next.leaf = leaf;
            return Ok(Line { blocks: next, prefix: cursor.at, content, goes_on: false, begins: false });
        }
        if open && (whole || self.leaf != Leaf::Table) {
            let pipe = cursor.peek()? == Some(b'|');
            let mut blocks = *self;
            let (leaf, content) = match self.leaf {
                Leaf::Table => (Leaf::Table, Content::Cells),
                _ if pipe => (Leaf::Row, Content::Cells),
                _ => (Leaf::Paragraph, Content::Prose),
            };
            blocks.leaf = leaf;
            let goes_on = self.leaf == Leaf::Paragraph && leaf == Leaf::Paragraph;
            cursor.spaces(usize::MAX)?;
            return Ok(Line { blocks, prefix: cursor.at, content, goes_on, begins: false });
        }
        if indent >= 4 {
            next.leaf = Leaf::Indented;
            return Ok(next.raw(cursor));
        }
        let pipe = cursor.peek()? == Some(b'|');
        next.leaf = if pipe { Leaf::Row } else { Leaf::Paragraph };
        let content = if pipe { Content::Cells } else { Content::Prose };
        Ok(Line { blocks: next, prefix: cursor.at, content, goes_on: false, begins: true })
    }

    /// The same, where the whole line that can be seen does not tell: as if it ended there.
    pub fn line_anyway(&self, ahead: Ahead<'_>) -> Line {
        let ended = Ahead { edge: Edge::End, ..ahead };
        let unknown = Line { blocks: *self, prefix: 0, content: Content::Raw, goes_on: false, begins: false };
        self.line(ended).unwrap_or(unknown)
    }

    /// Is `line`, which was read after others, what it would be as the first of a text? Then all that follows is, too.
    pub fn is_first(line: &Line, ahead: Ahead<'_>) -> bool {
        let new = Self::default();
        let first = match new.line(ahead) {
            Ok(first) => first,
            Err(Stop::More) => return false,
            Err(Stop::Far | Stop::End) => new.line_anyway(ahead),
        };
        let same = |a: &Line, b: &Line| {
            a.blocks.open_containers() == b.blocks.open_containers()
                && (a.blocks.leaf, a.prefix, a.content) == (b.blocks.leaf, b.prefix, b.content)
                && (a.goes_on, a.begins) == (b.goes_on, b.begins)
        };
        same(line, &first)
    }

    /// Is nothing open?
    pub fn are_over(&self) -> bool {
        self.depth == 0 && self.leaf == Leaf::Gap
    }

    fn open_containers(&self) -> &[Container] {
        self.containers.get(..self.depth).unwrap_or_default()
    }

    fn raw(self, cursor: Cursor<'_>) -> Line {
        Line { blocks: self, prefix: cursor.at, content: Content::Raw, goes_on: false, begins: false }
    }

    /// How many of the open containers the line is in.
    fn matched(&self, cursor: &mut Cursor<'_>) -> Result<usize, Stop> {
        for (index, container) in self.open_containers().iter().enumerate() {
            let save = *cursor;
            let is_in = match container {
                Container::Quote => {
                    cursor.spaces(3)?;
                    cursor.quote()?
                }
                Container::Item(indent) => {
                    let indent = usize::from(*indent);
                    cursor.blank()? || cursor.spaces(indent)? == indent
                }
            };
            if !is_in {
                *cursor = save;
                return Ok(index);
            }
        }
        Ok(self.depth)
    }

    /// Opens the quotes and list items that the line begins.
    fn open<'a>(&self, mut cursor: Cursor<'a>, matched: usize, prose: bool) -> Result<Opened<'a>, Stop> {
        let mut next = *self;
        next.depth = matched;
        let mut any = false;
        loop {
            let save = cursor;
            let indent = cursor.spaces(4)?;
            if indent >= 4 {
                return Ok(Opened { next, cursor: save, any, indent });
            }
            if cursor.quote()? {
                next.push(Container::Quote);
                any = true;
                continue;
            }
            let interrupts = prose && !any && matched == self.depth && self.leaf != Leaf::Table;
            let Some((width, empty)) = item(&mut cursor, interrupts)? else {
                return Ok(Opened { next, cursor, any, indent });
            };
            next.push(Container::Item(u8::try_from(indent + width).unwrap_or(u8::MAX)));
            any = true;
            if empty {
                return Ok(Opened { next, cursor, any, indent });
            }
        }
    }

    fn push(&mut self, container: Container) {
        if let Some(slot) = self.containers.get_mut(self.depth) {
            *slot = container;
            self.depth += 1;
        }
    }
}

struct Opened<'a> {
    next: Blocks,
    cursor: Cursor<'a>,
    any: bool,
    indent: usize,
}

/// A list item's mark and the blanks after it: their width, and whether nothing follows. Of a paragraph's lines,
/// only one that is not empty and counts from 1 begins a list.
fn item(cursor: &mut Cursor<'_>, interrupts: bool) -> Result<Option<(usize, bool)>, Stop> {
    let mut after = *cursor;
    let first = match after.peek()? {
        Some(mark @ (b'-' | b'+' | b'*')) => {
            if rule(*cursor, mark)? {
                return Ok(None);
            }
            after.bump();
            1
        }
        Some(b'0'..=b'9') => {
            let mut number = 0_u64;
            let mut digits = 0;
            while let Some(digit @ b'0'..=b'9') = after.peek()? {
                number = number * 10 + u64::from(digit - b'0');
                digits += 1;
                if digits > 9 {
                    return Ok(None);
                }
                after.bump();
            }
            if !matches!(after.peek()?, Some(b'.' | b')')) {
                return Ok(None);
            }
            after.bump();
            number
        }
        _ => return Ok(None),
    };
    let width = after.at - cursor.at;
    let empty = after.blank()?;
    if interrupts && (empty || first != 1) {
        return Ok(None);
    }
    if empty {
        *cursor = after;
        return Ok(Some((width + 1, true)));
    }
    if after.spaces(1)? == 0 {
        return Ok(None);
    }
    *cursor = after;
    let more = after.spaces(4)?;
    if more >= 4 {
        return Ok(Some((width + 1, false)));
    }
    *cursor = after;
    Ok(Some((width + 1 + more, false)))
}

/// What a line's content begins, if it is no paragraph.
fn leaf(cursor: Cursor<'_>, open: bool, whole: bool, before: Leaf) -> Result<Option<(Leaf, Content)>, Stop> {
    let raw = |leaf| Ok(Some((leaf, Content::Raw)));
    let Some(first) = cursor.peek()? else { return Ok(None) };
    match first {
        b'`' | b'~' => {
            let mut after = cursor;
            let length = after.run(first)?;
            // Backticks after backticks on one line are a code span.
            let spoilt = first == b'`' && after.line_has(b'`')?;
            if length >= 3 && !spoilt { raw(Leaf::Fence { mark: first, length }) } else { Ok(None) }
        }
        b'#' => {
            let mut after = cursor;
            let level = after.run(b'#')?;
            let heading = level <= 6 && matches!(after.peek()?, None | Some(b' ' | b'\t' | b'\n' | b'\r'));
            Ok(heading.then_some((Leaf::Gap, Content::Prose)))
        }
        b'<' => match html::block(cursor.rest(), open) {
            Ok(Some(end)) => raw(Leaf::Html(end)),
            Ok(None) | Err(Stop::End) => Ok(None),
            Err(stop) => Err(stop),
        },
        b'=' | b'-' if open && whole && before != Leaf::Table && cursor.only(first)? => raw(Leaf::Gap),
        b'-' | b'*' | b'_' if rule(cursor, first)? => raw(Leaf::Gap),
        b'|' | b':' | b'-' if open && whole && before != Leaf::Table && delimiters(cursor)? => raw(Leaf::Table),
        _ => Ok(None),
    }
}

/// `---`, `* * *`: a rule across the page.
fn rule(mut cursor: Cursor<'_>, mark: u8) -> Result<bool, Stop> {
    let mut count = 0;
    loop {
        match cursor.peek()? {
            Some(b) if b == mark => count += 1,
            Some(b' ' | b'\t') => {}
            None | Some(b'\n' | b'\r') => return Ok(count >= 3),
            Some(_) => return Ok(false),
        }
        cursor.bump();
    }
}

/// `| --- | :-: |`: the line that makes a table of the line before it.
fn delimiters(mut cursor: Cursor<'_>) -> Result<bool, Stop> {
    let (mut pipes, mut dashes) = (false, false);
    loop {
        match cursor.peek()? {
            Some(b'|') => pipes = true,
            Some(b'-') => dashes = true,
            Some(b':' | b' ' | b'\t') => {}
            None | Some(b'\n' | b'\r') => return Ok(pipes && dashes),
            Some(_) => return Ok(false),
        }
        cursor.bump();
    }
}

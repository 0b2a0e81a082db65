//! Block parser: which lines of a Markdown text are prose, and where a paragraph ends. Called by the reader and by
//! [`Walk`](super::walk::Walk) at each line.
//!
//! Follows CommonMark's block structure (quotes, lists, fences, indented code, HTML blocks, headings) and the rows of
//! tables, one line at a time. It reads only the beginning of a line.

use super::{
    cursor::Cursor,
    html::{self, HtmlEnd},
    lookahead::{Edge, Lookahead, Stop},
};

/// Nesting depth of quotes and list items; deeper ones are ignored.
const MAX_DEPTH: usize = 16;

/// The blocks that are open after a line.
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
    /// A list item, with the indentation of its content in columns.
    Item(u8),
}

/// The block that the last line left open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Leaf {
    #[default]
    None,
    /// A list item that has only its marker so far: a blank line ends it.
    EmptyItem,
    Paragraph,
    /// A line that begins with `|` and may be the head of a table.
    Row,
    Table,
    Fence {
        mark: u8,
        length: usize,
    },
    Indented,
    Html(HtmlEnd),
}

/// The result of parsing the beginning of a line.
#[derive(Debug, Clone, Copy)]
pub struct Line {
    pub blocks: Blocks,
    /// Bytes before the content: indentation and the markers of quotes and lists.
    pub prefix: usize,
    pub content: Content,
    /// The line continues the paragraph of the line before.
    pub continues: bool,
    /// The line begins a paragraph.
    pub begins: bool,
}

/// How the rest of a line is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Not parsed: code, HTML, thematic breaks.
    Raw,
    Prose,
    /// Prose in table cells.
    Cells,
}

impl Blocks {
    /// Parses the beginning of the line ahead.
    pub fn parse_line(&self, ahead: Lookahead<'_>) -> Result<Line, Stop> {
        let mut cursor = Cursor::new(ahead);
        let matched = self.matched_containers(&mut cursor)?;
        let all_matched = matched == self.depth;
        let blank = cursor.is_blank()?;
        let mut next = *self;
        match self.leaf {
            Leaf::Fence { mark, length } if all_matched => {
                let mut inner = cursor;
                let closes = inner.take_blanks(4)? < 4 && {
                    let run = inner.take_run(mark)?;
                    run >= length && inner.is_blank()?
                };
                if closes {
                    next.leaf = Leaf::None;
                }
                return Ok(next.raw(cursor));
            }
            Leaf::Html(end) if all_matched && !(blank && end == HtmlEnd::Blank) => return Ok(next.raw(cursor)),
            Leaf::Indented if all_matched && (blank || cursor.clone().take_blanks(4)? == 4) => {
                return Ok(next.raw(cursor));
            }
            _ => {}
        }
        if blank {
            next.depth = if self.leaf == Leaf::EmptyItem && all_matched { matched.saturating_sub(1) } else { matched };
            next.leaf = Leaf::None;
            return Ok(next.raw(cursor));
        }
        let was_prose = matches!(self.leaf, Leaf::Paragraph | Leaf::Row | Leaf::Table);
        let Opened { mut next, mut cursor, has_new, indent } = self.open_new_containers(cursor, matched, was_prose)?;
        if has_new && cursor.is_blank()? {
            let item = matches!(next.containers.get(next.depth.wrapping_sub(1)), Some(Container::Item(_)));
            next.leaf = if item { Leaf::EmptyItem } else { Leaf::None };
            return Ok(next.raw(cursor));
        }
        // A line may continue the paragraph even if it lacks the markers of its containers (lazy continuation).
        let in_paragraph = was_prose && !has_new;
        if indent < 4
            && let Some((leaf, content)) = start_leaf(cursor, in_paragraph, all_matched, self.leaf)?
        {
            next.leaf = leaf;
            return Ok(Line { blocks: next, prefix: cursor.at, content, continues: false, begins: false });
        }
        if in_paragraph && (all_matched || self.leaf != Leaf::Table) {
            let pipe = cursor.peek()? == Some(b'|');
            let mut blocks = *self;
            let (leaf, content) = match self.leaf {
                Leaf::Table => (Leaf::Table, Content::Cells),
                _ if pipe => (Leaf::Row, Content::Cells),
                _ => (Leaf::Paragraph, Content::Prose),
            };
            blocks.leaf = leaf;
            let continues = self.leaf == Leaf::Paragraph && leaf == Leaf::Paragraph;
            cursor.take_blanks(usize::MAX)?;
            return Ok(Line { blocks, prefix: cursor.at, content, continues, begins: false });
        }
        if indent >= 4 {
            next.leaf = Leaf::Indented;
            return Ok(next.raw(cursor));
        }
        let pipe = cursor.peek()? == Some(b'|');
        next.leaf = if pipe { Leaf::Row } else { Leaf::Paragraph };
        let content = if pipe { Content::Cells } else { Content::Prose };
        Ok(Line { blocks: next, prefix: cursor.at, content, continues: false, begins: true })
    }

    /// Parses the line as if it ended with the lookahead. For lines that [`Self::parse_line`] cannot decide.
    pub fn parse_line_as_ended(&self, ahead: Lookahead<'_>) -> Line {
        let ended = Lookahead { edge: Edge::End, ..ahead };
        let unknown = Line { blocks: *self, prefix: 0, content: Content::Raw, continues: false, begins: false };
        self.parse_line(ended).unwrap_or(unknown)
    }

    /// True if `line` would be parsed the same as the first line of a text. Then so would all that follows.
    pub fn reads_as_first(line: &Line, ahead: Lookahead<'_>) -> bool {
        let new = Self::default();
        let first = match new.parse_line(ahead) {
            Ok(first) => first,
            Err(Stop::NeedMore) => return false,
            Err(Stop::TooFar | Stop::End) => new.parse_line_as_ended(ahead),
        };
        let same = |a: &Line, b: &Line| {
            a.blocks.open_containers() == b.blocks.open_containers()
                && (a.blocks.leaf, a.prefix, a.content) == (b.blocks.leaf, b.prefix, b.content)
                && (a.continues, a.begins) == (b.continues, b.begins)
        };
        same(line, &first)
    }

    /// True if no container and no leaf is open.
    pub fn is_empty(&self) -> bool {
        self.depth == 0 && self.leaf == Leaf::None
    }

    fn open_containers(&self) -> &[Container] {
        self.containers.get(..self.depth).unwrap_or_default()
    }

    fn raw(self, cursor: Cursor<'_>) -> Line {
        Line { blocks: self, prefix: cursor.at, content: Content::Raw, continues: false, begins: false }
    }

    /// Returns how many of the open containers the line continues.
    fn matched_containers(&self, cursor: &mut Cursor<'_>) -> Result<usize, Stop> {
        for (index, container) in self.open_containers().iter().enumerate() {
            let save = *cursor;
            let continues = match container {
                Container::Quote => {
                    cursor.take_blanks(3)?;
                    cursor.take_quote()?
                }
                Container::Item(indent) => {
                    let indent = usize::from(*indent);
                    cursor.is_blank()? || cursor.take_blanks(indent)? == indent
                }
            };
            if !continues {
                *cursor = save;
                return Ok(index);
            }
        }
        Ok(self.depth)
    }

    /// Opens the quotes and list items that the line begins.
    fn open_new_containers<'a>(
        &self,
        mut cursor: Cursor<'a>,
        matched: usize,
        was_prose: bool,
    ) -> Result<Opened<'a>, Stop> {
        let mut next = *self;
        next.depth = matched;
        let mut has_new = false;
        loop {
            let save = cursor;
            let indent = cursor.take_blanks(4)?;
            if indent >= 4 {
                return Ok(Opened { next, cursor: save, has_new, indent });
            }
            if cursor.take_quote()? {
                next.push(Container::Quote);
                has_new = true;
                continue;
            }
            let interrupts = was_prose && !has_new && matched == self.depth && self.leaf != Leaf::Table;
            let Some((width, empty)) = list_item(&mut cursor, interrupts)? else {
                return Ok(Opened { next, cursor, has_new, indent });
            };
            next.push(Container::Item(u8::try_from(indent + width).unwrap_or(u8::MAX)));
            has_new = true;
            if empty {
                return Ok(Opened { next, cursor, has_new, indent });
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

/// The result of [`Blocks::open_new_containers`].
struct Opened<'a> {
    next: Blocks,
    cursor: Cursor<'a>,
    /// The line opened a container.
    has_new: bool,
    /// Blanks before the content, at most 4 columns.
    indent: usize,
}

/// Parses the marker of a list item and the blanks after it. Returns their width and whether the item is empty. Only a
/// bullet or number 1, with content, interrupts a paragraph (CommonMark).
fn list_item(cursor: &mut Cursor<'_>, interrupts: bool) -> Result<Option<(usize, bool)>, Stop> {
    let mut after = *cursor;
    let first = match after.peek()? {
        Some(mark @ (b'-' | b'+' | b'*')) => {
            if thematic_break(*cursor, mark)? {
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
    let empty = after.is_blank()?;
    if interrupts && (empty || first != 1) {
        return Ok(None);
    }
    if empty {
        *cursor = after;
        return Ok(Some((width + 1, true)));
    }
    if after.take_blanks(1)? == 0 {
        return Ok(None);
    }
    *cursor = after;
    let more = after.take_blanks(4)?;
    if more >= 4 {
        return Ok(Some((width + 1, false)));
    }
    *cursor = after;
    Ok(Some((width + 1 + more, false)))
}

/// Returns the leaf that the content of a line begins, unless it is a paragraph, a row or indented code.
fn start_leaf(
    cursor: Cursor<'_>,
    in_paragraph: bool,
    all_matched: bool,
    before: Leaf,
) -> Result<Option<(Leaf, Content)>, Stop> {
    let raw = |leaf| Ok(Some((leaf, Content::Raw)));
    let Some(first) = cursor.peek()? else { return Ok(None) };
    match first {
        b'`' | b'~' => {
            let mut after = cursor;
            let length = after.take_run(first)?;
            // With another backtick on the line it is a code span.
            let has_backtick = first == b'`' && after.line_has(b'`')?;
            if length >= 3 && !has_backtick { raw(Leaf::Fence { mark: first, length }) } else { Ok(None) }
        }
        b'#' => {
            let mut after = cursor;
            let level = after.take_run(b'#')?;
            let heading = level <= 6 && matches!(after.peek()?, None | Some(b' ' | b'\t' | b'\n' | b'\r'));
            Ok(heading.then_some((Leaf::None, Content::Prose)))
        }
        b'<' => match html::block_start(cursor.rest(), in_paragraph) {
            Ok(Some(end)) => raw(Leaf::Html(end)),
            Ok(None) | Err(Stop::End) => Ok(None),
            Err(stop) => Err(stop),
        },
        b'=' | b'-' if in_paragraph && all_matched && before != Leaf::Table && cursor.rest_is_run(first)? => {
            raw(Leaf::None)
        }
        b'-' | b'*' | b'_' if thematic_break(cursor, first)? => raw(Leaf::None),
        b'|' | b':' | b'-' if in_paragraph && all_matched && before != Leaf::Table && is_table_delimiter(cursor)? => {
            raw(Leaf::Table)
        }
        _ => Ok(None),
    }
}

/// True for a thematic break: `---`, `* * *`.
fn thematic_break(mut cursor: Cursor<'_>, mark: u8) -> Result<bool, Stop> {
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

/// True for a delimiter row, which makes the line before it a table head: `| --- | :-: |`.
fn is_table_delimiter(mut cursor: Cursor<'_>) -> Result<bool, Stop> {
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

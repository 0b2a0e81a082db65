//! Reader: finds the markers in the prose of a text while it streams. Used by the rewriter and the scanner. Its result does
//! not depend on how the text was split.

mod inside;
mod prose;

use std::collections::BTreeSet;

use super::{
    block::{Blocks, Content, Leaf},
    context,
    grammar::{self, Marker},
    html::{HtmlEnd, Tag},
    link::{Brackets, Tail},
    lookahead::{Lookahead, MAX_LOOKAHEAD, Stop, slice},
};

/// Bytes of decided text that are kept for the checks of what precedes a marker.
const BEFORE: usize = 32;

/// A part of the text. All segments in order are the text itself.
#[derive(Debug)]
pub enum Segment<'a> {
    Text(&'a str),
    /// A marker and its text.
    Marker(&'a Marker, &'a str),
}

/// An incremental parser that splits a text into [`Segment`]s.
#[derive(Debug, Clone, Default)]
pub struct Reader {
    /// Buffer: the end of the decided text, and all undecided text.
    text: String,
    /// Where the undecided text begins in `text`.
    at: usize,
    /// Where the text that was not emitted begins. Beyond `at` where the text is known to contain no marker.
    sent: usize,
    blocks: Blocks,
    line_state: LineState,
    /// Only the prefix of the line precedes `at`.
    is_line_start: bool,
    /// A link reference definition may begin on this line: it begins a paragraph or follows another definition.
    can_define: bool,
    inside: Inside,
    /// Open brackets whose end was beyond the lookahead.
    brackets: Brackets,
    /// A marker ends at `at`.
    is_after_marker: bool,
    /// Footnotes that the text defines. At most 999, because numbers have three digits.
    footnotes: BTreeSet<u32>,
    /// Bytes of the whole text that were removed from the front of `text`.
    dropped: u64,
    /// See [`Self::split_points()`]; `None` if not recorded.
    split_points: Option<Vec<u64>>,
}

/// Where in a line `at` is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum LineState {
    /// At the beginning of a line, before its indentation and container markers.
    #[default]
    Prefix,
    /// In content that is not parsed, such as code.
    Raw,
    Prose,
    /// In prose in table cells.
    Cells,
}

/// A construct whose end was beyond the lookahead when it began. It lasts until its end or the end of the paragraph.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Inside {
    #[default]
    Nothing,
    /// A code span, with the number of its backticks.
    Code(usize),
    /// `$$`.
    Dollars,
    /// `\(` or `\[`, with the bracket that ends it after a backslash.
    Latex(u8),
    /// A tag, with the element that it opens if the text of that element is not prose.
    Tag(Tag, Option<&'static str>),
    /// An element whose text is not prose.
    Element(&'static str),
    /// A link's URL and title.
    Tail(Tail),
    /// A bare URL.
    Url,
    /// A link reference definition, up to the end of the line.
    Definition,
}

/// What to do with the text at `at`.
enum Action {
    /// Emit this many bytes as text.
    Text(usize),
    /// Emit a marker.
    Marker(Marker),
    /// Wait for more text.
    Wait,
}

impl Reader {
    /// Takes the next piece of the text and emits the decided segments to `out`.
    pub fn push(&mut self, piece: &str, out: &mut impl FnMut(Segment<'_>)) {
        if !self.is_plain(piece) {
            self.text.push_str(piece);
            return self.parse(false, out);
        }
        if !piece.is_empty() {
            out(Segment::Text(piece));
            (self.is_line_start, self.is_after_marker) = (false, false);
            let tail = piece.ceil_char_boundary(piece.len().saturating_sub(BEFORE));
            self.text.push_str(slice(piece, tail, piece.len()));
            self.dropped += tail as u64;
            self.at = self.text.len();
            self.sent = self.at;
            if self.at > 4 * BEFORE {
                self.drop_decided();
            }
        }
    }

    /// Decides and emits the rest. No more text follows.
    pub fn finish(&mut self, out: &mut impl FnMut(Segment<'_>)) {
        self.parse(true, out);
    }

    /// True if text is held back.
    pub fn holds(&self) -> bool {
        self.sent < self.text.len()
    }

    /// A reader that records [`Self::split_points`].
    pub fn with_split_points() -> Self {
        Self { split_points: Some(Vec::new()), ..Self::default() }
    }

    /// The beginnings of lines, ascending, at which a new reader would find the same segments in all text that follows.
    pub fn split_points(&self) -> Vec<u64> {
        let mut split_points = self.split_points.clone().unwrap_or_default();
        if self.line_state == LineState::Prefix && self.blocks.is_empty() && self.inside != Inside::Definition {
            split_points.push(self.dropped + self.at as u64);
        }
        split_points
    }

    /// Bytes in the buffer.
    #[cfg(test)]
    pub fn kept(&self) -> usize {
        self.text.len()
    }

    /// True if the text defines this footnote.
    pub fn defines_footnote(&self, number: u32) -> bool {
        self.footnotes.contains(&number)
    }

    /// True if the piece is prose without special bytes, as most pieces are. Such a piece is emitted without being parsed.
    fn is_plain(&self, piece: &str) -> bool {
        self.at == self.text.len()
            && self.line_state == LineState::Prose
            && self.inside == Inside::Nothing
            && self.brackets.is_empty()
            && context::next_special(piece.as_bytes(), 0, false) == piece.len()
    }

    fn parse(&mut self, ended: bool, out: &mut impl FnMut(Segment<'_>)) {
        let text = std::mem::take(&mut self.text);
        let send = |from: usize, to: usize, out: &mut dyn FnMut(Segment<'_>)| {
            if from < to {
                out(Segment::Text(slice(&text, from, to)));
            }
        };
        while self.at < text.len() {
            match self.next_action(&text, ended) {
                Action::Wait => break,
                Action::Text(length) => self.at += length,
                Action::Marker(marker) => {
                    send(self.sent, self.at, out);
                    let end = self.at + marker.length;
                    out(Segment::Marker(&marker, slice(&text, self.at, end)));
                    (self.at, self.sent) = (end, end);
                    (self.is_line_start, self.is_after_marker) = (false, true);
                }
            }
        }
        let end = if ended { text.len() } else { possible_marker(&text, self.at.max(self.sent)) };
        send(self.sent, end, out);
        self.sent = end;
        self.text = text;
        self.drop_decided();
    }

    /// Removes decided text from the front of the buffer, except the last [`BEFORE`] bytes.
    fn drop_decided(&mut self) {
        let cut = self.text.ceil_char_boundary(self.at.saturating_sub(BEFORE));
        self.text.drain(..cut);
        self.dropped += cut as u64;
        self.at -= cut;
        self.sent -= cut;
    }

    fn next_action(&mut self, text: &str, ended: bool) -> Action {
        let rest = slice(text, self.at, text.len());
        match self.line_state {
            LineState::Prefix => self.line(Lookahead::new(rest, ended, MAX_LOOKAHEAD)),
            LineState::Raw => self.raw(text),
            LineState::Prose | LineState::Cells if self.inside == Inside::Nothing => self.prose(text, ended),
            LineState::Prose | LineState::Cells => self.inside(text, ended),
        }
    }

    /// Parses the prefix of a line.
    fn line(&mut self, ahead: Lookahead<'_>) -> Action {
        let line = match self.blocks.parse_line(ahead) {
            Ok(line) => line,
            Err(Stop::NeedMore) => return Action::Wait,
            Err(Stop::TooFar | Stop::End) => self.blocks.parse_line_as_ended(ahead),
        };
        let was_definition = self.inside == Inside::Definition;
        self.can_define = was_definition || line.begins;
        if let Some(split_points) = &mut self.split_points
            && self.can_define == line.begins
            && Blocks::reads_as_first(&line, ahead)
        {
            split_points.push(self.dropped + self.at as u64);
        }
        if was_definition || !line.continues {
            self.inside = Inside::Nothing;
            self.brackets.clear();
        }
        self.blocks = line.blocks;
        self.line_state = match line.content {
            Content::Raw => LineState::Raw,
            Content::Prose => LineState::Prose,
            Content::Cells => LineState::Cells,
        };
        (self.is_line_start, self.is_after_marker) = (true, false);
        Action::Text(line.prefix)
    }

    /// Takes raw content up to the end of the line or of the HTML block.
    fn raw(&mut self, text: &str) -> Action {
        let rest = slice(text, self.at, text.len()).as_bytes();
        if let Leaf::Html(HtmlEnd::Text(end)) = self.blocks.leaf
            && let Some(found) = memchr::memchr2(b'>', b'\n', rest)
            && rest.get(found) == Some(&b'>')
        {
            let end_of_tag = self.at + found + 1;
            let last = text.as_bytes().get(end_of_tag.saturating_sub(end.len())..end_of_tag).unwrap_or_default();
            if last.eq_ignore_ascii_case(end.as_bytes()) {
                self.blocks.leaf = Leaf::None;
            }
            return Action::Text(found + 1);
        }
        match memchr::memchr(b'\n', rest) {
            Some(found) => {
                self.line_state = LineState::Prefix;
                Action::Text(found + 1)
            }
            None => Action::Text(rest.len()),
        }
    }

    /// True in a table row.
    fn cells(&self) -> bool {
        self.line_state == LineState::Cells
    }
}

/// Returns where the first marker or possible marker begins, from `from` on, or the end of the text.
fn possible_marker(text: &str, from: usize) -> usize {
    let bytes = text.as_bytes();
    (from..text.len())
        .filter(|at| grammar::can_begin(bytes, *at))
        .find(|at| {
            let rest = slice(text, *at, text.len());
            !matches!(grammar::parse(Lookahead::new(rest, false, MAX_LOOKAHEAD), rest, false), Ok(None))
        })
        .unwrap_or(text.len())
}

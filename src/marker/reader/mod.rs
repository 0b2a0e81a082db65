//! Reads a text as it comes and finds the markers in its prose.

mod inside;
mod prose;

use std::collections::BTreeSet;

use super::{
    block::{Blocks, Content, Leaf},
    context,
    grammar::{self, Marker},
    html::{HtmlEnd, Tag},
    link::{Brackets, Tail},
    look::{Ahead, HOLD, Stop, slice},
};

/// Bytes of decided text that are kept, for what stands before a marker.
const BEFORE: usize = 32;

/// What was read. All of them together are the whole text, in its order.
#[derive(Debug)]
pub enum Read<'a> {
    Text(&'a str),
    Marker(&'a Marker, &'a str),
}

#[derive(Debug, Clone, Default)]
pub struct Reader {
    /// A little of what is decided, and all that is not.
    text: String,
    /// Where the undecided text begins.
    at: usize,
    /// Up to where the text went out: further than `at` where no verdict could change it.
    sent: usize,
    blocks: Blocks,
    place: Place,
    /// Nothing but the beginning of the line is before this place.
    fresh: bool,
    /// A paragraph begins with this line, or with definitions before it.
    defines: bool,
    inside: Inside,
    /// Brackets that opened too far back to be seen with their end.
    brackets: Brackets,
    /// A marker ends here.
    marked: bool,
    /// Footnotes that the text defines itself; a marker's number is at most 999.
    notes: BTreeSet<u32>,
    /// Bytes of the whole text that are before the text here.
    gone: u64,
    /// Where in the whole text it could be cut, where somebody asks.
    seams: Option<Vec<u64>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    #[default]
    LineStart,
    Raw,
    Prose,
    Cells,
}

/// A construct whose end was too far to see when it began: it lasts until its end, or the paragraph's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Inside {
    #[default]
    Nothing,
    /// So many backticks end it.
    Code(usize),
    /// `$$`.
    Dollars,
    /// `\(` or `\[`, and what ends it after a backslash.
    Latex(u8),
    /// A tag, and the element that it opens.
    Tag(Tag, Option<&'static str>),
    /// An element whose text is not prose.
    Element(&'static str),
    /// A link's URL and title.
    Tail(Tail),
    /// A URL in the text.
    Url,
    /// The definition of a link takes the whole line.
    Definition,
}

enum Step {
    /// So much is text.
    Text(usize),
    Marker(Marker),
    Wait,
}

impl Reader {
    /// Takes the next piece.
    pub fn push(&mut self, piece: &str, out: &mut impl FnMut(Read<'_>)) {
        if !self.is_plain(piece) {
            self.text.push_str(piece);
            return self.run(false, out);
        }
        if !piece.is_empty() {
            out(Read::Text(piece));
            (self.fresh, self.marked) = (false, false);
            let tail = piece.ceil_char_boundary(piece.len().saturating_sub(BEFORE));
            self.text.push_str(slice(piece, tail, piece.len()));
            self.gone += tail as u64;
            self.at = self.text.len();
            self.sent = self.at;
            if self.at > 4 * BEFORE {
                self.forget();
            }
        }
    }

    /// Nothing more comes.
    pub fn finish(&mut self, out: &mut impl FnMut(Read<'_>)) {
        self.run(true, out);
    }

    /// Is something held back?
    pub fn holds(&self) -> bool {
        self.sent < self.text.len()
    }

    /// As a new one, for somebody who asks for [`Self::seams`].
    pub fn with_seams() -> Self {
        Self { seams: Some(Vec::new()), ..Self::default() }
    }

    /// The beginnings of lines, ascending, where another reader could take over that knows nothing of what was before,
    /// and would read the same whatever comes.
    pub fn seams(&self) -> Vec<u64> {
        let mut seams = self.seams.clone().unwrap_or_default();
        if self.place == Place::LineStart && self.blocks.are_over() && self.inside != Inside::Definition {
            seams.push(self.gone + self.at as u64);
        }
        seams
    }

    /// Bytes kept.
    #[cfg(test)]
    pub fn kept(&self) -> usize {
        self.text.len()
    }

    /// Does the text define this footnote itself?
    pub fn defines(&self, number: u32) -> bool {
        self.notes.contains(&number)
    }

    /// Most pieces are prose with nothing in it that could mean anything.
    fn is_plain(&self, piece: &str) -> bool {
        self.at == self.text.len()
            && self.place == Place::Prose
            && self.inside == Inside::Nothing
            && self.brackets.is_empty()
            && context::plain(piece.as_bytes(), 0, false) == piece.len()
    }

    fn run(&mut self, ended: bool, out: &mut impl FnMut(Read<'_>)) {
        let text = std::mem::take(&mut self.text);
        let send = |from: usize, to: usize, out: &mut dyn FnMut(Read<'_>)| {
            if from < to {
                out(Read::Text(slice(&text, from, to)));
            }
        };
        while self.at < text.len() {
            match self.step(&text, ended) {
                Step::Wait => break,
                Step::Text(length) => self.at += length,
                Step::Marker(marker) => {
                    send(self.sent, self.at, out);
                    let end = self.at + marker.length;
                    out(Read::Marker(&marker, slice(&text, self.at, end)));
                    (self.at, self.sent) = (end, end);
                    (self.fresh, self.marked) = (false, true);
                }
            }
        }
        let clear = if ended { text.len() } else { clear(&text, self.at.max(self.sent)) };
        send(self.sent, clear, out);
        self.sent = clear;
        self.text = text;
        self.forget();
    }

    fn forget(&mut self) {
        let cut = self.text.ceil_char_boundary(self.at.saturating_sub(BEFORE));
        self.text.drain(..cut);
        self.gone += cut as u64;
        self.at -= cut;
        self.sent -= cut;
    }

    fn step(&mut self, text: &str, ended: bool) -> Step {
        let rest = slice(text, self.at, text.len());
        match self.place {
            Place::LineStart => self.line(Ahead::new(rest, ended, HOLD)),
            Place::Raw => self.raw(text),
            Place::Prose | Place::Cells if self.inside == Inside::Nothing => self.prose(text, ended),
            Place::Prose | Place::Cells => self.inside(text, ended),
        }
    }

    fn line(&mut self, ahead: Ahead<'_>) -> Step {
        let line = match self.blocks.line(ahead) {
            Ok(line) => line,
            Err(Stop::More) => return Step::Wait,
            Err(Stop::Far | Stop::End) => self.blocks.line_anyway(ahead),
        };
        let defined = self.inside == Inside::Definition;
        self.defines = defined || line.begins;
        if let Some(seams) = &mut self.seams
            && self.defines == line.begins
            && Blocks::is_first(&line, ahead)
        {
            seams.push(self.gone + self.at as u64);
        }
        if defined || !line.goes_on {
            self.inside = Inside::Nothing;
            self.brackets.clear();
        }
        self.blocks = line.blocks;
        self.place = match line.content {
            Content::Raw => Place::Raw,
            Content::Prose => Place::Prose,
            Content::Cells => Place::Cells,
        };
        (self.fresh, self.marked) = (true, false);
        Step::Text(line.prefix)
    }

    fn raw(&mut self, text: &str) -> Step {
        let rest = slice(text, self.at, text.len()).as_bytes();
        if let Leaf::Html(HtmlEnd::Text(end)) = self.blocks.leaf
            && let Some(found) = memchr::memchr2(b'>', b'\n', rest)
            && rest.get(found) == Some(&b'>')
        {
            let upto = self.at + found + 1;
            let last = text.as_bytes().get(upto.saturating_sub(end.len())..upto).unwrap_or_default();
            if last.eq_ignore_ascii_case(end.as_bytes()) {
                self.blocks.leaf = Leaf::Gap;
            }
            return Step::Text(found + 1);
        }
        match memchr::memchr(b'\n', rest) {
            Some(found) => {
                self.place = Place::LineStart;
                Step::Text(found + 1)
            }
            None => Step::Text(rest.len()),
        }
    }

    fn cells(&self) -> bool {
        self.place == Place::Cells
    }
}

/// Up to where the text from `from` on has nothing that could become a marker.
fn clear(text: &str, from: usize) -> usize {
    let bytes = text.as_bytes();
    (from..text.len())
        .filter(|at| grammar::begins(bytes, *at))
        .find(|at| {
            let rest = slice(text, *at, text.len());
            !matches!(grammar::read(Ahead::new(rest, false, HOLD), rest, false), Ok(None))
        })
        .unwrap_or(text.len())
}

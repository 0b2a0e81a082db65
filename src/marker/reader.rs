//! Reads a text as it comes and finds the markers in its prose.

use std::collections::BTreeSet;

use super::{
    block::{Blocks, Content, Leaf},
    context,
    grammar::{self, Form, MAX_LINKED, Marker},
    html::{self, HtmlEnd, Tag},
    look::{Ahead, HOLD, Stop, slice},
    span::{self, Bracket, Brackets, Closing, Tail},
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

    fn prose(&mut self, text: &str, ended: bool) -> Step {
        let bytes = text.as_bytes();
        let plain = context::plain(bytes, self.at, self.cells() || !self.brackets.is_empty()) - self.at;
        if plain > 0 {
            (self.fresh, self.marked) = (false, false);
            return Step::Text(plain);
        }
        let ahead = Ahead::new(slice(text, self.at, text.len()), ended, HOLD);
        let step = self.construct(text, ahead, ended);
        if matches!(step, Step::Text(length) if length > 0) {
            (self.fresh, self.marked) = (false, false);
        }
        step
    }

    /// Something that could mean something begins here.
    fn construct(&mut self, text: &str, ahead: Ahead<'_>, ended: bool) -> Step {
        let cells = self.cells();
        let Ok(byte) = ahead.byte(0) else { return Step::Wait };
        match byte {
            b'\n' => {
                self.place = Place::LineStart;
                Step::Text(1)
            }
            b'|' => {
                self.brackets.clear();
                Step::Text(1)
            }
            b'\\' => match ahead.byte(1) {
                Ok(b'(' | b'[') => match span::latex(ahead, &self.blocks, cells) {
                    Ok(Some(length)) => Step::Text(length),
                    Ok(None) | Err(Stop::End) => Step::Text(2),
                    Err(Stop::More) => Step::Wait,
                    Err(Stop::Far) => {
                        self.inside = Inside::Latex(if ahead.byte(1) == Ok(b'(') { b')' } else { b']' });
                        Step::Text(2)
                    }
                },
                Ok(next) if next.is_ascii_punctuation() => Step::Text(2),
                Err(Stop::More) => Step::Wait,
                _ => Step::Text(1),
            },
            b'`' => match span::code(ahead, &self.blocks, cells) {
                Ok(Some(length)) => Step::Text(length),
                Err(Stop::More) => Step::Wait,
                verdict => match ahead.run(0, |b| b == b'`') {
                    Ok(run) => {
                        if verdict == Err(Stop::Far) {
                            self.inside = Inside::Code(run);
                        }
                        Step::Text(run)
                    }
                    Err(_) => Step::Text(ahead.text.len()),
                },
            },
            b'$' => match span::dollars(ahead, &self.blocks, cells) {
                Ok(Some(length)) => Step::Text(length),
                Err(Stop::More) => Step::Wait,
                Err(Stop::Far) if ahead.byte(1) == Ok(b'$') => {
                    self.inside = Inside::Dollars;
                    Step::Text(2)
                }
                _ => Step::Text(1),
            },
            b':' => match ahead.has(0, "://") {
                Err(Stop::More) => Step::Wait,
                Ok(true) if context::scheme(slice(text, 0, self.at).as_bytes()) => {
                    self.inside = Inside::Url;
                    Step::Text(3)
                }
                _ => Step::Text(1),
            },
            b']' => self.bracket_end(ahead),
            _ => self.marker(text, ahead, ended),
        }
    }

    fn marker(&mut self, text: &str, ahead: Ahead<'_>, ended: bool) -> Step {
        let far = Ahead::new(slice(text, self.at, text.len()), ended, MAX_LINKED);
        match grammar::read(ahead, far) {
            Ok(Some(marker)) => match self.counts(text, ahead, &marker) {
                Ok(true) => return Step::Marker(marker),
                Err(Stop::More) => return Step::Wait,
                _ => {}
            },
            Err(Stop::More) => return Step::Wait,
            _ => {}
        }
        match ahead.byte(0) {
            Ok(b'[') => self.bracket(text, ahead),
            Ok(b'<') => self.tag(ahead),
            _ => Step::Text(ahead.text.chars().next().map_or(0, char::len_utf8)),
        }
    }

    /// Is what has the form of a marker one, in this place?
    fn counts(&mut self, text: &str, ahead: Ahead<'_>, marker: &Marker) -> Result<bool, Stop> {
        let before = slice(text, 0, self.at).as_bytes();
        let after = ahead.from(marker.length);
        let last = before.last();
        match marker.form {
            Form::Bracket => {
                let next = match after.byte(0) {
                    Err(Stop::More) => return Err(Stop::More),
                    next => next.ok(),
                };
                if next == Some(b':') && self.fresh {
                    if ahead.byte(1) == Ok(b'^') {
                        self.notes.extend(marker.numbers());
                    }
                    return Ok(false);
                }
                // `[1](url)` is a link, and so is `[text][1]`.
                let link = next == Some(b'(') || (last == Some(&b']') && !self.marked);
                if link || context::index(before, after)? {
                    return Ok(false);
                }
            }
            // An image whose description is a number.
            Form::Linked { .. } | Form::Ref if context::image(before) => return Ok(false),
            _ => {}
        }
        if self.brackets.is_empty() {
            return Ok(true);
        }
        match span::closing(ahead, marker.length, self.brackets, &self.blocks, self.cells()) {
            Ok(Some(_)) => Ok(false),
            Err(Stop::More) => Err(Stop::More),
            _ => Ok(true),
        }
    }

    fn bracket(&mut self, text: &str, ahead: Ahead<'_>) -> Step {
        if self.fresh && self.defines {
            match span::definition(ahead, &self.blocks) {
                Ok(Some(length)) => {
                    self.inside = Inside::Definition;
                    return Step::Text(length);
                }
                Err(Stop::More) => return Step::Wait,
                _ => {}
            }
        }
        let image = context::image(slice(text, 0, self.at).as_bytes());
        let kind = if image { Bracket::Image } else { Bracket::Link };
        let mut open = Brackets::default();
        open.push(kind);
        match span::closing(ahead, 1, open, &self.blocks, self.cells()) {
            Ok(Some(closing)) => {
                if !image {
                    self.brackets.linked();
                }
                match closing {
                    Closing::Link(length) => Step::Text(length),
                    Closing::Url(at) => {
                        self.inside = Inside::Tail(Tail::default());
                        Step::Text(at + 1)
                    }
                }
            }
            Err(Stop::More) => Step::Wait,
            Err(Stop::Far) => {
                self.brackets.push(kind);
                Step::Text(1)
            }
            Ok(None) | Err(Stop::End) => {
                // Inside a far bracket, its end must not be taken for that one's.
                if !self.brackets.is_empty() {
                    self.brackets.push(Bracket::Off);
                }
                Step::Text(1)
            }
        }
    }

    /// A `]` while far brackets are open.
    fn bracket_end(&mut self, ahead: Ahead<'_>) -> Step {
        let mut rest = self.brackets;
        let links = rest.pop().is_some_and(|bracket| bracket != Bracket::Off);
        let length = match ahead.byte(1) {
            Err(Stop::More) => return Step::Wait,
            Ok(b'(') if links => match span::tail(ahead.from(1), &self.blocks, self.cells()) {
                Err(Stop::More) => return Step::Wait,
                Ok(Some(length)) => 1 + length,
                Err(Stop::Far) => {
                    self.inside = Inside::Tail(Tail::default());
                    2
                }
                Ok(None) | Err(Stop::End) => 1,
            },
            _ => 1,
        };
        self.brackets = rest;
        if length > 1 {
            self.brackets.linked();
        }
        Step::Text(length)
    }

    fn tag(&mut self, ahead: Ahead<'_>) -> Step {
        match html::inline(ahead, &self.blocks, self.cells()) {
            Ok(Some(length)) => {
                if let Some(element) = html::opens(slice(ahead.text, 0, length)) {
                    self.inside = Inside::Element(element);
                }
                Step::Text(length)
            }
            Err(Stop::More) => Step::Wait,
            Err(Stop::Far) => {
                self.inside = Inside::Tag(Tag::default(), html::opens(ahead.text));
                Step::Text(1)
            }
            Ok(None) | Err(Stop::End) => Step::Text(1),
        }
    }

    /// Goes on in a construct that has not ended yet.
    fn inside(&mut self, text: &str, ended: bool) -> Step {
        let rest = slice(text, self.at, text.len());
        let cells = self.cells();
        let stops = |byte: u8| match self.inside {
            _ if byte == b'\n' || (cells && matches!(byte, b'|' | b'\\')) => true,
            Inside::Code(_) => byte == b'`',
            Inside::Dollars => matches!(byte, b'$' | b'\\'),
            Inside::Latex(_) => byte == b'\\',
            Inside::Element(_) => byte == b'<',
            Inside::Url => !context::in_url(byte),
            Inside::Definition => false,
            Inside::Tag(..) | Inside::Tail(_) | Inside::Nothing => true,
        };
        let plain = rest.bytes().position(stops).unwrap_or(rest.len());
        if plain > 0 {
            (self.fresh, self.marked) = (false, false);
            return Step::Text(plain);
        }
        let ahead = Ahead::new(rest, ended, HOLD);
        let Ok(byte) = ahead.byte(0) else { return Step::Wait };
        let escape = |also: fn(u8) -> bool| match ahead.byte(1) {
            Err(Stop::More) => Step::Wait,
            Ok(next) if also(next) => Step::Text(2),
            _ => Step::Text(1),
        };
        match (self.inside, byte) {
            (_, b'|') if cells => self.leave(0),
            (Inside::Tag(tag, element), _) => match tag.step(byte) {
                None => self.leave(0),
                Some(Tag::Done) => {
                    let empty = slice(text, 0, self.at).ends_with('/');
                    self.inside = element.filter(|_| !empty).map_or(Inside::Nothing, Inside::Element);
                    Step::Text(1)
                }
                Some(next) => {
                    self.inside = Inside::Tag(next, element);
                    self.one(rest)
                }
            },
            (Inside::Tail(tail), _) => match tail.step(byte) {
                None => self.leave(0),
                Some(Tail::Done) => self.leave(1),
                Some(next) => {
                    self.inside = Inside::Tail(next);
                    self.one(rest)
                }
            },
            (Inside::Code(length), b'`') => {
                // A longer run is taken in parts: it ends nothing either way.
                let run = rest.bytes().take(HOLD).take_while(|b| *b == b'`').count();
                match ahead.byte(run) {
                    Err(Stop::More) => Step::Wait,
                    _ if run == length => self.leave(run),
                    _ => Step::Text(run),
                }
            }
            (Inside::Code(_), b'\\') => escape(|next| next == b'|'),
            (Inside::Dollars, b'$') => match ahead.byte(1) {
                Err(Stop::More) => Step::Wait,
                Ok(b'$') => self.leave(2),
                _ => self.leave(0),
            },
            (Inside::Latex(end), b'\\') if ahead.byte(1) == Ok(end) => self.leave(2),
            (Inside::Element(element), b'<') => match html::closes(ahead, element) {
                Ok(Some(length)) => self.leave(length),
                Err(Stop::More) => Step::Wait,
                _ => Step::Text(1),
            },
            (Inside::Url, b'[') => {
                let far = Ahead::new(rest, ended, MAX_LINKED);
                match grammar::read(ahead, far) {
                    Ok(Some(marker)) if marker.form == Form::Bracket => {
                        match context::url_goes_on(ahead.from(marker.length)) {
                            Ok(true) => Step::Text(marker.length),
                            Err(Stop::More) => Step::Wait,
                            _ => self.leave(0),
                        }
                    }
                    Err(Stop::More) => Step::Wait,
                    _ => self.leave(0),
                }
            }
            (Inside::Url, _) => self.leave(0),
            (_, b'\\') => escape(|next| next.is_ascii_punctuation()),
            _ => self.one(rest),
        }
    }

    fn leave(&mut self, length: usize) -> Step {
        self.inside = Inside::Nothing;
        Step::Text(length)
    }

    /// One character; after a line end comes the next line.
    fn one(&mut self, rest: &str) -> Step {
        if rest.starts_with('\n') {
            self.place = Place::LineStart;
        }
        Step::Text(rest.chars().next().map_or(0, char::len_utf8))
    }
}

/// Up to where the text from `from` on has nothing that could become a marker.
fn clear(text: &str, from: usize) -> usize {
    let bytes = text.as_bytes();
    (from..text.len())
        .filter(|at| grammar::begins(bytes, *at))
        .find(|at| {
            let rest = slice(text, *at, text.len());
            !matches!(grammar::read(Ahead::new(rest, false, HOLD), Ahead::new(rest, false, MAX_LINKED)), Ok(None))
        })
        .unwrap_or(text.len())
}

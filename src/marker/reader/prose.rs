//! Reads prose.

use super::super::{
    context,
    grammar::{self, Form, Marker},
    html::{self, Tag},
    link::{self, Bracket, Brackets, Closing, Tail},
    look::{Ahead, HOLD, Stop, slice},
    span,
};
use super::{Inside, Place, Reader, Step};

impl Reader {
    pub(super) fn prose(&mut self, text: &str, ended: bool) -> Step {
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
        match grammar::read(ahead, slice(text, self.at, text.len()), ended) {
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
        match link::closing(ahead, marker.length, self.brackets, &self.blocks, self.cells()) {
            Ok(Some(_)) => Ok(false),
            Err(Stop::More) => Err(Stop::More),
            _ => Ok(true),
        }
    }

    fn bracket(&mut self, text: &str, ahead: Ahead<'_>) -> Step {
        if self.fresh && self.defines {
            match link::definition(ahead, &self.blocks) {
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
        match link::closing(ahead, 1, open, &self.blocks, self.cells()) {
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
            Ok(b'(') if links => match link::tail(ahead.from(1), &self.blocks, self.cells()) {
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
}

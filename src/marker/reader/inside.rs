//! Reads on in a construct that has not ended yet.

use super::super::{
    context,
    grammar::{self, Form},
    html::{self, Tag},
    link::Tail,
    look::{Ahead, HOLD, Stop, slice},
};
use super::{Inside, Place, Reader, Step};

impl Reader {
    pub(super) fn inside(&mut self, text: &str, ended: bool) -> Step {
        let rest = slice(text, self.at, text.len());
        let cells = self.cells();
        let stops = |byte: u8| match self.inside {
            _ if byte == b'\n' || (cells && matches!(byte, b'|' | b'\\')) => true,
            Inside::Code(_) => byte == b'`',
            Inside::Dollars => matches!(byte, b'$' | b'\\'),
            Inside::Latex(_) => byte == b'\\',
            Inside::Element(_) => matches!(byte, b'<' | b'\\'),
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
            (Inside::Url, b'[') => match grammar::read(ahead, rest, ended) {
                Ok(Some(marker)) if marker.form == Form::Bracket => {
                    match context::url_goes_on(ahead.from(marker.length)) {
                        Ok(true) => Step::Text(marker.length),
                        Err(Stop::More) => Step::Wait,
                        _ => self.leave(0),
                    }
                }
                Err(Stop::More) => Step::Wait,
                _ => self.leave(0),
            },
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

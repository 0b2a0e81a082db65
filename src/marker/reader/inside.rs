//! The part of the reader that continues an open construct, whose end was beyond the lookahead.

use super::super::{
    context,
    grammar::{self, Form},
    html::{self, Tag},
    link::Tail,
    lookahead::{Lookahead, MAX_LOOKAHEAD, Stop, slice},
};
use super::{Action, Inside, LineState, Reader};

impl Reader {
    pub(super) fn inside(&mut self, text: &str, ended: bool) -> Action {
        let rest = slice(text, self.at, text.len());
        let cells = self.cells();
        let stops = |byte: u8| match self.inside {
            _ if byte == b'\n' || (cells && matches!(byte, b'|' | b'\\')) => true,
            Inside::Code(_) => byte == b'`',
            Inside::Dollars => matches!(byte, b'$' | b'\\'),
            Inside::Latex(_) => byte == b'\\',
            Inside::Element(_) => matches!(byte, b'<' | b'\\'),
            Inside::Url => !context::is_url_byte(byte),
            Inside::Definition => false,
            Inside::Tag(..) | Inside::Tail(_) | Inside::Nothing => true,
        };
        let plain = rest.bytes().position(stops).unwrap_or(rest.len());
        if plain > 0 {
            (self.is_line_start, self.is_after_marker) = (false, false);
            return Action::Text(plain);
        }
        let ahead = Lookahead::new(rest, ended, MAX_LOOKAHEAD);
        let Ok(byte) = ahead.byte(0) else { return Action::Wait };
        let escape = |also: fn(u8) -> bool| match ahead.byte(1) {
            Err(Stop::NeedMore) => Action::Wait,
            Ok(next) if also(next) => Action::Text(2),
            _ => Action::Text(1),
        };
        match (self.inside, byte) {
            (_, b'|') if cells => self.leave(0),
            (Inside::Tag(tag, element), _) => match tag.step(byte) {
                None => self.leave(0),
                Some(Tag::Done) => {
                    let empty = slice(text, 0, self.at).ends_with('/');
                    self.inside = element.filter(|_| !empty).map_or(Inside::Nothing, Inside::Element);
                    Action::Text(1)
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
                // A run beyond the lookahead is taken in parts: it is longer than any run that opened a span.
                let run = rest.bytes().take(MAX_LOOKAHEAD).take_while(|b| *b == b'`').count();
                match ahead.byte(run) {
                    Err(Stop::NeedMore) => Action::Wait,
                    _ if run == length => self.leave(run),
                    _ => Action::Text(run),
                }
            }
            (Inside::Code(_), b'\\') => escape(|next| next == b'|'),
            (Inside::Dollars, b'$') => match ahead.byte(1) {
                Err(Stop::NeedMore) => Action::Wait,
                Ok(b'$') => self.leave(2),
                _ => self.leave(0),
            },
            (Inside::Latex(end), b'\\') if ahead.byte(1) == Ok(end) => self.leave(2),
            (Inside::Element(element), b'<') => match html::closing_tag(ahead, element) {
                Ok(Some(length)) => self.leave(length),
                Err(Stop::NeedMore) => Action::Wait,
                _ => Action::Text(1),
            },
            (Inside::Url, b'[') => match grammar::parse(ahead, rest, ended) {
                Ok(Some(marker)) if marker.form == Form::Bracket => {
                    match context::url_continues(ahead.from(marker.length)) {
                        Ok(true) => Action::Text(marker.length),
                        Err(Stop::NeedMore) => Action::Wait,
                        _ => self.leave(0),
                    }
                }
                Err(Stop::NeedMore) => Action::Wait,
                _ => self.leave(0),
            },
            (Inside::Url, _) => self.leave(0),
            (_, b'\\') => escape(|next| next.is_ascii_punctuation()),
            _ => self.one(rest),
        }
    }

    /// Ends the construct after `length` bytes.
    fn leave(&mut self, length: usize) -> Action {
        self.inside = Inside::Nothing;
        Action::Text(length)
    }

    /// Takes one character. A line end begins the next line.
    fn one(&mut self, rest: &str) -> Action {
        if rest.starts_with('\n') {
            self.line_state = LineState::Prefix;
        }
        Action::Text(rest.chars().next().map_or(0, char::len_utf8))
    }
}

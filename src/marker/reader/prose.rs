//! The part of the reader that parses prose: text, markers and the constructs that contain none.

use super::super::{
    context,
    grammar::{self, Form, Marker},
    html::{self, Tag},
    link::{self, Bracket, Brackets, LinkEnd, Tail},
    lookahead::{Lookahead, MAX_LOOKAHEAD, Stop, slice},
    span,
};
use super::{Action, Inside, LineState, Reader};

impl Reader {
    pub(super) fn prose(&mut self, text: &str, ended: bool) -> Action {
        let bytes = text.as_bytes();
        let plain = context::next_special(bytes, self.at, self.cells() || !self.brackets.is_empty()) - self.at;
        if plain > 0 {
            (self.is_line_start, self.is_after_marker) = (false, false);
            return Action::Text(plain);
        }
        let ahead = Lookahead::new(slice(text, self.at, text.len()), ended, MAX_LOOKAHEAD);
        let action = self.construct(text, ahead, ended);
        if matches!(action, Action::Text(length) if length > 0) {
            (self.is_line_start, self.is_after_marker) = (false, false);
        }
        action
    }

    /// Parses the construct that may begin at this special byte.
    fn construct(&mut self, text: &str, ahead: Lookahead<'_>, ended: bool) -> Action {
        let cells = self.cells();
        let Ok(byte) = ahead.byte(0) else { return Action::Wait };
        match byte {
            b'\n' => {
                self.line_state = LineState::Prefix;
                Action::Text(1)
            }
            b'|' => {
                self.brackets.clear();
                Action::Text(1)
            }
            b'\\' => match ahead.byte(1) {
                Ok(b'(' | b'[') => match span::latex(ahead, &self.blocks, cells) {
                    Ok(Some(length)) => Action::Text(length),
                    Ok(None) | Err(Stop::End) => Action::Text(2),
                    Err(Stop::NeedMore) => Action::Wait,
                    Err(Stop::TooFar) => {
                        self.inside = Inside::Latex(if ahead.byte(1) == Ok(b'(') { b')' } else { b']' });
                        Action::Text(2)
                    }
                },
                Ok(next) if next.is_ascii_punctuation() => Action::Text(2),
                Err(Stop::NeedMore) => Action::Wait,
                _ => Action::Text(1),
            },
            b'`' => match span::code(ahead, &self.blocks, cells) {
                Ok(Some(length)) => Action::Text(length),
                Err(Stop::NeedMore) => Action::Wait,
                verdict => match ahead.run(0, |b| b == b'`') {
                    Ok(run) => {
                        if verdict == Err(Stop::TooFar) {
                            self.inside = Inside::Code(run);
                        }
                        Action::Text(run)
                    }
                    Err(_) => Action::Text(ahead.text.len()),
                },
            },
            b'$' => match span::dollars(ahead, &self.blocks, cells) {
                Ok(Some(length)) => Action::Text(length),
                Err(Stop::NeedMore) => Action::Wait,
                Err(Stop::TooFar) if ahead.byte(1) == Ok(b'$') => {
                    self.inside = Inside::Dollars;
                    Action::Text(2)
                }
                _ => Action::Text(1),
            },
            b':' => match ahead.has(0, "://") {
                Err(Stop::NeedMore) => Action::Wait,
                Ok(true) if context::ends_with_scheme(slice(text, 0, self.at).as_bytes()) => {
                    self.inside = Inside::Url;
                    Action::Text(3)
                }
                _ => Action::Text(1),
            },
            b']' => self.bracket_end(ahead),
            _ => self.marker(text, ahead, ended),
        }
    }

    /// Parses a marker, or a bracket or tag that is none.
    fn marker(&mut self, text: &str, ahead: Lookahead<'_>, ended: bool) -> Action {
        match grammar::parse(ahead, slice(text, self.at, text.len()), ended) {
            Ok(Some(marker)) => match self.counts(text, ahead, &marker) {
                Ok(true) => return Action::Marker(marker),
                Err(Stop::NeedMore) => return Action::Wait,
                _ => {}
            },
            Err(Stop::NeedMore) => return Action::Wait,
            _ => {}
        }
        match ahead.byte(0) {
            Ok(b'[') => self.bracket(text, ahead),
            Ok(b'<') => self.tag(ahead),
            _ => Action::Text(ahead.text.chars().next().map_or(0, char::len_utf8)),
        }
    }

    /// True if a parsed marker counts here: it is no footnote definition, link, image, index or link text.
    fn counts(&mut self, text: &str, ahead: Lookahead<'_>, marker: &Marker) -> Result<bool, Stop> {
        let before = slice(text, 0, self.at).as_bytes();
        let after = ahead.from(marker.length);
        let last = before.last();
        match marker.form {
            Form::Bracket => {
                let next = match after.byte(0) {
                    Err(Stop::NeedMore) => return Err(Stop::NeedMore),
                    next => next.ok(),
                };
                if next == Some(b':') && self.is_line_start {
                    if ahead.byte(1) == Ok(b'^') {
                        self.footnotes.extend(marker.numbers());
                    }
                    return Ok(false);
                }
                // `[1](url)` is a link, and so is `[text][1]`.
                let is_link = next == Some(b'(') || (last == Some(&b']') && !self.is_after_marker);
                if is_link || context::is_index(before, after)? {
                    return Ok(false);
                }
            }
            // An image with a number as its description.
            Form::Linked { .. } | Form::Ref if context::opens_image(before) => return Ok(false),
            _ => {}
        }
        if self.brackets.is_empty() {
            return Ok(true);
        }
        match link::find_end(ahead, marker.length, self.brackets, &self.blocks, self.cells()) {
            Ok(Some(_)) => Ok(false),
            Err(Stop::NeedMore) => Err(Stop::NeedMore),
            _ => Ok(true),
        }
    }

    /// Parses a `[` that begins no marker: a definition, a link or text.
    fn bracket(&mut self, text: &str, ahead: Lookahead<'_>) -> Action {
        if self.is_line_start && self.can_define {
            match link::definition(ahead, &self.blocks) {
                Ok(Some(length)) => {
                    self.inside = Inside::Definition;
                    return Action::Text(length);
                }
                Err(Stop::NeedMore) => return Action::Wait,
                _ => {}
            }
        }
        let is_image = context::opens_image(slice(text, 0, self.at).as_bytes());
        let kind = if is_image { Bracket::Image } else { Bracket::Link };
        let mut open = Brackets::default();
        open.push(kind);
        match link::find_end(ahead, 1, open, &self.blocks, self.cells()) {
            Ok(Some(closing)) => {
                if !is_image {
                    self.brackets.deactivate_links();
                }
                match closing {
                    LinkEnd::Link(length) => Action::Text(length),
                    LinkEnd::Url(at) => {
                        self.inside = Inside::Tail(Tail::default());
                        Action::Text(at + 1)
                    }
                }
            }
            Err(Stop::NeedMore) => Action::Wait,
            Err(Stop::TooFar) => {
                self.brackets.push(kind);
                Action::Text(1)
            }
            Ok(None) | Err(Stop::End) => {
                // Push this bracket as well, so that its `]` does not close the outer one.
                if !self.brackets.is_empty() {
                    self.brackets.push(Bracket::Inactive);
                }
                Action::Text(1)
            }
        }
    }

    /// Parses a `]` while a bracket is open whose end was beyond the lookahead.
    fn bracket_end(&mut self, ahead: Lookahead<'_>) -> Action {
        let mut rest = self.brackets;
        let is_active = rest.pop().is_some_and(|bracket| bracket != Bracket::Inactive);
        let length = match ahead.byte(1) {
            Err(Stop::NeedMore) => return Action::Wait,
            Ok(b'(') if is_active => match link::tail(ahead.from(1), &self.blocks, self.cells()) {
                Err(Stop::NeedMore) => return Action::Wait,
                Ok(Some(length)) => 1 + length,
                Err(Stop::TooFar) => {
                    self.inside = Inside::Tail(Tail::default());
                    2
                }
                Ok(None) | Err(Stop::End) => 1,
            },
            _ => 1,
        };
        self.brackets = rest;
        if length > 1 {
            self.brackets.deactivate_links();
        }
        Action::Text(length)
    }

    /// Parses a `<` that begins no marker.
    fn tag(&mut self, ahead: Lookahead<'_>) -> Action {
        match html::inline(ahead, &self.blocks, self.cells()) {
            Ok(Some(length)) => {
                if let Some(element) = html::opened_element(slice(ahead.text, 0, length)) {
                    self.inside = Inside::Element(element);
                }
                Action::Text(length)
            }
            Err(Stop::NeedMore) => Action::Wait,
            Err(Stop::TooFar) => {
                self.inside = Inside::Tag(Tag::default(), html::opened_element(ahead.text));
                Action::Text(1)
            }
            Ok(None) | Err(Stop::End) => Action::Text(1),
        }
    }
}

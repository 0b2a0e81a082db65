//! Frames that are like one that was read.
//!
//! Nearly all frames of an answer have the same keys in the same order, the same ids, and another piece of text. Once one
//! of them was read, the next are known by their bytes, in a tenth of the time. What may differ is told by the reading:
//! what lies under keys that it did not ask for (counters, stamps), the text that it passed on, and the event's id. Where
//! all else is the same, and the adapter's state too, reading such a frame would say the same of another text.

use std::borrow::Cow;

use super::{
    Signal, Sink,
    json::{self, asked::Asked},
    sight::Sights,
};
use crate::sse::fields::field;

/// The largest frame that others are held against.
const MAX_FRAME: usize = 2048;
/// Places where a frame may differ, its end among them.
const MAX_HOLES: usize = 32;
/// Frames that others are held against, of one stream. The next takes the place of the one that was of least use.
pub(super) const MAX_STENCILS: usize = 4;
/// How often a stream is tried whose frames are not alike.
const TRIES: u8 = 16;
/// So many frames that were alike are worth another try.
const WORTH: u32 = 8;

/// What may stand in a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hole {
    /// A string that is the frame's text.
    Text,
    /// Any other string.
    String,
    /// A whole number.
    Number,
    /// The value of a line.
    Line,
    /// The frame ends.
    End,
}

/// What is the same in every frame, and the hole after it.
#[derive(Debug, Clone, Copy)]
struct Part {
    from: u16,
    upto: u16,
    hole: Hole,
}

/// A frame with holes.
#[derive(Debug)]
struct Stencil {
    frame: Box<[u8]>,
    parts: Box<[Part]>,
    /// The same with only those holes that were seen to differ: most counters do, and most names never. What is like this
    /// is sooner seen, and is like `parts` too.
    tight: Box<[Part]>,
    /// Those holes, by their number.
    differ: u32,
    /// The text is a piece of the answer, not of its thinking.
    answers: bool,
    conversation: Option<Box<str>>,
    /// The adapter's, which the frame did not change.
    epoch: u64,
    /// How many frames were like it, the latest ones above all.
    uses: u32,
    /// Which one is expected next.
    next: usize,
    /// Another one whenever `tight` is.
    version: u32,
}

/// The stencils of a stream.
#[derive(Debug)]
pub struct Stencils {
    each: Vec<Stencil>,
    /// Which of them the last frame was like.
    last: usize,
    tries: u8,
    alike: u32,
    /// The latest of any of them.
    version: u32,
}

impl Default for Stencils {
    fn default() -> Self {
        Self { each: Vec::new(), last: 0, tries: TRIES, alike: 0, version: 0 }
    }
}

impl Stencils {
    pub fn is_empty(&self) -> bool {
        self.each.is_empty()
    }

    /// Is it worth while to listen to what this frame says?
    pub fn wants(&self, frame: &[u8]) -> bool {
        self.tries > 0 && (1..=MAX_FRAME).contains(&frame.len())
    }

    /// The length of the frame that `bytes` begin with, and its piece of the answer, if it is like one that was read. What
    /// else it says is signalled.
    pub fn read<'f>(&mut self, bytes: &'f [u8], epoch: u64, sink: &mut impl Sink) -> Option<(usize, Cow<'f, str>)> {
        let of_now = |stencil: &Stencil| stencil.epoch == epoch;
        let expected = self.each.get(self.last).map_or(0, |last| last.next);
        let others = (0..self.each.len()).filter(|at| *at != expected);
        let tight = std::iter::once(expected).chain(others).find_map(|at| {
            let stencil = self.each.get(at).filter(|stencil| of_now(stencil))?;
            Some((at, stencil.read_tight(bytes)?))
        });
        let (at, (length, text)) = tight.or_else(|| {
            let version = self.version.wrapping_add(1);
            let mut each = self.each.iter_mut().enumerate().filter(|(_, stencil)| of_now(stencil));
            let read = each.find_map(|(at, stencil)| Some((at, stencil.read(bytes, version)?)))?;
            self.version = version;
            Some(read)
        })?;
        self.came(at);
        self.were_alike(at, 1);
        let stencil = self.each.get(at)?;
        if let Some(id) = &stencil.conversation {
            sink.signal(Signal::Conversation(id));
        }
        Some((length, if stencil.answers { text } else { Cow::Borrowed("") }))
    }

    /// So many frames more were like that one.
    fn were_alike(&mut self, at: usize, frames: u32) {
        if let Some(stencil) = self.each.get_mut(at) {
            stencil.uses = stencil.uses.saturating_add(frames);
        }
        self.alike = self.alike.saturating_add(frames);
        let worth = u8::try_from(self.alike / WORTH).unwrap_or(TRIES);
        self.tries = TRIES.min(self.tries.saturating_add(worth));
        self.alike %= WORTH;
    }

    /// Has the frames by which others are known at a glance be these, where they say no more than their texts.
    pub fn show(&self, sights: &mut Sights, epoch: u64, conversation: Option<&str>) {
        for (at, stencil) in self.each.iter().enumerate() {
            let known = stencil.conversation.as_deref().is_none_or(|id| conversation == Some(id));
            if known && stencil.epoch == epoch {
                let parts = stencil.tight.iter().map(|part| (stencil.same(part), part.hole));
                sights.show(at, stencil.version, parts, stencil.answers, stencil.next);
            }
        }
        sights.came_last(self.last);
    }

    /// Takes note of what was known at a glance.
    pub fn recall(&mut self, sights: &Sights) {
        if sights.frames() > 0 {
            self.last = sights.last();
        }
        for (at, frames, next) in sights.shown() {
            self.were_alike(at, frames);
            if let Some(stencil) = self.each.get_mut(at) {
                stencil.next = next;
            }
        }
    }

    /// A frame was read, and the adapter is as it was before.
    pub fn learn(&mut self, frame: &[u8], asked: &Asked, said: Said, epoch: u64) {
        self.give_up();
        let Some(mut stencil) = Stencil::of(frame, asked, said, epoch) else { return };
        self.version = self.version.wrapping_add(1);
        stencil.version = self.version;
        if self.each.len() < MAX_STENCILS {
            self.each.reserve_exact(1);
            self.each.push(stencil);
            return self.came(self.each.len() - 1);
        }
        for old in &mut self.each {
            // What was read in another state is of no use any more.
            old.uses = if old.epoch == epoch { old.uses / 2 } else { 0 };
        }
        if let Some((at, least)) = self.each.iter_mut().enumerate().min_by_key(|(_, old)| old.uses) {
            *least = stencil;
            self.came(at);
        }
    }

    /// Frames take turns: what came after the last one is expected after its like.
    fn came(&mut self, at: usize) {
        if let Some(last) = self.each.get_mut(self.last) {
            last.next = at;
        }
        self.last = at;
    }

    /// Every frame is read.
    #[cfg(test)]
    pub fn none() -> Self {
        Self { tries: 0, ..Self::default() }
    }

    /// Nothing came of listening.
    pub fn give_up(&mut self) {
        self.tries = self.tries.saturating_sub(1);
    }
}

impl Stencil {
    fn of(frame: &[u8], asked: &Asked, said: Said, epoch: u64) -> Option<Self> {
        let text = match said.text {
            None => None,
            Some(piece) if asked.has_opened(piece.address) => return None,
            Some(piece) => {
                let start = piece.address.checked_sub(frame.as_ptr().addr())?;
                Some(start..start + piece.length)
            }
        };
        if said.spoilt {
            return None;
        }
        let mut holes = Holes { parts: Vec::new(), from: 0 };
        let data = head(frame, &mut holes)?;
        let json = std::str::from_utf8(frame.get(data..)?).ok()?;
        json::parse(json)?;
        let mut found = text.is_none();
        for scalar in Scalars::of(json) {
            let (start, end) = (data + scalar.start, data + scalar.end);
            if text.as_ref().is_some_and(|text| (text.start, text.end) == (start, end)) {
                holes.add(start, end, Hole::Text);
                found = true;
            } else if let Some(hole) = scalar.hole
                && scalar.key.is_some_and(|key| !key.contains('\\') && !asked.has_key(key))
            {
                holes.add(start, end, hole);
            }
        }
        holes.add(frame.len(), frame.len(), Hole::End);
        (found && holes.parts.len() <= MAX_HOLES).then(|| {
            let stencil = Self {
                frame: frame.into(),
                parts: holes.parts.into(),
                tight: Box::default(),
                differ: 0,
                answers: said.text.is_some_and(|piece| piece.answers),
                conversation: said.conversation,
                epoch,
                uses: 0,
                next: 0,
                version: 0,
            };
            Self { tight: stencil.tightened(), ..stencil }
        })
    }

    /// The parts with what is always the same between them.
    fn tightened(&self) -> Box<[Part]> {
        let mut tight = Vec::with_capacity(self.parts.len());
        let mut from = 0;
        for (number, part) in self.parts.iter().enumerate() {
            if matches!(part.hole, Hole::Text | Hole::End) || self.differ & (1 << number) != 0 {
                tight.push(Part { from, ..*part });
                from = self.parts.get(number + 1).map_or(part.upto, |next| next.from);
            }
        }
        tight.into()
    }

    fn same(&self, part: &Part) -> &[u8] {
        self.frame.get(usize::from(part.from)..usize::from(part.upto)).unwrap_or_default()
    }

    fn read_tight<'f>(&self, bytes: &'f [u8]) -> Option<(usize, Cow<'f, str>)> {
        self.follow(&self.tight, bytes, |_, _| {})
    }

    fn read<'f>(&mut self, bytes: &'f [u8], version: u32) -> Option<(usize, Cow<'f, str>)> {
        let mut differ = self.differ;
        let read = self.follow(&self.parts, bytes, |number, value| {
            let [hole, next] = [number, number + 1].map(|number| self.parts.get(number));
            let own = hole.zip(next).and_then(|(hole, next)| self.frame.get(hole.upto.into()..next.from.into()));
            differ |= u32::from(own != Some(value)) << number;
        })?;
        self.differ = differ;
        self.tight = self.tightened();
        self.version = version;
        Some(read)
    }

    fn follow<'f>(
        &self,
        parts: &[Part],
        bytes: &'f [u8],
        filled: impl FnMut(usize, &'f [u8]),
    ) -> Option<(usize, Cow<'f, str>)> {
        let steps = parts.iter().map(|part| {
            let same = self.same(part);
            (same, same.len(), part.hole)
        });
        walk(steps, bytes, begins, filled)
    }
}

/// The length of a frame and its text, where what lies between the holes `is_same`. `filled` gets what stands in each
/// hole.
pub(super) fn walk<'f, T>(
    steps: impl Iterator<Item = (T, usize, Hole)>,
    bytes: &'f [u8],
    mut is_same: impl FnMut(&'f [u8], T) -> bool,
    mut filled: impl FnMut(usize, &'f [u8]),
) -> Option<(usize, Cow<'f, str>)> {
    let (mut at, mut text) = (0, Cow::Borrowed(""));
    for (number, (same, length, hole)) in steps.enumerate() {
        if !is_same(bytes.get(at..at + length)?, same) {
            return None;
        }
        at += length;
        let start = at;
        match hole {
            Hole::Text => {
                at = json::plain_end(bytes, at);
                text = if bytes.get(at) == Some(&b'"') {
                    Cow::Borrowed(std::str::from_utf8(bytes.get(start..at)?).ok()?)
                } else {
                    at = json::string_end(bytes, at)?;
                    json::string(std::str::from_utf8(bytes.get(start..=at)?).ok()?)?
                };
                // Some say nothing of a blank text.
                if is_blank(&text) {
                    return None;
                }
            }
            Hole::String => {
                at = json::plain_end(bytes, at);
                if bytes.get(at) == Some(&b'\\') {
                    at = json::string_end(bytes, at)?;
                    // What is malformed makes a frame that is not read.
                    json::string(std::str::from_utf8(bytes.get(start..=at)?).ok()?)?;
                }
            }
            Hole::Number => at += digits(bytes.get(at..)?)?,
            Hole::Line => at += bytes.get(at..)?.iter().take_while(|byte| matches!(byte, b' '..=b'~')).count(),
            Hole::End => {}
        }
        filled(number, bytes.get(start..at)?);
    }
    Some((at, text))
}

/// The parts before the data's value, where that begins. The head has no line but event, id and, as the last, data.
fn head(frame: &[u8], holes: &mut Holes) -> Option<usize> {
    let mut at = 0;
    loop {
        let end = at + memchr::memchr(b'\n', frame.get(at..)?)?;
        let line = frame.get(at..end)?;
        let (name, value) = field(line);
        let start = end - value.len();
        match name {
            b"event" => {}
            b"id" if line.starts_with(b"id:") && value.iter().all(|byte| matches!(byte, b' '..=b'~')) => {
                holes.add(start, end, Hole::Line);
            }
            b"data" => return (frame.get(end..)? == b"\n\n" && !frame.contains(&b'\r')).then_some(start),
            _ => return None,
        }
        at = end + 1;
    }
}

/// `starts_with`, which calls a function that pays for more than a few bytes.
fn begins(bytes: &[u8], same: &[u8]) -> bool {
    let Some(bytes) = bytes.get(..same.len()) else { return false };
    match (same.first_chunk::<8>(), same.last_chunk::<8>()) {
        (Some(first), Some(last)) if same.len() <= 16 => {
            bytes.first_chunk() == Some(first) && bytes.last_chunk() == Some(last)
        }
        (None, _) => match (same.first_chunk::<4>(), same.last_chunk::<4>()) {
            (Some(first), Some(last)) => bytes.first_chunk() == Some(first) && bytes.last_chunk() == Some(last),
            _ => bytes.iter().zip(same).all(|(one, other)| one == other),
        },
        _ => bytes == same,
    }
}

/// Most texts begin with a letter or with one of the characters from U+4000 to U+DFFF.
fn is_blank(text: &str) -> bool {
    !matches!(text.as_bytes().first(), Some(b'!'..=b'~' | 0xE4..=0xED)) && text.trim_start().is_empty()
}

/// The length of a number without sign, fraction or exponent. A zero begins no longer one.
fn digits(bytes: &[u8]) -> Option<usize> {
    let length = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    (length == 1 || (length > 1 && bytes.first() != Some(&b'0'))).then_some(length)
}

struct Holes {
    parts: Vec<Part>,
    /// Where the last hole ended.
    from: usize,
}

impl Holes {
    /// Frames are short enough for both.
    fn add(&mut self, start: usize, end: usize, hole: Hole) {
        let short = |place: usize| u16::try_from(place).unwrap_or(u16::MAX);
        self.parts.push(Part { from: short(self.from), upto: short(start), hole });
        self.from = end;
    }
}

/// A string between its quotes, or a number; and the key that it is the value of.
struct Scalar<'a> {
    key: Option<&'a str>,
    start: usize,
    end: usize,
    /// What may stand in its place; `None`: it is a number of another kind.
    hole: Option<Hole>,
}

/// The strings and numbers of a well-formed document, but for keys.
struct Scalars<'a> {
    json: &'a str,
    at: usize,
    /// The key whose colon was just before.
    key: Option<&'a str>,
}

impl<'a> Scalars<'a> {
    fn of(json: &'a str) -> Self {
        Self { json, at: 0, key: None }
    }
}

impl<'a> Iterator for Scalars<'a> {
    type Item = Scalar<'a>;

    fn next(&mut self) -> Option<Scalar<'a>> {
        let bytes = self.json.as_bytes();
        loop {
            let start = self.at;
            match bytes.get(start)? {
                b'"' => {
                    let (start, end) = (start + 1, json::string_end(bytes, start + 1)?);
                    self.at = end + 1;
                    let blanks = bytes.get(self.at..)?.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
                    if bytes.get(self.at + blanks) == Some(&b':') {
                        self.at += blanks + 1;
                        self.key = self.json.get(start..end);
                        continue;
                    }
                    return Some(Scalar { key: self.key.take(), start, end, hole: Some(Hole::String) });
                }
                b'-' | b'0'..=b'9' => {
                    let number = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
                    let length = bytes.get(start..)?.iter().take_while(number).count();
                    self.at += length;
                    let plain = digits(bytes.get(start..self.at)?) == Some(length);
                    let hole = plain.then_some(Hole::Number);
                    return Some(Scalar { key: self.key.take(), start, end: self.at, hole });
                }
                byte => {
                    if !byte.is_ascii_whitespace() {
                        self.key = None;
                    }
                    self.at += 1;
                }
            }
        }
    }
}

/// Lets signals through and notes whether a frame like this one would say the same.
pub struct Listener<'s, S> {
    to: &'s mut S,
    pub said: Said,
}

/// What a frame said that another one may say too.
#[derive(Debug, Default)]
pub struct Said {
    text: Option<Piece>,
    conversation: Option<Box<str>>,
    /// Something else was said.
    spoilt: bool,
}

/// A text, by where it lies in memory.
#[derive(Debug, Clone, Copy)]
struct Piece {
    address: usize,
    length: usize,
    answers: bool,
}

impl<'s, S: Sink> Listener<'s, S> {
    pub fn new(to: &'s mut S) -> Self {
        Self { to, said: Said::default() }
    }
}

impl<S: Sink> Sink for Listener<'_, S> {
    fn signal(&mut self, signal: Signal<'_>) {
        let said = &mut self.said;
        match &signal {
            // The first one counts: whoever says it again says nothing.
            Signal::Message(_) => {}
            Signal::Conversation(id) if said.conversation.is_none() => said.conversation = Some((*id).into()),
            Signal::Text(text, _) | Signal::Thinking(text) if said.text.is_none() && !text.trim().is_empty() => {
                let answers = matches!(signal, Signal::Text(..));
                said.text = Some(Piece { address: text.as_ptr().addr(), length: text.len(), answers });
            }
            _ => said.spoilt = true,
        }
        self.to.signal(signal);
    }
}

#[cfg(test)]
#[path = "stencil_tests.rs"]
mod tests;

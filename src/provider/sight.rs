//! Frames that are known at a glance: what makes most frames of an answer the [`stencil`](super::stencil)s that they are like, in
//! a line of the machine's memory each. What is the same in all of them is known by its hash alone, and their texts are
//! put together. So an event of one stream among thousands is read without a look at anything else that is known of the
//! stream, which is far away by then.

use std::{
    borrow::Cow,
    hash::{BuildHasher, Hasher},
    sync::LazyLock,
};

use foldhash::quality::RandomState;

use super::stencil::{Hole, MAX_STENCILS, walk};

/// Holes of a frame that is known at a glance, its end among them: it is mostly one or two that differ.
const MAX_STEPS: usize = 10;
/// What texts are put together until they are read, in bytes.
const MAX_TEXTS: usize = 512;
/// From so many on they are read as soon as there is time.
const ENOUGH: usize = MAX_TEXTS - 96;

/// By chance of every process: no frames can be made up beforehand that are taken for others.
static HASHED: LazyLock<RandomState> = LazyLock::new(RandomState::default);

/// What is the same, by its length, and the hole after it.
#[derive(Debug, Clone, Copy)]
struct Step {
    length: u16,
    hole: Hole,
}

/// In one line of the machine's memory, and only read when a frame comes.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Sight {
    /// Of all that is the same.
    hash: u64,
    steps: [Step; MAX_STEPS],
    /// How many of them there are; none where it cannot be told so.
    count: u8,
    answers: bool,
    version: u32,
}

const _: () = assert!(size_of::<Sight>() == 64, "of several lines each would be fetched");

/// Those of a stream, and the texts of the frames that were like them. In this order: what every frame changes lies
/// together.
#[derive(Debug)]
#[repr(C)]
pub struct Sights {
    each: [Sight; MAX_STENCILS],
    /// Which of them hold, by their numbers.
    shown: u8,
    /// Which of them the last frame was like.
    last: u8,
    length: u16,
    frames: u32,
    /// Which one is expected after each of them.
    next: [u8; MAX_STENCILS],
    /// How many frames were like each of them since it was asked last.
    like: [u32; MAX_STENCILS],
    texts: [u8; MAX_TEXTS],
}

impl Default for Sights {
    fn default() -> Self {
        let step = Step { length: 0, hole: Hole::End };
        let none = Sight { hash: 0, steps: [step; MAX_STEPS], count: 0, answers: false, version: 0 };
        Self {
            each: [none; MAX_STENCILS],
            shown: 0,
            last: 0,
            length: 0,
            frames: 0,
            next: [0; MAX_STENCILS],
            like: [0; MAX_STENCILS],
            texts: [0; MAX_TEXTS],
        }
    }
}

impl Sight {
    fn of<'p>(parts: impl Iterator<Item = (&'p [u8], Hole)>, answers: bool, version: u32) -> Self {
        let (mut hasher, mut count) = (HASHED.build_hasher(), 0);
        let mut steps = [Step { length: 0, hole: Hole::End }; MAX_STEPS];
        for (same, hole) in parts {
            hasher.write(same);
            if let (Some(step), Ok(length)) = (steps.get_mut(count), u16::try_from(same.len())) {
                *step = Step { length, hole };
            }
            count += 1;
        }
        let count = if count > MAX_STEPS { 0 } else { count as u8 };
        Self { hash: hasher.finish(), steps, count, answers, version }
    }

    /// The length of the frame that `bytes` begin with, and its text, if it is like this one.
    fn read<'f>(&self, bytes: &'f [u8]) -> Option<(usize, Cow<'f, str>)> {
        let steps = self.steps.get(..usize::from(self.count))?.iter();
        let steps = steps.map(|step| ((), usize::from(step.length), step.hole));
        let mut hasher = HASHED.build_hasher();
        let hash = |same: &[u8], ()| {
            hasher.write(same);
            true
        };
        let read = walk(steps, bytes, hash, |_, _| {})?;
        (hasher.finish() == self.hash).then_some(read)
    }
}

impl Sights {
    /// Are these frames, to the last, like those that are shown? Then they are read, but for their texts, which are kept.
    pub fn know(&mut self, frames: &[u8]) -> Option<u32> {
        if self.shown == 0 {
            return None;
        }
        let (mut at, mut count, mut last, mut length) = (0, 0, self.last, self.length);
        while let Some(rest) = frames.get(at..).filter(|rest| !rest.is_empty()) {
            let expected = self.next.get(usize::from(last)).copied().unwrap_or_default();
            let others = (0..MAX_STENCILS as u8).filter(|one| *one != expected);
            let (one, (of_frame, text)) = std::iter::once(expected).chain(others).find_map(|one| {
                let sight = self.each.get(usize::from(one)).filter(|_| self.shown & 1 << one != 0)?;
                Some((one, sight.read(rest)?))
            })?;
            if self.each.get(usize::from(one)).is_some_and(|sight| sight.answers) {
                let end = usize::from(length) + text.len();
                self.texts.get_mut(usize::from(length)..end)?.copy_from_slice(text.as_bytes());
                length = end as u16;
            }
            if let Some(next) = self.next.get_mut(usize::from(last)) {
                *next = one;
            }
            if let Some(like) = self.like.get_mut(usize::from(one)) {
                *like = like.saturating_add(1);
            }
            at += of_frame;
            count += 1;
            last = one;
        }
        (self.last, self.length) = (last, length);
        self.frames = self.frames.saturating_add(count);
        Some(count)
    }

    /// The texts of the frames that were known.
    pub fn texts(&self) -> &str {
        let texts = self.texts.get(..usize::from(self.length)).unwrap_or_default();
        std::str::from_utf8(texts).unwrap_or_default()
    }

    /// Frames that were known, and whose texts are not read.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// Are there texts to be read when there is time?
    pub fn are_enough(&self) -> bool {
        usize::from(self.length) >= ENOUGH
    }

    /// They are read.
    pub fn clear(&mut self) {
        (self.length, self.frames) = (0, 0);
        self.like = [0; MAX_STENCILS];
    }

    /// None of them holds any more.
    pub fn hide(&mut self) {
        self.shown = 0;
    }

    pub(super) fn show<'p>(
        &mut self,
        at: usize,
        version: u32,
        parts: impl Iterator<Item = (&'p [u8], Hole)>,
        answers: bool,
        next: usize,
    ) {
        let (Some(sight), Some(expected)) = (self.each.get_mut(at), self.next.get_mut(at)) else { return };
        if sight.version != version {
            *sight = Sight::of(parts, answers, version);
        }
        *expected = next as u8;
        self.shown |= u8::from(sight.count > 0) << at;
    }

    pub(super) fn came_last(&mut self, at: usize) {
        self.last = at as u8;
    }

    pub(super) fn last(&self) -> usize {
        self.last.into()
    }

    /// Those that hold, by their numbers: how many frames were like each of them, and which is expected after it.
    pub(super) fn shown(&self) -> impl Iterator<Item = (usize, u32, usize)> {
        let each = self.like.iter().zip(&self.next).enumerate().filter(|(at, _)| self.shown & 1 << at != 0);
        each.map(|(at, (like, next))| (at, *like, (*next).into()))
    }
}

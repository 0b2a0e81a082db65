//! Bytes that leave before the tap reads them: whole frames, none of which can end the answer.
//!
//! They are read before anything else happens to the stream, so nobody but the clock can tell. A chunk that is worth it is
//! read as soon as it has left, with the frame that it completes. Of small ones that are [known at a glance](Sights) the
//! texts are put off until they are some together: most of what it takes to read one of them is to fetch what the tap knows
//! of the stream. Once somebody has asked for a message that streams, nothing of it is put off.

use bytes::Bytes;

use super::{Cut, Inject, Phase, Pipeline, Splitter, tap::Panicked};
#[cfg(doc)]
use crate::provider::sight::Sights;

/// Of a chunk with fewer bytes the frames are known at a glance, or read first: to come back for them alone takes hardly
/// less.
pub const FROM: usize = 1024;
/// Of a chunk with more as well: what is behind is held until it is read.
pub const MOST: usize = 256 * 1024;

/// What was passed on and is to be read next.
pub(super) struct Behind {
    /// A frame that began in an earlier chunk.
    carried: Bytes,
    frames: Bytes,
    /// The grammar's state before `frames`.
    splitter: Splitter,
    /// The rest of their chunk waits for them, as the answer may end with it.
    rest: bool,
}

impl Pipeline {
    /// Was something passed on that is to be read now?
    pub fn is_behind(&self) -> bool {
        self.sights.are_enough() || self.behind.is_some()
    }

    /// Is everything read that was passed on?
    pub fn is_current(&self) -> bool {
        self.sights.frames() == 0 && self.behind.is_none()
    }

    /// Somebody wants to know what comes when it comes.
    pub fn hurry(&mut self) {
        self.catch_up();
        self.hurried = true;
        self.sights.hide();
    }

    /// Shows what frames may be known by. Those of a message that nobody can ask for yet are read until it has its id.
    pub(super) fn show(&mut self) {
        if !self.hurried
            && self.settings.inject != Inject::Live
            && !self.settings.whole
            && self.relays()
            && let Some(tap) = self.tap.as_ref().filter(|tap| tap.provider().is_some() && tap.is_named())
        {
            tap.show(&mut self.sights);
        }
    }

    /// Is a chunk known to its last frame?
    pub(super) fn knows(&mut self, chunk: &[u8]) -> bool {
        let between = self.hold.is_empty() && !self.skipping && self.splitter.is_at_line() && self.behind.is_none();
        if !between || chunk.len() >= FROM || chunk.len() > self.hold.cap() {
            return false;
        }
        let known = self.sights.know(chunk);
        self.tally.frames += u64::from(known.unwrap_or_default());
        known.is_some()
    }

    /// Does the rest of its chunk wait for it?
    pub(super) fn is_halfway(&self) -> bool {
        self.behind.as_ref().is_some_and(|behind| behind.rest)
    }

    /// Reads what was passed on.
    pub fn catch_up(&mut self) {
        if self.sights.frames() > 0 {
            let recalled = self.tap.as_mut().map(|tap| tap.recall(&self.sights));
            self.sights.clear();
            if let Some(Err(Panicked)) = recalled {
                self.lose_tap_to_panic();
            }
        }
        let Some(behind) = self.behind.take() else { return };
        let Behind { carried, frames, splitter, rest } = *behind;
        if !carried.is_empty() {
            self.read_late(&carried);
        }
        self.read_frames(&frames, splitter);
        if rest {
            self.run();
        } else if self.tap.is_none() {
            // Nothing is held for a tap that was lost.
            self.pass_all();
        }
    }

    /// Whole frames, and the grammar's state before them.
    fn read_frames(&mut self, mut left: &[u8], mut splitter: Splitter) {
        loop {
            if splitter.is_at_line() {
                left = left.get(self.read_alike(left)..).unwrap_or_default();
            }
            let Some(cut) = self.tap.as_ref().and_then(|_| splitter.advance(left)) else { return };
            let (Cut::Frame(len) | Cut::Glue(len)) = cut;
            let (frame, after) = left.split_at(len);
            if matches!(cut, Cut::Frame(_)) {
                self.read_late(frame);
            }
            left = after;
        }
    }

    /// Reads the frames at the beginning that are like others which were read; says how long they are.
    pub(super) fn read_alike(&mut self, frames: &[u8]) -> usize {
        if !self.relays() {
            return 0;
        }
        self.sights.hide();
        match self.tap.as_mut().map(|tap| tap.read_alike(frames, self.hold.cap())) {
            Some(Ok(alike)) => {
                self.tally.frames += alike.frames;
                alike.length
            }
            Some(Err(Panicked)) => {
                self.lose_tap_to_panic();
                0
            }
            None => 0,
        }
    }

    /// The same of the chunk, where a frame begins.
    pub(super) fn read_alike_of_chunk(&mut self) {
        if self.hold.is_empty() && !self.skipping && self.splitter.is_at_line() {
            let chunk = std::mem::take(&mut self.chunk);
            self.at += self.read_alike(chunk.get(self.at..).unwrap_or_default());
            self.chunk = chunk;
        }
    }

    fn read_late(&mut self, frame: &[u8]) {
        let ends = self.read(frame);
        debug_assert!(!ends || self.phase != Phase::Due, "an answer's end was passed on unread");
    }

    /// Takes the whole frames of the chunk as if they were read, up to one that may end the answer; `false`: they are
    /// to be read first.
    pub(super) fn overtakes(&mut self) -> bool {
        let Some(tap) = &self.tap else { return false };
        let held = self.hold.len();
        let size = held + self.chunk.len().saturating_sub(self.at);
        let suits = (self.later_from..=MOST.min(self.hold.cap())).contains(&size);
        if !suits || self.skipping || self.settings.inject == Inject::Live {
            return false;
        }
        let mut splitter = self.splitter;
        let (mut at, mut from, mut before) = (self.at, self.at, splitter);
        while let Some(cut) = splitter.advance(self.chunk.get(at..).unwrap_or_default()) {
            let (Cut::Frame(len) | Cut::Glue(len)) = cut;
            if held > 0 && at == self.at {
                if matches!(cut, Cut::Glue(_)) {
                    return false;
                }
                (from, before) = (at + len, splitter);
            }
            at += len;
        }
        let ends = tap.ends();
        let may_end = |frames: &[u8]| self.phase == Phase::Due && ends(frames);
        let mut rest = false;
        if may_end(self.chunk.get(from..at).unwrap_or_default()) {
            (rest, at, splitter) = (true, from, before);
            let mut next = before;
            while let Some(Cut::Frame(len) | Cut::Glue(len)) = next.advance(self.chunk.get(at..).unwrap_or_default())
                && !may_end(self.chunk.get(at..at + len).unwrap_or_default())
            {
                at += len;
                splitter = next;
            }
            if at == self.at {
                return false;
            }
        }
        let mut behind = Behind { carried: Bytes::new(), frames: self.chunk.slice(from..at), splitter: before, rest };
        if from > self.at {
            if !self.hold.add(self.chunk.get(self.at..from).unwrap_or_default()) {
                return false;
            }
            if may_end(self.hold.bytes()) {
                self.hold.shorten(held);
                return false;
            }
            let carried = self.hold.take();
            let sent = std::mem::take(&mut self.sent);
            self.emit(carried.slice(sent..));
            self.unsent = from;
            behind.carried = carried;
        }
        if !behind.frames.is_empty() || !behind.carried.is_empty() {
            self.behind = Some(Box::new(behind));
        }
        self.splitter = splitter;
        self.at = at;
        if rest {
            self.emit_chunk_to(at);
        } else {
            self.keep_rest();
        }
        true
    }
}

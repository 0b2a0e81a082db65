//! Bytes that leave before the tap reads them: whole frames, none of which can end the answer.
//!
//! They are read before anything else happens to the stream, so nobody but the clock can tell. One chunk is behind
//! at most, with the frame that it completes.

use bytes::Bytes;

use super::{Cut, Inject, Phase, Pipeline, Splitter};

/// Of a chunk with fewer bytes the frames are read first: that takes hardly longer than to come back for them.
pub const FROM: usize = 1024;
/// Of a chunk with more as well: what is behind is held until it is read.
pub const MOST: usize = 256 * 1024;

/// What was passed on and not read.
#[derive(Default)]
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
    /// Was something passed on that is not read yet?
    pub fn is_behind(&self) -> bool {
        !self.behind.frames.is_empty() || !self.behind.carried.is_empty()
    }

    /// Does the rest of its chunk wait for it?
    pub(super) fn is_halfway(&self) -> bool {
        self.behind.rest
    }

    /// Reads what was passed on.
    pub fn catch_up(&mut self) {
        if !self.is_behind() {
            return;
        }
        let Behind { carried, frames, mut splitter, rest } = std::mem::take(&mut self.behind);
        if !carried.is_empty() {
            self.read_late(&carried);
        }
        let mut left = &*frames;
        while self.tap.is_some()
            && let Some(cut) = splitter.advance(left)
        {
            let (Cut::Frame(len) | Cut::Glue(len)) = cut;
            let (frame, after) = left.split_at(len);
            if matches!(cut, Cut::Frame(_)) {
                self.read_late(frame);
            }
            left = after;
        }
        if rest {
            self.run();
        } else if self.tap.is_none() {
            // Nothing is held for a tap that was lost.
            self.pass_all();
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
        let may_end = |frames: &[u8]| self.phase == Phase::Due && tap.may_end(frames);
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
            self.behind.carried = carried;
        }
        self.behind.frames = self.chunk.slice(from..at);
        self.behind.splitter = before;
        self.behind.rest = rest;
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

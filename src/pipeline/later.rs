//! Bytes that leave before the tap reads them: whole frames, none of which can end the answer.
//!
//! They are read before anything else happens to the stream, so nobody but the clock can tell. A chunk that is worth it is
//! read as soon as it has left, with the frame that it completes. Small ones are put off until they are some together:
//! most of what it takes to read one of them is to fetch what the tap knows of the stream. Once somebody has asked for a
//! message that streams, nothing of it is put off.

use bytes::Bytes;

use super::{Cut, Ends, Inject, Phase, Pipeline, Splitter, tap::Panicked};

/// Of a chunk with fewer bytes the frames are read first, or put off: to come back for them alone takes hardly less.
pub const FROM: usize = 1024;
/// Of a chunk with more as well: what is behind is held until it is read.
pub const MOST: usize = 256 * 1024;

/// So many bytes of small chunks are read together.
pub const TOGETHER: usize = 4096;

/// Small chunks that were passed on and not read.
pub(super) struct PutOff {
    frames: Vec<u8>,
    /// Tells what may be put off; `None`: nothing.
    ends: Option<Ends>,
    /// How many bytes may be.
    most: usize,
}

impl Default for PutOff {
    fn default() -> Self {
        Self { frames: Vec::new(), ends: None, most: TOGETHER }
    }
}

impl PutOff {
    /// From now on everything is read when it comes.
    pub fn end(&mut self) {
        (self.ends, self.most) = (None, 0);
    }
}

/// What was passed on and is to be read next.
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
    /// Was something passed on that is to be read now?
    pub fn is_behind(&self) -> bool {
        let put_off = self.put_off.frames.len();
        (put_off > 0 && put_off >= self.put_off.most) || self.has_behind()
    }

    /// Is everything read that was passed on?
    pub fn is_current(&self) -> bool {
        self.put_off.frames.is_empty() && !self.has_behind()
    }

    fn has_behind(&self) -> bool {
        !self.behind.frames.is_empty() || !self.behind.carried.is_empty()
    }

    /// Somebody wants to know what comes when it comes.
    pub fn hurry(&mut self) {
        self.catch_up();
        self.put_off.end();
    }

    /// May small chunks be put off? A message that nobody can ask for yet is read until it has its id.
    pub(super) fn begin_to_put_off(&mut self) {
        if self.put_off.ends.is_none()
            && self.put_off.most > 0
            && self.settings.inject != Inject::Live
            && !self.settings.whole
            && self.relays()
            && let Some(tap) = self.tap.as_ref().filter(|tap| tap.provider().is_some() && tap.is_named())
        {
            self.put_off.ends = Some(tap.ends());
        }
    }

    /// Keeps a chunk for later; `false`: it is to be read, after those before it.
    pub(super) fn puts_off(&mut self, chunk: &[u8]) -> bool {
        let Some(ends) = self.put_off.ends else { return false };
        let between = self.hold.is_empty() && !self.skipping && self.splitter.is_at_line() && !self.has_behind();
        if !between || chunk.len() >= FROM || chunk.len() > self.hold.cap() {
            return false;
        }
        let (mut splitter, mut at) = (self.splitter, 0);
        while let Some(Cut::Frame(len) | Cut::Glue(len)) = splitter.advance(chunk.get(at..).unwrap_or_default()) {
            at += len;
        }
        if at < chunk.len() || !splitter.is_at_line() || (self.phase == Phase::Due && ends(chunk)) {
            return false;
        }
        if self.put_off.frames.capacity() == 0 {
            self.put_off.frames.reserve_exact(TOGETHER + FROM);
        }
        self.put_off.frames.extend_from_slice(chunk);
        true
    }

    /// Does the rest of its chunk wait for it?
    pub(super) fn is_halfway(&self) -> bool {
        self.behind.rest
    }

    /// Reads what was passed on.
    pub fn catch_up(&mut self) {
        if !self.put_off.frames.is_empty() {
            let mut frames = std::mem::take(&mut self.put_off.frames);
            self.read_frames(&frames, self.splitter);
            frames.clear();
            self.put_off.frames = frames;
        }
        if !self.has_behind() {
            return;
        }
        let Behind { carried, frames, splitter, rest } = std::mem::take(&mut self.behind);
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

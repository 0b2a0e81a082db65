//! The way of a chunk where the client gets the upstream's bytes as they are: frames are cut out of it for the tap alone.

use bytes::Bytes;

use super::{Cut, Form, Phase, Pipeline, Voice, hold::counted, later};

impl Pipeline {
    /// Works through the chunk until it is used up or a commit is awaited.
    pub(super) fn run(&mut self) {
        if self.settings.whole && self.tap.is_some() {
            return self.keep_rest();
        }
        // A frame ended in CR with the chunk before, and no LF belongs to it.
        if self.at == 0 && self.chunk.first().is_some_and(|first| *first != b'\n') {
            self.live();
        }
        if !self.relays() {
            return self.run_framed();
        }
        let mut looked = false;
        while self.tap.is_some() {
            self.read_alike_of_chunk();
            // Once, as it looks through all of the chunk; the little that a small frame lacks is read before.
            if !looked && !(1..later::FROM).contains(&self.hold.len()) {
                looked = true;
                if self.overtakes() {
                    return;
                }
            }
            let Some(cut) = self.splitter.advance(self.chunk.get(self.at..).unwrap_or_default()) else {
                return self.keep_rest();
            };
            let (Cut::Frame(len) | Cut::Glue(len)) = cut;
            let end = self.at + len;
            let carried = self.carried(end);
            let skipped = std::mem::take(&mut self.skipping);
            let frame = carried.as_deref().or_else(|| self.chunk.get(self.at..end)).unwrap_or_default();
            let size = counted(frame);
            let tapped = matches!(cut, Cut::Frame(_)) && !skipped && self.fits(size);
            let read = tapped
                && match &carried {
                    Some(frame) => self.read_alike(frame) < frame.len() && self.read(frame),
                    None => self.read_chunk_to(end),
                };
            let ends = read && self.phase == Phase::Due;

            // Of a frame that began in an earlier chunk, what was not passed on yet.
            let unsent = carried.map(|frame| frame.slice(std::mem::take(&mut self.sent)..));
            if ends && (self.awaits_supplement() || self.wants_event()) {
                self.emit_chunk_to(self.at);
                self.at = end;
                if unsent.is_some() {
                    self.unsent = end;
                }
                return self.close(unsent.unwrap_or_default());
            }
            if ends {
                self.supplement_aside();
                self.phase = Phase::Done;
                self.store_rest();
            }
            self.at = end;
            if let Some(unsent) = unsent {
                self.unsent = end;
                self.emit(unsent);
            }
            if !self.splitter.awaits_lf() {
                self.live();
            }
        }
        self.pass_all();
    }

    /// The frame that ends at `end`, in one piece, if it began in an earlier chunk.
    pub(super) fn carried(&mut self, end: usize) -> Option<Bytes> {
        if self.hold.is_empty() {
            return None;
        }
        if !self.hold.add_end(self.chunk.get(self.at..end).unwrap_or_default()) {
            self.overflow();
            return None;
        }
        Some(self.hold.take())
    }

    pub(super) fn fits(&mut self, len: usize) -> bool {
        let fits = len <= self.hold.cap();
        if !fits {
            self.tally.oversized += 1;
        }
        fits
    }

    /// The last frame of the chunk is not whole: hold it, or pass it on if nothing of ours is due.
    pub(super) fn keep_rest(&mut self) {
        let rest = self.chunk.get(self.at..).unwrap_or_default();
        if self.skipping || rest.is_empty() {
            self.emit_chunk_to(self.chunk.len());
        } else if !self.hold.add(rest) {
            self.emit_chunk_to(self.at);
            self.overflow();
            self.emit_chunk_to(self.chunk.len());
        } else if self.injecting() || !self.relays() {
            self.emit_chunk_to(self.at);
        } else {
            // Held as a copy for the tap only.
            self.emit_chunk_to(self.chunk.len());
            self.sent = self.hold.len();
        }
        self.chunk = Bytes::new();
        self.unsent = 0;
        self.at = 0;
    }

    /// The held frame passes a cap: what is held of it goes out, and the rest passes untapped.
    pub(super) fn overflow(&mut self) {
        let held = self.hold.take();
        let sent = std::mem::take(&mut self.sent);
        if self.settings.whole && self.settings.manner.form == Form::Whole {
            // A document that cannot be read passes as it is.
            self.voice = Voice::Relay;
        }
        self.emit(held.slice(sent..));
        self.skipping = true;
        self.tally.oversized += 1;
    }

    /// Passes on what is unsent of the chunk up to `end`, as one piece.
    pub(super) fn emit_chunk_to(&mut self, end: usize) {
        if end > self.unsent {
            let whole = self.unsent == 0 && end == self.chunk.len();
            let piece = if whole { std::mem::take(&mut self.chunk) } else { self.chunk.slice(self.unsent..end) };
            self.unsent = end;
            self.emit(piece);
        }
    }

    pub(super) fn pass_all(&mut self) {
        let held = self.hold.take();
        let sent = std::mem::take(&mut self.sent);
        self.emit(held.slice(sent..));
        self.emit_chunk_to(self.chunk.len());
        self.chunk = Bytes::new();
        self.unsent = 0;
        self.at = 0;
    }
}

//! The way of a chunk where the client gets the upstream's bytes as they are: frames are cut out of it for the tap alone.

use bytes::Bytes;

use super::{Cut, Form, OutputMode, Phase, Pipeline, budget::counted};

impl Pipeline {
    /// Works through the chunk until it is used up or a commit is awaited.
    pub(super) fn run(&mut self) {
        if self.settings.single_document && self.tap.is_some() {
            return self.keep_rest();
        }
        // A frame ended in CR with the chunk before, and no LF belongs to it.
        if self.input.at == 0 && self.input.chunk.first().is_some_and(|first| *first != b'\n') {
            self.live();
        }
        if !self.relays() {
            return self.run_framed();
        }
        while self.tap.is_some() {
            let Some((cut, end)) = self.input.next_cut() else { return self.keep_rest() };
            let carried = self.carried(end);
            let skipped = std::mem::take(&mut self.input.partial.skipping);
            let frame = carried.as_deref().or_else(|| self.input.chunk.get(self.input.at..end)).unwrap_or_default();
            let size = counted(frame);
            let tapped = matches!(cut, Cut::Frame(_)) && !skipped && self.fits(size);
            let read = tapped
                && match &carried {
                    Some(frame) => self.read(frame),
                    None => self.read_chunk_to(end),
                };
            let ends = read && self.message.phase == Phase::Due;

            // Of a frame that began in an earlier chunk, what was not passed on yet.
            let unsent = carried.map(|frame| frame.slice(std::mem::take(&mut self.input.partial.sent)..));
            if ends && (self.awaits_supplement() || self.wants_event()) {
                self.emit_chunk_to(self.input.at);
                self.input.at = end;
                if unsent.is_some() {
                    self.input.unsent = end;
                }
                return self.close(unsent.unwrap_or_default());
            }
            if ends {
                self.supplement_aside();
                self.message.phase = Phase::Done;
                self.store_rest();
            }
            self.input.at = end;
            if let Some(unsent) = unsent {
                self.input.unsent = end;
                self.emit(unsent);
            }
            if !self.input.splitter.awaits_lf() {
                self.live();
            }
        }
        self.pass_all();
    }

    /// The frame that ends at `end`, in one piece, if it began in an earlier chunk.
    pub(super) fn carried(&mut self, end: usize) -> Option<Bytes> {
        if self.input.partial.hold.is_empty() {
            return None;
        }
        if !self.input.partial.hold.add_end(self.input.chunk.get(self.input.at..end).unwrap_or_default()) {
            self.overflow();
            return None;
        }
        Some(self.input.partial.hold.take())
    }

    pub(super) fn fits(&mut self, len: usize) -> bool {
        let fits = len <= self.input.partial.hold.cap();
        if !fits {
            self.stream_stats.oversized += 1;
        }
        fits
    }

    /// The last frame of the chunk is not whole: hold it, or pass it on if nothing of ours is due.
    pub(super) fn keep_rest(&mut self) {
        let rest = self.input.chunk.get(self.input.at..).unwrap_or_default();
        if self.input.partial.skipping || rest.is_empty() {
            self.emit_chunk_to(self.input.chunk.len());
        } else if !self.input.partial.hold.add(rest) {
            self.emit_chunk_to(self.input.at);
            self.overflow();
            self.emit_chunk_to(self.input.chunk.len());
        } else if self.injecting() || !self.relays() {
            self.emit_chunk_to(self.input.at);
        } else {
            // Held as a copy for the tap only.
            self.emit_chunk_to(self.input.chunk.len());
            self.input.partial.sent = self.input.partial.hold.len();
        }
        self.input.begin(Bytes::new());
    }

    /// The held frame passes a cap: what is held of it goes out, and the rest passes untapped.
    pub(super) fn overflow(&mut self) {
        let unsent = self.input.partial.take_unsent();
        if self.settings.single_document && self.settings.output_format.form == Form::Document {
            // A document that cannot be read passes as it is.
            self.mode = OutputMode::Relay;
        }
        self.emit(unsent);
        self.input.partial.skipping = true;
        self.stream_stats.oversized += 1;
    }

    /// Passes on what is unsent of the chunk up to `end`, as one piece.
    pub(super) fn emit_chunk_to(&mut self, end: usize) {
        if let Some(piece) = self.input.take_unsent_to(end) {
            self.emit(piece);
        }
    }

    pub(super) fn pass_all(&mut self) {
        let unsent = self.input.partial.take_unsent();
        self.emit(unsent);
        self.emit_chunk_to(self.input.chunk.len());
        self.input.begin(Bytes::new());
    }
}

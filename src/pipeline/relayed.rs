//! Chunk processing of [`OutputMode::Relay`]: frames are cut for the tap alone, and bytes are emitted in as few pieces as
//! possible. The partial frame is shared with the other modes.

use bytes::Bytes;

use super::{Cut, Form, OutputMode, Phase, Pipeline, budget::capped_len};

impl Pipeline {
    /// Processes the chunk until it is used up or a reply is awaited.
    pub(super) fn run(&mut self) {
        if self.settings.single_document && self.tap.is_some() {
            return self.hold_rest();
        }
        // The previous chunk ended a frame with CR, and this one does not start with its LF.
        if self.input.frame_start == 0 && self.input.chunk.first().is_some_and(|first| *first != b'\n') {
            self.emit_live_event();
        }
        if !self.is_relaying() {
            return self.run_framed();
        }
        while self.tap.is_some() {
            let Some((cut, end)) = self.input.next_cut() else { return self.hold_rest() };
            let completed = self.complete_partial_frame(end);
            let skipped = std::mem::take(&mut self.input.partial.skipping);
            let frame =
                completed.as_deref().or_else(|| self.input.chunk.get(self.input.frame_start..end)).unwrap_or_default();
            let len = capped_len(frame);
            let readable = matches!(cut, Cut::Frame(_)) && !skipped && self.is_within_cap(len);
            let ended = readable
                && match &completed {
                    Some(frame) => self.read(frame),
                    None => self.read_chunk_to(end),
                };
            let ends = ended && self.progress.phase == Phase::Streaming;

            // The unsent part of a frame that began in an earlier chunk.
            let unsent = completed.map(|frame| frame.slice(std::mem::take(&mut self.input.partial.sent)..));
            if ends && (self.awaits_supplement() || self.needs_event()) {
                self.emit_chunk_to(self.input.frame_start);
                self.input.frame_start = end;
                if unsent.is_some() {
                    self.input.unsent_start = end;
                }
                return self.close_message(unsent.unwrap_or_default());
            }
            if ends {
                self.mark_supplement_pending();
                self.progress.phase = Phase::Done;
                self.store_unsaved();
            }
            self.input.frame_start = end;
            if let Some(unsent) = unsent {
                self.input.unsent_start = end;
                self.emit(unsent);
            }
            if !self.input.splitter.awaits_lf() {
                self.emit_live_event();
            }
        }
        self.emit_all();
    }

    /// Returns the frame that ends at `end`, in one piece, if it began in an earlier chunk and stays within its cap.
    pub(super) fn complete_partial_frame(&mut self, end: usize) -> Option<Bytes> {
        if self.input.partial.held.is_empty() {
            return None;
        }
        if !self.input.partial.held.add_end(self.input.chunk.get(self.input.frame_start..end).unwrap_or_default()) {
            self.overflow();
            return None;
        }
        Some(self.input.partial.held.take())
    }

    /// Whether a frame of this length may be read. Counts it as oversized otherwise.
    pub(super) fn is_within_cap(&mut self, len: usize) -> bool {
        let within = len <= self.input.partial.held.cap();
        self.stream_stats.oversized += u64::from(!within);
        within
    }

    /// Holds the incomplete last frame of the chunk. If no event of ours may follow, emits it and keeps a copy.
    pub(super) fn hold_rest(&mut self) {
        let rest = self.input.chunk.get(self.input.frame_start..).unwrap_or_default();
        if self.input.partial.skipping || rest.is_empty() {
            self.emit_chunk_to(self.input.chunk.len());
        } else if !self.input.partial.held.add(rest) {
            self.emit_chunk_to(self.input.frame_start);
            self.overflow();
            self.emit_chunk_to(self.input.chunk.len());
        } else if self.can_inject() || !self.is_relaying() {
            self.emit_chunk_to(self.input.frame_start);
        } else {
            self.emit_chunk_to(self.input.chunk.len());
            self.input.partial.sent = self.input.partial.held.len();
        }
        self.input.set_chunk(Bytes::new());
    }

    /// Handles a partial frame that exceeds a cap: emits what is held of it and skips the rest unread.
    pub(super) fn overflow(&mut self) {
        let unsent = self.input.partial.take_unsent();
        if self.settings.single_document && self.settings.output_format.form == Form::Document {
            // A document that cannot be read is relayed.
            self.mode = OutputMode::Relay;
        }
        self.emit(unsent);
        self.input.partial.skipping = true;
        self.stream_stats.oversized += 1;
    }

    /// Emits the unsent part of the chunk up to `end`, as one piece.
    pub(super) fn emit_chunk_to(&mut self, end: usize) {
        if let Some(piece) = self.input.take_unsent_to(end) {
            self.emit(piece);
        }
    }

    /// Emits all that is held and left of the chunk.
    pub(super) fn emit_all(&mut self) {
        let unsent = self.input.partial.take_unsent();
        self.emit(unsent);
        self.emit_chunk_to(self.input.chunk.len());
        self.input.set_chunk(Bytes::new());
    }
}

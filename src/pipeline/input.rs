//! Where the upstream's stream stands: the current chunk, and the frame that is not whole yet.

use std::sync::Arc;

use bytes::Bytes;

use super::{Settings, budget::HeldBytes};
use crate::sse::{Cut, Eol, Splitter};

pub(super) struct Input {
    pub splitter: Splitter,
    pub chunk: Bytes,
    /// Where the unsent part of the chunk begins.
    pub unsent: usize,
    /// Where the next frame begins in the chunk.
    pub at: usize,
    pub partial: PartialFrame,
    /// The stream's own line ending, once it is known.
    pub eol: Option<Eol>,
    pub id_seen: bool,
}

/// The last frame, which began in an earlier chunk and is not whole yet.
pub(super) struct PartialFrame {
    pub hold: HeldBytes,
    /// How much of it was passed on already.
    pub sent: usize,
    /// It is too large: its rest passes untapped, and nothing of it is held.
    pub skipping: bool,
}

impl Input {
    pub fn new(settings: &Settings) -> Self {
        let hold = HeldBytes::new(Arc::clone(&settings.budget), settings.frame_cap);
        Self {
            splitter: Splitter::default(),
            chunk: Bytes::new(),
            unsent: 0,
            at: 0,
            partial: PartialFrame { hold, sent: 0, skipping: false },
            eol: None,
            id_seen: false,
        }
    }

    /// Begins with the next chunk; an empty one lets go of the last.
    pub fn begin(&mut self, chunk: Bytes) {
        self.chunk = chunk;
        self.unsent = 0;
        self.at = 0;
    }

    /// The next cut, and where in the chunk it ends.
    pub fn next_cut(&mut self) -> Option<(Cut, usize)> {
        let cut = self.splitter.advance(self.chunk.get(self.at..).unwrap_or_default())?;
        let (Cut::Frame(len) | Cut::Separator(len)) = cut;
        Some((cut, self.at + len))
    }

    /// Takes what is unsent of the chunk up to `end`, as one piece; `None` when all of it was sent.
    pub fn take_unsent_to(&mut self, end: usize) -> Option<Bytes> {
        if end <= self.unsent {
            return None;
        }
        let whole = self.unsent == 0 && end == self.chunk.len();
        let piece = if whole { std::mem::take(&mut self.chunk) } else { self.chunk.slice(self.unsent..end) };
        self.unsent = end;
        Some(piece)
    }
}

impl PartialFrame {
    /// Takes what is held and was not passed on yet.
    pub fn take_unsent(&mut self) -> Bytes {
        self.hold.take().slice(std::mem::take(&mut self.sent)..)
    }
}

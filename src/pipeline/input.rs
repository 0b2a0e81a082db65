//! The position in the upstream's stream: the current chunk and the incomplete frame before it.

use std::sync::Arc;

use bytes::Bytes;

use super::{Settings, budget::HeldBytes};
use crate::sse::{Cut, Eol, Splitter};

pub(super) struct Input {
    pub splitter: Splitter,
    pub chunk: Bytes,
    /// Offset of the unsent part of the chunk.
    pub unsent_start: usize,
    /// Offset of the next frame in the chunk.
    pub frame_start: usize,
    pub partial: PartialFrame,
    /// The stream's line ending, once it is known.
    pub eol: Option<Eol>,
    /// Whether an `id:` field was read.
    pub id_seen: bool,
}

/// A frame that began in an earlier chunk and is not complete yet.
pub(super) struct PartialFrame {
    pub held: HeldBytes,
    /// Number of held bytes that were already sent.
    pub sent: usize,
    /// The frame is too large: its rest is emitted unread, and nothing is held.
    pub skipping: bool,
}

impl Input {
    pub fn new(settings: &Settings) -> Self {
        let held = HeldBytes::new(Arc::clone(&settings.budget), settings.frame_cap);
        Self {
            splitter: Splitter::default(),
            chunk: Bytes::new(),
            unsent_start: 0,
            frame_start: 0,
            partial: PartialFrame { held, sent: 0, skipping: false },
            eol: None,
            id_seen: false,
        }
    }

    /// Starts the next chunk. An empty one releases the previous chunk.
    pub fn set_chunk(&mut self, chunk: Bytes) {
        self.chunk = chunk;
        self.unsent_start = 0;
        self.frame_start = 0;
    }

    /// Returns the next cut and its end in the chunk.
    pub fn next_cut(&mut self) -> Option<(Cut, usize)> {
        let cut = self.splitter.advance(self.chunk.get(self.frame_start..).unwrap_or_default())?;
        let (Cut::Frame(len) | Cut::Separator(len)) = cut;
        Some((cut, self.frame_start + len))
    }

    /// Takes the unsent part of the chunk up to `end`; `None` if all of it was sent.
    pub fn take_unsent_to(&mut self, end: usize) -> Option<Bytes> {
        if end <= self.unsent_start {
            return None;
        }
        let whole = self.unsent_start == 0 && end == self.chunk.len();
        let piece = if whole { std::mem::take(&mut self.chunk) } else { self.chunk.slice(self.unsent_start..end) };
        self.unsent_start = end;
        Some(piece)
    }
}

impl PartialFrame {
    /// Takes the held bytes that were not sent yet.
    pub fn take_unsent(&mut self) -> Bytes {
        self.held.take().slice(std::mem::take(&mut self.sent)..)
    }
}

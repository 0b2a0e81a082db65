//! The state of a pipeline's message besides the tap, and its counters.

use bytes::Bytes;

use super::{End, frame_signals::FrameSignal};
use crate::citation::Record;

/// Phase of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Phase {
    /// The answer has not ended, and our event may still follow.
    #[default]
    Streaming,
    /// The answer has ended. Our event follows the reply of our own search.
    AwaitingSearch,
    /// The answer has ended. Our event follows the reply of the store.
    Committing,
    /// The answer has ended, and no event of ours follows.
    Done,
}

/// The message's phase and what is held back for our event.
#[derive(Default)]
pub(super) struct Progress {
    pub phase: Phase,
    /// How the upstream's stream ended, once it has.
    pub end: Option<End>,
    /// The signals that ended the answer, encoded after our event.
    pub closing_signals: Option<Vec<FrameSignal>>,
    /// The upstream's bytes that follow our event.
    pub after_event: Bytes,
    /// The record of our event while the store commits it.
    pub committing: Option<Box<Record>>,
    /// Number of sources in the last live event.
    pub announced_sources: usize,
    /// Ledger revision of the last record sent to the store.
    pub stored_revision: Option<u64>,
}

/// Counters of one stream, for the log line and the metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamStats {
    pub frames: u64,
    pub unparsed: u64,
    pub oversized: u64,
    pub live_events: u32,
    /// Rewritten markers.
    pub markers: u64,
    pub panicked: bool,
    pub injected: bool,
    pub finished: bool,
    pub fault: bool,
}

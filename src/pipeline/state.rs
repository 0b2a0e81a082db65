//! What a pipeline knows of its message besides the tap: where it stands, and what is counted of it.

use bytes::Bytes;

use super::{End, frame_signals::FrameSignal};
use crate::citation::Record;

/// Where the message stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Phase {
    /// It has not finished.
    #[default]
    Due,
    /// It has finished; what a search of our own found is awaited, and our event follows it.
    Awaiting,
    /// The record of a finished message is with the store; our event follows its answer.
    Committing,
    /// It has finished; no event is injected after this.
    Done,
}

/// The message's phase, and what waits for our event.
#[derive(Default)]
pub(super) struct Message {
    pub phase: Phase,
    pub ended: Option<End>,
    /// How the answer ended, said after our event.
    pub closing: Option<Vec<FrameSignal>>,
    /// What follows our event: a frame that was held, or a tail.
    pub resume: Bytes,
    /// The record that is with the store.
    pub committing: Option<Box<Record>>,
    /// Sources in the last live event.
    pub announced: usize,
    /// The ledger's revision in the last record that went to the store.
    pub stored_revision: Option<u64>,
}

/// What happened, for the log line and the metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamStats {
    pub frames: u64,
    pub unparsed: u64,
    pub oversized: u64,
    pub live_events: u32,
    /// Markers that were rewritten.
    pub markers: u64,
    pub panicked: bool,
    pub injected: bool,
    pub finished: bool,
    pub fault: bool,
}

//! Decides when our event is sent and which records are stored.

use std::str::FromStr;

use bytes::Bytes;

use super::{Output, OutputMode, Phase, Pipeline};
use crate::{
    citation::Record,
    profile::{annotate, native},
};

/// Live events per message. The final event does not count.
pub const MAX_LIVE_EVENTS: u32 = 64;

/// What we add to a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Inject {
    /// One event before the finish.
    #[default]
    Final,
    /// Also an event with `complete: false` whenever the list has grown.
    Live,
    /// No event: the message is read and stored only.
    Off,
}

impl Inject {
    pub const NAMES: &[&str] = &["final", "live", "off"];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Final => "final",
            Self::Live => "live",
            Self::Off => "off",
        }
    }
}

impl FromStr for Inject {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        [Self::Final, Self::Live, Self::Off].into_iter().find(|inject| inject.as_str() == name).ok_or(())
    }
}

/// How the upstream's stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The body is complete.
    Clean,
    /// The body broke off: reset, timeout, or shorter than its declared length.
    Cut,
    /// We are shutting down and cut the body at a frame boundary.
    Shutdown,
}

impl Pipeline {
    /// Whether our event may still follow.
    pub(super) fn can_inject(&self) -> bool {
        // Sources are added to the upstream's document only on request, to a transcoded one always.
        let document = matches!(self.mode, OutputMode::Transcode(_)) || self.settings.output_format.annotates();
        self.progress.phase == Phase::Streaming
            && self.settings.inject != Inject::Off
            && (!self.settings.single_document || document)
    }

    /// Whether our final event must follow.
    pub(super) fn needs_event(&self) -> bool {
        self.can_inject()
            && self.tap.as_ref().is_some_and(|tap| {
                // An empty final event retracts the sources of a live event.
                let empty = tap.citable_count() == 0 && self.progress.announced_sources == 0;
                tap.provider().is_some() && (!empty || (self.settings.emit_empty && tap.state().has_content))
            })
    }

    /// Sends the record to the store. Our event and `after_event` follow its reply.
    pub(super) fn commit(&mut self, after_event: Bytes) {
        let Some(tap) = &self.tap else { return };
        let record = Box::new(tap.record(false));
        self.progress.stored_revision = Some(tap.state().ledger.revision());
        self.progress.phase = Phase::Committing;
        self.progress.after_event = after_event;
        let mut to_store = record.clone();
        to_store.stored = true;
        self.progress.committing = Some(record);
        self.outputs.push_back(Output::Commit(to_store));
    }

    /// Stores the record if it has changed and no event waits for it: a message without sources or without injection, or
    /// references after the finish.
    pub(super) fn store_unsaved(&mut self) {
        let Some(tap) = &self.tap else { return };
        let revision = tap.state().ledger.revision();
        if !tap.state().has_content || tap.provider().is_none() || self.progress.stored_revision == Some(revision) {
            return;
        }
        let mut record = Box::new(tap.record(true));
        record.late = self.progress.stored_revision.replace(revision).is_some();
        self.outputs.push_back(Output::Store(record));
    }

    /// Emits a live event if the list has grown. Must not be called between a CR and its LF.
    pub(super) fn emit_live_event(&mut self) {
        if self.settings.inject != Inject::Live
            || self.progress.phase != Phase::Streaming
            || self.stream_stats.live_events >= MAX_LIVE_EVENTS
        {
            return;
        }
        let Some(tap) = &self.tap else { return };
        let count = tap.citable_count();
        if count > self.progress.announced_sources {
            self.progress.announced_sources = count;
            self.stream_stats.live_events += 1;
            let record = tap.record(false);
            self.emit_chunk_to(self.input.frame_start);
            self.emit_event(record);
        }
    }

    /// Emits the record as our event. A native document gets the record as members instead.
    pub(super) fn emit_event(&mut self, record: Record) {
        let Some(tap) = &self.tap else { return };
        let is_final = self.progress.phase == Phase::Done;
        let native = |record, positions: &_| {
            native::frame(
                record,
                &|payload| tap.envelope(payload),
                is_final.then_some(positions),
                self.input.eol.unwrap_or_default(),
            )
        };
        let event = match &mut self.mode {
            OutputMode::Relay => native(record, &tap.positions()),
            OutputMode::Rewrite(rewriter) if self.settings.single_document => {
                let json = std::mem::take(&mut self.progress.after_event);
                let annotated = annotate::document(&json, &record, &rewriter.positions).map(Bytes::from);
                rewriter.pass(Output::Bytes(annotated.unwrap_or(json)));
                return self.drain_rewriter();
            }
            OutputMode::Rewrite(rewriter) => {
                // The event follows the frames that wait for a marker.
                let event = native(record, &rewriter.positions);
                rewriter.pass(Output::Event(event));
                return self.drain_rewriter();
            }
            OutputMode::Transcode(transcoder) => {
                let mut out = Vec::new();
                if is_final {
                    transcoder.citations(&record, tap, &mut out);
                } else {
                    transcoder.live(&record, tap, &mut out);
                }
                Bytes::from(out)
            }
        };
        if !event.is_empty() {
            self.outputs.push_back(Output::Event(event));
        }
    }
}

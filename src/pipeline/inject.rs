//! When our event is due, and what is stored.

use std::str::FromStr;

use bytes::Bytes;

use super::{Output, OutputMode, Phase, Pipeline};
use crate::{
    citation::Record,
    profile::{annotate, native},
};

/// Live events per message; the final one comes all the same.
pub const MAX_LIVE_EVENTS: u32 = 64;

/// What we add to a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Inject {
    /// One event before the finish.
    #[default]
    Final,
    /// Also one whenever the list has grown, with `complete: false`.
    Live,
    /// Nothing: tap and store only.
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

    fn from_str(s: &str) -> Result<Self, ()> {
        match s {
            "final" => Ok(Self::Final),
            "live" => Ok(Self::Live),
            "off" => Ok(Self::Off),
            _ => Err(()),
        }
    }
}

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The upstream closed it as HTTP does.
    Clean,
    /// It broke off: reset, time-out, a body shorter than said.
    Cut,
    /// We are shutting down and cut it at a boundary.
    Shutdown,
}

impl Pipeline {
    /// Our event may still come. What a client gets of a document is the upstream's, or all ours.
    pub(super) fn injecting(&self) -> bool {
        // A document of the upstream's is added to only where that is asked for; one of ours is.
        let ours = matches!(self.mode, OutputMode::Transcode(_)) || self.settings.output_format.annotates();
        self.message.phase == Phase::Due
            && self.settings.inject != Inject::Off
            && (!self.settings.single_document || ours)
    }

    pub(super) fn wants_event(&self) -> bool {
        self.injecting()
            && self.tap.as_ref().is_some_and(|tap| {
                // What a live event named is taken back by a last one.
                let empty = tap.citable() == 0 && self.message.announced == 0;
                tap.provider().is_some() && (!empty || (self.settings.emit_empty && tap.state().any))
            })
    }

    /// Hands the record to the store; our event and `resume` follow its answer.
    pub(super) fn commit(&mut self, resume: Bytes) {
        let Some(tap) = &self.tap else { return };
        let record = Box::new(tap.record(false));
        self.message.stored_revision = Some(tap.state().ledger.revision());
        self.message.phase = Phase::Committing;
        self.message.resume = resume;
        let mut to_store = record.clone();
        to_store.stored = true;
        self.message.committing = Some(record);
        self.out.push_back(Output::Commit(to_store));
    }

    /// Stores what no event waits for: a message without sources, one that is not injected into, or
    /// references that came after the finish.
    pub(super) fn store_rest(&mut self) {
        let Some(tap) = &self.tap else { return };
        let revision = tap.state().ledger.revision();
        if !tap.state().any || tap.provider().is_none() || self.message.stored_revision == Some(revision) {
            return;
        }
        let late = self.message.stored_revision.is_some();
        let mut record = Box::new(tap.record(true));
        record.late = late;
        self.message.stored_revision = Some(revision);
        self.out.push_back(Output::Store(record));
    }

    /// In live mode: an event after a frame that made the list grow. Never between a CR and its LF.
    pub(super) fn live(&mut self) {
        if self.settings.inject != Inject::Live
            || self.message.phase != Phase::Due
            || self.stream_stats.live_events >= MAX_LIVE_EVENTS
        {
            return;
        }
        let Some(tap) = &self.tap else { return };
        let count = tap.citable();
        if count > self.message.announced {
            self.message.announced = count;
            self.stream_stats.live_events += 1;
            let record = tap.record(false);
            self.emit_chunk_to(self.input.at);
            self.emit_event(record);
        }
    }

    pub(super) fn emit_event(&mut self, record: Record) {
        let Some(tap) = &self.tap else { return };
        let last = self.message.phase == Phase::Done;
        let native = |record, positions: &_| {
            native::frame(
                record,
                &|payload| tap.envelope(payload),
                Some(positions).filter(|_| last),
                self.input.eol.unwrap_or_default(),
            )
        };
        let event = match &mut self.mode {
            OutputMode::Relay => native(record, &tap.positions()),
            OutputMode::Rewrite(rewrite) if self.settings.single_document => {
                let json = std::mem::take(&mut self.message.resume);
                let annotated = annotate::document(&json, &record, &rewrite.positions).map(Bytes::from);
                rewrite.pass(Output::Bytes(annotated.unwrap_or(json)));
                return self.drain();
            }
            OutputMode::Rewrite(rewrite) => {
                // It keeps its place behind frames that wait.
                let event = native(record, &rewrite.positions);
                rewrite.pass(Output::Event(event));
                return self.drain();
            }
            OutputMode::Transcode(speak) => {
                let mut out = Vec::new();
                if last {
                    speak.citations(&record, tap, &mut out);
                } else {
                    speak.live(&record, tap, &mut out);
                }
                Bytes::from(out)
            }
        };
        if !event.is_empty() {
            self.out.push_back(Output::Event(event));
        }
    }
}

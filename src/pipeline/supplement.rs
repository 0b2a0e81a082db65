//! Our own search beside the upstream's answer. At the finish, before our event, the pipeline decides whether to wait for
//! it ([`Output::AwaitSearch`]). The driver bounds the wait.

use std::str::FromStr;

use bytes::Bytes;

use super::{Output, Phase, Pipeline};
use crate::citation::supplement::SearchOutcome;

/// When our own search supplements a message's sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Supplement {
    #[default]
    Off,
    /// Only if the upstream named no source that can be cited.
    WhenEmpty,
    Always,
}

impl Supplement {
    pub const NAMES: &[&str] = &["off", "when-empty", "always"];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::WhenEmpty => "when-empty",
            Self::Always => "always",
        }
    }
}

impl FromStr for Supplement {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        [Self::Off, Self::WhenEmpty, Self::Always].into_iter().find(|when| when.as_str() == name).ok_or(())
    }
}

impl Pipeline {
    /// Handles the reply to [`Output::AwaitSearch`].
    pub fn supplemented(&mut self, outcome: SearchOutcome) {
        if self.progress.phase != Phase::AwaitingSearch {
            return;
        }
        self.progress.phase = Phase::Streaming;
        self.set_search_outcome(outcome);
        if self.needs_event() {
            let after_event = std::mem::take(&mut self.progress.after_event);
            return self.commit(after_event);
        }
        self.progress.phase = Phase::Done;
        self.store_unsaved();
        self.resume();
    }

    /// Ends the message: our event and `after_event` follow the supplement, if one is awaited, and the commit.
    pub(super) fn close_message(&mut self, after_event: Bytes) {
        if self.awaits_supplement() {
            self.progress.after_event = after_event;
            self.progress.phase = Phase::AwaitingSearch;
            self.outputs.push_back(Output::AwaitSearch);
        } else {
            self.commit(after_event);
        }
    }

    /// Whether our event waits for a supplement.
    pub(super) fn awaits_supplement(&self) -> bool {
        self.can_inject() && self.wants_supplement()
    }

    /// Marks the supplement as pending in the record if no event waits for it. The caller that stores the record starts the
    /// search.
    pub(super) fn mark_supplement_pending(&mut self) {
        if self.progress.phase == Phase::AwaitingSearch
            || (self.progress.phase == Phase::Streaming && self.wants_supplement())
        {
            self.set_search_outcome(SearchOutcome::Pending);
        }
    }

    /// Whether to supplement the message. A failed answer is not supplemented, nor is a stream without an answer.
    fn wants_supplement(&self) -> bool {
        self.tap.as_ref().is_some_and(|tap| {
            let wanted = match self.settings.supplement {
                Supplement::Off => false,
                Supplement::WhenEmpty => tap.citable_count() == 0,
                Supplement::Always => true,
            };
            wanted && tap.provider().is_some() && tap.state().has_content && !tap.state().fault
        })
    }

    fn set_search_outcome(&mut self, outcome: SearchOutcome) {
        if let Some(tap) = &mut self.tap {
            tap.search_outcome = outcome;
        }
    }
}

#[cfg(test)]
#[path = "supplement_tests.rs"]
mod tests;

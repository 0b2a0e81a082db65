//! A search of our own beside the upstream's answer: whether one is wanted is decided at the finish, before our event.
//! The pipeline asks for it with [`Output::AwaitSearch`] and has no clock: whoever drives it bounds the wait.

use std::str::FromStr;

use bytes::Bytes;

use super::{Output, Phase, Pipeline};
use crate::citation::supplement::SearchOutcome;

/// When a message's sources are supplemented by a search of our own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Supplement {
    #[default]
    Off,
    /// Only where the upstream named no source that can be cited.
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

    fn from_str(s: &str) -> Result<Self, ()> {
        match s {
            "off" => Ok(Self::Off),
            "when-empty" => Ok(Self::WhenEmpty),
            "always" => Ok(Self::Always),
            _ => Err(()),
        }
    }
}

impl Pipeline {
    /// The answer to [`Output::AwaitSearch`].
    pub fn supplemented(&mut self, supply: SearchOutcome) {
        if self.message.phase != Phase::Awaiting {
            return;
        }
        self.message.phase = Phase::Due;
        self.supply(supply);
        let resume = std::mem::take(&mut self.message.resume);
        if self.wants_event() {
            return self.commit(resume);
        }
        self.message.phase = Phase::Done;
        self.store_rest();
        self.go_on(resume);
    }

    /// The message ends here: our event and `resume` follow the supplement, where one is awaited, and the commit.
    pub(super) fn close(&mut self, resume: Bytes) {
        if self.awaits_supplement() {
            self.message.resume = resume;
            self.message.phase = Phase::Awaiting;
            self.out.push_back(Output::AwaitSearch);
        } else {
            self.commit(resume);
        }
    }

    /// Is there an event for it to join?
    pub(super) fn awaits_supplement(&self) -> bool {
        self.injecting() && self.wants_supplement()
    }

    /// Where no event waits for it, the record says that it is on its way, and whoever stores that follows it up.
    pub(super) fn supplement_aside(&mut self) {
        if self.message.phase == Phase::Awaiting || (self.message.phase == Phase::Due && self.wants_supplement()) {
            self.supply(SearchOutcome::Pending);
        }
    }

    /// An answer that failed is not supplemented, nor is a stream without one.
    fn wants_supplement(&self) -> bool {
        self.tap.as_ref().is_some_and(|tap| {
            let wanted = match self.settings.supplement {
                Supplement::Off => false,
                Supplement::WhenEmpty => tap.citable() == 0,
                Supplement::Always => true,
            };
            wanted && tap.provider().is_some() && tap.state().any && !tap.state().fault
        })
    }

    fn supply(&mut self, supply: SearchOutcome) {
        if let Some(tap) = &mut self.tap {
            tap.supply = supply;
        }
    }
}

#[cfg(test)]
#[path = "supplement_tests.rs"]
mod tests;

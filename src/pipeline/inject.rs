//! When our event is due.

use std::str::FromStr;

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

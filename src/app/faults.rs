//! What went wrong of late, for those who look at the console. Kept in memory, and without a word of anybody's text.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use prometheus_client::metrics::{counter::Counter, family::Family};
use uuid::Uuid;

use super::problem::Problem;
use crate::{
    pipeline::{Outcome, StreamStats},
    telemetry::KindLabel,
};

/// Of all tenants; beyond it the oldest goes.
pub const MAX_FAULTS: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Milliseconds since the epoch.
    pub at_ms: i64,
    pub tenant: String,
    /// `None` where it was our own API that failed.
    pub route: Option<String>,
    pub provider: Option<&'static str>,
    /// How a stream ended, as in the metrics; the kind of a problem; or one of those below.
    pub what: &'static str,
    /// What the client got.
    pub status: u16,
    pub request: Option<Uuid>,
}

/// The upstream answered with a status from 500 on.
const STATUS: &str = "upstream_status";
/// The upstream said in its stream that it failed.
const SAID: &str = "upstream_error";
/// The tap failed, and the stream went on without it.
const PANICKED: &str = "tap_panicked";
/// There were frames that could not be read: the upstream's format may have changed.
const UNREAD: &str = "frames_unread";
/// There were frames too large to be read.
const OVERSIZED: &str = "frames_oversized";

/// What is to be said of a stream that is over: of its end, and of the tap, where it is of a dialect that we know.
pub fn of_stream(outcome: Outcome, status: u16, stream_stats: &StreamStats, known: bool) -> [Option<&'static str>; 2] {
    let end = match outcome {
        Outcome::Complete if status >= 500 => Some(STATUS),
        Outcome::Complete if stream_stats.fault => Some(SAID),
        Outcome::Complete => None,
        other => Some(other.as_str()),
    };
    let tap = match stream_stats {
        StreamStats { panicked: true, .. } => Some(PANICKED),
        StreamStats { unparsed: 1.., .. } if known => Some(UNREAD),
        StreamStats { oversized: 1.., .. } => Some(OVERSIZED),
        _ => None,
    };
    [end, tap]
}

/// Whose request it was, and where it went.
#[derive(Debug, Clone, Copy)]
pub struct Of<'a> {
    pub tenant: &'a str,
    pub route: Option<&'a str>,
    pub provider: Option<&'static str>,
    pub request: Option<Uuid>,
}

#[derive(Debug, Default)]
pub struct Faults {
    last: Mutex<VecDeque<Fault>>,
    /// Of all that were ever noted.
    count: Family<KindLabel, Counter>,
}

impl Faults {
    pub fn new(count: Family<KindLabel, Counter>) -> Self {
        Self { last: Mutex::default(), count }
    }

    pub fn note(&self, of: Of<'_>, what: &'static str, status: u16) {
        let fault = Fault {
            at_ms: jiff::Timestamp::now().as_millisecond(),
            tenant: of.tenant.to_owned(),
            route: of.route.map(str::to_owned),
            provider: of.provider,
            what,
            status,
            request: of.request,
        };
        self.count.get_or_create(&KindLabel { kind: what }).inc();
        let mut faults = self.lock();
        if faults.len() >= MAX_FAULTS {
            faults.pop_front();
        }
        faults.push_back(fault);
    }

    /// A problem that is the upstream's or ours; what a client did wrong is its own.
    pub fn problem(&self, of: Of<'_>, problem: &Problem) {
        let status = problem.status.as_u16();
        if status >= 500 {
            self.note(of, problem.kind(), status);
        }
    }

    /// The same, of a problem on its way out.
    pub fn noted(&self, of: Of<'_>, problem: Problem) -> Problem {
        self.problem(of, &problem);
        problem
    }

    /// The newest of a tenant's, newest first.
    pub fn newest(&self, tenant: &str, count: usize) -> Vec<Fault> {
        self.lock().iter().rev().filter(|fault| fault.tenant == tenant).take(count).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Fault>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(faults: &Faults, tenant: &str, status: usize) {
        let of = Of { tenant, route: None, provider: None, request: None };
        faults.note(of, "upstream_cut", u16::try_from(status).unwrap());
    }

    #[test]
    fn at_the_cap_all_are_there_and_over_it_the_oldest_goes() {
        let faults = Faults::default();
        (0..MAX_FAULTS).for_each(|n| note(&faults, "a", n));
        let all = faults.newest("a", usize::MAX);
        assert_eq!((all.len(), all[0].status, all[MAX_FAULTS - 1].status), (MAX_FAULTS, 255, 0));
        note(&faults, "a", 256);
        let all = faults.newest("a", usize::MAX);
        assert_eq!((all.len(), all[0].status, all[MAX_FAULTS - 1].status), (MAX_FAULTS, 256, 1));
        assert_eq!(faults.newest("a", 2).iter().map(|fault| fault.status).collect::<Vec<_>>(), [256, 255]);
    }

    #[test]
    fn everybody_sees_their_own() {
        let faults = Faults::default();
        note(&faults, "a", 1);
        note(&faults, "b", 2);
        assert_eq!(faults.newest("a", 9).len(), 1);
        assert!(faults.newest("c", 9).is_empty());
    }

    #[test]
    fn what_is_said_of_a_stream() {
        let stream_stats = StreamStats::default();
        let of = |outcome, status, stream_stats: StreamStats| of_stream(outcome, status, &stream_stats, true);
        assert_eq!(of(Outcome::Complete, 200, stream_stats), [None, None]);
        assert_eq!(of(Outcome::Complete, 404, stream_stats), [None, None], "a client's own");
        assert_eq!(of(Outcome::Complete, 500, stream_stats), [Some(STATUS), None]);
        assert_eq!(of(Outcome::Complete, 200, StreamStats { fault: true, ..stream_stats }), [Some(SAID), None]);
        assert_eq!(of(Outcome::ClientGone, 200, stream_stats), [Some("client_gone"), None]);
        assert_eq!(
            of(Outcome::UpstreamCut, 200, StreamStats { panicked: true, unparsed: 1, ..stream_stats }),
            [Some("upstream_cut"), Some(PANICKED)]
        );
        assert_eq!(of(Outcome::Complete, 200, StreamStats { unparsed: 3, ..stream_stats }), [None, Some(UNREAD)]);
        assert_eq!(of(Outcome::Complete, 200, StreamStats { oversized: 1, ..stream_stats }), [None, Some(OVERSIZED)]);
        let strange = of_stream(Outcome::Complete, 200, &StreamStats { unparsed: 3, ..stream_stats }, false);
        assert_eq!(strange, [None, None], "what is no chat is not to be read");
    }
}

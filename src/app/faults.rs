//! Recent faults, shown in the console. `relay`, `api` and `server` record them. They are kept in memory only and must
//! not hold any text of users.

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

/// Faults kept for all tenants together; above it the oldest is dropped.
pub const MAX_FAULTS: usize = 256;

/// A request that failed, or a stream that was not read completely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Milliseconds since the Unix epoch.
    pub at_ms: i64,
    pub tenant: String,
    /// `None` if the API failed, not a relayed request.
    pub route: Option<String>,
    pub provider: Option<&'static str>,
    /// The outcome of a stream as in the metrics, the type of a problem, or one of the constants below.
    pub what: &'static str,
    /// The status that the client received.
    pub status: u16,
    pub request: Option<Uuid>,
}

/// The upstream responded with a status of 500 or above.
const UPSTREAM_STATUS: &str = "upstream_status";
/// The upstream reported an error in its stream.
const UPSTREAM_ERROR: &str = "upstream_error";
/// The tap panicked, and the rest of the stream was relayed without it.
const TAP_PANICKED: &str = "tap_panicked";
/// Some frames could not be parsed: the upstream's format may have changed.
const FRAMES_UNREAD: &str = "frames_unread";
/// Some frames were too large to be parsed.
const FRAMES_OVERSIZED: &str = "frames_oversized";

/// The faults of a stream that has ended: of its end, and of its tap. Unparsed frames are a fault only if the provider
/// is known, because other streams are not chats.
pub fn of_stream(outcome: Outcome, status: u16, stream_stats: &StreamStats, known: bool) -> [Option<&'static str>; 2] {
    let end = match outcome {
        Outcome::Complete if status >= 500 => Some(UPSTREAM_STATUS),
        Outcome::Complete if stream_stats.fault => Some(UPSTREAM_ERROR),
        Outcome::Complete => None,
        other => Some(other.as_str()),
    };
    let tap = match stream_stats {
        StreamStats { panicked: true, .. } => Some(TAP_PANICKED),
        StreamStats { unparsed: 1.., .. } if known => Some(FRAMES_UNREAD),
        StreamStats { oversized: 1.., .. } => Some(FRAMES_OVERSIZED),
        _ => None,
    };
    [end, tap]
}

/// The request that a fault belongs to.
#[derive(Debug, Clone, Copy)]
pub struct FaultContext<'a> {
    pub tenant: &'a str,
    pub route: Option<&'a str>,
    pub provider: Option<&'static str>,
    pub request: Option<Uuid>,
}

/// The last faults of all tenants.
#[derive(Debug, Default)]
pub struct Faults {
    last: Mutex<VecDeque<Fault>>,
    /// Metric of all faults since the start, by kind.
    count: Family<KindLabel, Counter>,
}

impl Faults {
    pub fn new(count: Family<KindLabel, Counter>) -> Self {
        Self { last: Mutex::default(), count }
    }

    /// Records a fault.
    pub fn note(&self, context: FaultContext<'_>, what: &'static str, status: u16) {
        let fault = Fault {
            at_ms: jiff::Timestamp::now().as_millisecond(),
            tenant: context.tenant.to_owned(),
            route: context.route.map(str::to_owned),
            provider: context.provider,
            what,
            status,
            request: context.request,
        };
        self.count.get_or_create(&KindLabel { kind: what }).inc();
        let mut faults = self.lock();
        if faults.len() >= MAX_FAULTS {
            faults.pop_front();
        }
        faults.push_back(fault);
    }

    /// Records a problem that the upstream or citetap caused, not the client.
    pub fn problem(&self, context: FaultContext<'_>, problem: &Problem) {
        let status = problem.status.as_u16();
        if status >= 500 {
            self.note(context, problem.kind(), status);
        }
    }

    /// Records a problem as [`problem`](Self::problem) does, and returns it.
    pub fn noted(&self, context: FaultContext<'_>, problem: Problem) -> Problem {
        self.problem(context, &problem);
        problem
    }

    /// The last `count` faults of a tenant, newest first.
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
        let context = FaultContext { tenant, route: None, provider: None, request: None };
        faults.note(context, "upstream_cut", u16::try_from(status).unwrap());
    }

    #[test]
    fn faults_at_the_cap_are_kept_and_above_it_the_oldest_goes() {
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
    fn newest_returns_only_faults_of_the_tenant() {
        let faults = Faults::default();
        note(&faults, "a", 1);
        note(&faults, "b", 2);
        assert_eq!(faults.newest("a", 9).len(), 1);
        assert!(faults.newest("c", 9).is_empty());
    }

    #[test]
    fn of_stream_names_fault_of_end_and_of_tap() {
        let stream_stats = StreamStats::default();
        let of = |outcome, status, stream_stats: StreamStats| of_stream(outcome, status, &stream_stats, true);
        assert_eq!(of(Outcome::Complete, 200, stream_stats), [None, None]);
        assert_eq!(of(Outcome::Complete, 404, stream_stats), [None, None], "the client's fault");
        assert_eq!(of(Outcome::Complete, 500, stream_stats), [Some(UPSTREAM_STATUS), None]);
        assert_eq!(
            of(Outcome::Complete, 200, StreamStats { fault: true, ..stream_stats }),
            [Some(UPSTREAM_ERROR), None]
        );
        assert_eq!(of(Outcome::ClientGone, 200, stream_stats), [Some("client_gone"), None]);
        assert_eq!(
            of(Outcome::UpstreamCut, 200, StreamStats { panicked: true, unparsed: 1, ..stream_stats }),
            [Some("upstream_cut"), Some(TAP_PANICKED)]
        );
        assert_eq!(
            of(Outcome::Complete, 200, StreamStats { unparsed: 3, ..stream_stats }),
            [None, Some(FRAMES_UNREAD)]
        );
        assert_eq!(
            of(Outcome::Complete, 200, StreamStats { oversized: 1, ..stream_stats }),
            [None, Some(FRAMES_OVERSIZED)]
        );
        let unknown = of_stream(Outcome::Complete, 200, &StreamStats { unparsed: 3, ..stream_stats }, false);
        assert_eq!(unknown, [None, None], "a stream that is not a chat");
    }
}

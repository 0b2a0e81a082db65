//! The limit of open file descriptors. Each client and each upstream connection takes one. When few are left, new clients
//! get a 503, so that operators' endpoints still answer and open streams can reach their upstreams.

use std::{
    fs::File,
    os::fd::AsRawFd,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors reserved for connections that get a 503, and for operators.
const SPARE: usize = 32;
/// A connection that would take one of the last descriptors is closed without a response.
const LAST: usize = 4;
/// A stream needs a client connection and an upstream connection.
const PER_STREAM: usize = 2;

/// How many descriptors are left for a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FdHeadroom {
    Enough,
    /// Only operators' endpoints are served; other requests get 503.
    Low,
    /// The connection is closed.
    None,
}

/// Raises the soft limit to the hard limit and returns it; `None` is no limit. (The usual soft limit of 1,024 exists for
/// programs that use `select`.)
pub fn raise() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // macOS refuses values above its own maximum; the limit then stays as it was.
    if current != maximum && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok() {
        return maximum;
    }
    current
}

/// (needed, available) if the hard limit is too low for this number of streams.
pub fn shortfall(streams: usize) -> Option<(u64, u64)> {
    let most = getrlimit(Resource::Nofile).maximum?;
    let needed = streams.saturating_mul(PER_STREAM) as u64;
    (needed > most).then_some((needed, most))
}

/// Counts the descriptors of this process against its limit. Without a limit there is always headroom.
#[derive(Debug)]
pub struct FdLimit {
    limit: Option<usize>,
    /// Duplicated to see which descriptor number is the lowest free one.
    probe: Option<File>,
    /// Upstream connections that are being opened and may not have a descriptor yet.
    connecting: AtomicUsize,
}

impl FdLimit {
    /// With the limit that the process has now.
    pub fn of_process() -> Arc<Self> {
        let limit = getrlimit(Resource::Nofile).current.and_then(|limit| usize::try_from(limit).ok());
        Arc::new(Self { limit, probe: File::open("/dev/null").ok(), connecting: AtomicUsize::new(0) })
    }

    /// Headroom after this connection was accepted.
    pub fn headroom(&self, accepted: &impl AsRawFd) -> FdHeadroom {
        self.headroom_above(fd_number(accepted))
    }

    /// A permit for one more upstream connection, to be held until it is open; `None` when few descriptors are left.
    pub fn connect(self: &Arc<Self>) -> Option<Connecting> {
        let before = self.connecting.fetch_add(1, Ordering::Relaxed);
        // Made before the check, so that a refusal decrements the counter as well.
        let connecting = Connecting(Arc::clone(self));
        let (Some(limit), Some(probe)) = (self.limit, &self.probe) else { return Some(connecting) };
        // Connections that have their descriptor already are counted twice, so a burst is refused a little early.
        let used = before + fd_number(&probe.try_clone().ok()?);
        // Accepted clients may use half of the reserve for their upstreams.
        (left(limit, used) >= spare(limit) / 2).then_some(connecting)
    }

    /// Headroom if all descriptors up to this number are in use.
    fn headroom_above(&self, number: usize) -> FdHeadroom {
        let Some(limit) = self.limit else { return FdHeadroom::Enough };
        let left = left(limit, number);
        if left >= spare(limit) {
            FdHeadroom::Enough
        } else if left >= LAST {
            FdHeadroom::Low
        } else {
            FdHeadroom::None
        }
    }
}

/// An upstream connection that is being opened.
#[derive(Debug)]
pub struct Connecting(Arc<FdLimit>);

impl Drop for Connecting {
    fn drop(&mut self) {
        self.0.connecting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// POSIX: a new descriptor gets the lowest free number, so its number tells how many are in use.
fn fd_number(file: &impl AsRawFd) -> usize {
    usize::try_from(file.as_raw_fd()).unwrap_or_default()
}

fn left(limit: usize, number: usize) -> usize {
    limit.saturating_sub(number + 1)
}

/// Descriptors to reserve: [`SPARE`], or fewer if the limit is low.
fn spare(limit: usize) -> usize {
    SPARE.min(limit / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fd_limit(limit: Option<usize>) -> Arc<FdLimit> {
        Arc::new(FdLimit { limit, ..Arc::into_inner(FdLimit::of_process()).unwrap() })
    }

    #[test]
    fn last_descriptors_are_reserved() {
        let limit = fd_limit(Some(1024));
        assert_eq!([990, 991].map(|n| limit.headroom_above(n)), [FdHeadroom::Enough; 2]);
        assert_eq!([992, 1019].map(|n| limit.headroom_above(n)), [FdHeadroom::Low; 2]);
        assert_eq!([1020, 1023].map(|n| limit.headroom_above(n)), [FdHeadroom::None; 2]);
        assert_eq!(fd_limit(Some(40)).headroom_above(20), FdHeadroom::Enough, "a low limit reserves fewer");
        assert_eq!(fd_limit(None).headroom_above(1 << 20), FdHeadroom::Enough);
    }

    #[test]
    fn connecting_counts_until_the_permit_is_dropped() {
        // More than this process has open, far fewer than the line below tries to take.
        let limit = fd_limit(Some(1 << 16));
        let mut permits: Vec<Connecting> = std::iter::from_fn(|| limit.connect()).take(1 << 17).collect();
        assert!(permits.len() < (1 << 16) - SPARE / 2, "{} of {}", permits.len(), 1 << 16);
        assert!(permits.len() > 1 << 15, "other tests have descriptors open too");
        assert_eq!(limit.connecting.load(Ordering::Relaxed), permits.len(), "a refusal is not counted");
        permits.truncate(1);
        assert!(limit.connect().is_some());
    }

    #[test]
    fn streams_need_two_descriptors_each() {
        assert!(shortfall(1).is_none());
        if getrlimit(Resource::Nofile).maximum.is_some() {
            let (needed, available) = shortfall(usize::MAX / 4).unwrap();
            assert!(needed > available);
        }
    }
}

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

/// Descriptors reserved for connections that are answered with 503, and for operators.
const SPARE: usize = 32;
/// A connection that would take one of the last descriptors is closed without an answer.
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
        self.beside(number(accepted))
    }

    /// A permit for one more upstream connection, to be held until it is open; `None` when few descriptors are left.
    pub fn connect(self: &Arc<Self>) -> Option<Connecting> {
        let before = self.connecting.fetch_add(1, Ordering::Relaxed);
        // Made before the check, so that a refusal decrements the counter as well.
        let connecting = Connecting(Arc::clone(self));
        let (Some(limit), Some(probe)) = (self.limit, &self.probe) else { return Some(connecting) };
        // Connections that have their descriptor already are counted twice, so a burst is refused a little early.
        let taken = before + number(&probe.try_clone().ok()?);
        // Accepted clients may use half of the reserve for their upstreams.
        (left(limit, taken) >= spare(limit) / 2).then_some(connecting)
    }

    fn beside(&self, number: usize) -> FdHeadroom {
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
fn number(file: &impl AsRawFd) -> usize {
    usize::try_from(file.as_raw_fd()).unwrap_or_default()
}

fn left(limit: usize, number: usize) -> usize {
    limit.saturating_sub(number + 1)
}

/// A low limit reserves fewer.
fn spare(limit: usize) -> usize {
    SPARE.min(limit / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(limit: Option<usize>) -> Arc<FdLimit> {
        Arc::new(FdLimit { limit, ..Arc::into_inner(FdLimit::of_process()).unwrap() })
    }

    #[test]
    fn last_descriptors_are_reserved() {
        let crowd = files(Some(1024));
        assert_eq!([990, 991].map(|n| crowd.beside(n)), [FdHeadroom::Enough; 2]);
        assert_eq!([992, 1019].map(|n| crowd.beside(n)), [FdHeadroom::Low; 2]);
        assert_eq!([1020, 1023].map(|n| crowd.beside(n)), [FdHeadroom::None; 2]);
        assert_eq!(files(Some(40)).beside(20), FdHeadroom::Enough, "a low limit reserves fewer");
        assert_eq!(files(None).beside(1 << 20), FdHeadroom::Enough);
    }

    #[test]
    fn connecting_counts_until_the_permit_is_dropped() {
        // More than this process has open, far less than the loop below asks for.
        let files = files(Some(1 << 16));
        let mut begun: Vec<Connecting> = std::iter::from_fn(|| files.connect()).take(1 << 17).collect();
        assert!(begun.len() < (1 << 16) - SPARE / 2, "{} of {}", begun.len(), 1 << 16);
        assert!(begun.len() > 1 << 15, "other tests have descriptors open too");
        assert_eq!(files.connecting.load(Ordering::Relaxed), begun.len(), "a refusal is not counted");
        begun.truncate(1);
        assert!(files.connect().is_some());
    }

    #[test]
    fn streams_need_two_descriptors_each() {
        assert!(shortfall(1).is_none());
        if getrlimit(Resource::Nofile).maximum.is_some() {
            let (needed, there) = shortfall(usize::MAX / 4).unwrap();
            assert!(needed > there);
        }
    }
}

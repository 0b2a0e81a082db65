//! How many files may be open, and what is done when they run out. A connection is a file, and so is each one to an
//! upstream; who comes when few are left is told so, so that operators are answered and what is open gets what it needs.

use std::{
    fs::File,
    os::fd::AsRawFd,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The last files of those that the process may have open, for connections that are told to come later.
const SPARE: usize = 32;
/// The very last: a connection that would take one of these is closed unheard.
const LAST: usize = 4;
/// A stream is a connection, and mostly another one to its upstream.
const PER_STREAM: usize = 2;

/// What a new connection finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    Enough,
    /// Operators are answered, others told to come later.
    Little,
    /// Nobody is heard.
    None,
}

/// Takes all the files that the process may have: the usual 1,024 are for programs that could not count further, and
/// may be raised by everybody. Says how many there are now; `None` is no limit.
pub fn raise() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // Refused where the system has a lower bound of its own; then it stays as it was.
    if current != maximum && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok() {
        return maximum;
    }
    current
}

/// What `streams` at one time need and there may not be: (needed, there).
pub fn lacking(streams: usize) -> Option<(u64, u64)> {
    let most = getrlimit(Resource::Nofile).maximum?;
    let needed = streams.saturating_mul(PER_STREAM) as u64;
    (needed > most).then_some((needed, most))
}

/// The files of this process; where nobody says how many there may be, there is always room.
#[derive(Debug)]
pub struct Files {
    limit: Option<usize>,
    /// Duplicated to see which number is free.
    any: Option<File>,
    /// Connections that are on their way and may not have their files yet.
    opening: AtomicUsize,
}

impl Files {
    /// As the process is limited now.
    pub fn of_process() -> Arc<Self> {
        let limit = getrlimit(Resource::Nofile).current.and_then(|limit| usize::try_from(limit).ok());
        Arc::new(Self { limit, any: File::open("/dev/null").ok(), opening: AtomicUsize::new(0) })
    }

    /// For a connection that came.
    pub fn room(&self, came: &impl AsRawFd) -> Room {
        self.beside(number(came))
    }

    /// For one more connection of our own; `None` when few files are left. Hold it until that is open.
    pub fn begin(self: &Arc<Self>) -> Option<Opening> {
        // Made first, so that a refusal gives it back as well.
        let before = self.opening.fetch_add(1, Ordering::Relaxed);
        let opening = Opening(Arc::clone(self));
        let (Some(limit), Some(any)) = (self.limit, &self.any) else { return Some(opening) };
        // All may have their files already, and be counted twice: then a rush is told to come later a little early.
        let taken = before + number(&any.try_clone().ok()?);
        // Whoever is here already may have half of what is spared: their upstreams, but not only theirs.
        (left(limit, taken) >= spare(limit) / 2).then_some(opening)
    }

    fn beside(&self, number: usize) -> Room {
        let Some(limit) = self.limit else { return Room::Enough };
        let left = left(limit, number);
        if left >= spare(limit) {
            Room::Enough
        } else if left >= LAST {
            Room::Little
        } else {
            Room::None
        }
    }
}

/// A connection on its way.
#[derive(Debug)]
pub struct Opening(Arc<Files>);

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.opening.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A new file gets the lowest number that is free, so its number tells how many are taken.
fn number(file: &impl AsRawFd) -> usize {
    usize::try_from(file.as_raw_fd()).unwrap_or_default()
}

fn left(limit: usize, number: usize) -> usize {
    limit.saturating_sub(number + 1)
}

/// Of few files fewer are spared.
fn spare(limit: usize) -> usize {
    SPARE.min(limit / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(limit: Option<usize>) -> Arc<Files> {
        Arc::new(Files { limit, ..Arc::into_inner(Files::of_process()).unwrap() })
    }

    #[test]
    fn the_last_files_are_spared() {
        let crowd = files(Some(1024));
        assert_eq!([990, 991].map(|n| crowd.beside(n)), [Room::Enough; 2]);
        assert_eq!([992, 1019].map(|n| crowd.beside(n)), [Room::Little; 2]);
        assert_eq!([1020, 1023].map(|n| crowd.beside(n)), [Room::None; 2]);
        assert_eq!(files(Some(40)).beside(20), Room::Enough, "of few files fewer are spared");
        assert_eq!(files(None).beside(1 << 20), Room::Enough);
    }

    #[test]
    fn connections_on_their_way_are_counted_until_they_are_there() {
        // More than this process has open, by far less than what is begun below.
        let files = files(Some(1 << 16));
        let mut begun: Vec<Opening> = std::iter::from_fn(|| files.begin()).take(1 << 17).collect();
        assert!(begun.len() < (1 << 16) - SPARE / 2, "{} of {}", begun.len(), 1 << 16);
        assert!(begun.len() > 1 << 15, "tests beside this one have some files too");
        assert_eq!(files.opening.load(Ordering::Relaxed), begun.len(), "a refusal leaves nothing");
        begun.truncate(1);
        assert!(files.begin().is_some());
    }

    #[test]
    fn streams_need_two_files_each() {
        assert!(lacking(1).is_none());
        if getrlimit(Resource::Nofile).maximum.is_some() {
            let (needed, there) = lacking(usize::MAX / 4).unwrap();
            assert!(needed > there);
        }
    }
}

//! What is done when files run out. A connection is a file, and so is each one to an upstream; who comes when few are
//! left is told so and closed, so that operators are answered and streams that are open get what they need.

use std::time::Duration;

use tokio::net::TcpStream;

/// The last files of those that the process may have open, for connections that are told to come later.
const SPARE: usize = 32;
/// The very last: a connection that would take one of these is closed unheard.
const LAST: usize = 4;
/// For a client that is told to come later to say what it wants.
pub const HEADERS: Duration = Duration::from_millis(500);
/// For it to hear the answer.
pub const LIFE: Duration = Duration::from_secs(5);

/// What a new connection finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    Enough,
    /// Operators are answered, others told to come later.
    Little,
    /// Nobody is heard.
    None,
}

/// How many files there may be; where nobody says, there is always room.
#[derive(Debug, Clone, Copy)]
pub struct Crowd(Option<usize>);

impl Crowd {
    /// As the process is limited now.
    pub fn of_process() -> Self {
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let files = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
        Self(files.and_then(|files| files.split_whitespace().next()?.parse().ok()))
    }

    /// A new file gets the lowest number that is free, so its number tells how many are taken.
    #[cfg(unix)]
    pub fn room(self, stream: &TcpStream) -> Room {
        use std::os::fd::AsRawFd as _;
        self.beside(usize::try_from(stream.as_raw_fd()).unwrap_or_default())
    }

    #[cfg(not(unix))]
    pub fn room(self, _: &TcpStream) -> Room {
        Room::Enough
    }

    #[cfg_attr(not(unix), expect(dead_code, reason = "files have numbers on unix"))]
    fn beside(self, number: usize) -> Room {
        let Some(limit) = self.0 else { return Room::Enough };
        let left = limit.saturating_sub(number + 1);
        if left >= SPARE.min(limit / 4) {
            Room::Enough
        } else if left >= LAST {
            Room::Little
        } else {
            Room::None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_files_are_spared() {
        let crowd = Crowd(Some(1024));
        assert_eq!([990, 991].map(|n| crowd.beside(n)), [Room::Enough; 2]);
        assert_eq!([992, 1019].map(|n| crowd.beside(n)), [Room::Little; 2]);
        assert_eq!([1020, 1023].map(|n| crowd.beside(n)), [Room::None; 2]);
        assert_eq!(Crowd(Some(40)).beside(20), Room::Enough, "of few files fewer are spared");
        assert_eq!(Crowd(None).beside(1 << 20), Room::Enough);
    }
}

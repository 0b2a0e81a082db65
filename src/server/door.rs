//! Where clients come in: TCP, with or without TLS, and Unix sockets, opened by us or handed over.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr},
    os::{
        fd::{AsFd, AsRawFd, RawFd},
        unix::{
            fs::{FileTypeExt, MetadataExt, PermissionsExt},
            net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream},
        },
    },
    path::{Path, PathBuf},
    sync::Arc,
    task::{Context, Poll},
};

use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::net::{TcpListener, TcpStream, ToSocketAddrs, UnixListener, UnixStream};

use super::tls::Tls;

/// Connections that may wait to be accepted, as far as the system lets them (`net.core.somaxconn`). Where all streams come
/// again at once, after a restart say, who finds no place waits for seconds.
const BACKLOG: i32 = 4096;

/// What is asked for through a door.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Everything.
    Whole,
    /// What chat clients need: the API and the operators' paths are behind another door.
    Chats,
}

/// Who asks, as far as it matters.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// Of a client on a Unix socket: this machine's.
    pub ip: IpAddr,
    pub side: Side,
}

/// One address, and how clients are served who come there.
pub struct Door {
    listener: Listener,
    pub side: Side,
    pub tls: Option<Arc<Tls>>,
}

pub enum Listener {
    Tcp(TcpListener),
    /// The file goes with the last of its listeners, where it is ours.
    Unix(UnixListener, Option<Arc<SocketFile>>),
}

/// A connection that came.
pub enum Visitor {
    Tcp(TcpStream, IpAddr),
    Unix(UnixStream),
}

impl Visitor {
    pub fn ip(&self) -> IpAddr {
        match self {
            Self::Tcp(_, ip) => *ip,
            Self::Unix(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }
}

impl AsRawFd for Visitor {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Self::Tcp(stream, _) => stream.as_raw_fd(),
            Self::Unix(stream) => stream.as_raw_fd(),
        }
    }
}

/// Every door there is.
pub struct Doors {
    each: Vec<Door>,
    /// Who is asked first the next time, so that no door starves another.
    next: usize,
}

impl Doors {
    pub fn new(each: Vec<Door>) -> Self {
        Self { each, next: 0 }
    }

    /// Where those of one side are, as a client would write it.
    pub fn addresses(&self, side: Side) -> io::Result<String> {
        let those = self.each.iter().filter(|door| door.side == side);
        Ok(those.map(Door::address).collect::<io::Result<Vec<_>>>()?.join(", "))
    }

    /// The same doors, for the runtime that we are in.
    pub fn again(&self) -> io::Result<Self> {
        Ok(Self { each: self.each.iter().map(Door::again).collect::<io::Result<_>>()?, next: self.next })
    }

    /// Says also through which one.
    pub fn poll_accept(&mut self, task: &mut Context<'_>) -> Poll<(io::Result<Visitor>, &Door)> {
        for step in 0..self.each.len() {
            let at = (self.next + step) % self.each.len();
            if let Poll::Ready(visitor) = self.each[at].listener.poll_accept(task) {
                self.next = at + 1;
                return Poll::Ready((visitor, &self.each[at]));
            }
        }
        Poll::Pending
    }
}

/// One that everything is asked for through, without TLS.
impl From<TcpListener> for Doors {
    fn from(listener: TcpListener) -> Self {
        Self::new(vec![Door::new(Listener::Tcp(listener), Side::Whole, None)])
    }
}

impl Door {
    /// A Unix socket has no use for TLS.
    pub fn new(listener: Listener, side: Side, tls: Option<Arc<Tls>>) -> Self {
        let tls = tls.filter(|_| matches!(listener, Listener::Tcp(_)));
        if let Listener::Tcp(listener) = &listener {
            // Events are small: one that waits for the next is late. Whoever is accepted has it from here.
            let _ = net::sockopt::set_tcp_nodelay(listener, true);
        }
        Self { listener, side, tls }
    }

    fn again(&self) -> io::Result<Self> {
        Ok(Self { listener: self.listener.again()?, side: self.side, tls: self.tls.clone() })
    }

    fn address(&self) -> io::Result<String> {
        match &self.listener {
            Listener::Tcp(listener) => Ok(listener.local_addr()?.to_string()),
            Listener::Unix(listener, _) => {
                let address = listener.local_addr()?;
                Ok(format!("unix:{}", address.as_pathname().unwrap_or(Path::new("")).display()))
            }
        }
    }
}

impl Listener {
    fn poll_accept(&self, task: &mut Context<'_>) -> Poll<io::Result<Visitor>> {
        match self {
            Self::Tcp(listener) => listener.poll_accept(task).map_ok(|(stream, peer)| Visitor::Tcp(stream, peer.ip())),
            Self::Unix(listener, _) => listener.poll_accept(task).map_ok(|(stream, _)| Visitor::Unix(stream)),
        }
    }

    /// The same socket; who waits to be accepted waits there too.
    fn again(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(listener) => Self::Tcp(TcpListener::from_std(listener.as_fd().try_clone_to_owned()?.into())?),
            Self::Unix(listener, file) => {
                let again = UnixListener::from_std(listener.as_fd().try_clone_to_owned()?.into())?;
                Self::Unix(again, file.clone())
            }
        })
    }

    pub async fn tcp(address: impl ToSocketAddrs) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        // The runtime has fewer wait.
        net::listen(&listener, BACKLOG)?;
        Ok(Self::Tcp(listener))
    }

    /// Opens a socket that those may use whom `mode` lets. One that a process left behind is replaced.
    pub fn unix(path: &Path, mode: u32) -> io::Result<Self> {
        make_way(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        let file = SocketFile::of(path)?;
        // Nobody gets in between: until it listens, a connection is refused.
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        net::listen(&socket, BACKLOG)?;
        Ok(Self::Unix(UnixListener::from_std(StdUnixListener::from(socket))?, Some(Arc::new(file))))
    }
}

fn make_way(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file of this name that is no socket"));
        }
        Ok(_) => {}
    }
    match StdUnixStream::connect(path) {
        // Of a process that ended before it could remove it.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // Whoever may not be asked, or has no time, is there.
        Ok(_) | Err(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there")),
    }
}

/// A socket's name in the file system; removed when dropped, unless somebody else has taken the name.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    id: (u64, u64),
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), id: id(path)? })
    }
}

fn id(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if id(&self.path).is_ok_and(|id| id == self.id) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[tokio::test]
    async fn more_than_a_thousand_may_wait_to_be_let_in() {
        let most = fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim().parse().unwrap_or(128);
        let Listener::Tcp(listener) = Listener::tcp("127.0.0.1:0").await.unwrap() else { panic!("it is one") };
        let address = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        for count in 0..most.min(1500) {
            let connecting = TcpStream::connect(address);
            let connected = tokio::time::timeout(std::time::Duration::from_secs(5), connecting).await;
            waiting.push(connected.unwrap_or_else(|_| panic!("no place after {count}")).unwrap());
        }
    }

    #[tokio::test]
    async fn what_is_sent_to_a_client_does_not_wait_for_more() {
        let listener = Listener::tcp("127.0.0.1:0").await.unwrap();
        let mut doors = Doors::new(vec![Door::new(listener, Side::Whole, None)]).again().unwrap();
        let _client = TcpStream::connect(doors.addresses(Side::Whole).unwrap()).await.unwrap();
        let (came, _) =
            std::future::poll_fn(|task| doors.poll_accept(task).map(|(came, door)| (came, door.side))).await;
        let Visitor::Tcp(stream, _) = came.unwrap() else { panic!("it is one") };
        assert!(stream.nodelay().unwrap());
    }

    #[tokio::test]
    async fn a_socket_left_behind_is_replaced_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        drop(StdUnixListener::bind(&path).unwrap());
        assert!(path.exists(), "as a killed process leaves it");

        let first = Listener::unix(&path, 0o600).unwrap();
        assert_eq!(mode(&path), 0o600);
        let second = Listener::unix(&path, 0o666).err().unwrap();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse, "{second}");
        assert_eq!(mode(&path), 0o600);
        drop(first);
        assert!(!path.exists());

        fs::write(&path, "somebody's").unwrap();
        let third = Listener::unix(&path, 0o600).err().unwrap();
        assert!(third.to_string().contains("no socket"), "{third}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "somebody's");
    }

    #[tokio::test]
    async fn a_name_that_another_has_taken_is_left_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let first = Listener::unix(&path, 0o666).unwrap();
        assert_eq!(mode(&path), 0o666);
        fs::remove_file(&path).unwrap();
        let _second = StdUnixListener::bind(&path).unwrap();
        drop(first);
        assert!(StdUnixStream::connect(&path).is_ok());
    }
}

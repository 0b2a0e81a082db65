//! Listening sockets: TCP (with or without TLS) and Unix, opened here or inherited from systemd.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
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
use tokio::net::{TcpListener, TcpSocket, TcpStream, ToSocketAddrs, UnixListener, UnixStream};

use super::tls::Tls;

/// Connections that may wait to be accepted, as far as the system allows it (`net.core.somaxconn`). Clients that find the
/// queue full after a restart retry only after seconds.
const BACKLOG: u32 = 4096;

/// What a listener offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surface {
    /// The relay, the API and the operators' endpoints.
    All,
    /// The relay and the probes only; `admin_listen` has the rest.
    Chats,
}

/// The client's side of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// Loopback for a client on a Unix socket.
    pub ip: IpAddr,
    /// The client is connected to a Unix socket.
    pub is_unix: bool,
    pub surface: Surface,
}

/// One listening socket and how its connections are served.
pub struct Listener {
    socket: Socket,
    pub surface: Surface,
    pub tls: Option<Arc<Tls>>,
}

pub enum Socket {
    Tcp {
        listener: TcpListener,
        /// Bound with SO_REUSEPORT, so every worker can have a socket and an accept queue of its own.
        reuse_port: bool,
    },
    /// The file is removed with its last listener, if this process created it.
    Unix(UnixListener, Option<Arc<SocketFile>>),
}

/// An accepted connection.
pub enum Accepted {
    Tcp(TcpStream, IpAddr),
    Unix(UnixStream),
}

impl Accepted {
    pub fn ip(&self) -> IpAddr {
        match self {
            Self::Tcp(_, ip) => *ip,
            Self::Unix(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }
}

impl AsRawFd for Accepted {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Self::Tcp(stream, _) => stream.as_raw_fd(),
            Self::Unix(stream) => stream.as_raw_fd(),
        }
    }
}

/// Every listener of the process, or of one worker.
pub struct ListenerSet {
    listeners: Vec<Listener>,
    /// Polled first the next time, so that a busy listener does not starve the others.
    next: usize,
}

impl ListenerSet {
    pub fn new(listeners: Vec<Listener>) -> Self {
        Self { listeners, next: 0 }
    }

    /// The addresses of one surface, as a client would write them.
    pub fn addresses(&self, surface: Surface) -> io::Result<String> {
        let listeners = self.listeners.iter().filter(|listener| listener.surface == surface);
        Ok(listeners.map(Listener::address).collect::<io::Result<Vec<_>>>()?.join(", "))
    }

    /// The same listeners, registered with the runtime that the caller is in. Worker 0 takes over these sockets and what
    /// waits in their queues; so this set must be dropped once every worker has its own.
    pub fn for_worker(&self, worker: usize) -> io::Result<Self> {
        let listeners = self.listeners.iter().map(|listener| listener.for_worker(worker)).collect::<io::Result<_>>()?;
        Ok(Self { listeners, next: 0 })
    }

    /// Accepts the next connection, and returns it with its listener.
    pub fn poll_accept(&mut self, task: &mut Context<'_>) -> Poll<(io::Result<Accepted>, &Listener)> {
        for step in 0..self.listeners.len() {
            let at = (self.next + step) % self.listeners.len();
            if let Poll::Ready(accepted) = self.listeners[at].socket.poll_accept(task) {
                self.next = at + 1;
                return Poll::Ready((accepted, &self.listeners[at]));
            }
        }
        Poll::Pending
    }
}

/// One listener without TLS that offers everything.
impl From<TcpListener> for ListenerSet {
    fn from(listener: TcpListener) -> Self {
        Self::new(vec![Listener::new(Socket::inherited(listener), Surface::All, None)])
    }
}

impl Listener {
    /// TLS is ignored on a Unix socket.
    pub fn new(socket: Socket, surface: Surface, tls: Option<Arc<Tls>>) -> Self {
        let tls = tls.filter(|_| matches!(socket, Socket::Tcp { .. }));
        if let Socket::Tcp { listener, .. } = &socket {
            set_no_delay(listener);
        }
        Self { socket, surface, tls }
    }

    fn for_worker(&self, worker: usize) -> io::Result<Self> {
        Ok(Self { socket: self.socket.for_worker(worker)?, surface: self.surface, tls: self.tls.clone() })
    }

    fn address(&self) -> io::Result<String> {
        match &self.socket {
            Socket::Tcp { listener, .. } => Ok(listener.local_addr()?.to_string()),
            Socket::Unix(listener, _) => {
                let address = listener.local_addr()?;
                Ok(format!("unix:{}", address.as_pathname().unwrap_or(Path::new("")).display()))
            }
        }
    }
}

/// Accepted sockets inherit TCP_NODELAY: events are small and must not wait for more.
fn set_no_delay(listener: &TcpListener) {
    let _ = net::sockopt::set_tcp_nodelay(listener, true);
}

impl Socket {
    /// A TCP socket that another process has opened, such as systemd.
    pub fn inherited(listener: TcpListener) -> Self {
        Self::Tcp { listener, reuse_port: false }
    }

    fn poll_accept(&self, task: &mut Context<'_>) -> Poll<io::Result<Accepted>> {
        match self {
            Self::Tcp { listener, .. } => {
                listener.poll_accept(task).map_ok(|(stream, peer)| Accepted::Tcp(stream, peer.ip()))
            }
            Self::Unix(listener, _) => listener.poll_accept(task).map_ok(|(stream, _)| Accepted::Unix(stream)),
        }
    }

    /// A further socket at the same address where it was bound with SO_REUSEPORT, else another handle of this one.
    fn for_worker(&self, worker: usize) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp { listener, reuse_port: true } if worker > 0 => {
                let listener = listen(listener.local_addr()?, true)?;
                set_no_delay(&listener);
                Self::Tcp { listener, reuse_port: true }
            }
            Self::Tcp { listener, reuse_port } => {
                let listener = TcpListener::from_std(listener.as_fd().try_clone_to_owned()?.into())?;
                Self::Tcp { listener, reuse_port: *reuse_port }
            }
            Self::Unix(listener, file) => {
                let listener = UnixListener::from_std(listener.as_fd().try_clone_to_owned()?.into())?;
                Self::Unix(listener, file.clone())
            }
        })
    }

    /// Binds the first address that can be bound.
    pub async fn tcp(address: impl ToSocketAddrs) -> io::Result<Self> {
        let mut failed = io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
        for address in tokio::net::lookup_host(address).await? {
            match exclusive(address) {
                Ok(listener) => return Ok(Self::Tcp { listener, reuse_port: true }),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Creates a socket file with this mode. A file that a dead process left behind is replaced.
    pub fn unix(path: &Path, mode: u32) -> io::Result<Self> {
        remove_stale(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        let file = SocketFile::of(path)?;
        // Connections are refused until `listen`, so none is made before the mode is set.
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        net::listen(&socket, i32::try_from(BACKLOG).unwrap_or(i32::MAX))?;
        Ok(Self::Unix(UnixListener::from_std(StdUnixListener::from(socket))?, Some(Arc::new(file))))
    }
}

/// Binds an address with SO_REUSEPORT, and fails if another process listens there: SO_REUSEPORT alone would share the
/// port with it.
fn exclusive(address: SocketAddr) -> io::Result<TcpListener> {
    if address.port() != 0 {
        drop(listen(address, false)?);
    }
    listen(address, true)
}

fn listen(address: SocketAddr, reuse_port: bool) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(reuse_port)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Removes a socket file that no process listens on. Any other file at the path is an error.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file of this name that is no socket"));
        }
        Ok(_) => {}
    }
    match StdUnixStream::connect(path) {
        // Left behind by a process that was killed.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // Permission denied or a full queue: a process listens.
        Ok(_) | Err(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there")),
    }
}

/// A socket's file; removed when dropped, unless another process has replaced it.
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
    async fn more_than_a_thousand_connections_wait_in_the_backlog() {
        let max_backlog = fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim().parse().unwrap_or(128);
        let Socket::Tcp { listener, .. } = Socket::tcp("127.0.0.1:0").await.unwrap() else { panic!("not TCP") };
        let address = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        for count in 0..max_backlog.min(1500) {
            let connecting = TcpStream::connect(address);
            let connected = tokio::time::timeout(std::time::Duration::from_secs(5), connecting).await;
            waiting.push(connected.unwrap_or_else(|_| panic!("refused after {count}")).unwrap());
        }
    }

    #[tokio::test]
    async fn accepted_sockets_have_no_delay() {
        let socket = Socket::tcp("127.0.0.1:0").await.unwrap();
        let listeners = ListenerSet::new(vec![Listener::new(socket, Surface::All, None)]);
        let address = listeners.addresses(Surface::All).unwrap();
        let mut worker = listeners.for_worker(0).unwrap();
        drop(listeners);
        let _client = TcpStream::connect(address).await.unwrap();
        let accepted = std::future::poll_fn(|task| worker.poll_accept(task).map(|(accepted, _)| accepted)).await;
        let Accepted::Tcp(stream, _) = accepted.unwrap() else { panic!("not TCP") };
        assert!(stream.nodelay().unwrap());
    }

    #[tokio::test]
    async fn stale_socket_file_is_replaced_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        drop(StdUnixListener::bind(&path).unwrap());
        assert!(path.exists(), "as a killed process leaves it");

        let first = Socket::unix(&path, 0o600).unwrap();
        assert_eq!(mode(&path), 0o600);
        let second = Socket::unix(&path, 0o666).err().unwrap();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse, "{second}");
        assert_eq!(mode(&path), 0o600);
        drop(first);
        assert!(!path.exists());

        fs::write(&path, "somebody's").unwrap();
        let third = Socket::unix(&path, 0o600).err().unwrap();
        assert!(third.to_string().contains("no socket"), "{third}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "somebody's");
    }

    #[tokio::test]
    async fn socket_file_of_another_process_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let first = Socket::unix(&path, 0o666).unwrap();
        assert_eq!(mode(&path), 0o666);
        fs::remove_file(&path).unwrap();
        let _second = StdUnixListener::bind(&path).unwrap();
        drop(first);
        assert!(StdUnixStream::connect(&path).is_ok());
    }

    #[tokio::test]
    async fn port_in_use_is_an_error_despite_reuse_port() {
        let Socket::Tcp { listener, .. } = Socket::tcp("127.0.0.1:0").await.unwrap() else { panic!("not TCP") };
        let error = Socket::tcp(listener.local_addr().unwrap()).await.err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}

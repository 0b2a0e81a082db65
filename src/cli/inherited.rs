//! Sockets inherited from the parent process by systemd's protocol: `LISTEN_FDS`, `LISTEN_PID`, `LISTEN_FDNAMES`.
//!
//! Called by `serve`. See sd_listen_fds(3).

use std::{env, net::TcpListener as StdTcpListener, os::fd::AsFd};

use listenfd::ListenFd;
use tokio::net::{TcpListener, UnixListener};

use super::Failure;
use crate::{
    config::{self, Auth, Config},
    transport::listener::Socket,
};

/// `FileDescriptorName=` of the socket for `admin_listen`.
const ADMIN: &str = "admin";

/// Inherited sockets, by listener.
#[derive(Default)]
pub struct InheritedSockets {
    pub main: Vec<Socket>,
    pub admin: Vec<Socket>,
}

impl InheritedSockets {
    /// Takes all inherited sockets. Only the first call finds any.
    pub fn from_env(config: &Config) -> Result<Self, Failure> {
        let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let mut sockets = ListenFd::from_env();
        let mut inherited = Self::default();
        for at in 0..sockets.len() {
            let socket = take_socket(&mut sockets, at, config)?;
            match names.next() {
                Some(ADMIN) => inherited.admin.push(socket),
                _ => inherited.main.push(socket),
            }
        }
        Ok(inherited)
    }
}

fn take_socket(sockets: &mut ListenFd, at: usize, config: &Config) -> Result<Socket, Failure> {
    let invalid = |why: &str| Failure::Other(format!("socket {} of those that were handed over {why}", at + 1));
    if let Ok(Some(listener)) = sockets.take_tcp_listener(at) {
        is_listening(&listener).then_some(()).ok_or_else(|| invalid(NOT_LISTENING))?;
        check_exposure(&listener, config)?;
        listener.set_nonblocking(true)?;
        return Ok(Socket::inherited(TcpListener::from_std(listener)?));
    }
    if let Ok(Some(listener)) = sockets.take_unix_listener(at) {
        is_listening(&listener).then_some(()).ok_or_else(|| invalid(NOT_LISTENING))?;
        listener.set_nonblocking(true)?;
        // The process that created the socket file removes it.
        return Ok(Socket::Unix(UnixListener::from_std(listener)?, None));
    }
    Err(invalid("is neither a TCP nor a Unix stream socket (ListenStream=)"))
}

const NOT_LISTENING: &str = "does not listen: leave Accept=no in its unit";

#[cfg(not(target_vendor = "apple"))]
fn is_listening(socket: impl AsFd) -> bool {
    rustix::net::sockopt::socket_acceptconn(socket).unwrap_or(true)
}

#[cfg(target_vendor = "apple")]
fn is_listening(_: impl AsFd) -> bool {
    true
}

/// Rejects an address that other machines can reach while no key is required, as `config` does for `listen`.
fn check_exposure(listener: &StdTcpListener, config: &Config) -> Result<(), Failure> {
    let address = listener.local_addr()?;
    if config.auth == Auth::Open && !config.open_to_all && !config::is_loopback(&address) {
        let what = format!("the socket {address}, which was handed over,");
        return Err(Failure::Other(config::exposed_without_auth(&what)));
    }
    Ok(())
}

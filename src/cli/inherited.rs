//! Sockets that were opened for us: what systemd's .socket units hand over (LISTEN_FDS, LISTEN_PID, LISTEN_FDNAMES), and
//! whoever else speaks like it.

use std::{env, net::TcpListener as StdTcpListener, os::fd::AsFd};

use listenfd::ListenFd;
use tokio::net::{TcpListener, UnixListener};

use super::Failure;
use crate::{
    config::{self, Auth, Config},
    transport::listener::Socket,
};

/// `FileDescriptorName=` of the socket that is `admin_listen`.
const ADMIN: &str = "admin";

#[derive(Default)]
pub struct Handed {
    pub main: Vec<Socket>,
    pub admin: Vec<Socket>,
}

impl Handed {
    /// Takes them all; only the first call finds any.
    pub fn take(config: &Config) -> Result<Self, Failure> {
        let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let mut sockets = ListenFd::from_env();
        let mut handed = Self::default();
        for at in 0..sockets.len() {
            let listener = one(&mut sockets, at, config)?;
            match names.next() {
                Some(ADMIN) => handed.admin.push(listener),
                _ => handed.main.push(listener),
            }
        }
        Ok(handed)
    }
}

fn one(sockets: &mut ListenFd, at: usize, config: &Config) -> Result<Socket, Failure> {
    let wrong = |why: &str| Failure::Other(format!("socket {} of those that were handed over {why}", at + 1));
    if let Ok(Some(listener)) = sockets.take_tcp_listener(at) {
        listens(&listener).then_some(()).ok_or_else(|| wrong(CONNECTED))?;
        check_reach(&listener, config)?;
        listener.set_nonblocking(true)?;
        return Ok(Socket::inherited(TcpListener::from_std(listener)?));
    }
    if let Ok(Some(listener)) = sockets.take_unix_listener(at) {
        listens(&listener).then_some(()).ok_or_else(|| wrong(CONNECTED))?;
        listener.set_nonblocking(true)?;
        // Its file is whose who made it.
        return Ok(Socket::Unix(UnixListener::from_std(listener)?, None));
    }
    Err(wrong("is neither a TCP nor a Unix stream socket (ListenStream=)"))
}

const CONNECTED: &str = "does not listen: leave Accept=no in its unit";

#[cfg(not(target_vendor = "apple"))]
fn listens(socket: impl AsFd) -> bool {
    rustix::net::sockopt::socket_acceptconn(socket).unwrap_or(true)
}

#[cfg(target_vendor = "apple")]
fn listens(_: impl AsFd) -> bool {
    true
}

/// As an address in the configuration is looked at.
fn check_reach(listener: &StdTcpListener, config: &Config) -> Result<(), Failure> {
    let address = listener.local_addr()?;
    if config.auth == Auth::Open && !config.open_to_all && !config::is_loopback(&address) {
        let what = format!("the socket {address}, which was handed over,");
        return Err(Failure::Other(config::open_to_others(&what)));
    }
    Ok(())
}

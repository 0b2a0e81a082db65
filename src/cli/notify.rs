//! Notifies the service manager about state changes: systemd's `Type=notify` and `Type=notify-reload`.
//!
//! Called by `serve`. Does nothing if `NOTIFY_SOCKET` is not set. See sd_notify(3).

use std::{env, io, os::unix::net::UnixDatagram};

use rustix::time::{ClockId, clock_gettime};

pub fn ready() {
    notify("READY=1");
}

pub fn stopping() {
    notify("STOPPING=1");
}

/// Announces a reload. Must be followed by [`ready`].
pub fn reloading() {
    let now = clock_gettime(ClockId::Monotonic);
    notify(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.tv_sec * 1_000_000 + now.tv_nsec / 1000));
}

/// Sends `state` to the service manager. A failure is logged only, because the server works without it.
fn notify(state: &str) {
    let Some(socket) = env::var_os("NOTIFY_SOCKET") else { return };
    if send(socket.as_encoded_bytes(), state.as_bytes()).is_err() {
        tracing::debug!("the service manager could not be told");
    }
}

fn send(socket: &[u8], state: &[u8]) -> io::Result<usize> {
    let own = UnixDatagram::unbound()?;
    match socket {
        #[cfg(target_os = "linux")]
        [b'@', name @ ..] => {
            use std::os::{linux::net::SocketAddrExt, unix::net::SocketAddr};
            own.send_to_addr(state, &SocketAddr::from_abstract_name(name)?)
        }
        path => {
            use std::os::unix::ffi::OsStrExt;
            own.send_to(state, std::ffi::OsStr::from_bytes(path))
        }
    }
}

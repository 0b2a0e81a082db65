//! What a service manager is told, where it wants to hear: systemd's `Type=notify` and `Type=notify-reload`.

use std::{env, io, os::unix::net::UnixDatagram};

use rustix::time::{ClockId, clock_gettime};

pub fn ready() {
    tell("READY=1");
}

pub fn stopping() {
    tell("STOPPING=1");
}

/// To be followed by [`ready`].
pub fn reloading() {
    let now = clock_gettime(ClockId::Monotonic);
    tell(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.tv_sec * 1_000_000 + now.tv_nsec / 1000));
}

/// Nobody there is no fault of ours.
fn tell(what: &str) {
    let Some(socket) = env::var_os("NOTIFY_SOCKET") else { return };
    if send(socket.as_encoded_bytes(), what.as_bytes()).is_err() {
        tracing::debug!("the service manager could not be told");
    }
}

fn send(socket: &[u8], what: &[u8]) -> io::Result<usize> {
    let own = UnixDatagram::unbound()?;
    match socket {
        #[cfg(target_os = "linux")]
        [b'@', name @ ..] => {
            use std::os::{linux::net::SocketAddrExt, unix::net::SocketAddr};
            own.send_to_addr(what, &SocketAddr::from_abstract_name(name)?)
        }
        path => {
            use std::os::unix::ffi::OsStrExt;
            own.send_to(what, std::ffi::OsStr::from_bytes(path))
        }
    }
}

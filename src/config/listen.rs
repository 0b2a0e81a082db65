//! `listen`, `admin_listen`, `socket_mode` and `[tls]`: listener addresses and their certificate.

use std::{
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use super::{check::Checked, error::ConfigError, resolve::Reader, value::Entry};

/// Maximum length of a Unix socket path. `sun_path` has 104 to 108 bytes, depending on the system.
const MAX_SOCKET_PATH: usize = 100;

const EXPECTED: &str = "expected an IP address and a port, such as 127.0.0.1:8787, 0.0.0.0:8787 or [::1]:8787, \
                        a socket such as unix:/run/citetap.sock, or systemd";

/// Address of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    Tcp(SocketAddr),
    Unix(PathBuf),
    /// A socket passed by systemd, or by another process that sets `LISTEN_FDS`.
    Systemd,
}

impl Listen {
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) | Self::Systemd => None,
        }
    }

    /// True if only this machine can connect. Sockets passed by systemd are checked when they are received.
    pub fn is_local(&self) -> bool {
        self.tcp().is_none_or(|address| is_loopback(&address))
    }
}

pub fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Formats the address as in the configuration file.
impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Systemd => f.write_str("systemd"),
        }
    }
}

/// PEM files of a certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain, the server's certificate first.
    pub cert: PathBuf,
    pub key: PathBuf,
    /// Use TLS on `admin_listen` too.
    pub admin: bool,
}

pub(super) fn listen(entry: &Entry, cwd: &Path) -> Checked<Listen> {
    let text = entry.text().ok_or(EXPECTED)?;
    if text == "systemd" {
        return Ok(Listen::Systemd);
    }
    if let Some(path) = text.strip_prefix("unix:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() || path.ends_with('/') || path.contains('\0') {
            return Err("expected the name of a socket after unix:, such as unix:/run/citetap.sock".to_owned());
        }
        let path = cwd.join(path);
        if path.as_os_str().len() > MAX_SOCKET_PATH {
            return Err(format!("the path of a socket is at most {MAX_SOCKET_PATH} bytes long"));
        }
        return Ok(Listen::Unix(path));
    }
    // Names are not resolved, because a name can change its address between restarts. `localhost` cannot.
    let address = match text.strip_prefix("localhost:") {
        Some(port) => port.parse().ok().map(|port: u16| SocketAddr::from(([127, 0, 0, 1], port))),
        None => text.parse().ok(),
    };
    address.map(Listen::Tcp).ok_or_else(|| EXPECTED.to_owned())
}

pub(super) fn listen_or_off(entry: &Entry, cwd: &Path) -> Checked<Option<Listen>> {
    if entry.text() == Some("off") {
        return Ok(None);
    }
    listen(entry, cwd).map(Some).map_err(|why| format!("{why}, or off"))
}

/// Parses an octal file mode such as `660`.
pub(super) fn mode(entry: &Entry) -> Checked<u32> {
    let text = entry.text().filter(|text| (3..=4).contains(&text.len()));
    let mode = text.and_then(|text| u32::from_str_radix(text, 8).ok()).filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| r#"expected permissions such as "660", "600" or "666""#.to_owned())
}

/// Reads `[tls]`. Returns `None` if no certificate is configured.
pub(super) fn tls(reader: &mut Reader<'_>, cwd: &Path, listens: [Option<&Listen>; 2]) -> Option<TlsFiles> {
    let file = |entry: &Entry| entry.text().map(str::to_owned).ok_or_else(|| "expected the name of a file".to_owned());
    let [cert, key] = ["tls.cert", "tls.key"].map(|name| reader.optional(name, file).filter(|name| !name.is_empty()));
    let admin = reader.optional("tls.admin", super::check::boolean).unwrap_or_default();
    let (cert, key) = match (cert, key) {
        (Some(cert), Some(key)) => (cert, key),
        (None, None) => return None,
        (cert, _) => {
            let (present, missing) = if cert.is_some() { ("cert", "key") } else { ("key", "cert") };
            if let Some(entry) = reader.keys.get(&format!("tls.{present}")) {
                let message = format!("tls.{present} without tls.{missing}: a certificate and its key are two files");
                reader.errors.push(ConfigError::at(&entry.location, message));
            }
            return None;
        }
    };
    let [main, other] = listens;
    let used = !matches!(main, Some(Listen::Unix(_))) || (admin && !matches!(other, None | Some(Listen::Unix(_))));
    if !used && let Some(entry) = reader.keys.get("tls.cert") {
        let message = "tls.cert: a Unix socket has no TLS, so nobody would see the certificate; remove it";
        reader.errors.push(ConfigError::at(&entry.location, message));
    }
    Some(TlsFiles { cert: cwd.join(cert), key: cwd.join(key), admin })
}

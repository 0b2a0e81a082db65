//! Addresses of upstreams, and the prefixes under which they are reached.

use std::net::SocketAddr;

use url::{Host, Url};

use super::{check::Checked, value::Entry};

/// First path segments that citetap answers itself: a route there would never be reached.
pub const RESERVED: &[&str] = &[
    "citations",
    "component.js",
    "console",
    "healthz",
    "metrics",
    "normalize",
    "openapi.json",
    "readyz",
    "render",
    "search",
    "stats",
    "tasks",
    "v1",
    "version",
];

const EXPECTED: &str = "expected a URL such as https://api.example.com/path";

pub(super) fn http_url(entry: &Entry) -> Checked<Url> {
    plain_url(entry.text().ok_or(EXPECTED)?)
}

/// http or https with a host, and nothing that a log or a relayed request should not carry. The error says what would
/// be right.
pub fn plain_url(text: &str) -> Result<Url, String> {
    // The URL standard repairs `https:host` and drops tabs and newlines; here that is a slip to be shown.
    let plain = text.contains("://") && !text.contains(|c: char| c.is_whitespace() || c.is_control());
    let url = Url::parse(text).ok().filter(|_| plain).ok_or(EXPECTED)?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err("expected http:// or https:// and a host".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not contain a user or password; set an authorization header in request_headers".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must not contain a query or fragment".to_owned());
    }
    Ok(url)
}

/// `/`, or `/a/b` without a trailing slash. Only characters that no client encodes, since prefixes match raw paths.
pub(super) fn prefix(entry: &Entry) -> Checked<String> {
    let text = entry.text().unwrap_or_default();
    let Some(rest) = text.strip_prefix('/') else {
        return Err(r#"must begin with "/""#.to_owned());
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.is_empty() {
        return if text == "/" { Ok("/".to_owned()) } else { Err("must not contain empty segments".to_owned()) };
    }
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    for segment in rest.split('/') {
        if matches!(segment, "" | "." | "..") {
            return Err(r#"must not contain empty, "." or ".." segments"#.to_owned());
        }
        if !segment.bytes().all(plain) {
            return Err("may contain only A-Z a-z 0-9 - . _ ~ and /".to_owned());
        }
    }
    let first = rest.split('/').next().unwrap_or(rest);
    if RESERVED.contains(&first) {
        return Err(format!("/{first} is citetap's own path; choose another prefix"));
    }
    Ok(format!("/{rest}"))
}

/// Whether requests to `url` would come back to `listen`, for ever.
pub(super) fn is_self(url: &Url, listen: SocketAddr) -> bool {
    let own = listen.ip().to_canonical();
    let same_host = match url.host() {
        Some(Host::Domain(name)) => name == "localhost" && (own.is_loopback() || own.is_unspecified()),
        Some(Host::Ipv4(ip)) => own == ip || (own.is_unspecified() && (ip.is_loopback() || ip.is_unspecified())),
        Some(Host::Ipv6(ip)) => own == ip || (own.is_unspecified() && (ip.is_loopback() || ip.is_unspecified())),
        None => false,
    };
    same_host && listen.port() != 0 && url.port_or_known_default() == Some(listen.port())
}

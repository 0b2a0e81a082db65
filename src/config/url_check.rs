//! Validates URLs of upstreams and path prefixes of routes.

use std::net::SocketAddr;

use url::{Host, Url};

use super::{check::Checked, value::Entry};

/// First path segments of citetap's own endpoints. A route with such a prefix would never receive a request.
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

/// Parses an http or https URL with a host, and without user, password, query and fragment.
///
/// The URL is logged and becomes part of every upstream request, so it must not carry credentials. The error states what
/// was expected.
pub fn plain_url(text: &str) -> Result<Url, String> {
    // `Url::parse` accepts `https:host` and drops tabs and newlines. Here they are mistakes.
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

/// Parses a prefix: `/`, or `/a/b` with the trailing slash removed.
///
/// Prefixes match undecoded paths, so only characters that no client percent-encodes are allowed.
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

/// True if a request to `url` would reach `listen`, which is an endless loop.
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

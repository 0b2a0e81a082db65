//! Refuses request heads that hyper accepts but an upstream could read differently. `relay`, `api::facade` and `server` call
//! it. Malformed framing is refused by hyper.

use http::{
    Extensions, HeaderMap, HeaderValue, Uri, Version,
    header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING, UPGRADE},
    uri::Authority,
};

use crate::{app::problem::Problem, config::Route};

/// Request extension: a page of another site sent this request, and the server requires keys. Set by `api::cross_site`.
#[derive(Clone, Copy)]
pub struct OtherSite;

/// Refuses an [`OtherSite`] request on a route where citetap adds a credential of the operator's.
pub fn check_other_site(route: &Route, extensions: &Extensions) -> Result<(), Problem> {
    let is_refused = route.adds_credentials() && extensions.get::<OtherSite>().is_some();
    if is_refused { Err(Problem::cross_site()) } else { Ok(()) }
}

/// Checks the head of a request that is relayed, or answered by the API.
pub fn check(uri: &Uri, version: Version, headers: &HeaderMap) -> Result<(), Problem> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() || (host.is_none() && version == Version::HTTP_11) {
        return Err(Problem::bad_request("a request has exactly one Host header"));
    }
    // Neither chooses an upstream. They are checked because an upstream may trust what a proxy let through.
    if !host.is_none_or(is_host) || !uri.authority().is_none_or(is_host_and_port) {
        return Err(Problem::bad_request(
            "Host and the URI's authority are a host and a port, without credentials or a path",
        ));
    }
    // RFC 9110 7.6.1: headers that it names must not be relayed, so their names must be readable.
    if headers.get_all(CONNECTION).iter().any(|value| value.to_str().is_err()) {
        return Err(Problem::bad_request("the Connection header names headers in ASCII"));
    }
    // RFC 9112 6.1: other codings would have to be decoded here, and servers disagree on repeated `chunked`.
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_chunked = codings.next().is_none_or(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"));
    // hyper reduces equal lengths to one over HTTP/1.1, but not over h2.
    if !is_chunked || codings.next().is_some() || headers.get_all(CONTENT_LENGTH).iter().count() > 1 {
        return Err(Problem::bad_request("a request body is chunked once, or has a length").closing());
    }
    // RFC 9110 7.8: a server may ignore an Upgrade. An offer of h2c is ignored, one of any other protocol is refused.
    let is_refused = headers.get(UPGRADE).is_some_and(|to| !to.as_bytes().eq_ignore_ascii_case(b"h2c"));
    if is_refused { Err(Problem::refused("Upgrade")) } else { Ok(()) }
}

/// RFC 9110 7.2: `uri-host [ ":" port ]`, or empty if the URI has no authority.
fn is_host(value: &HeaderValue) -> bool {
    value.is_empty() || Authority::try_from(value.as_bytes()).is_ok_and(|authority| is_host_and_port(&authority))
}

fn is_host_and_port(authority: &Authority) -> bool {
    // Credentials would precede the host.
    let Some(rest) = authority.as_str().strip_prefix(authority.host()) else { return false };
    let is_port =
        |port: &str| port.is_empty() || (port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok());
    !authority.host().is_empty() && (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_a_host_and_a_port() {
        for host in ["", "a", "a:80", "a:", "A_b.example.com:65535", "[::1]", "[::1]:80", "127.0.0.1"] {
            assert!(is_host(&HeaderValue::from_static(host)), "{host}");
        }
        for host in [
            "u@a", "a@a", "a@a:80", "u:p@a:80", ":80", "a:x", "a:65536", "a:+80", "a:80:80", "a/b", "a?b", "a#b",
            "a b", "::1", "[::1",
        ] {
            assert!(!is_host(&HeaderValue::from_static(host)), "{host}");
        }
        assert!(!is_host(&HeaderValue::from_bytes(b"\xe4").unwrap()));
    }
}

//! Header hygiene: which headers cross from client to upstream and back.

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, TE, TRANSFER_ENCODING,
    },
};

use crate::config::HeaderRules;

/// Hop-by-hop headers (RFC 9110 7.6.1). `Trailer` is relayed: HTTP/1.1 carries only the trailers that it names.
fn is_hop_by_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "proxy-connection"
            | "transfer-encoding"
            | "upgrade"
    )
}

/// Headers that a `Connection` header cannot remove: the response depends on them.
const KEPT: &[HeaderName] = &[AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST];

/// Prefix of the headers between citetap and its clients.
const OWN_PREFIX: &str = "x-citetap-";

/// Removes the headers whose name matches.
pub fn drop_headers(headers: &mut HeaderMap, matches: impl Fn(&str) -> bool) {
    let named: Vec<HeaderName> = headers.keys().filter(|name| matches(name.as_str())).cloned().collect();
    for name in named {
        headers.remove(name);
    }
}

/// Removes hop-by-hop headers, those that `Connection` names, and those that match.
fn drop_hop_by_hop(headers: &mut HeaderMap, matches: impl Fn(&str) -> bool) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|b| *b == b','))
        // An invalid name cannot match a header.
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .filter(|name| !KEPT.contains(name))
        .collect();
    for name in named {
        headers.remove(name);
    }
    drop_headers(headers, |name| is_hop_by_hop(name) || matches(name));
}

/// Turns a client's headers into the upstream's: without hop-by-hop headers and citetap's own, and with identity
/// encoding, so that the response can be tapped.
pub fn request_headers(headers: &mut HeaderMap, trusted_peer: bool, rules: &HeaderRules) {
    let trailers = headers.get_all(TE).iter().any(|te| te.as_bytes().eq_ignore_ascii_case(b"trailers"));
    let forwarded = |name: &str| matches!(name, "forwarded" | "x-real-ip") || name.starts_with("x-forwarded-");
    drop_hop_by_hop(headers, |name| {
        matches!(name, "te" | "host" | "expect") || name.starts_with(OWN_PREFIX) || (!trusted_peer && forwarded(name))
    });
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    apply(headers, rules);
}

/// Turns an upstream's headers into the client's. `x-citetap-` headers are removed: an upstream that set the nonce could
/// forge citation events.
pub fn response_headers(headers: &mut HeaderMap, rules: &HeaderRules) {
    // RFC 9112 6.3: Transfer-Encoding overrides Content-Length, which must not be forwarded then.
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    drop_hop_by_hop(headers, |name| name.starts_with(OWN_PREFIX));
    apply(headers, rules);
}

fn apply(headers: &mut HeaderMap, rules: &HeaderRules) {
    for name in &rules.remove {
        headers.remove(name);
    }
    for (name, value) in &rules.set {
        headers.insert(name, value.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hop_by_hop_and_own_headers_are_dropped() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, x-secret-hop, authorization"),
            ("keep-alive", "timeout=5"),
            ("x-secret-hop", "1"),
            ("authorization", "Bearer upstreams-own"),
            ("te", "trailers"),
            ("upgrade", "websocket"),
            ("x-citetap-inject", "off"),
            ("x-forwarded-for", "203.0.113.9"),
            ("forwarded", "for=203.0.113.9"),
            ("accept-encoding", "gzip, br"),
            ("host", "proxy.example.com"),
            ("x-own", "stays"),
        ] {
            headers.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_static(value));
        }
        let mut trusted = headers.clone();
        request_headers(&mut headers, false, &HeaderRules::default());
        let mut left: Vec<String> = headers.iter().map(|(k, v)| format!("{k}: {}", v.to_str().unwrap())).collect();
        left.sort();
        assert_eq!(
            left,
            ["accept-encoding: identity", "authorization: Bearer upstreams-own", "te: trailers", "x-own: stays"]
        );
        request_headers(&mut trusted, true, &HeaderRules::default());
        assert!(trusted.contains_key("x-forwarded-for") && trusted.contains_key("forwarded"));
    }

    #[test]
    fn rules_remove_before_they_set() {
        let mut headers = HeaderMap::new();
        headers.insert("x-a", HeaderValue::from_static("1"));
        let rules = HeaderRules {
            remove: vec![HeaderName::from_static("x-a")],
            set: vec![(HeaderName::from_static("x-b"), HeaderValue::from_static("2"))],
        };
        response_headers(&mut headers, &rules);
        assert_eq!(headers.len(), 1);
        assert_eq!(headers["x-b"], "2");
    }
}

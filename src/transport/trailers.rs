//! Which trailers of a request or a response are relayed. Called by the relay's bodies.

use http::{
    HeaderMap, HeaderName,
    header::{
        AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HOST,
        LOCATION, MAX_FORWARDS, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING,
        UPGRADE, VARY, WWW_AUTHENTICATE,
    },
};

/// Bytes of all names and values. Larger trailers are dropped as a whole, because a part would be another message.
pub const MAX_BYTES: usize = 16 * 1024;

/// Fields that frame, route, authenticate or describe a message: they must not be trailers (RFC 9110 6.5.1).
const FORBIDDEN: &[HeaderName] = &[
    AUTHORIZATION,
    CACHE_CONTROL,
    CONNECTION,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_RANGE,
    CONTENT_TYPE,
    HOST,
    LOCATION,
    MAX_FORWARDS,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    SET_COOKIE,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    VARY,
    WWW_AUTHENTICATE,
];
const FORBIDDEN_NAMES: &[&str] = &["keep-alive", "proxy-connection"];

/// The trailers that may be relayed, if there are any.
pub fn allowed(trailers: &HeaderMap) -> Option<HeaderMap> {
    let mut kept = HeaderMap::new();
    let mut bytes = 0;
    for (name, value) in trailers {
        let is_ours = name.as_str().starts_with("x-citetap-");
        if FORBIDDEN.contains(name) || FORBIDDEN_NAMES.contains(&name.as_str()) || is_ours {
            continue;
        }
        bytes += name.as_str().len() + value.len();
        kept.append(name, value.clone());
    }
    (!kept.is_empty() && bytes <= MAX_BYTES).then_some(kept)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn trailers_over_the_cap_are_dropped() {
        let of = |len: usize| {
            let mut trailers = HeaderMap::new();
            trailers.insert("x-a", HeaderValue::from_maybe_shared("v".repeat(len - 3)).unwrap());
            trailers.insert("content-length", HeaderValue::from_static("1"));
            trailers
        };
        assert_eq!(allowed(&of(MAX_BYTES)).map(|kept| kept.len()), Some(1));
        assert_eq!(allowed(&of(MAX_BYTES + 1)), None);
    }
}

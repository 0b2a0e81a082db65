//! Which trailers are passed on, of an upstream's or a client's.

use http::{
    HeaderMap, HeaderName,
    header::{
        AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HOST,
        LOCATION, MAX_FORWARDS, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING,
        UPGRADE, VARY, WWW_AUTHENTICATE,
    },
};

/// Names and values together. Larger trailers are dropped, all of them: a part would be another message.
pub const MAX_BYTES: usize = 16 * 1024;

/// RFC 9110 6.5.1: what frames, routes, authenticates or describes a message is needed before its content, and
/// would mean something else behind it.
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

/// What may pass; `None` where nothing may.
pub fn allowed(trailers: &HeaderMap) -> Option<HeaderMap> {
    let mut kept = HeaderMap::new();
    let mut bytes = 0;
    for (name, value) in trailers {
        let ours = name.as_str().starts_with("x-citetap-");
        if FORBIDDEN.contains(name) || FORBIDDEN_NAMES.contains(&name.as_str()) || ours {
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
    fn the_cap_holds_at_it_and_over_it() {
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

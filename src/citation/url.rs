//! URLs that strangers name: which become links, and which two are the same page.

use sha2::{Digest, Sha256};
use url::Url;

use super::text;

/// A longer URL is not kept: cut, it would be another one.
pub const MAX_URL: usize = 8 * 1024;

/// Query parameters that tell who clicked, not what is shown.
const TRACKING: &[&str] = &[
    "gclid", "dclid", "gbraid", "wbraid", "fbclid", "msclkid", "yclid", "igshid", "mc_cid", "mc_eid", "_hsenc",
    "_hsmi", "spm", "scm", "ref_src",
];

/// An http or https URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub url: String,
    /// ASCII, as parsed: what a browser would go to.
    pub hostname: String,
    /// Equal for two spellings of one page.
    pub canonical: String,
}

/// Reads a URL as a browser would, so that `java\tscript:` and the like are seen for what they
/// are. `None`: not http(s), relative without a base, leaving the base's host, or over the cap.
pub fn link(raw: &str, base: Option<&Url>) -> Option<Link> {
    if raw.len() > MAX_URL {
        return None;
    }
    let mut url = match Url::parse(raw) {
        Ok(url) => url,
        // `//evil` and `\\evil` are relative too, but they name a host of their own.
        Err(url::ParseError::RelativeUrlWithoutBase) => {
            base?.join(raw).ok().filter(|url| url.host() == base.and_then(Url::host))?
        }
        Err(_) => return None,
    };
    if !matches!(url.scheme(), "http" | "https") {
        return None;
    }
    let hostname = url.host_str()?.to_owned();
    let has_credentials = !url.username().is_empty() || url.password().is_some();
    if has_credentials {
        // Neither fails on a URL with a host.
        let _ = url.set_username("");
        let _ = url.set_password(None);
    }
    let canonical = canonical(&url);
    // As it was sent where that is plain, else as parsed.
    let as_sent =
        !has_credentials && Url::parse(raw).is_ok() && raw.chars().all(|c| !c.is_whitespace() && text::is_seen(c));
    let url = if as_sent { raw.to_owned() } else { url.into() };
    (url.len() <= MAX_URL).then_some(Link { url, hostname, canonical })
}

/// Scheme and host lower-cased and the default port dropped (the parser does both), fragment,
/// tracking parameters and a trailing slash dropped.
fn canonical(url: &Url) -> String {
    let mut url = url.clone();
    url.set_fragment(None);
    if let Some(query) = url.query() {
        let kept: Vec<&str> = query.split('&').filter(|pair| !pair.is_empty() && !is_tracking(pair)).collect();
        let kept = (!kept.is_empty()).then(|| kept.join("&"));
        url.set_query(kept.as_deref());
    }
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    let text: String = url.into();
    // A path of "/" cannot be emptied in an http URL.
    match text.strip_suffix('/') {
        Some(bare) => bare.to_owned(),
        None => text,
    }
}

fn is_tracking(pair: &str) -> bool {
    let key = pair.split('=').next().unwrap_or_default().to_ascii_lowercase();
    key.starts_with("utm_") || TRACKING.contains(&key.as_str())
}

/// First 16 bytes of SHA-256, hex.
pub fn source_id(of: &str) -> String {
    use std::fmt::Write as _;
    let mut hex = String::with_capacity(32);
    for byte in Sha256::digest(of.as_bytes()).iter().take(16) {
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical_of(raw: &str) -> Option<String> {
        link(raw, None).map(|link| link.canonical)
    }

    #[test]
    fn spellings_of_one_page_are_equal() {
        let same = [
            "http://www.Example.com/a",
            "HTTP://www.example.com:80/a/",
            "http://www.example.com/a#part",
            "http://www.example.com/a?utm_source=openai&GCLID=1",
        ];
        for raw in same {
            assert_eq!(canonical_of(raw).as_deref(), Some("http://www.example.com/a"), "{raw}");
        }
        assert_eq!(canonical_of("http://a.example.com/").as_deref(), Some("http://a.example.com"));
        assert_eq!(canonical_of("http://a.example.com/?").as_deref(), Some("http://a.example.com"));
        assert_ne!(canonical_of("http://a.example.com/?id=1"), canonical_of("http://a.example.com/?id=2"));
        assert_ne!(canonical_of("http://a.example.com/A"), canonical_of("http://a.example.com/a"));
    }

    #[test]
    fn only_http_becomes_a_link() {
        for raw in [
            "javascript:alert(1)",
            "JaVaScRiPt:alert(1)",
            " \u{1}javascript:alert(1)",
            "java\tscript:alert(1)",
            "data:text/html,x",
            "vbscript:x",
            "blob:https://a.example.com/x",
            "file:///etc/passwd",
            "view-source:https://a.example.com",
            "",
            "http://",
            "https://[::1",
            "//evil.example.com",
            "/pages/1",
            "\\\\evil.example.com",
        ] {
            assert_eq!(link(raw, None), None, "{raw:?}");
        }
    }

    #[test]
    fn relative_urls_need_a_base_and_stay_on_its_host() {
        let base = Url::parse("https://lexiangla.com/").ok();
        let to = |raw| link(raw, base.as_ref()).map(|link| link.url);
        assert_eq!(to("/pages/p1").as_deref(), Some("https://lexiangla.com/pages/p1"));
        assert_eq!(to("//evil.example.com/x"), None);
        assert_eq!(to("\\\\evil.example.com"), None);
        assert_eq!(to("javascript:alert(1)"), None);
    }

    #[test]
    fn credentials_are_dropped_and_the_host_is_the_one_parsed() {
        let read = link("https://good.example.com@evil.example.com/x", None);
        let read = read.map(|link| (link.url, link.hostname));
        assert_eq!(read, Some(("https://evil.example.com/x".to_owned(), "evil.example.com".to_owned())));
    }

    #[test]
    fn the_length_cap_holds_at_it_and_over_it() {
        let of = |len: usize| format!("https://a.example.com/{}", "x".repeat(len - 22));
        assert!(link(&of(MAX_URL), None).is_some());
        assert!(link(&of(MAX_URL + 1), None).is_none());
    }

    #[test]
    fn source_ids_are_32_hex() {
        assert_eq!(source_id("http://www.fiaoo.com").len(), 32);
        assert_ne!(source_id("a"), source_id("b"));
    }
}

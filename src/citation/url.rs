//! URLs that strangers name: which become links, and which two are the same page.

mod plain;

use std::borrow::Cow;

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

/// A link as it is kept: what can be read out of its URL is not stored beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Page<'a> {
    pub url: Cow<'a, str>,
    pub canonical: Canonical,
}

/// Equal for two spellings of one page, beside the URL that it was made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Canonical {
    /// So many bytes of the URL.
    Start(u32),
    Other(Box<str>),
}

impl Canonical {
    pub fn of<'a>(&'a self, url: &'a str) -> &'a str {
        match self {
            Self::Start(len) => url.get(..*len as usize).unwrap_or(url),
            Self::Other(text) => text,
        }
    }

    fn new(canonical: String, url: &str) -> Self {
        match u32::try_from(canonical.len()) {
            Ok(len) if url.starts_with(&canonical) => Self::Start(len),
            _ => Self::Other(canonical.into()),
        }
    }
}

/// Reads a URL as a browser would, so that `java\tscript:` and the like are seen for what they
/// are. `None`: not http(s), relative without a base, leaving the base's host, or over the cap.
pub fn link(raw: &str, base: Option<&Url>) -> Option<Link> {
    let Page { url, canonical } = page(raw, base)?;
    let canonical = canonical.of(&url).to_owned();
    Some(Link { url: url.into_owned(), hostname: host_of(&canonical).to_owned(), canonical })
}

/// As [`link`].
pub(super) fn page<'a>(raw: &'a str, base: Option<&Url>) -> Option<Page<'a>> {
    if raw.len() > MAX_URL {
        return None;
    }
    if let Some(host_end) = plain::host_end(raw) {
        return Some(Page { url: Cow::Borrowed(raw), canonical: plain::canonical(raw, host_end) });
    }
    if let Some((url, host_end)) = base.and_then(|base| plain::below(base, raw)) {
        let canonical = plain::canonical(&url, host_end);
        return (url.len() <= MAX_URL).then_some(Page { url: Cow::Owned(url), canonical });
    }
    parsed(raw, base)
}

/// As [`link`], for a URL of which only the link is of interest.
pub(super) fn address(raw: &str) -> Option<Cow<'_, str>> {
    let is_plain = raw.len() <= MAX_URL && plain::host_end(raw).is_some();
    if is_plain { Some(Cow::Borrowed(raw)) } else { parsed(raw, None).map(|page| page.url) }
}

fn parsed<'a>(raw: &'a str, base: Option<&Url>) -> Option<Page<'a>> {
    if raw.len() > MAX_URL {
        return None;
    }
    let (mut url, whole) = match Url::parse(raw) {
        Ok(url) => (url, true),
        // `//evil` and `\\evil` are relative too, but they name a host of their own.
        Err(url::ParseError::RelativeUrlWithoutBase) => {
            (base?.join(raw).ok().filter(|url| url.host() == base.and_then(Url::host))?, false)
        }
        Err(_) => return None,
    };
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return None;
    }
    let has_credentials = !url.username().is_empty() || url.password().is_some();
    if has_credentials {
        // Neither fails on a URL with a host.
        let _ = url.set_username("");
        let _ = url.set_password(None);
    }
    let canonical = canonical(&url);
    // As it was sent where that is plain, else as parsed.
    let as_sent = !has_credentials
        && whole
        && is_absolute_http(raw)
        && raw.chars().all(|c| !c.is_whitespace() && text::is_visible(c));
    let url = if as_sent { Cow::Borrowed(raw) } else { Cow::Owned(url.into()) };
    (url.len() <= MAX_URL).then(|| Page { canonical: Canonical::new(canonical, &url), url })
}

/// The host of a canonical URL.
pub(super) fn host_of(canonical: &str) -> &str {
    let rest = canonical.strip_prefix("https://").or_else(|| canonical.strip_prefix("http://")).unwrap_or(canonical);
    let end = if rest.starts_with('[') {
        rest.find(']').map(|at| at + 1)
    } else {
        rest.bytes().position(|b| matches!(b, b'/' | b'?' | b':'))
    };
    end.and_then(|end| rest.get(..end)).unwrap_or(rest)
}

/// Is it a link to the same host wherever it stands? In a page of the same scheme `https:a` and `https:/a` are relative.
pub fn is_absolute_http(raw: &str) -> bool {
    let host = raw
        .split_once("://")
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https"));
    host.is_some_and(|(_, host)| !host.starts_with(['/', '\\']))
}

/// Scheme and host lower-cased and the default port dropped (the parser does both), fragment,
/// tracking parameters and a trailing slash dropped.
fn canonical(url: &Url) -> String {
    let mut url = url.clone();
    url.set_fragment(None);
    if let Some(query) = url.query() {
        let kept: Vec<&str> = query.split('&').filter(|pair| is_telling(pair)).collect();
        let kept = (!kept.is_empty()).then(|| kept.join("&"));
        url.set_query(kept.as_deref());
    }
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    let bare = url.query().is_none();
    let text: String = url.into();
    // A path of "/" cannot be emptied in an http URL. A slash at the end of a query is a part of it.
    match text.strip_suffix('/').filter(|_| bare) {
        Some(bare) => bare.to_owned(),
        None => text,
    }
}

/// Is it a part of a query that tells pages apart?
fn is_telling(pair: &str) -> bool {
    let key = pair.split_once('=').map_or(pair, |(key, _)| key);
    let is_utm = || key.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("utm_"));
    !pair.is_empty() && !is_utm() && !TRACKING.iter().any(|tracking| key.eq_ignore_ascii_case(tracking))
}

/// First 16 bytes of SHA-256, hex.
pub fn source_id(of: &str) -> String {
    const DIGITS: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let mut hex = String::with_capacity(32);
    for byte in Sha256::digest(of.as_bytes()).iter().take(16) {
        hex.extend([byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]));
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
        assert_ne!(canonical_of("http://a.example.com/?to=b/"), canonical_of("http://a.example.com/?to=b"));
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
    fn what_a_page_would_take_for_a_relative_link_is_kept_as_parsed() {
        for raw in [
            "https:a.example.com/x",
            "https:/a.example.com/x",
            "https:///a.example.com/x",
            "https:\\\\a.example.com\\x",
        ] {
            let read = link(raw, None).map(|link| (link.url, link.hostname));
            assert_eq!(read, Some(("https://a.example.com/x".to_owned(), "a.example.com".to_owned())), "{raw}");
        }
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

//! URLs from upstreams: which become links, and which two identify the same page. Called by the ledger. It fetches nothing.

use std::borrow::Cow;

use sha2::{Digest, Sha256};
use url::{Position, Url};

use super::text;

/// Longer URLs are dropped, because a cut URL leads elsewhere.
pub const MAX_URL: usize = 8 * 1024;

/// Query parameters that identify the click, not the page.
const TRACKING: &[&str] = &[
    "gclid", "dclid", "gbraid", "wbraid", "fbclid", "msclkid", "yclid", "igshid", "mc_cid", "mc_eid", "_hsenc",
    "_hsmi", "spm", "scm", "ref_src",
];

/// An http or https URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub url: String,
    /// ASCII, as parsed: the host that a browser connects to.
    pub hostname: String,
    /// Equal for two spellings of one page.
    pub canonical: String,
}

/// A link in compact form: the canonical URL is mostly a prefix of the URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Page<'a> {
    pub url: Cow<'a, str>,
    pub canonical: Canonical,
}

/// A canonical URL, stored relative to the URL that it was derived from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Canonical {
    /// The first bytes of the URL, this many.
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

/// Parses a URL as a browser does, so that `java\tscript:` and the like are recognised. `None`: not http(s), relative
/// without a base, on another host than the base, or over [`MAX_URL`].
pub fn link(raw: &str, base: Option<&Url>) -> Option<Link> {
    let Page { url, canonical } = page(raw, base)?;
    let canonical = canonical.of(&url).to_owned();
    Some(Link { url: url.into_owned(), hostname: host_of(&canonical).to_owned(), canonical })
}

/// As [`link`], in the form in which the ledger keeps it.
pub(super) fn page<'a>(raw: &'a str, base: Option<&Url>) -> Option<Page<'a>> {
    if raw.len() > MAX_URL {
        return None;
    }
    let (mut url, is_absolute) = match Url::parse(raw) {
        Ok(url) => (url, true),
        // `//evil` and `\\evil` are relative too, but name a host of their own.
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
    // The spelling of the upstream is kept if a browser reads it the same way wherever it stands.
    let is_kept = !has_credentials
        && is_absolute
        && is_absolute_http(raw)
        && raw.chars().all(|c| !c.is_whitespace() && text::is_visible(c));
    let url = if is_kept { Cow::Borrowed(raw) } else { Cow::Owned(url.into()) };
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

/// True if every page resolves it to the same host. In a page of the same scheme, `https:a` and `https:/a` are relative.
pub fn is_absolute_http(raw: &str) -> bool {
    let host = raw
        .split_once("://")
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https"));
    host.is_some_and(|(_, host)| !host.starts_with(['/', '\\']))
}

/// The URL without fragment, tracking parameters and trailing slash. The parser has lower-cased scheme and host and dropped
/// a default port.
fn canonical(url: &Url) -> String {
    let path = url.path().trim_end_matches('/');
    let mut canonical = url[..Position::BeforePath].to_owned();
    canonical.push_str(path);
    let mut separator = if path.is_empty() { "/?" } else { "?" };
    for pair in url.query().unwrap_or_default().split('&').filter(|pair| identifies_page(pair)) {
        canonical.push_str(separator);
        canonical.push_str(pair);
        separator = "&";
    }
    canonical
}

/// True for a query parameter that selects a page, false for a tracking parameter and for an empty one.
fn identifies_page(pair: &str) -> bool {
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
    fn scheme_relative_spellings_are_kept_as_parsed() {
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
    fn link_at_the_length_cap_is_kept_and_over_it_dropped() {
        let of = |len: usize| format!("https://a.example.com/{}", "x".repeat(len - 22));
        assert!(link(&of(MAX_URL), None).is_some());
        assert!(link(&of(MAX_URL + 1), None).is_none());
    }

    /// The canonical URL is the one that the parser writes after the parts are removed, for every combination of parts.
    #[test]
    fn canonical_equals_the_edited_url() {
        let hosts = ["a.example.com", "localhost", "A.com", "1.2", "xn--a", "u@a.b", "a:80", "a:81", "[::1]"];
        let paths =
            ["", "/", "/a", "/a/", "/a//", "//", "/.", "/.//a", "/a/..", "/%2e", "/%E4%B8%AD", "/a'b", "/a:b@c;d=1"];
        let queries =
            ["", "?", "?a=1", "?a=1&utm_source=x", "?GCLID=1&a", "?a&&b", "?a=1&spm&b=/", "?a='", "?utm_x#?", "#a?b"];
        for (host, path) in hosts.iter().flat_map(|host| paths.map(|path| (host, path))) {
            for raw in queries.map(|query| format!("https://{host}{path}{query}")) {
                let expected = Url::parse(&raw).ok().map(|mut url| {
                    let _ = url.set_username("");
                    url.set_fragment(None);
                    let pairs: Vec<&str> =
                        url.query().unwrap_or_default().split('&').filter(|pair| identifies_page(pair)).collect();
                    let query = (!pairs.is_empty()).then(|| pairs.join("&"));
                    url.set_query(query.as_deref());
                    let path = url.path().trim_end_matches('/').to_owned();
                    url.set_path(&path);
                    let text = String::from(url);
                    if query.is_some() { text } else { text.strip_suffix('/').unwrap_or(&text).to_owned() }
                });
                assert_eq!(canonical_of(&raw), expected, "{raw}");
            }
        }
    }

    #[test]
    fn hostname_is_the_host_of_the_canonical_url() {
        for (raw, host) in [
            ("https://a.example.com", "a.example.com"),
            ("http://u:p@A.example.com:8080?x", "a.example.com"),
            ("https://[::1]:81/x", "[::1]"),
            ("https://1.2/x", "1.0.0.2"),
        ] {
            assert_eq!(link(raw, None).map(|link| link.hostname).as_deref(), Some(host), "{raw}");
        }
    }

    #[test]
    fn source_ids_are_32_hex() {
        assert_eq!(source_id("http://www.fiaoo.com").len(), 32);
        assert_ne!(source_id("a"), source_id("b"));
    }
}

//! URLs that a parser would leave as they are, which most are: read without one. Whatever is not surely one of them is
//! left to the parser.

use url::{Position, Url};

use super::{Canonical, is_telling};

/// Where the host of a plain URL ends; `None`: the parser must look. There is no port, no credentials, and nothing to
/// encode, decode or resolve.
pub fn host_end(raw: &str) -> Option<usize> {
    let rest = raw.strip_prefix("https://").or_else(|| raw.strip_prefix("http://"))?;
    let end = rest.bytes().position(|b| matches!(b, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    let (host, tail) = rest.split_at_checked(end)?;
    (is_plain_host(host) && is_plain_tail(tail)).then_some(raw.len() - tail.len())
}

/// A plain path on the host of `base`, and where the host with its port ends.
pub fn below(base: &Url, raw: &str) -> Option<(String, usize)> {
    let usable = matches!(base.scheme(), "http" | "https") && base.username().is_empty() && base.password().is_none();
    if !usable || !raw.starts_with('/') || !is_plain_tail(raw) {
        return None;
    }
    let origin = &base[..Position::BeforePath];
    Some((format!("{origin}{raw}"), origin.len()))
}

/// As [`super::canonical`] makes it.
pub fn canonical(url: &str, host_end: usize) -> Canonical {
    let page = url.split_once('#').map_or(url, |(page, _)| page);
    let (path, query) = page.split_once('?').map_or((page, ""), |(path, query)| (path, query));
    let bare = path.trim_end_matches('/');
    // Before a query the root has its slash.
    let slash = if bare.len() == host_end { "/" } else { "" };
    let start = bare.len() + slash.len();
    // Nothing was left out before the end of what is kept.
    let (mut end, mut whole, mut left_out) = (start, path.len() == start, false);
    for pair in query.split('&') {
        if is_telling(pair) {
            whole &= !left_out;
            end += 1 + pair.len();
        } else {
            left_out = true;
        }
    }
    if end == start {
        end = bare.len();
        whole = true;
    }
    if whole {
        return Canonical::Start(u32::try_from(end).unwrap_or(u32::MAX));
    }
    let mut text = String::with_capacity(end);
    text.push_str(bare);
    text.push_str(slash);
    let mut mark = '?';
    for pair in query.split('&').filter(|pair| is_telling(pair)) {
        text.push(mark);
        text.push_str(pair);
        mark = '&';
    }
    Canonical::Other(text.into())
}

/// Names in small ASCII letters. The last one begins with a letter, or it could be a number of an address; two hyphens
/// could be Punycode.
fn is_plain_host(host: &str) -> bool {
    let (mut before, mut last) = (b'.', b'.');
    for b in host.bytes() {
        let fits = match b {
            b'a'..=b'z' | b'0'..=b'9' => true,
            b'-' | b'.' => before != b,
            _ => false,
        };
        if !fits {
            return false;
        }
        if before == b'.' {
            last = b;
        }
        before = b;
    }
    last.is_ascii_lowercase() && before != b'.'
}

/// Path, query and fragment of nothing but what no parser changes.
fn is_plain_tail(tail: &str) -> bool {
    if !tail.bytes().all(|b| PLAIN.get(usize::from(b)).is_some_and(|plain| *plain)) {
        return false;
    }
    let path = tail.split(['?', '#']).next().unwrap_or_default().as_bytes();
    // Segments that are empty, or could be `.` or `..` in some spelling (`%2e`).
    !memchr::memchr_iter(b'/', path).any(|at| matches!(path.get(at + 1..), Some([b'/' | b'.', ..] | [b'%', b'2', ..])))
}

/// By byte.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let others = b"-._~!$&()*+,;=:@%/?#";
    let mut b = 0;
    while b < plain.len() {
        plain[b] = (b as u8).is_ascii_alphanumeric();
        b += 1;
    }
    let mut at = 0;
    while at < others.len() {
        plain[others[at] as usize] = true;
        at += 1;
    }
    plain
};

#[cfg(test)]
mod tests {
    use super::{super::*, *};

    /// Every way to put these together, read without the parser and by it.
    #[test]
    fn what_is_plain_is_what_the_parser_makes_of_it() {
        let hosts =
            ["a.example.com", "a-b.c1", "localhost", "A.com", "a..b", "a.", "1.2", "a.0x1", "xn--a", "u@a.b", "a:80"];
        let paths =
            ["", "/", "/a", "/a/", "/a//", "//", "/.", "/a/..", "/.a", "/%2e", "/%E4%B8%AD", "/a'b", "/a:b@c;d=1"];
        let queries =
            ["", "?", "?a=1", "?a=1&utm_source=x", "?GCLID=1&a", "?a&&b", "?a=1&spm&b=/", "?a='", "?utm_x#?", "#a?b"];
        let base = Url::parse("https://lexiangla.com:8443/x?y").unwrap();
        let mut plain = 0;
        for (path, query) in paths.iter().flat_map(|path| queries.map(|query| (path, query))) {
            for host in hosts {
                let raw = format!("https://{host}{path}{query}");
                plain += usize::from(host_end(&raw).is_some());
                assert_eq!(page(&raw, None), parsed(&raw, None), "{raw}");
                assert_eq!(address(&raw), parsed(&raw, None).map(|page| page.url), "{raw}");
            }
            let raw = format!("{path}{query}");
            plain += usize::from(below(&base, &raw).is_some());
            assert_eq!(page(&raw, Some(&base)), parsed(&raw, Some(&base)), "{raw}");
        }
        assert!(plain > 200, "{plain}");
    }

    #[test]
    fn the_host_is_read_out_of_the_canonical_url() {
        for (raw, host) in [
            ("https://a.example.com", "a.example.com"),
            ("http://u:p@A.example.com:8080?x", "a.example.com"),
            ("https://[::1]:81/x", "[::1]"),
            ("https://1.2/x", "1.0.0.2"),
        ] {
            assert_eq!(link(raw, None).map(|link| link.hostname).as_deref(), Some(host), "{raw}");
        }
    }
}

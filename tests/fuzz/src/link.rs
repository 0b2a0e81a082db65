//! Target `url`: normalization of untrusted URLs.

use citetap::citation::{
    text,
    url::{Link, MAX_URL, link, source_id},
};
use url::Url;

pub fn run(data: &[u8]) {
    let raw = String::from_utf8_lossy(data);
    let base = Url::parse("https://lexiangla.com/").unwrap();
    if let Some(found) = link(&raw, None) {
        check(&found);
        check_spellings(&raw, &found);
    }
    if let Some(found) = link(&raw, Some(&base)) {
        check(&found);
        if Url::parse(&raw).is_err() {
            assert_eq!(found.hostname, "lexiangla.com", "a relative URL stays on its host");
        }
    }
}

fn check(found: &Link) {
    let url = Url::parse(&found.url).expect("a URL");
    assert!(matches!(url.scheme(), "http" | "https"));
    assert!(url.username().is_empty() && url.password().is_none(), "credentials");
    assert_eq!(url.host_str(), Some(&*found.hostname));
    assert!(found.hostname.is_ascii() && !found.hostname.is_empty());
    assert!(found.url.len() <= MAX_URL);
    assert!(found.url.chars().all(|c| text::is_visible(c) && !c.is_whitespace()), "{:?}", found.url);
    // Normalization is idempotent, for the URL and for its canonical form.
    assert_eq!(link(&found.url, None).as_ref(), Some(found));
    if found.canonical.len() <= MAX_URL {
        let again = link(&found.canonical, None).expect("a canonical URL is a link");
        assert_eq!(again.canonical, found.canonical);
        assert_eq!(again.hostname, found.hostname);
    }
    let id = source_id(&found.canonical);
    assert!(id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()));
}

/// Other spellings of the same page have the same canonical URL.
fn check_spellings(raw: &str, found: &Link) {
    let url = Url::parse(&found.url).unwrap();
    let mut spellings = vec![format!(" {raw}\n"), format!("{raw}\t")];
    let mut add = |change: &dyn Fn(&mut Url)| {
        let mut url = url.clone();
        change(&mut url);
        spellings.push(url.into());
    };
    add(&|url| url.set_fragment(Some("elsewhere")));
    add(&|url| url.set_username("user").unwrap());
    add(&|url| url.set_password(Some("secret")).unwrap());
    if url.query().is_none() {
        add(&|url| url.set_query(Some("")));
        add(&|url| url.set_query(Some("utm_source=x&SPM=1")));
    } else {
        add(&|url| {
            let query = format!("{}&utm_id=7", url.query().unwrap_or_default());
            url.set_query(Some(&query));
        });
    }
    if url.port().is_none() {
        let port = if url.scheme() == "http" { ":80" } else { ":443" };
        let (front, back) = url.as_str().split_at(url.scheme().len() + "://".len() + found.hostname.len());
        spellings.push(format!("{front}{port}{back}"));
    }
    for spelling in spellings.iter().filter(|spelling| spelling.len() <= MAX_URL) {
        let read = link(spelling, None).unwrap_or_else(|| panic!("{spelling:?} is no link"));
        assert_eq!(read.canonical, found.canonical, "{spelling:?}");
        assert_eq!(source_id(&read.canonical), source_id(&found.canonical));
        check(&read);
    }
}

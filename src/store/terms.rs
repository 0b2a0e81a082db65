//! What a record can be found by, and what it weighs.

use std::{collections::BTreeSet, net::IpAddr};

use super::Entry;
use crate::citation::{record::Record, text::lower};

/// A DNS name has at most this many characters. A longer "hostname" is found by nothing.
const MAX_HOSTNAME: usize = 253;

/// Between two texts of a record: a search never matches across it.
const SEPARATOR: char = '\u{1f}';

/// Every hostname cited, and each parent domain of it down to two labels.
pub(super) fn domains(record: &Record) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for hostname in record.citations.iter().filter_map(|citation| hostname(citation.hostname.as_deref()?)) {
        let mut rest = hostname.as_str();
        // An address has dots but no parents.
        if hostname.parse::<IpAddr>().is_err() {
            while let Some((_, parent)) = rest.split_once('.').filter(|(_, parent)| parent.contains('.')) {
                found.insert(parent.to_owned());
                rest = parent;
            }
        }
        found.insert(hostname);
    }
    found
}

/// A hostname in the spelling that it is found by; `None` if it cannot be one.
pub(super) fn hostname(text: &str) -> Option<String> {
    let possible = text.len() <= MAX_HOSTNAME && !text.contains(char::is_control);
    possible.then(|| plain(text)).filter(|hostname| !hostname.is_empty())
}

/// A domain as somebody asks for it, in the spelling of [`domains`]: people type `Bücher.example`, URLs carry punycode.
pub(super) fn asked_domain(domain: &str) -> String {
    match url::Host::parse(domain) {
        Ok(url::Host::Domain(ascii)) => plain(&ascii),
        _ => plain(domain),
    }
}

/// Everything that `q` looks at, lower-cased.
pub(super) fn search_text(record: &Record) -> String {
    let mut text = String::new();
    let cited = record
        .citations
        .iter()
        .flat_map(|citation| citation.title.iter().chain(&citation.content).chain(&citation.snippets));
    for part in record.summary.iter().chain(&record.queries).chain(cited) {
        text.push_str(&lower(part));
        text.push(SEPARATOR);
    }
    text
}

/// About how many bytes an entry holds. Off by the fixed parts, right about what strangers can make large.
pub(super) fn weight(entry: &Entry) -> usize {
    let record = &entry.record;
    let text = |text: &Option<String>| text.as_deref().map_or(0, str::len);
    let list = |list: &[String]| list.iter().map(|item| item.len() + size_of::<String>()).sum::<usize>();
    let citations = record.citations.iter().map(|citation| {
        size_of_val(citation)
            + text(&citation.url)
            + text(&citation.title)
            + text(&citation.content)
            + text(&citation.icon_url)
            + text(&citation.site_name)
            + list(&citation.snippets)
            + map_weight(&citation.metadata)
    });
    let rounds = record.rounds.iter().map(|round| {
        let ids = round.failures.iter().map(|failure| size_of_val(failure) + text(&failure.id));
        size_of_val(round) + list(&round.queries) + text(&round.summary) + ids.sum::<usize>()
    });
    size_of::<Entry>()
        + rounds.sum::<usize>()
        + text(&record.summary)
        + list(&record.queries)
        + map_weight(&record.metadata)
        + citations.sum::<usize>()
}

fn map_weight(map: &serde_json::Map<String, serde_json::Value>) -> usize {
    map.iter().map(|(key, value)| key.len() + value_weight(value)).sum()
}

fn value_weight(value: &serde_json::Value) -> usize {
    use serde_json::Value;
    size_of::<Value>()
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(value_weight).sum(),
            Value::Object(map) => map_weight(map),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
}

fn plain(hostname: &str) -> String {
    hostname.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::{super::tests::entry, *};

    fn found(hostname: &str) -> Vec<String> {
        let mut record = entry("t", "p", "1", 0).record;
        record.citations[0].hostname = Some(hostname.to_owned());
        domains(&record).into_iter().collect()
    }

    #[test]
    fn a_hostname_is_found_by_its_parents() {
        assert_eq!(
            found("WWW.News.Example.co.uk."),
            ["co.uk", "example.co.uk", "news.example.co.uk", "www.news.example.co.uk"]
        );
        assert_eq!(found("example.com"), ["example.com"]);
        assert_eq!(found("localhost"), ["localhost"]);
    }

    #[test]
    fn an_address_has_no_parents() {
        assert_eq!(found("10.0.0.1"), ["10.0.0.1"]);
        assert_eq!(found("[2001:db8::1]"), ["[2001:db8::1]"]);
    }

    #[test]
    fn nonsense_is_bounded() {
        assert_eq!(found(&"a.".repeat(4096)), Vec::<String>::new());
        assert_eq!(found("a\0.example.com"), Vec::<String>::new());
        assert_eq!(found("."), Vec::<String>::new());
    }

    #[test]
    fn asking_is_forgiving() {
        assert_eq!(asked_domain("Bücher.Example"), "xn--bcher-kva.example");
        assert_eq!(asked_domain("EXAMPLE.com."), "example.com");
        assert_eq!(asked_domain("%"), "%");
    }
}

//! Search terms of a record (domains, search text), and its approximate size.

use std::{collections::BTreeSet, net::IpAddr};

use super::Entry;
use crate::citation::{record::Record, text::lowercase};

/// Longest DNS name in characters (RFC 1035 section 2.3.4). Longer hostnames are not indexed.
const HOSTNAME_LEN_MAX: usize = 253;

/// Separates the fields in the search text, so that no match spans two fields.
const FIELD_SEPARATOR: char = '\u{1f}';

/// Every cited hostname and each of its parent domains with at least two labels.
pub(super) fn domains(record: &Record) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for hostname in record.citations.iter().filter_map(|citation| hostname(citation.hostname.as_deref()?)) {
        let mut rest = hostname.as_str();
        // An IP address has dots but no parent domains.
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

/// Normalizes a hostname for indexing; `None` if it cannot be one.
pub(super) fn hostname(text: &str) -> Option<String> {
    let possible = text.len() <= HOSTNAME_LEN_MAX && !text.contains(char::is_control);
    possible.then(|| normalize(text)).filter(|hostname| !hostname.is_empty())
}

/// Normalizes a domain from a query to the form used by [`domains`]: people type `Bücher.example`, URLs carry punycode.
pub(super) fn query_domain(domain: &str) -> String {
    match url::Host::parse(domain) {
        Ok(url::Host::Domain(ascii)) => normalize(&ascii),
        _ => normalize(domain),
    }
}

/// The lower-cased text that `q` searches.
pub(super) fn search_text(record: &Record) -> String {
    let mut text = String::new();
    let cited = record
        .citations
        .iter()
        .flat_map(|citation| citation.title.iter().chain(&citation.content).chain(&citation.snippets));
    for part in record.summary.iter().chain(&record.queries).chain(cited) {
        text.push_str(&lowercase(part));
        text.push(FIELD_SEPARATOR);
    }
    text
}

/// Approximate size of an entry in bytes. Exact for the parts that untrusted input can make large.
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

fn normalize(hostname: &str) -> String {
    hostname.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::{super::tests::entry, *};

    fn domains_of(hostname: &str) -> Vec<String> {
        let mut record = entry("t", "p", "1", 0).record;
        record.citations[0].hostname = Some(hostname.to_owned());
        domains(&record).into_iter().collect()
    }

    #[test]
    fn domains_include_parent_domains() {
        assert_eq!(
            domains_of("WWW.News.Example.co.uk."),
            ["co.uk", "example.co.uk", "news.example.co.uk", "www.news.example.co.uk"]
        );
        assert_eq!(domains_of("example.com"), ["example.com"]);
        assert_eq!(domains_of("localhost"), ["localhost"]);
    }

    #[test]
    fn domains_of_an_ip_address_have_no_parents() {
        assert_eq!(domains_of("10.0.0.1"), ["10.0.0.1"]);
        assert_eq!(domains_of("[2001:db8::1]"), ["[2001:db8::1]"]);
    }

    #[test]
    fn domains_skip_invalid_hostnames() {
        assert_eq!(domains_of(&"a.".repeat(4096)), Vec::<String>::new());
        assert_eq!(domains_of("a\0.example.com"), Vec::<String>::new());
        assert_eq!(domains_of("."), Vec::<String>::new());
    }

    #[test]
    fn query_domain_normalizes_case_and_idn() {
        assert_eq!(query_domain("Bücher.Example"), "xn--bcher-kva.example");
        assert_eq!(query_domain("EXAMPLE.com."), "example.com");
        assert_eq!(query_domain("%"), "%");
    }
}

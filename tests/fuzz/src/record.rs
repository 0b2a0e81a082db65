//! Invariants of every record, whatever input it was made from.

use std::collections::HashSet;

use citetap::{
    citation::{
        Record, bundle,
        ledger::{MAX_CITATIONS, MAX_QUERIES, MAX_ROUNDS, MAX_SNIPPET, MAX_SNIPPETS, MAX_TITLE},
        record::{CitationOrigin, CitationStatus, is_plain_id},
        text,
        url::{MAX_URL, link},
    },
    config::default_rules,
};
use serde_json::Value;

use crate::stream::UpstreamAnswer;

pub fn check(record: &Record) {
    assert!(is_plain_id(&record.message_id), "{:?}", record.message_id);
    assert!(record.citations.len() <= MAX_CITATIONS + 20);
    assert!(record.queries.len() <= MAX_QUERIES && record.rounds.len() <= MAX_ROUNDS + 2);
    record.queries.iter().chain(&record.summary).for_each(|line| check_line(line, MAX_TITLE));
    record.model.iter().chain(&record.conversation_id).for_each(|line| check_line(line, 256));
    let mut numbers = HashSet::new();
    for citation in &record.citations {
        for number in citation.aliases.iter().chain([&citation.number]) {
            assert!(numbers.insert(*number), "{number} twice");
        }
        for url in citation.url.iter().chain(&citation.icon_url) {
            let read = link(url, None).unwrap_or_else(|| panic!("{url:?} is no link"));
            assert!(read.url == *url && url.len() <= MAX_URL);
        }
        assert_eq!(
            citation.hostname,
            citation.url.as_deref().and_then(|url| link(url, None)).map(|link| link.hostname)
        );
        citation.title.iter().chain(&citation.site_name).for_each(|line| check_line(line, MAX_TITLE));
        assert!(citation.snippets.len() <= MAX_SNIPPETS);
        for excerpt in citation.content.iter().chain(&citation.snippets) {
            assert!(excerpt.len() <= MAX_SNIPPET);
            assert!(excerpt.chars().all(|c| c == '\n' || !c.is_control()) && !excerpt.chars().any(text::is_bidi));
        }
        assert!(citation.snippets.is_empty() || citation.snippets.first() == citation.content.as_ref());
        assert!(citation.source_id.len() == 32 && citation.source_id.bytes().all(|b| b.is_ascii_hexdigit()));
        let scores = citation.scores.expect("scores");
        for score in [scores.relevance, scores.freshness, scores.authority, scores.overall] {
            assert!((0.0..=1.0).contains(&score), "{scores:?}");
        }
        assert!(citation.origin == CitationOrigin::Upstream || !citation.cited);
    }
    let stats = &record.stats;
    assert!(stats.dangling_markers.iter().all(|number| !numbers.contains(number)), "a dangling marker has a source");
    let parts = [stats.kept_after_filter, stats.filtered_count, stats.failed_count, stats.dedup_count];
    assert_eq!(stats.total_returned, parts.iter().sum::<u32>());
    let with = |status: CitationStatus| record.citations.iter().filter(|citation| citation.status == status).count();
    assert_eq!(
        (stats.kept_after_filter as usize, stats.filtered_count as usize),
        (with(CitationStatus::Ok), with(CitationStatus::Filtered))
    );
    assert_eq!(stats.cited_count as usize, record.citations.iter().filter(|citation| citation.cited).count());
    assert_eq!(record.rounds.iter().map(|round| round.failed_count).sum::<u32>(), stats.failed_count);
    assert_eq!(record.rounds.iter().map(|round| round.dedup_count).sum::<u32>(), stats.dedup_count);

    let json = serde_json::to_string(record).unwrap();
    assert!(!json.contains('\n'));
    assert_eq!(&serde_json::from_str::<Record>(&json).unwrap(), record, "JSON round trip");
    check_no_nul(&serde_json::from_str(&json).unwrap());
    let bundles = bundle::bundles(record, &default_rules());
    assert_eq!(bundles.iter().map(|bundle| bundle.stats.total_returned).sum::<u32>(), stats.total_returned);
}

/// Checks `cited`, dangling markers and the number of sources against the upstream's answer.
pub fn check_answer(record: &Record, answer: &UpstreamAnswer) {
    let marked: HashSet<u32> = answer.marker_numbers.iter().copied().collect();
    let anywhere: HashSet<u32> = answer.all_marker_numbers.iter().chain(&answer.marker_numbers).copied().collect();
    for number in &record.stats.dangling_markers {
        assert!(anywhere.contains(number), "no marker names {number}");
    }
    for citation in &record.citations {
        let is_in = |numbers: &HashSet<u32>| {
            citation.aliases.iter().chain([&citation.number]).any(|number| numbers.contains(number))
        };
        assert!(!is_in(&marked) || citation.cited || answer.has_late_text, "a marker names {}", citation.number);
        assert!(is_in(&anywhere) || !citation.cited || answer.has_cited_reference, "nothing names {}", citation.number);
    }
    let upstream = record.citations.iter().filter(|citation| citation.origin == CitationOrigin::Upstream).count();
    assert!(upstream <= answer.references);
}

/// A single line without control characters, of at most `cap` bytes.
fn check_line(line: &str, cap: usize) {
    assert!(line.len() <= cap, "{} bytes", line.len());
    assert!(!line.chars().any(|c| c.is_control() || text::is_bidi(c)), "{line:?}");
}

/// PostgreSQL rejects a NUL in text.
fn check_no_nul(value: &Value) {
    match value {
        Value::String(text) => assert!(!text.contains('\0'), "{text:?}"),
        Value::Array(items) => items.iter().for_each(check_no_nul),
        Value::Object(pairs) => pairs.iter().for_each(|(key, value)| {
            assert!(!key.contains('\0'));
            check_no_nul(value);
        }),
        _ => {}
    }
}

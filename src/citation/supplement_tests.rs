use std::borrow::Cow;

use serde_json::json;

use super::*;
use crate::{
    citation::{
        Ledger, bundle,
        ledger::{MAX_CITATIONS, Reference},
        record::{CitationType, RecordStats},
    },
    config::default_rules,
};

fn reference(number: Option<u32>, url: &str) -> Reference<'_> {
    Reference {
        cited: false,
        number,
        position: None,
        rank: None,
        score: None,
        url: Some(url),
        title: Some("T"),
        snippet: None,
        site_name: None,
        icon_url: None,
        published: None,
        doc_id: None,
        kind: CitationType::Websearch,
        metadata: Vec::new(),
    }
}

/// The record of a ledger after `fill`.
fn record(provider: &str, fill: impl FnOnce(&mut Ledger)) -> Record {
    let mut ledger = Ledger::new(None);
    fill(&mut ledger);
    let snapshot = ledger.snapshot(&default_rules().scores, jiff::Timestamp::UNIX_EPOCH);
    let bare: Record = serde_json::from_value(json!({
        "type": "citations", "version": 1, "messageId": "m", "conversationId": null, "provider": provider, "route": "r",
        "source": "default", "model": null, "complete": true, "stored": true, "truncated": false, "nonce": "n",
        "createdAt": "2026-01-13T09:18:07.000Z", "summary": null, "queries": [], "citations": [], "stats": RecordStats::default(),
    }))
    .unwrap();
    Record {
        summary: snapshot.summary,
        queries: snapshot.queries,
        rounds: snapshot.rounds,
        citations: snapshot.citations,
        stats: snapshot.stats,
        truncated: snapshot.truncated,
        ..bare
    }
}

/// The record of a search for `user text` that found these URLs.
fn found(urls: &[&str]) -> Arc<Record> {
    Arc::new(record("tavily", |ledger| {
        ledger.add_round("results", None, &[Cow::Borrowed("user text")]);
        for (position, url) in (1..).zip(urls) {
            ledger.add_reference(&reference(Some(position), url));
        }
    }))
}

fn joined(mut record: Record, found: Arc<Record>) -> Record {
    merge(&mut record, &SearchOutcome::Found(found), &default_rules().corroboration);
    record
}

fn numbers(record: &Record) -> Vec<(u32, CitationOrigin)> {
    record.citations.iter().map(|citation| (citation.number, citation.origin)).collect()
}

#[test]
fn joined_sources_follow_upstream_ones_and_are_uncited() {
    let own = record("doubao", |ledger| {
        ledger.add_reference(&reference(Some(2), "https://a.example.com/"));
        ledger.add_text("甲[2]乙[3]丙[1]");
    });
    let record = joined(own, found(&["https://b.example.com/", "https://c.example.com/"]));
    assert_eq!(
        numbers(&record),
        [(2, CitationOrigin::Upstream), (4, CitationOrigin::Supplemental), (5, CitationOrigin::Supplemental)],
        "3 is in the text, where the model meant another source"
    );
    assert!(record.citations.iter().all(|citation| citation.cited == (citation.origin == CitationOrigin::Upstream)));
    assert_eq!((record.stats.cited_count, &record.stats.dangling_markers), (1, &vec![1, 3]));
    assert_eq!(record.stats.supplement, Some(SupplementStatus::Joined));
    assert_eq!(record.corroboration.map(|all| all.source_count), Some(3));
}

#[test]
fn source_that_upstream_named_is_not_joined() {
    let own = record("doubao", |ledger| {
        // A document whose URL comes later keeps its first id.
        let document = Reference { url: None, doc_id: Some("d".into()), ..reference(Some(1), "") };
        ledger.add_reference(&document);
        ledger.add_reference(&Reference { doc_id: Some("d".into()), ..reference(Some(1), "https://a.example.com/1") });
        ledger.add_reference(&reference(Some(2), "https://b.example.com/?utm_source=x"));
    });
    let before = own.citations.clone();
    let urls = ["https://A.example.com/1/", "https://b.example.com/", "https://c.example.com/"];
    let record = joined(own.clone(), found(&urls));
    assert_eq!(record.citations[..2], before[..]);
    assert_eq!(record.citations.len(), 3);
    let stats = &record.stats;
    assert_eq!((stats.dedup_count, stats.kept_after_filter, stats.total_returned), (2, 3, 5));

    let nothing = joined(own, found(&urls[..2]));
    assert_eq!((nothing.citations, nothing.stats.supplement), (before, Some(SupplementStatus::Empty)));
    assert_eq!(nothing.stats.total_returned, 4);
}

#[test]
fn joined_sources_form_a_round_without_the_query() {
    let own = record("doubao", |ledger| {
        ledger.add_round("b", Some("搜索"), &[Cow::Borrowed("甲")]);
        ledger.add_reference(&reference(Some(1), "https://a.example.com/"));
    });
    let record = joined(own, found(&["https://b.example.com/"]));
    assert!(!serde_json::to_string(&record).unwrap().contains("user text"));
    assert_eq!(record.citations[1].metadata["round"], json!(2));
    let rounds: Vec<_> = record.rounds.iter().map(|round| (round.round, round.provider.as_deref())).collect();
    assert_eq!(rounds, [(1, None), (2, Some("tavily"))]);
    let bundles = bundle::bundles(&record, &default_rules());
    let shown: Vec<_> = bundles.iter().map(|b| (b.provider.as_str(), b.query_text.as_str(), b.results.len())).collect();
    assert_eq!(shown, [("doubao", "甲", 1), ("tavily", SUMMARY, 1)]);
}

#[test]
fn outcome_without_sources_changes_only_the_status() {
    let own = record("doubao", |ledger| ledger.add_text("没有"));
    for (outcome, status) in [
        (SearchOutcome::None, None),
        (SearchOutcome::Pending, Some(SupplementStatus::Pending)),
        (SearchOutcome::Failed, Some(SupplementStatus::Failed)),
        (SearchOutcome::Found(found(&[])), Some(SupplementStatus::Empty)),
    ] {
        let mut record = own.clone();
        merge(&mut record, &outcome, &default_rules().corroboration);
        assert_eq!(record.stats.supplement, status);
        record.stats.supplement = None;
        assert_eq!(record, own);
    }
}

#[test]
fn joined_sources_are_capped_at_the_limit() {
    let urls: Vec<String> = (0..=MAX_CITATIONS).map(|n| format!("https://h{n}.example.com/")).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let empty = || record("doubao", |_| ());
    for (count, truncated) in [(MAX_JOINED, false), (MAX_JOINED + 1, true)] {
        let record = joined(empty(), found(&urls[..count]));
        assert_eq!((record.citations.len(), record.truncated), (MAX_JOINED, truncated));
    }
    for (own, truncated) in [(MAX_CITATIONS - 1, false), (MAX_CITATIONS, true)] {
        let own =
            record("doubao", |ledger| urls[..own].iter().for_each(|url| ledger.add_reference(&reference(None, url))));
        let record = joined(own, found(&urls[MAX_CITATIONS..]));
        assert_eq!((record.citations.len(), record.truncated), (MAX_CITATIONS, truncated));
    }
}

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use super::*;
use crate::citation::{record::SearchFailure, rounds::MAX_FAILURES};

/// Rules without domains and filters.
fn rules() -> score::Rules {
    score::Rules {
        weights: score::Weights::new(0.6, 0.2, 0.2).unwrap(),
        half_life: Duration::from_secs(180 * 86_400),
        minimum: 0.0,
        allow: HashSet::new(),
        deny: HashSet::new(),
        authority: HashMap::new(),
    }
}

impl Ledger {
    fn unfiltered_snapshot(&self) -> LedgerSnapshot {
        self.snapshot(&rules(), Timestamp::UNIX_EPOCH)
    }
}

fn card(number: u32, url: &'static str) -> Reference<'static> {
    Reference { number: Some(number), position: Some(number), ..doc(url) }
}

/// A reference without number and position.
fn doc(url: &'static str) -> Reference<'static> {
    Reference {
        number: None,
        position: None,
        rank: None,
        score: None,
        url: Some(url),
        title: Some("标题"),
        snippet: None,
        site_name: None,
        icon_url: None,
        published: None,
        doc_id: None,
        kind: CitationType::Websearch,
        cited: false,
        metadata: Vec::new(),
    }
}

/// Numbers with aliases and hosts.
fn numbers(ledger: &Ledger) -> Vec<(u32, Vec<u32>, String)> {
    let citations = ledger.unfiltered_snapshot().citations;
    citations.into_iter().map(|c| (c.number, c.aliases, c.hostname.unwrap_or_default())).collect()
}

fn ledger_of(references: &[Reference<'_>]) -> Ledger {
    let mut ledger = Ledger::new(None);
    for reference in references {
        ledger.add_reference(reference);
    }
    ledger
}

#[test]
fn upstream_numbers_keep_their_gaps() {
    let ledger = ledger_of(&[card(7, "https://b.example.com"), card(2, "https://a.example.com")]);
    assert_eq!(numbers(&ledger), [(2, vec![], "a.example.com".into()), (7, vec![], "b.example.com".into())]);
}

#[test]
fn second_number_is_an_alias_and_a_resend_changes_nothing() {
    let mut second = card(5, "https://a.example.com/?utm_source=x");
    second.snippet = Some("more");
    let first = Reference { snippet: Some("first"), ..card(1, "https://a.example.com/") };
    let ledger = ledger_of(&[first.clone(), second.clone(), first, second]);
    assert_eq!(numbers(&ledger), [(1, vec![5], "a.example.com".into())]);
    let snapshot = ledger.unfiltered_snapshot();
    assert_eq!((snapshot.stats.total_returned, snapshot.stats.dedup_count), (2, 1));
    assert_eq!(snapshot.citations[0].snippets, ["first", "more"]);
    assert_eq!(snapshot.citations[0].content.as_deref(), Some("first"));
}

#[test]
fn taken_number_is_replaced_by_the_next_free_one() {
    let ledger = ledger_of(&[
        card(1, "https://a.example.com"),
        card(2, "https://b.example.com"),
        card(1, "https://c.example.com"),
    ]);
    let snapshot = ledger.unfiltered_snapshot();
    assert_eq!(numbers(&ledger)[2], (3, vec![], "c.example.com".into()));
    assert_eq!(snapshot.citations[2].metadata["upstreamIndex"], 1);
}

#[test]
fn upstream_number_replaces_the_number_by_position() {
    // Some upstreams send search chunks without numbers first, and the documents with the answer's numbers later.
    let mut ledger =
        ledger_of(&[doc("https://a.example.com"), doc("https://b.example.com"), doc("https://c.example.com")]);
    ledger.add_reference(&card(1, "https://c.example.com"));
    ledger.add_reference(&card(2, "https://a.example.com"));
    let hosts: Vec<String> = numbers(&ledger).into_iter().map(|(n, _, host)| format!("{n}{host}")).collect();
    assert_eq!(hosts, ["1c.example.com", "2a.example.com", "3b.example.com"]);
    assert_eq!(ledger.unfiltered_snapshot().stats.dedup_count, 0);
}

#[test]
fn documents_without_url_are_identified_by_doc_id() {
    let of_doc = |id: &'static str| Reference { url: None, doc_id: Some(id.into()), ..doc("") };
    let ledger = ledger_of(&[of_doc("t1"), of_doc("t2"), of_doc("t1")]);
    assert_eq!(ledger.len(), 2);
    // The same document with its URL later is the same source.
    let mut ledger = ledger_of(&[of_doc("t1")]);
    ledger.add_reference(&Reference { doc_id: Some("t1".into()), ..doc("https://a.example.com") });
    assert_eq!(numbers(&ledger), [(1, vec![], "a.example.com".into())]);
}

#[test]
fn reference_with_bad_scheme_loses_its_link_only() {
    let snapshot = ledger_of(&[card(1, "javascript:alert(1)")]).unfiltered_snapshot();
    assert_eq!(snapshot.citations[0].url, None);
    assert_eq!(snapshot.citations[0].metadata["droppedUrl"], "javascript:alert(1)");
}

#[test]
fn citation_list_is_capped_at_the_limit() {
    let urls: Vec<String> = (0..=MAX_CITATIONS).map(|n| format!("https://a.example.com/{n}")).collect();
    let mut ledger = Ledger::new(None);
    let add = |ledger: &mut Ledger, n: usize| {
        ledger.add_reference(&Reference { url: Some(&urls[n]), ..doc("") });
    };
    for n in 0..MAX_CITATIONS {
        add(&mut ledger, n);
    }
    assert!(!ledger.unfiltered_snapshot().truncated);
    add(&mut ledger, MAX_CITATIONS);
    assert!(ledger.unfiltered_snapshot().truncated);
    assert_eq!(ledger.len(), MAX_CITATIONS);
}

#[test]
fn fields_are_capped_at_the_limit() {
    for (len, cut) in [(MAX_TITLE, false), (MAX_TITLE + 1, true)] {
        let title = "x".repeat(len);
        let snapshot =
            ledger_of(&[Reference { title: Some(&title), ..card(1, "https://a.example.com") }]).unfiltered_snapshot();
        assert_eq!(snapshot.truncated, cut);
        assert_eq!(snapshot.citations[0].title.as_ref().map(String::len), Some(MAX_TITLE));
    }
    for (len, cut) in [(MAX_SNIPPET, false), (MAX_SNIPPET + 1, true)] {
        let snippet = "x".repeat(len);
        let snapshot = ledger_of(&[Reference { snippet: Some(&snippet), ..card(1, "https://a.example.com") }])
            .unfiltered_snapshot();
        assert_eq!(snapshot.truncated, cut);
    }
}

#[test]
fn marker_of_a_number_or_alias_makes_a_source_cited() {
    let mut ledger = ledger_of(&[
        card(1, "https://a.example.com"),
        card(2, "https://b.example.com"),
        card(5, "https://a.example.com"),
    ]);
    ledger.add_text("火灾[");
    ledger.add_text("5]。另见[9]");
    let snapshot = ledger.unfiltered_snapshot();
    assert_eq!(snapshot.citations.iter().map(|c| c.cited).collect::<Vec<_>>(), [true, false]);
    assert_eq!((snapshot.stats.cited_count, snapshot.stats.dangling_markers), (1, vec![9]));
    ledger.add_full_text("whole [2]");
    assert_eq!(ledger.unfiltered_snapshot().stats.cited_count, 2);
}

#[test]
fn resent_failure_counts_once() {
    let mut ledger = Ledger::new(None);
    for round in ["b1", "b1", "b2"] {
        ledger.add_round(round, None, &[]);
        ledger.add_failure(Some("card-6"), 6, "missing_title_and_url");
    }
    let snapshot = ledger.unfiltered_snapshot();
    assert_eq!(snapshot.stats.failed_count, 1);
    let failure =
        SearchFailure { position: 6, id: Some("card-6".to_owned()), error_code: "missing_title_and_url".to_owned() };
    assert_eq!(snapshot.rounds.iter().map(|round| round.failures.clone()).collect::<Vec<_>>(), [vec![failure], vec![]]);
}

#[test]
fn failures_over_the_cap_are_only_counted() {
    let mut ledger = Ledger::new(None);
    for (count, kept) in [(MAX_FAILURES, MAX_FAILURES), (MAX_FAILURES + 1, MAX_FAILURES)] {
        for position in 1..=count {
            ledger.add_round(&(position % 2).to_string(), None, &[]);
            ledger.add_failure(Some(&format!("card-{position}")), 1, "not_an_object");
        }
        let snapshot = ledger.unfiltered_snapshot();
        assert_eq!(snapshot.stats.failed_count as usize, count);
        assert_eq!(snapshot.rounds.iter().map(|round| round.failures.len()).sum::<usize>(), kept);
    }
}

#[test]
fn published_text_is_kept_and_epoch_is_converted() {
    let snapshot_with = |published| {
        ledger_of(&[Reference { published: Some(published), ..card(1, "https://a.example.com") }]).unfiltered_snapshot()
    };
    let text = snapshot_with(Published::Text("2025-10-29T07:50:20+08:00"));
    assert_eq!(text.citations[0].published_at.as_deref(), Some("2025-10-29T07:50:20+08:00"));
    let epoch = snapshot_with(Published::Epoch(1_761_267_312));
    assert_eq!(epoch.citations[0].published_at.as_deref(), Some("2025-10-24T00:55:12Z"));
    let free_text = snapshot_with(Published::Text("昨天"));
    assert_eq!(
        (free_text.citations[0].published_at.as_deref(), &free_text.citations[0].metadata["publishedText"]),
        (None, &"昨天".into())
    );
}

#[test]
fn ten_thousand_references_keep_the_first_thousand() {
    let urls: Vec<String> = (0..10_000).map(|n| format!("https://a.example.com/{n}")).collect();
    let mut ledger = Ledger::new(None);
    for url in &urls {
        ledger.add_reference(&Reference { url: Some(url), ..doc("") });
    }
    assert_eq!(ledger.unfiltered_snapshot().stats.kept_after_filter as usize, MAX_CITATIONS);
}

#[test]
fn source_cited_by_upstream_needs_no_marker() {
    let cited = |n, url| Reference { cited: true, ..card(n, url) };
    let mut ledger = ledger_of(&[cited(1, "https://a.example.com"), card(2, "https://b.example.com")]);
    let snapshot = ledger.unfiltered_snapshot();
    assert_eq!(snapshot.citations.iter().map(|c| c.cited).collect::<Vec<_>>(), [true, false]);
    assert_eq!(snapshot.stats.cited_count, 1);
    let before = ledger.revision();
    ledger.add_reference(&card(1, "https://a.example.com"));
    assert_eq!(ledger.revision(), before, "a resend without `cited` changes nothing");
    ledger.add_reference(&cited(2, "https://b.example.com"));
    assert!(ledger.revision() > before, "a source that is cited later changes the record");
    assert_eq!(ledger.unfiltered_snapshot().stats.cited_count, 2);
}

/// The provider `auto` detects the upstream in the frame with the first references, so the name is set after them.
#[test]
fn document_id_includes_a_provider_set_later() {
    let document = Reference { url: None, doc_id: Some("d1".into()), ..doc("") };
    let (mut early, mut late) = (Ledger::new(None), Ledger::new(None));
    early.set_provider("p");
    early.add_reference(&document);
    late.add_reference(&document);
    late.set_provider("p");
    let id = |ledger: &Ledger| ledger.unfiltered_snapshot().citations.remove(0).source_id;
    assert_eq!(id(&early), links::source_id("p:d1"));
    assert_eq!(id(&late), id(&early));
}

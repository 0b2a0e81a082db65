use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use super::*;
use crate::citation::{record::SearchFailure, rounds::MAX_FAILURES};

/// No table, no filter.
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

/// A reference without a number or a place.
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

fn of(references: &[Reference<'_>]) -> Ledger {
    let mut ledger = Ledger::new(None);
    for reference in references {
        ledger.add_reference(reference);
    }
    ledger
}

#[test]
fn the_upstreams_numbers_keep_their_gaps() {
    let ledger = of(&[card(7, "https://b.example.com"), card(2, "https://a.example.com")]);
    assert_eq!(numbers(&ledger), [(2, vec![], "a.example.com".into()), (7, vec![], "b.example.com".into())]);
}

#[test]
fn a_second_number_of_a_page_is_an_alias_and_the_same_again_is_nothing() {
    let mut again = card(5, "https://a.example.com/?utm_source=x");
    again.snippet = Some("more");
    let first = Reference { snippet: Some("first"), ..card(1, "https://a.example.com/") };
    let ledger = of(&[first.clone(), again.clone(), first, again]);
    assert_eq!(numbers(&ledger), [(1, vec![5], "a.example.com".into())]);
    let view = ledger.unfiltered_snapshot();
    assert_eq!((view.stats.total_returned, view.stats.dedup_count), (2, 1));
    assert_eq!(view.citations[0].snippets, ["first", "more"]);
    assert_eq!(view.citations[0].content.as_deref(), Some("first"));
}

#[test]
fn a_number_that_is_taken_gives_way_to_the_next_free_one() {
    let ledger =
        of(&[card(1, "https://a.example.com"), card(2, "https://b.example.com"), card(1, "https://c.example.com")]);
    let view = ledger.unfiltered_snapshot();
    assert_eq!(numbers(&ledger)[2], (3, vec![], "c.example.com".into()));
    assert_eq!(view.citations[2].metadata["upstreamIndex"], 1);
}

#[test]
fn the_upstreams_number_beats_the_place() {
    // Chunks come in the order of the search, documents in the order of the answer.
    let mut ledger = of(&[doc("https://a.example.com"), doc("https://b.example.com"), doc("https://c.example.com")]);
    ledger.add_reference(&card(1, "https://c.example.com"));
    ledger.add_reference(&card(2, "https://a.example.com"));
    let hosts: Vec<String> = numbers(&ledger).into_iter().map(|(n, _, host)| format!("{n}{host}")).collect();
    assert_eq!(hosts, ["1c.example.com", "2a.example.com", "3b.example.com"]);
    assert_eq!(ledger.unfiltered_snapshot().stats.dedup_count, 0);
}

#[test]
fn documents_without_a_url_are_told_apart_by_their_id() {
    let of_doc = |id: &'static str| Reference { url: None, doc_id: Some(id.into()), ..doc("") };
    let ledger = of(&[of_doc("t1"), of_doc("t2"), of_doc("t1")]);
    assert_eq!(ledger.len(), 2);
    // The same document with its URL later is the same source.
    let mut ledger = of(&[of_doc("t1")]);
    ledger.add_reference(&Reference { doc_id: Some("t1".into()), ..doc("https://a.example.com") });
    assert_eq!(numbers(&ledger), [(1, vec![], "a.example.com".into())]);
}

#[test]
fn a_bad_scheme_costs_the_link_not_the_source() {
    let view = of(&[card(1, "javascript:alert(1)")]).unfiltered_snapshot();
    assert_eq!(view.citations[0].url, None);
    assert_eq!(view.citations[0].metadata["droppedUrl"], "javascript:alert(1)");
}

#[test]
fn the_list_is_capped_at_the_limit_and_over_it() {
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
fn fields_are_capped_at_the_limit_and_over_it() {
    for (len, cut) in [(MAX_TITLE, false), (MAX_TITLE + 1, true)] {
        let title = "x".repeat(len);
        let view = of(&[Reference { title: Some(&title), ..card(1, "https://a.example.com") }]).unfiltered_snapshot();
        assert_eq!(view.truncated, cut);
        assert_eq!(view.citations[0].title.as_ref().map(String::len), Some(MAX_TITLE));
    }
    for (len, cut) in [(MAX_SNIPPET, false), (MAX_SNIPPET + 1, true)] {
        let snippet = "x".repeat(len);
        let view =
            of(&[Reference { snippet: Some(&snippet), ..card(1, "https://a.example.com") }]).unfiltered_snapshot();
        assert_eq!(view.truncated, cut);
    }
}

#[test]
fn markers_in_the_text_make_sources_cited_also_by_an_alias() {
    let mut ledger =
        of(&[card(1, "https://a.example.com"), card(2, "https://b.example.com"), card(5, "https://a.example.com")]);
    ledger.add_text("火灾[");
    ledger.add_text("5]。另见[9]");
    let view = ledger.unfiltered_snapshot();
    assert_eq!(view.citations.iter().map(|c| c.cited).collect::<Vec<_>>(), [true, false]);
    assert_eq!((view.stats.cited_count, view.stats.dangling_markers), (1, vec![9]));
    ledger.add_full_text("whole [2]");
    assert_eq!(ledger.unfiltered_snapshot().stats.cited_count, 2);
}

#[test]
fn failed_cards_count_once_however_often_they_are_sent() {
    let mut ledger = Ledger::new(None);
    for round in ["b1", "b1", "b2"] {
        ledger.add_round(round, None, &[]);
        ledger.add_failure(Some("card-6"), 6, "missing_title_and_url");
    }
    let view = ledger.unfiltered_snapshot();
    assert_eq!(view.stats.failed_count, 1);
    let failure =
        SearchFailure { position: 6, id: Some("card-6".to_owned()), error_code: "missing_title_and_url".to_owned() };
    assert_eq!(view.rounds.iter().map(|round| round.failures.clone()).collect::<Vec<_>>(), [vec![failure], vec![]]);
}

#[test]
fn failures_are_kept_up_to_the_cap_and_counted_over_it() {
    let mut ledger = Ledger::new(None);
    for (count, kept) in [(MAX_FAILURES, MAX_FAILURES), (MAX_FAILURES + 1, MAX_FAILURES)] {
        for position in 1..=count {
            ledger.add_round(&(position % 2).to_string(), None, &[]);
            ledger.add_failure(Some(&format!("card-{position}")), 1, "not_an_object");
        }
        let view = ledger.unfiltered_snapshot();
        assert_eq!(view.stats.failed_count as usize, count);
        assert_eq!(view.rounds.iter().map(|round| round.failures.len()).sum::<usize>(), kept);
    }
}

#[test]
fn times_are_kept_as_written_or_made_from_seconds() {
    let time = |published| {
        of(&[Reference { published: Some(published), ..card(1, "https://a.example.com") }]).unfiltered_snapshot()
    };
    let kept = time(Published::Text("2025-10-29T07:50:20+08:00"));
    assert_eq!(kept.citations[0].published_at.as_deref(), Some("2025-10-29T07:50:20+08:00"));
    let made = time(Published::Epoch(1_761_267_312));
    assert_eq!(made.citations[0].published_at.as_deref(), Some("2025-10-24T00:55:12Z"));
    let free = time(Published::Text("昨天"));
    assert_eq!(
        (free.citations[0].published_at.as_deref(), &free.citations[0].metadata["publishedText"]),
        (None, &"昨天".into())
    );
}

#[test]
fn ten_thousand_references_cost_little() {
    let urls: Vec<String> = (0..10_000).map(|n| format!("https://a.example.com/{n}")).collect();
    let mut ledger = Ledger::new(None);
    for url in &urls {
        ledger.add_reference(&Reference { url: Some(url), ..doc("") });
    }
    assert_eq!(ledger.unfiltered_snapshot().stats.kept_after_filter as usize, MAX_CITATIONS);
}

#[test]
fn what_the_upstream_says_is_cited_needs_no_marker_and_stays_so() {
    let cited = |n, url| Reference { cited: true, ..card(n, url) };
    let mut ledger = of(&[cited(1, "https://a.example.com"), card(2, "https://b.example.com")]);
    let view = ledger.unfiltered_snapshot();
    assert_eq!(view.citations.iter().map(|c| c.cited).collect::<Vec<_>>(), [true, false]);
    assert_eq!(view.stats.cited_count, 1);
    let before = ledger.revision();
    ledger.add_reference(&card(1, "https://a.example.com"));
    assert_eq!(ledger.revision(), before, "sent again without its place, it is cited all the same");
    ledger.add_reference(&cited(2, "https://b.example.com"));
    assert!(ledger.revision() > before, "what is known to be cited later changes the record");
    assert_eq!(ledger.unfiltered_snapshot().stats.cited_count, 2);
}

/// `auto` knows the provider by the frame that has the first references: their ids were made without its name.
#[test]
fn the_id_of_a_document_has_the_provider_whenever_that_is_known() {
    let handbook = Reference { url: None, doc_id: Some("d1".into()), ..doc("") };
    let (mut early, mut late) = (Ledger::new(None), Ledger::new(None));
    early.set_provider("p");
    early.add_reference(&handbook);
    late.add_reference(&handbook);
    late.set_provider("p");
    let id = |ledger: &Ledger| ledger.unfiltered_snapshot().citations.remove(0).source_id;
    assert_eq!(id(&early), links::source_id("p:d1"));
    assert_eq!(id(&late), id(&early));
}

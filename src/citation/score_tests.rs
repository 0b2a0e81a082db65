use proptest::prelude::*;

use super::*;
use crate::citation::{
    ledger::{Ledger, Published, Reference},
    record::RecordStats,
};

const DAY: i64 = 86_400;

fn now() -> Timestamp {
    "2026-01-13T00:00:00Z".parse().unwrap()
}

fn rules() -> Rules {
    let table = [("gov.cn", 0.95), ("cn", 0.4), ("example.com", 0.8), ("blog.example.com", 0.3)];
    Rules {
        weights: Weights::new(0.6, 0.2, 0.2).unwrap(),
        half_life: Duration::from_secs(180 * 86_400),
        minimum: 0.0,
        allow: HashSet::new(),
        deny: HashSet::new(),
        authority: table.into_iter().map(|(domain, value)| (domain.to_owned(), value)).collect(),
    }
}

fn set(domains: &[&str]) -> HashSet<String> {
    domains.iter().map(|domain| (*domain).to_owned()).collect()
}

fn reference(url: Option<&str>) -> Reference<'_> {
    Reference {
        number: None,
        position: None,
        rank: None,
        score: None,
        url,
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

/// The citation and the stats of a message with this reference only.
fn scored(rules: &Rules, reference: &Reference<'_>) -> (Citation, RecordStats) {
    let mut ledger = Ledger::new(None);
    ledger.add_reference(reference);
    let mut snapshot = ledger.snapshot(rules, now());
    assert_eq!(ledger.kept_count(rules, now()), snapshot.stats.kept_after_filter as usize);
    (snapshot.citations.remove(0), snapshot.stats)
}

fn scores(reference: &Reference<'_>) -> Scores {
    scored(&rules(), reference).0.scores.unwrap()
}

#[test]
fn relevance_is_the_upstream_score_else_by_rank() {
    let ranked = |rank, score| scores(&Reference { rank: Some(rank), score, ..reference(None) }).relevance;
    // 1/log2(2), 1/log2(3), 1/log2(4), 1/log2(8).
    assert_eq!([1, 2, 3, 7].map(|rank| ranked(rank, None)), [1.0, 0.6309, 0.5, 0.3333]);
    assert_eq!(ranked(0, None), 1.0);
    assert_eq!(ranked(7, Some(0.671_664_95)), 0.6717);
    assert_eq!(ranked(1, Some(7.0)), 1.0);
    assert_eq!(ranked(1, Some(-1.0)), 0.0);
    assert_eq!(ranked(3, Some(f64::NAN)), 0.5);
}

#[test]
fn relevance_from_a_later_reference_is_used() {
    let mut ledger = Ledger::new(None);
    ledger.add_reference(&reference(Some("https://a.example.org/")));
    let before = ledger.revision();
    ledger.add_reference(&Reference { score: Some(0.25), ..reference(Some("https://a.example.org/")) });
    assert!(ledger.revision() > before);
    assert_eq!(ledger.snapshot(&rules(), now()).citations[0].scores.unwrap().relevance, 0.25);
}

#[test]
fn freshness_halves_per_half_life() {
    let fresh = |published| scores(&Reference { published, ..reference(None) }).freshness;
    let ago = |days| fresh(Some(Published::Epoch(now().as_second() - days * DAY)));
    assert_eq!([0, 60, 180, 360].map(ago), [1.0, 0.7937, 0.5, 0.25]);
    assert_eq!(ago(-30), 1.0, "a future time");
    assert_eq!(fresh(None), UNKNOWN);
    assert_eq!(fresh(Some(Published::Text("昨天"))), UNKNOWN);
    assert_eq!(fresh(Some(Published::Text("2025-07-17"))), 0.5, "a date without a time");
    assert_eq!(fresh(Some(Published::Text("2025-07-17T08:00:00+08:00"))), 0.5, "the offset is applied");
}

#[test]
fn authority_is_that_of_the_longest_parent_domain() {
    let authority = |url| scores(&reference(Some(url))).authority;
    for (url, value) in [
        ("https://www.gov.cn/a", 0.95),
        ("https://gov.cn/", 0.95),
        ("https://www.example.cn/", 0.4),
        ("https://EXAMPLE.com./", 0.8),
        ("https://a.blog.example.com/", 0.3),
        ("https://notexample.com/", UNKNOWN),
        ("https://gov.cn.evil.example.org/", UNKNOWN),
        ("http://127.0.0.1/", UNKNOWN),
        ("http://[::1]/", UNKNOWN),
    ] {
        assert_eq!(authority(url), value, "{url}");
    }
    assert_eq!(scores(&reference(None)).authority, UNKNOWN);
}

#[test]
fn final_score_is_the_weighted_sum() {
    let half_a_year_old = Published::Text("2025-07-17T00:00:00Z");
    let sample =
        Reference { rank: Some(3), published: Some(half_a_year_old), ..reference(Some("https://www.gov.cn/")) };
    // 0.6 * 0.5 + 0.2 * 0.5 + 0.2 * 0.95
    assert_eq!(scores(&sample), Scores { relevance: 0.5, freshness: 0.5, authority: 0.95, overall: 0.59 });
    let json = serde_json::to_string(&scores(&sample)).unwrap();
    assert_eq!(json, r#"{"relevance":0.5,"freshness":0.5,"authority":0.95,"final":0.59}"#);
}

#[test]
fn domain_lists_and_minimum_filter_sources() {
    let filtered_by = |rules: &Rules, url| {
        let (citation, stats) = scored(rules, &reference(url));
        let is_filtered = citation.status == CitationStatus::Filtered;
        assert_eq!((stats.total_returned, stats.kept_after_filter + stats.filtered_count), (1, 1));
        assert_eq!(stats.filtered_count == 1, is_filtered);
        assert!(rules.has_filters() || !is_filtered);
        citation.metadata.get("filteredBy").map(|rule| rule.as_str().unwrap().to_owned())
    };
    let (inside, outside) = (Some("https://a.example.com/"), Some("https://a.example.org/"));
    assert_eq!(filtered_by(&rules(), outside), None);
    let deny = Rules { deny: set(&["example.com"]), ..rules() };
    assert_eq!(
        (filtered_by(&deny, inside).as_deref(), filtered_by(&deny, outside), filtered_by(&deny, None)),
        (Some("deny"), None, None)
    );
    let allow = Rules { allow: set(&["example.com"]), ..rules() };
    assert_eq!((filtered_by(&allow, inside), filtered_by(&allow, outside).as_deref()), (None, Some("allow")));
    assert_eq!(filtered_by(&allow, None).as_deref(), Some("allow"), "a web source without a link is not on the list");
    let both = Rules { deny: set(&["a.example.com"]), ..allow.clone() };
    assert_eq!(filtered_by(&both, inside).as_deref(), Some("deny"));
    // Rank 1, no date, authority 0.8: 0.6 + 0.1 + 0.16.
    for (minimum, filtered) in [(0.86, None), (0.8601, Some("minimum"))] {
        assert_eq!(filtered_by(&Rules { minimum, ..rules() }, inside).as_deref(), filtered, "{minimum}");
    }
    // A document of the upstream has no domain.
    let document = Reference { kind: CitationType::Knowledge, ..reference(None) };
    assert_eq!(scored(&allow, &document).0.status, CitationStatus::Ok);
}

#[test]
fn filtered_source_is_cited_and_its_marker_not_dangling() {
    let mut ledger = Ledger::new(None);
    ledger.add_reference(&reference(Some("https://a.example.com/")));
    ledger.add_text("见[1]");
    let snapshot = ledger.snapshot(&Rules { deny: set(&["com"]), ..rules() }, now());
    assert_eq!((snapshot.citations[0].cited, snapshot.citations[0].status), (true, CitationStatus::Filtered));
    assert_eq!((snapshot.stats.cited_count, snapshot.stats.dangling_markers.len()), (1, 0));
}

#[test]
fn weights_need_the_sum_1() {
    assert!(Weights::new(0.7, 0.2, 0.1).is_some(), "within binary rounding");
    assert!(Weights::new(1.0, 0.0, 0.0).is_some());
    for (r, f, a) in [(0.6, 0.2, 0.3), (0.0, 0.0, 0.0), (1.5, -0.5, 0.0), (f64::NAN, 0.5, 0.5)] {
        assert!(Weights::new(r, f, a).is_none(), "{r} {f} {a}");
    }
}

proptest! {
    #[test]
    fn scores_are_between_0_and_1(
        rank in any::<u32>(), score in prop::option::of(any::<f64>()), published in any::<i64>(),
        r in 0.0..=1.0, f in 0.0..=1.0, half_life in 1_u64..1 << 40, authority in any::<f64>(),
    ) {
        let (f, a) = ((1.0 - r) * f, (1.0 - r) * (1.0 - f));
        let rules = Rules {
            weights: Weights::new(r, f, a).unwrap(),
            half_life: Duration::from_secs(half_life),
            authority: HashMap::from([("example.com".to_owned(), authority)]),
            ..rules()
        };
        let sample = Reference {
            rank: Some(rank), score, published: Some(Published::Epoch(published)), ..reference(Some("https://example.com/"))
        };
        let scores = scored(&rules, &sample).0.scores.unwrap();
        for value in [scores.relevance, scores.freshness, scores.authority, scores.overall] {
            prop_assert!((0.0..=1.0).contains(&value), "{scores:?}");
        }
        let json = serde_json::to_string(&scores).unwrap();
        prop_assert_eq!(serde_json::from_str::<Scores>(&json).unwrap(), scores);
    }

    #[test]
    fn weights_with_another_sum_are_refused(r in 0.0..=1.0, f in 0.0..=1.0, a in 0.0..=1.0) {
        let sum: f64 = r + f + a;
        prop_assert_eq!(Weights::new(r, f, a).is_some(), (sum - 1.0).abs() < 1e-9);
    }
}

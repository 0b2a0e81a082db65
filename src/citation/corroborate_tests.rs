use serde_json::Map;

use super::*;
use crate::citation::{
    record::{CitationOrigin, CitationType},
    score::Scores,
};

fn rules() -> Rules {
    let lists = [["confirms", "官方声明"], ["approved", "上涨"], ["hack", "脱锚"]];
    Rules { min_domains: 2, words: WordLists::new(lists.map(|list| list.map(str::to_owned).to_vec())) }
}

fn source(host: &str, title: &str, overall: f64) -> Citation {
    Citation {
        number: 1,
        aliases: Vec::new(),
        url: None,
        title: Some(title.to_owned()),
        content: None,
        hostname: (!host.is_empty()).then(|| host.to_owned()),
        kind: CitationType::Websearch,
        show_favicon: true,
        site_name: None,
        icon_url: None,
        published_at: None,
        source_id: String::new(),
        rank: 1,
        origin: CitationOrigin::Upstream,
        cited: false,
        status: CitationStatus::Ok,
        scores: Some(Scores { relevance: overall, freshness: overall, authority: overall, overall }),
        snippets: Vec::new(),
        metadata: Map::new(),
    }
}

#[test]
fn confidence_equals_values_computed_by_hand() {
    // Two domains, five sources, one official: 0.56 + 0.15 + 0.10 + 0.05.
    let five = [
        source("cointelegraph.com", "USDC depegs as Circle confirms $3.3B stuck", 0.67),
        source("cointelegraph.com", "b", 0.51),
        source("www.cointelegraph.com", "c", 0.51),
        source("www.theblock.co", "d", 0.55),
        source("www.theblock.co", "e", 0.56),
    ];
    let of_five = rules().corroborate(&five).unwrap();
    assert_eq!((of_five.source_count, of_five.unique_domains, of_five.multi_source), (5, 2, true));
    assert_eq!((of_five.official_confirmed, of_five.average_score, of_five.confidence), (true, 0.56, 0.86));
    assert!(!of_five.triggered, "the average is below 0.6");

    let four = rules().corroborate(&five[1..]).unwrap();
    // 2.13 / 4 = 0.5325; + 0.15.
    assert_eq!((four.average_score, four.confidence), (0.5325, 0.68));
    let one = rules().corroborate(&five[..1]).unwrap();
    assert_eq!((one.multi_source, one.confidence, one.triggered), (false, 0.77, false));
}

#[test]
fn trigger_is_at_average_0_6_and_confidence_is_capped() {
    let pair = |score| rules().corroborate(&[source("a.example", "", score), source("b.example", "", score)]).unwrap();
    assert!(pair(0.6).triggered);
    assert!(!pair(0.5999).triggered);
    assert_eq!(pair(0.95).confidence, 1.0);
}

#[test]
fn filtered_sources_do_not_count() {
    let mut filtered = source("b.example", "官方声明", 0.9);
    filtered.status = CitationStatus::Filtered;
    assert_eq!(rules().corroborate(&[filtered.clone()]), None);
    assert_eq!(rules().corroborate(&[]), None);
    let mixed = rules().corroborate(&[source("a.example", "", 0.5), filtered]).unwrap();
    assert_eq!((mixed.source_count, mixed.unique_domains, mixed.official_confirmed), (1, 1, false));
    // A document without a link counts as a source, but not as a domain.
    let documents = rules().corroborate(&[source("", "", 0.5), source("", "", 0.5)]).unwrap();
    assert_eq!((documents.source_count, documents.unique_domains, documents.multi_source), (2, 0, false));
}

#[test]
fn registrable_domain_follows_the_public_suffix_list() {
    for (host, domain) in [
        ("www.example.com", "example.com"),
        ("a.b.example.co.uk", "example.co.uk"),
        ("news.example.com.cn", "example.com.cn"),
        ("www.mee.gov.cn", "mee.gov.cn"),
        ("alice.github.io", "alice.github.io"),
        ("example.com.", "example.com"),
        ("localhost", "localhost"),
        ("192.168.1.10", "192.168.1.10"),
        ("[::1]", "[::1]"),
    ] {
        assert_eq!(registrable_domain(host), domain, "{host}");
    }
}

#[test]
fn sentiment_is_that_of_most_sources() {
    let of = |titles: &[&str]| {
        let sources: Vec<Citation> = titles.iter().map(|title| source("a.example", title, 0.5)).collect();
        rules().corroborate(&sources).unwrap().sentiment
    };
    assert_eq!(of(&["ETF Approved", "币价上涨", "Exchange HACK"]), Sentiment::Positive);
    assert_eq!(of(&["USDC 脱锚 脱锚", "approved", "a hack"]), Sentiment::Negative);
    assert_eq!(of(&["approved after the hack"]), Sentiment::Neutral);
    assert_eq!(of(&["a hackathon"]), Sentiment::Neutral);
}

#[test]
fn corroboration_serializes_in_camel_case() {
    let json = serde_json::to_value(rules().corroborate(&[source("a.example", "x", 0.5)])).unwrap();
    let expected = serde_json::json!({
        "sourceCount": 1, "uniqueDomains": 1, "multiSource": false, "officialConfirmed": false,
        "sentiment": "neutral", "averageScore": 0.5, "confidence": 0.5, "triggered": false
    });
    assert_eq!(json, expected);
}

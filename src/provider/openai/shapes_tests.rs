use bytes::Bytes;
use serde_json::json;

use super::*;
use crate::{
    marker::Mark,
    pipeline::{Context, offline},
    profile::Positions,
};

/// The record of a complete response with these annotations and search results.
pub fn record(annotations: &serde_json::Value, results: &serde_json::Value) -> Box<Record> {
    let context = Context {
        route: "r".to_owned(),
        provider: crate::provider::openai::PROVIDER,
        link_base: None,
        nonce: "n".to_owned(),
        created: jiff::Timestamp::UNIX_EPOCH,
        fallback_id: "fallback".to_owned(),
        task: None,
        rules: crate::config::default_rules(),
    };
    let answer = json!({"object": "chat.completion", "choices": [{"message": {"annotations": annotations}}], "search_results": results});
    offline::document_record(context, Bytes::from(answer.to_string())).unwrap()
}

fn titles(record: &Record) -> Vec<String> {
    let titles: Vec<String> = annotations(record, &|citation| Positions::default().span(citation))
        .into_iter()
        .map(|a| a.url_citation.title)
        .collect();
    assert_eq!(search_results(record).into_iter().map(|result| result.title).collect::<Vec<_>>(), titles);
    titles
}

#[test]
fn annotation_has_all_four_fields() {
    let record = record(&json!([]), &json!([{"url": "https://a.example.com/x"}]));
    let annotation = json!({"type": "url_citation", "url_citation": {"url": "https://a.example.com/x", "title": "a.example.com", "start_index": 0, "end_index": 0}});
    assert_eq!(json!(annotations(&record, &|citation| Positions::default().span(citation))), json!([annotation]));
    let result = json!({"title": "a.example.com", "url": "https://a.example.com/x", "date": null, "snippet": ""});
    assert_eq!(json!(search_results(&record)), json!([result]));
}

#[test]
fn titles_are_unique_and_never_urls() {
    let results = json!([
        {"url": "https://a.example.com/1"},
        {"url": "https://a.example.com/2", "title": "https://a.example.com/2"},
        {"url": "https://a.example.com/3", "title": "http://other.example.com"},
        {"url": "https://a.example.com/4", "title": "T"},
        {"url": "https://a.example.com/5", "title": "T"},
        {"url": "https://a.example.com/6", "site_name": "Site"},
    ]);
    let expected = ["a.example.com", "a.example.com (2)", "a.example.com (3)", "T", "T (5)", "Site"];
    assert_eq!(titles(&record(&json!([]), &results)), expected);
}

#[test]
fn references_without_http_url_are_omitted() {
    let results = json!([
        {"url": "javascript:alert(1)", "title": "script"},
        {"title": "no link"},
        {"doc_id": "d", "doc_name": "document"},
        {"url": "https://a.example.com/", "title": "page"},
    ]);
    let record = record(&json!([]), &results);
    assert_eq!((record.citations.len(), titles(&record)), (4, vec!["page".to_owned()]));
}

#[test]
fn span_is_the_upstreams_else_the_lookups_else_zero() {
    let upstream = json!([{"type": "url_citation", "url_citation": {"url": "https://a.example.com/", "title": "A", "start_index": 5, "end_index": 9}}]);
    let results = json!([
        {"url": "https://a.example.com/", "title": "A"},
        {"url": "https://b.example.com/", "title": "B"},
        {"url": "https://c.example.com/", "title": "C"},
    ]);
    let record = record(&upstream, &results);
    let mut positions = Positions::of_length(200);
    for (number, start, end) in [(1, 100, 103), (2, 7, 10)] {
        positions.note(&Mark { number, start, end });
    }
    let spans: Vec<_> = annotations(&record, &|citation| positions.span(citation))
        .into_iter()
        .map(|annotation| (annotation.url_citation.start_index, annotation.url_citation.end_index))
        .collect();
    assert_eq!(spans, [(5, 9), (7, 10), (0, 0)]);
    assert_eq!(record.citations.iter().map(|c| c.cited).collect::<Vec<_>>(), [true, false, false]);
}

#[test]
fn date_is_cut_to_the_day() {
    let results = json!([
        {"url": "https://a.example.com/", "title": "A", "date": "2025-10-29T07:50:20+08:00"},
        {"url": "https://b.example.com/", "title": "B", "date": "2025-10-29"},
        {"url": "https://c.example.com/", "title": "C", "date": "last week"},
    ]);
    let record = record(&json!([]), &results);
    let dates: Vec<_> = search_results(&record).into_iter().map(|result| result.date).collect();
    assert_eq!(dates, [Some("2025-10-29"), Some("2025-10-29"), None]);
}

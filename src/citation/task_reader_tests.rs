use serde_json::{Value, json};

use super::*;
use crate::{citation::url::source_id, config::default_rules};

/// A message; per round a list of sources as (name, score, status).
fn message(id: &str, rounds: &[&[(&str, f64, &str)]]) -> Record {
    let mut citations = Vec::new();
    for (round, sources) in (1..).zip(rounds) {
        for (rank, (name, score, status)) in (1..).zip(*sources) {
            citations.push(json!({
                "number": citations.len() + 1, "aliases": [], "url": format!("https://{name}.example.com/"), "title": name,
                "content": null, "hostname": null, "type": "websearch", "showFavicon": true, "siteName": null,
                "iconUrl": null, "publishedAt": null, "sourceId": source_id(name), "rank": rank, "origin": "upstream",
                "cited": false, "status": status, "snippets": [], "metadata": { "round": round },
                "scores": { "relevance": score, "freshness": 0.5, "authority": 0.5, "final": score }
            }));
        }
    }
    let rounds: Vec<Value> = (1..=rounds.len())
        .map(|round| json!({ "round": round, "queries": [format!("{id} {round}")], "summary": null, "failedCount": 0, "dedupCount": 0 }))
        .collect();
    let record = json!({
        "type": "citations", "version": 1, "messageId": id, "conversationId": "77", "provider": "doubao", "route": "r",
        "source": "default", "model": null, "complete": true, "stored": true, "truncated": false, "nonce": "n",
        "createdAt": "2026-01-13T09:18:07.000Z", "summary": null, "queries": [], "citations": citations, "rounds": rounds,
        "stats": { "totalReturned": 0, "keptAfterFilter": 0, "failedCount": 0, "dedupCount": 0, "citedCount": 0,
                   "danglingMarkers": [] }
    });
    serde_json::from_value(record).unwrap()
}

/// Adds a failed result to the round with this number.
fn with_failure(mut record: Record, round: usize, position: u32) -> Record {
    let round = &mut record.rounds[round - 1];
    round.failed_count += 1;
    round.failures.push(serde_json::from_value(json!({ "position": position, "errorCode": "not_an_object" })).unwrap());
    record.stats.failed_count += 1;
    record
}

fn read(messages: &[Record], consumed: &[&str], limit: usize) -> TaskPage {
    let (rules, consumed) = (default_rules(), consumed.iter().map(|name| source_id(name)).collect());
    let mut reader = TaskReader::new(&rules, &consumed, limit);
    for message in messages {
        if !reader.message(message) {
            break;
        }
    }
    reader.finish()
}

/// Query ids and titles, such as `q1 a`.
fn query_and_title(items: &[TaskItem]) -> Vec<String> {
    items.iter().map(|item| format!("{} {}", item.query_id, item.item.title)).collect()
}

#[test]
fn page_is_ordered_by_query_number_then_score() {
    let mut messages: Vec<Record> = Vec::new();
    for n in 0..4 {
        let (low, high, top) = (format!("low{n}"), format!("high{n}"), format!("top{n}"));
        let first = [(low.as_str(), 0.2, "ok"), (high.as_str(), 0.7, "ok")];
        let second = [(top.as_str(), 0.9, "ok")];
        messages.push(message(&format!("m{n}"), &[&first, &second, &[]]));
    }
    let page = read(&messages, &[], 1000);
    let expected: Vec<String> = (0..4)
        .flat_map(|n| {
            let q = n * 3;
            [format!("q{} high{n}", q + 1), format!("q{} low{n}", q + 1), format!("q{} top{n}", q + 2)]
        })
        .collect();
    assert_eq!(
        query_and_title(&page.items),
        expected,
        "q2 comes before q10, and the numbering continues over messages"
    );
    assert_eq!(page.items[2].message_id, "m0");
    assert!(!page.more);
}

#[test]
fn equal_scores_are_ordered_by_rank_then_id() {
    let mut one = message("m", &[&[("x", 0.5, "ok"), ("y", 0.5, "ok"), ("z", 0.5, "ok")]]);
    assert_eq!(query_and_title(&read(&[one.clone()], &[], 9).items), ["q1 x", "q1 y", "q1 z"]);
    for citation in &mut one.citations {
        citation.rank = 1;
    }
    let forward = query_and_title(&read(&[one.clone()], &[], 9).items);
    one.citations.reverse();
    assert_eq!(query_and_title(&read(&[one], &[], 9).items), forward, "independent of the order in the record");
}

#[test]
fn repeated_source_is_read_once_at_its_first_position() {
    let messages = [
        message("m1", &[&[("a", 0.1, "ok"), ("b", 0.9, "ok")], &[("c", 0.5, "ok")]]),
        message("m2", &[&[("c", 1.0, "ok"), ("a", 0.9, "ok"), ("d", 0.2, "ok")]]),
    ];
    assert_eq!(query_and_title(&read(&messages, &[], 9).items), ["q1 b", "q1 a", "q2 c", "q3 d"]);
    assert_eq!(
        query_and_title(&read(&messages, &["b", "c"], 9).items),
        ["q1 a", "q3 d"],
        "and not at all once it is consumed"
    );
}

#[test]
fn filtered_item_is_skipped_and_hides_no_later_one() {
    let messages =
        [message("m1", &[&[("a", 0.9, "filtered"), ("b", 0.5, "ok")]]), message("m2", &[&[("a", 0.9, "ok")]])];
    assert_eq!(query_and_title(&read(&messages, &[], 9).items), ["q1 b", "q2 a"]);
}

#[test]
fn failed_items_are_listed_apart_and_committed_along() {
    let messages = [
        with_failure(with_failure(message("m1", &[&[("a", 0.0, "ok")]]), 1, 2), 1, 3),
        with_failure(message("m2", &[&[("b", 0.5, "ok")]]), 1, 2),
    ];
    let page = read(&messages, &[], 1);
    assert_eq!((query_and_title(&page.items), page.failed.len(), page.more), (vec!["q1 a".to_owned()], 2, true));
    assert_eq!(
        page.failed.iter().map(|item| (item.query_id.as_str(), item.item.rank)).collect::<Vec<_>>(),
        [("q1", 2), ("q1", 3)]
    );
    assert_eq!(serde_json::to_value(&page.failed[0]).unwrap()["error_code"], "not_an_object");
    assert_eq!(page.order.len(), 3);
    assert_eq!(page.order[0], source_id("a"), "at equal scores the item that did not fail comes first");
    assert_eq!(covered(&page.order, &source_id("a")), Some(&page.order[..]));
    assert_eq!(covered(&page.order, &source_id("b")), None);

    let all = read(&messages, &[], 9);
    assert_eq!((all.items.len(), all.failed.len(), all.more), (2, 3, false));
    assert_eq!(covered(&all.order, &source_id("a")), all.order.get(..3));
    let consumed: HashSet<String> = all.order.iter().cloned().collect();
    let rules = default_rules();
    let mut reader = TaskReader::new(&rules, &consumed, 9);
    assert!(messages.iter().all(|message| reader.message(message)));
    assert_eq!(reader.finish().order, [""; 0], "consumed items are not listed again");
}

#[test]
fn page_ends_at_its_limit_and_at_the_cap_of_failures() {
    let messages = [message("m", &[&[("a", 0.9, "ok"), ("b", 0.5, "ok")]])];
    assert!(!read(&messages, &[], 2).more, "at the limit");
    let page = read(&messages, &[], 1);
    assert_eq!((page.items.len(), page.more), (1, true), "over it");

    let mut bad = message("bad", &[&[]]);
    for position in 1..=MAX_FAILED {
        bad = with_failure(bad, 1, u32::try_from(position).unwrap());
    }
    let good = message("good", &[&[("c", 0.1, "ok")]]);
    let page = read(&[bad.clone(), good.clone()], &[], 9);
    assert_eq!((page.items.len(), page.failed.len(), page.more), (1, MAX_FAILED, false), "at the cap");
    let page = read(&[with_failure(bad, 1, 5000), good], &[], 9);
    assert_eq!((page.items.len(), page.failed.len(), page.more), (0, MAX_FAILED, true), "over it");
}

#[test]
fn is_source_id_refuses_other_texts() {
    let hash = source_id("a");
    for (id, is_valid) in [
        (hash.as_str(), true),
        (&format!("failed-{hash}"), true),
        (&hash[1..], false),
        (&hash.to_uppercase(), false),
        (&format!("failed-failed-{hash}"), false),
        ("", false),
        ("failed-", false),
        ("'; DROP TABLE record; --........", false),
    ] {
        assert_eq!(is_source_id(id), is_valid, "{id}");
    }
}

#[test]
fn cursor_has_the_fields_of_the_protocol() {
    let json = json!({ "task_id": "77", "last_query_id": "q2", "last_source_id": "s", "consumed_count": 3,
                       "updated_at": "2026-01-13T09:18:07.000Z" });
    let cursor: SearchReadCursor = serde_json::from_value(json.clone()).unwrap();
    assert_eq!(cursor.consumed, None);
    assert_eq!(serde_json::to_value(&cursor).unwrap(), json);
}

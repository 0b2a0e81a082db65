use serde_json::{Value, json};

use super::*;
use crate::{citation::url::source_id, config::default_rules};

/// A message: per round, its sources by name with their scores and states.
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

/// Adds a card that failed to a round, from 1.
fn failing(mut record: Record, round: usize, position: u32) -> Record {
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

/// `q1 a` and so on.
fn shown(items: &[TaskItem]) -> Vec<String> {
    items.iter().map(|item| format!("{} {}", item.query_id, item.item.title)).collect()
}

#[test]
fn queries_ascend_as_numbers_and_scores_descend_in_each() {
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
    assert_eq!(shown(&page.items), expected, "q2 comes before q10, and numbering goes on over messages");
    assert_eq!(page.items[2].message_id, "m0");
    assert!(!page.more);
}

#[test]
fn of_equal_scores_the_rank_decides_and_then_the_id() {
    let mut one = message("m", &[&[("x", 0.5, "ok"), ("y", 0.5, "ok"), ("z", 0.5, "ok")]]);
    assert_eq!(shown(&read(&[one.clone()], &[], 9).items), ["q1 x", "q1 y", "q1 z"]);
    for citation in &mut one.citations {
        citation.rank = 1;
    }
    let forth = shown(&read(&[one.clone()], &[], 9).items);
    one.citations.reverse();
    assert_eq!(shown(&read(&[one], &[], 9).items), forth, "whatever the order in the record");
}

#[test]
fn a_source_is_read_once_where_it_stands_first() {
    let messages = [
        message("m1", &[&[("a", 0.1, "ok"), ("b", 0.9, "ok")], &[("c", 0.5, "ok")]]),
        message("m2", &[&[("c", 1.0, "ok"), ("a", 0.9, "ok"), ("d", 0.2, "ok")]]),
    ];
    assert_eq!(shown(&read(&messages, &[], 9).items), ["q1 b", "q1 a", "q2 c", "q3 d"]);
    assert_eq!(shown(&read(&messages, &["b", "c"], 9).items), ["q1 a", "q3 d"], "and never when it was consumed");
}

#[test]
fn what_is_filtered_is_no_evidence_and_hides_none() {
    let messages =
        [message("m1", &[&[("a", 0.9, "filtered"), ("b", 0.5, "ok")]]), message("m2", &[&[("a", 0.9, "ok")]])];
    assert_eq!(shown(&read(&messages, &[], 9).items), ["q1 b", "q2 a"]);
}

#[test]
fn what_failed_stands_apart_and_is_passed_with_what_is_before_it() {
    let messages = [
        failing(failing(message("m1", &[&[("a", 0.0, "ok")]]), 1, 2), 1, 3),
        failing(message("m2", &[&[("b", 0.5, "ok")]]), 1, 2),
    ];
    let page = read(&messages, &[], 1);
    assert_eq!((shown(&page.items), page.failed.len(), page.more), (vec!["q1 a".to_owned()], 2, true));
    assert_eq!(
        page.failed.iter().map(|item| (item.query_id.as_str(), item.item.rank)).collect::<Vec<_>>(),
        [("q1", 2), ("q1", 3)]
    );
    assert_eq!(serde_json::to_value(&page.failed[0]).unwrap()["error_code"], "not_an_object");
    assert_eq!(page.order.len(), 3);
    assert_eq!(page.order[0], source_id("a"), "also of equal scores the one that did not fail comes first");
    assert_eq!(covered(&page.order, &source_id("a")), Some(&page.order[..]));
    assert_eq!(covered(&page.order, &source_id("b")), None);

    let all = read(&messages, &[], 9);
    assert_eq!((all.items.len(), all.failed.len(), all.more), (2, 3, false));
    assert_eq!(covered(&all.order, &source_id("a")), all.order.get(..3));
    let consumed: HashSet<String> = all.order.iter().cloned().collect();
    let rules = default_rules();
    let mut reader = TaskReader::new(&rules, &consumed, 9);
    assert!(messages.iter().all(|message| reader.message(message)));
    assert_eq!(reader.finish().order, [""; 0], "nor are they told again");
}

#[test]
fn a_page_ends_at_its_limit_and_at_the_cap_of_failed_ones() {
    let messages = [message("m", &[&[("a", 0.9, "ok"), ("b", 0.5, "ok")]])];
    assert!(!read(&messages, &[], 2).more, "at the limit");
    let page = read(&messages, &[], 1);
    assert_eq!((page.items.len(), page.more), (1, true), "over it");

    let mut bad = message("bad", &[&[]]);
    for position in 1..=MAX_FAILED {
        bad = failing(bad, 1, u32::try_from(position).unwrap());
    }
    let good = message("good", &[&[("c", 0.1, "ok")]]);
    let page = read(&[bad.clone(), good.clone()], &[], 9);
    assert_eq!((page.items.len(), page.failed.len(), page.more), (1, MAX_FAILED, false), "at the cap");
    let page = read(&[failing(bad, 1, 5000), good], &[], 9);
    assert_eq!((page.items.len(), page.failed.len(), page.more), (0, MAX_FAILED, true), "over it");
}

#[test]
fn ids_that_are_none() {
    let hash = source_id("a");
    for (id, is) in [
        (hash.as_str(), true),
        (&format!("failed-{hash}"), true),
        (&hash[1..], false),
        (&hash.to_uppercase(), false),
        (&format!("failed-failed-{hash}"), false),
        ("", false),
        ("failed-", false),
        ("'; DROP TABLE record; --........", false),
    ] {
        assert_eq!(is_source_id(id), is, "{id}");
    }
}

#[test]
fn a_cursor_has_the_fields_of_the_protocol() {
    let json = json!({ "task_id": "77", "last_query_id": "q2", "last_source_id": "s", "consumed_count": 3,
                       "updated_at": "2026-01-13T09:18:07.000Z" });
    let cursor: SearchReadCursor = serde_json::from_value(json.clone()).unwrap();
    assert_eq!(cursor.consumed, None);
    assert_eq!(serde_json::to_value(&cursor).unwrap(), json);
}

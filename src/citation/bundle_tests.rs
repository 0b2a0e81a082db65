use serde_json::{Value, json};

use super::*;
use crate::config::default_rules;

/// A record as stored before scores and rounds existed.
fn old_record() -> Value {
    let citation = |number: u32, round: Option<u32>| {
        json!({
            "number": number, "aliases": [], "url": format!("https://{number}.example.com/"), "title": "标题", "content": "摘要",
            "hostname": format!("{number}.example.com"), "type": "websearch", "showFavicon": true, "siteName": null,
            "iconUrl": null, "publishedAt": "2025-07-17T09:18:07Z", "sourceId": format!("{number:032}"), "rank": number,
            "origin": "upstream", "cited": false, "status": "ok", "snippets": [],
            "metadata": round.map_or(json!({}), |round| json!({ "round": round }))
        })
    };
    json!({
        "type": "citations", "version": 1, "messageId": "m", "conversationId": null, "provider": "doubao", "route": "r",
        "source": "default", "model": null, "complete": true, "stored": true, "truncated": false, "nonce": "n",
        "createdAt": "2026-01-13T09:18:07.000Z", "summary": "搜索", "queries": ["甲 对比 乙", "price of 甲"],
        "citations": [citation(1, Some(1)), citation(2, Some(2))],
        "stats": { "totalReturned": 5, "keptAfterFilter": 2, "failedCount": 1, "dedupCount": 2, "citedCount": 0,
                   "danglingMarkers": [] }
    })
}

fn record(json: Value) -> Record {
    serde_json::from_value(json).unwrap()
}

#[test]
fn record_without_scores_and_rounds_has_bundles() {
    let record = record(old_record());
    assert_eq!((record.stats.filtered_count, &record.corroboration, record.rounds.len()), (0, &None, 0));
    let bundles = bundles(&record, &default_rules());
    assert_eq!(bundles.iter().map(|bundle| bundle.query_id.as_str()).collect::<Vec<_>>(), ["q1", "q2"]);
    // Failures and duplicates that no round counts belong to the first.
    let stats = |n: usize| bundles[n].stats;
    assert_eq!((stats(0).total_returned, stats(0).failed_count, stats(0).dedup_count), (4, 1, 2));
    assert_eq!(stats(1).total_returned, 1);
    // Rank 2, 180 days old at the time: 0.6 * 0.6309 + 0.2 * 0.5 + 0.2 * 0.5.
    let item = &bundles[1].results[0];
    assert_eq!((item.score_relevance, item.score_freshness, item.score_final), (0.6309, 0.5, 0.5785));
}

#[test]
fn bundle_has_every_field_of_the_protocol() {
    let mut json = old_record();
    json["conversationId"] = "77".into();
    json["rounds"] = json!([
        { "round": 1, "queries": ["甲 对比 乙", "甲 价格"], "summary": "s", "failedCount": 1, "dedupCount": 2 },
        { "round": 2, "queries": [], "summary": "第二次", "failedCount": 0, "dedupCount": 0 },
        { "round": 3, "queries": [], "summary": null, "failedCount": 0, "dedupCount": 0 },
        { "round": 4, "queries": ["甲 价格"], "summary": "s", "failedCount": 0, "dedupCount": 0 },
        { "round": 5, "queries": ["没有结果"], "summary": null, "failedCount": 0, "dedupCount": 0 }
    ]);
    json["citations"][1]["status"] = "filtered".into();
    let bundles = serde_json::to_value(bundles(&record(json), &default_rules())).unwrap();
    assert_eq!(
        bundles[0],
        json!({
            "task_id": "77", "query_id": "q1", "query_text": "甲 对比 乙; 甲 价格", "query_intent": "comparison",
            "provider": "doubao", "executed_at": "2026-01-13T09:18:07.000Z",
            "results": [{
                "source_id": format!("{:032}", 1), "rank": 1, "url": "https://1.example.com/", "title": "标题", "snippet": "摘要",
                "published_at": "2025-07-17T09:18:07Z", "captured_at": "2026-01-13T09:18:07.000Z",
                "score_relevance": 1.0, "score_freshness": 0.5, "score_authority": 0.5, "score_final": 0.8, "status": "ok"
            }],
            "stats": { "total_returned": 4, "kept_after_filter": 1, "filtered_count": 0, "failed_count": 1, "dedup_count": 2 }
        })
    );
    assert_eq!(bundles[1]["query_text"], "第二次");
    assert_eq!(
        (&bundles[1]["results"][0]["status"], &bundles[1]["stats"]["filtered_count"]),
        (&json!("filtered"), &json!(1))
    );
    // A round without results and new queries has no bundle; a search without results has one.
    assert_eq!((&bundles[2]["query_id"], &bundles[2]["results"]), (&json!("q5"), &json!([])));
    assert_eq!(bundles.as_array().unwrap().len(), 3);
}

#[test]
fn failed_item_needs_an_error_code() {
    let failed = ItemState::Failed { error_code: "timeout".to_owned() };
    let json = serde_json::to_value(&failed).unwrap();
    assert_eq!(json, json!({ "status": "failed", "error_code": "timeout" }));
    let mut item = serde_json::to_value(&bundles(&record(old_record()), &default_rules())[0].results[0]).unwrap();
    assert!(item.get("error_code").is_none());
    item["status"] = "failed".into();
    assert!(serde_json::from_value::<SearchResultItem>(item.clone()).is_err());
    item["error_code"] = "blocked".into();
    let item: SearchResultItem = serde_json::from_value(item).unwrap();
    assert_eq!(item.state, ItemState::Failed { error_code: "blocked".to_owned() });
}

#[test]
fn failures_are_listed_with_code_and_counted_once() {
    let mut json = old_record();
    json["rounds"] = json!([
        { "round": 1, "queries": ["甲"], "summary": null, "failedCount": 0, "dedupCount": 2 },
        { "round": 2, "queries": ["乙"], "summary": null, "failedCount": 3, "dedupCount": 0, "failures": [
            { "position": 6, "id": "card-6", "errorCode": "missing_title_and_url" },
            { "position": 7, "errorCode": "not_an_object" }
        ] }
    ]);
    json["stats"]["failedCount"] = 3.into();
    let record = record(json);
    let bundles = bundles(&record, &default_rules());
    let failed: Vec<&SearchResultItem> = bundles[1].results.iter().skip(1).collect();
    let codes: Vec<_> = failed.iter().map(|item| (item.rank, serde_json::to_value(&item.state).unwrap())).collect();
    assert_eq!(
        codes,
        [
            (6, json!({ "status": "failed", "error_code": "missing_title_and_url" })),
            (7, json!({ "status": "failed", "error_code": "not_an_object" })),
        ]
    );
    assert!(failed.iter().all(|item| item.source_id.starts_with(FAILED_ID) && item.score_final == 0.0));
    assert_ne!(failed[0].source_id, failed[1].source_id);
    // The third failure was over the cap: counted, not listed.
    let stats = bundles[1].stats;
    assert_eq!((stats.failed_count, stats.kept_after_filter, stats.total_returned), (3, 1, 4));
    let kept = serde_json::to_value(&record).unwrap();
    assert!(kept["rounds"][0].get("failures").is_none(), "an empty list is omitted");
}

#[test]
fn task_id_falls_back_to_conversation_then_message() {
    let id_for = |task: Option<&str>, conversation: Option<&str>| {
        let mut json = old_record();
        json["taskId"] = task.into();
        json["conversationId"] = conversation.into();
        let record = record(json);
        let id = task_id(&record).into_owned();
        assert_eq!(bundles(&record, &default_rules())[0].task_id, id);
        id
    };
    assert_eq!(id_for(Some("t-1"), Some("77")), "t-1");
    assert_eq!(id_for(None, Some("77")), "77");
    assert_eq!(id_for(None, None), "m");
    assert_eq!(id_for(None, Some("")), "m", "an empty conversation id is ignored");
    assert_eq!(id_for(None, Some("会话 7")), format!("x-{}", source_id("会话 7")), "the id is used in a path");
}

#[test]
fn record_without_search_has_no_bundle() {
    let mut json = old_record();
    json["citations"] = json!([]);
    let only_failed = bundles(&record(json.clone()), &default_rules());
    assert_eq!((only_failed.len(), only_failed[0].stats.total_returned), (1, 3));
    json["stats"]["failedCount"] = 0.into();
    json["stats"]["dedupCount"] = 0.into();
    assert_eq!(bundles(&record(json), &default_rules()), []);
}

#[test]
fn intent_is_recognized_in_two_languages() {
    let intents = default_rules().intents.clone();
    for (query, intent) in [
        ("iPhone vs 小米 区别", "comparison"),
        ("电动车 市场 份额", "market"),
        ("NVIDIA stock price", "market"),
        ("SSE 协议 原理", "tech"),
        ("OpenAI 发展史 时间线", "timeline"),
        ("字节跳动 创始人 是谁", "people"),
        ("Who founded Mistral", "people"),
        ("龙井 冲泡", "general"),
        ("", "general"),
    ] {
        assert_eq!(intents.of(query), intent, "{query}");
    }
}

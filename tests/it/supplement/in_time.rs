//! Search results that arrive before the finish, or soon after it, are in the event.

use citetap::{citation::record::SupplementStatus, replay::Script, replay::Step};
use http::Method;
use serde_json::json;

use super::{Chat, answer, bytes_of, chat, fails, finds, finish_after, ms, numbers};
use crate::net::{Client, request, tencent};

#[tokio::test]
async fn when_empty_adds_results_if_upstream_has_no_source() {
    let chat = chat(answer(&[], ms(400)), finds(), "supplement = \"when-empty\"\nmax_wait_ms = 5000", "").await;
    let whole = chat.ask().await;
    let (theirs, ours) = whole.split();
    assert_eq!(theirs, bytes_of(&[]), "P1");
    assert_eq!(ours.len(), 1, "P3: an event for a message without sources of its own");
    // The text contains marker 1, but the model meant another source.
    assert_eq!(numbers(&ours[0]), [(2, true), (3, true), (4, true)]);
    assert!(ours[0].citations.iter().all(|citation| !citation.cited) && ours[0].stats.dangling_markers == [1]);
    assert!(ours[0].complete && ours[0].stored && !ours[0].late);
    let text = whole.text();
    assert!(text.find("event: citations") < text.find("event:finish"));
    let stored = chat.stored(|_| true).await;
    assert_eq!((&stored.citations, &stored.stats), (&ours[0].citations, &ours[0].stats), "P5");
    assert_eq!((chat.outcome("joined").await, chat.tavily.request_count()), (1, 1));
    assert_eq!(chat.metric("citetap_searches_total{result=\"ok\"}").await, 1);
    assert_eq!(chat.metric("citetap_citations_extracted_total{provider=\"tencent\"}").await, 0);
}

#[tokio::test]
async fn when_empty_adds_nothing_to_an_answer_with_sources() {
    let chat = chat(answer(&[1, 2], ms(100)), finds(), "supplement = \"when-empty\"", "").await;
    let (theirs, ours) = chat.ask().await.split();
    assert_eq!((theirs, numbers(&ours[0])), (bytes_of(&[1, 2]), vec![(1, false), (2, false)]));
    assert_eq!(ours[0].stats.supplement, None);
    assert_eq!(chat.skipped("not_needed").await, 1);
}

/// Filtered sources cannot be cited, so such an answer counts as empty.
#[tokio::test]
async fn when_empty_counts_citable_sources_only() {
    let deny = "[scores]\ndeny = [\"s1.example.com\", \"s2.example.com\"]\n";
    let chat = chat(answer(&[1, 2], ms(400)), finds(), "supplement = \"when-empty\"\nmax_wait_ms = 5000", deny).await;
    let (_, ours) = chat.ask().await.split();
    assert_eq!(numbers(&ours[0]), [(3, true), (4, true)]);
    assert_eq!(numbers(&chat.stored(|_| true).await), [(1, false), (2, false), (3, true), (4, true)]);
}

#[tokio::test]
async fn always_adds_results_that_upstream_does_not_name() {
    let chat = chat(answer(&[1, 2], ms(400)), finds(), "supplement = \"always\"\nmax_wait_ms = 5000", "").await;
    let (theirs, ours) = chat.ask().await.split();
    assert_eq!(theirs, bytes_of(&[1, 2]));
    assert_eq!(numbers(&ours[0]), [(1, false), (2, false), (3, true), (4, true)]);
    let first = &ours[0].citations[0];
    assert_eq!(
        (first.title.as_deref(), first.cited),
        (Some("资料 1"), true),
        "the upstream's page stays the upstream's"
    );
    assert_eq!((ours[0].stats.dedup_count, ours[0].stats.supplement), (1, Some(SupplementStatus::Joined)));
    let bundles = chat.proxy.get("/citations/m?format=bundle").await.json().await;
    let last = bundles["bundles"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["provider"], &last["query_text"]), (&json!("tavily"), &json!("supplemental search")));
    assert_eq!(last["results"].as_array().unwrap().len(), 2);
}

/// Results that arrive soon after the finish: the finish waits as long as necessary.
#[tokio::test]
async fn finish_waits_for_results_that_arrive_soon() {
    let chat =
        chat(answer(&[1], ms(50)), finds().delay(ms(400)), "supplement = \"always\"\nmax_wait_ms = 5000", "").await;
    let whole = chat.ask().await;
    assert_eq!(numbers(&whole.split().1[0]), [(1, false), (2, true), (3, true)]);
    let waited = finish_after(&whole);
    assert!(waited >= ms(300) && waited < ms(3000), "{waited:?}");
}

/// Results that are already there do not delay the finish.
#[tokio::test]
async fn finish_does_not_wait_if_results_are_there() {
    let chat = chat(answer(&[1], ms(400)), finds(), "supplement = \"always\"\nmax_wait_ms = 10000", "").await;
    let whole = chat.ask().await;
    assert_eq!(whole.split().1[0].citations.len(), 3);
    assert!(finish_after(&whole) < ms(3000));
}

#[tokio::test]
async fn failed_search_changes_only_the_stats() {
    for (status, when, documents) in
        [(401, "always", &[1, 2][..]), (500, "always", &[1, 2]), (401, "when-empty", &[]), (500, "when-empty", &[])]
    {
        let keys = format!("supplement = {when:?}\nmax_wait_ms = 5000");
        let chat = chat(answer(documents, ms(50)), fails(status), &keys, "").await;
        let whole = chat.ask().await;
        let (theirs, ours) = whole.split();
        assert_eq!(theirs, bytes_of(documents));
        assert_eq!(ours.len(), usize::from(!documents.is_empty()), "{status} {when}");
        let stored = chat.stored(|_| true).await;
        assert_eq!(
            (stored.citations.len(), stored.stats.supplement),
            (documents.len(), Some(SupplementStatus::Failed))
        );
        assert!(stored.complete && !stored.late);
        assert!(finish_after(&whole) < ms(3000), "a failure is known at once");
        assert_eq!(chat.outcome("failed").await, 1);
    }
}

#[tokio::test]
async fn search_without_results_adds_nothing() {
    let nothing = Script::json(json!({"query": "q", "results": []}).to_string());
    let chat = chat(answer(&[], ms(300)), nothing, "supplement = \"when-empty\"\nmax_wait_ms = 5000", "").await;
    assert_eq!(chat.ask().await.split().1.len(), 0);
    assert_eq!(chat.stored(|_| true).await.stats.supplement, Some(SupplementStatus::Empty));
    assert_eq!(chat.outcome("empty").await, 1);
}

async fn asked_off(chat: &Chat) -> crate::net::Whole {
    let headers = [("x-citetap-inject", "off"), ("content-type", "application/json")];
    let body = json!({ "query": super::QUESTION }).to_string();
    Client::h1(chat.proxy.addr).await.send(request(Method::POST, "/chat", &headers, body)).await.whole().await
}

/// Without an event the stream does not wait. The record has the results all the same.
#[tokio::test]
async fn record_has_results_without_an_event() {
    let chat =
        chat(answer(&[1], ms(50)), finds().delay(ms(1500)), "supplement = \"always\"\nmax_wait_ms = 5000", "").await;
    let whole = asked_off(&chat).await;
    assert_eq!(whole.bytes(), bytes_of(&[1]));
    assert!(finish_after(&whole) < ms(1200), "{:?}", finish_after(&whole));
    let stored = chat.stored(|record| record.citations.len() == 3).await;
    assert_eq!((stored.late, stored.stats.supplement), (false, Some(SupplementStatus::Joined)));
    assert_eq!(chat.outcome("joined").await, 1);
}

/// P10: a response that is not streamed is not delayed, and its record is that of the stream.
#[tokio::test]
async fn unstreamed_answer_is_not_delayed_and_has_the_record() {
    let json = json!({"code": 0, "message": "ok", "request_id": "m", "data": {"content": "第一句[1]。", "additional_content": {
        "reference_docs": [{"target_id": "t1", "title": "资料 1", "url": "https://s1.example.com/"}]}}});
    let streamed = tencent::text("m", "第一句[1]。")
        + &format!(
            "event:finish\ndata:{}\n\n",
            json!({"completion_id": "m", "content": "第一句[1]。", "is_stop": true,
                   "additional_content": json["data"]["additional_content"]})
        );
    let keys = "supplement = \"always\"\nmax_wait_ms = 5000";
    let chat_whole = chat(Script::json(json.to_string()), finds().delay(ms(1500)), keys, "").await;
    let whole = chat_whole.ask().await;
    assert_eq!(whole.bytes(), json.to_string().into_bytes());
    assert!(whole.pieces[0].0 < ms(1200), "the body does not wait: {:?}", whole.pieces[0].0);
    let of_whole = chat_whole.stored(|record| record.citations.len() == 3).await;

    let steps = [Step::Pause(ms(300)), Step::Send(streamed.into())];
    let chat_stream = chat(Script::sse_steps(steps), finds(), keys, "").await;
    let of_stream = chat_stream.ask().await.split().1.remove(0);
    assert_eq!((of_whole.late, &of_whole.stats), (false, &of_stream.stats));
    let without_dates = |record: &citetap::citation::Record| {
        record
            .citations
            .iter()
            .map(|c| (c.number, c.origin, c.cited, c.url.clone(), c.metadata.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(without_dates(&of_whole), without_dates(&of_stream));
}

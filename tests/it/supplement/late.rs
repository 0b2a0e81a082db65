//! Results that are too late for the event are added to the stored record, and never delay the finish beyond the wait.

use std::time::Duration;

use citetap::{
    citation::{Record, record::SupplementStatus},
    replay::{Script, Step},
    sse::Event,
};
use http::Method;

use super::{FOR_EVER, answer, bytes_of, chat, finds, finish_after, ms, numbers};
use crate::net::{Client, eventually, frames, request, tencent};

/// Allowed delay beyond the wait.
const SLACK: Duration = ms(50);

/// A busy machine slows every measurement, a wrong wait slows all of them, so the best of a few counts.
#[tokio::test]
async fn finish_is_delayed_by_the_wait_at_most() {
    for (when, documents, wait) in
        [("always", &[1][..], 200), ("when-empty", &[], 200), ("always", &[1], 0), ("when-empty", &[1], 5000)]
    {
        let (pause, keys) = (ms(150), format!("supplement = {when:?}\nmax_wait_ms = {wait}"));
        let waits = when == "always" || documents.is_empty();
        let mut best = Duration::MAX;
        for _ in 0..5 {
            let chat = chat(answer(documents, pause), Script::hang(), &keys, "").await;
            let whole = chat.ask().await;
            let (theirs, ours) = whole.split();
            assert_eq!(theirs, bytes_of(documents));
            assert_eq!(ours.len(), usize::from(!documents.is_empty()));
            let took = finish_after(&whole);
            // The clocks of the pause and of the test may differ a little.
            assert!(!waits || took + ms(30) >= pause + ms(wait), "{when} {wait}: {took:?}");
            best = best.min(took);
        }
        let limit = pause + if waits { ms(wait) } else { Duration::ZERO } + SLACK;
        assert!(best <= limit, "{when} {wait}: {best:?} > {limit:?}");
    }
}

#[tokio::test]
async fn late_results_are_added_to_the_stored_record_only() {
    for (when, documents) in [("always", &[1, 2][..]), ("when-empty", &[])] {
        let keys = format!("supplement = {when:?}\nmax_wait_ms = 100");
        let chat = chat(answer(documents, ms(50)), finds().delay(ms(2000)), &keys, "").await;
        let (theirs, ours) = chat.ask().await.split();
        assert_eq!(theirs, bytes_of(documents));
        assert_eq!(ours.len(), usize::from(!documents.is_empty()));
        assert!(ours.iter().all(|event| event.stats.supplement == Some(SupplementStatus::Pending) && event.stored));
        let first = chat.stored(|_| true).await;
        assert_eq!((first.citations.len(), first.late), (documents.len(), false), "the event's record");
        assert_eq!(first.stats.supplement, Some(SupplementStatus::Pending));

        let later = chat.stored(|record| record.late).await;
        assert_eq!(later.citations.len(), if documents.is_empty() { 3 } else { 4 });
        assert_eq!(later.citations[..documents.len()], first.citations[..], "the upstream's own stay as they were");
        assert!(later.stored && later.complete && later.stats.supplement == Some(SupplementStatus::Joined));
        assert_eq!((chat.outcome("late").await, chat.outcome("joined").await), (1, 0));
    }
}

#[tokio::test]
async fn unanswered_search_ends_as_failed() {
    for (when, documents) in [("always", &[1, 2][..]), ("when-empty", &[])] {
        let keys = format!("supplement = {when:?}\nmax_wait_ms = 50");
        let chat = chat(answer(documents, ms(50)), Script::hang(), &keys, "[search]\ntimeout = \"800ms\"").await;
        let (theirs, _) = chat.ask().await.split();
        assert_eq!(theirs, bytes_of(documents));
        let stored = chat.stored(|record| record.stats.supplement == Some(SupplementStatus::Failed)).await;
        assert_eq!((stored.citations.len(), stored.late, stored.complete), (documents.len(), false, true));
        assert_eq!(chat.outcome("failed").await, 1);
        assert_eq!(chat.metric("citetap_searches_total{result=\"timeout\"}").await, 1);
    }
}

/// References at once, so that the message is known before its finish.
#[tokio::test]
async fn watchers_and_waiters_receive_late_results() {
    let keys = "supplement = \"always\"\nmax_wait_ms = 100";
    let chat = chat(answer(&[1, 2], ms(500)), finds().delay(ms(2500)), keys, "").await;
    let asking = chat.ask();
    let looking = async {
        let known = eventually(|| async { (chat.proxy.get("/citations/m").await.status == 202).then_some(()) });
        known.await.expect("in flight");
        let (watched, waited) =
            tokio::join!(chat.proxy.get("/citations/m/events"), chat.proxy.get("/citations/m?wait=15"));
        assert_eq!(waited.status, 200);
        let waited: Record = serde_json::from_value(waited.json().await).unwrap();
        (watched.whole().await, waited)
    };
    // After the finish and before the search's response, it is stored and no longer in flight.
    let between = async {
        chat.stored(|_| true).await;
        let response = chat.proxy.get("/citations/m").await;
        assert_eq!(response.status, 200);
        assert_eq!(response.json().await["stats"]["supplement"], "pending");
    };
    let (whole, (watched, waited), ()) = tokio::join!(asking, looking, between);
    assert_eq!((waited.late, waited.citations.len()), (true, 4));
    assert_eq!(watched.error, None);
    let seen: Vec<Record> = frames(&watched.bytes())
        .iter()
        .filter_map(|frame| Event::read(frame).data.map(|data| serde_json::from_str(&data).unwrap()))
        .collect();
    let event = whole.split().1.remove(0);
    assert!(seen.contains(&event), "watchers did not see the event's record");
    assert_eq!(seen.last(), Some(&waited));
}

#[tokio::test]
async fn deleted_record_is_not_restored_by_late_results() {
    let keys = "supplement = \"always\"\nmax_wait_ms = 50";
    let chat = chat(answer(&[1, 2], ms(300)), finds().delay(ms(2500)), keys, "").await;
    chat.ask().await;
    let gone = Client::h1(chat.proxy.addr).await.send(request(Method::DELETE, "/citations/m", &[], "")).await;
    assert_eq!(gone.status, 204);
    chat.proxy.get("/citations/m").await.is_problem(404, "unknown-message").await;
    eventually(|| async { (chat.outcome("late").await == 1).then_some(()) }).await.expect("the search answered");
    tokio::time::sleep(ms(200)).await;
    chat.proxy.get("/citations/m").await.is_problem(404, "unknown-message").await;
}

/// The upstream names a source after its finish: neither late update undoes the other.
#[tokio::test]
async fn late_results_and_late_references_are_merged() {
    for (search, upstream) in [(300, 800), (800, 300)] {
        let script = Script::sse_steps([
            Step::Send((tencent::references("m", &[1]) + &tencent::finish("m")).into()),
            Step::Pause(ms(upstream)),
            Step::Send(tencent::references("m", &[1, 2]).into()),
        ]);
        let keys = "supplement = \"always\"\nmax_wait_ms = 20";
        let chat = chat(script, finds().delay(ms(search)), keys, "").await;
        assert_eq!(numbers(&chat.ask().await.split().1[0]), [(1, false)]);
        let both = chat.stored(|record| record.citations.len() == 4).await;
        assert_eq!(numbers(&both), [(1, false), (2, false), (3, true), (4, true)], "{search} {upstream}");
        assert!(both.late);
        assert_eq!(chat.outcome("late").await, 1);
    }
}

/// A shutdown does not wait for a search.
#[tokio::test]
async fn drain_ends_the_wait() {
    let timeouts = "[timeouts]\ncommit = \"10s\"\ndrain = \"0s\"\n";
    let keys = "supplement = \"always\"\nmax_wait_ms = 10000";
    let mut chat = chat(answer(&[1], ms(100)), Script::hang(), keys, timeouts).await;
    let began = std::time::Instant::now();
    let asking = async {
        let body = serde_json::json!({ "query": super::QUESTION }).to_string();
        Client::h1(chat.proxy.addr).await.send(crate::net::post("/chat", body)).await.whole().await
    };
    let stopping = async {
        tokio::time::sleep(ms(500)).await;
        chat.proxy.signals.drain.cancel();
    };
    let (whole, ()) = tokio::join!(asking, stopping);
    assert!(began.elapsed() < ms(5000), "{:?}", began.elapsed());
    assert_eq!(whole.split().1.len(), 1, "the event has no results");
    chat.proxy.ended().await;
}

/// A cut is relayed at once, with the sources so far.
#[tokio::test]
async fn abort_does_not_wait() {
    let script = Script::sse_steps([
        Step::Send((tencent::references("m", &[1]) + &tencent::text("m", "一")).into()),
        Step::Pause(ms(100)),
        Step::Abort,
    ]);
    let chat = chat(script, Script::hang(), "supplement = \"always\"\nmax_wait_ms = 10000", "").await;
    let began = std::time::Instant::now();
    let whole = chat.ask().await;
    assert!(whole.error.is_some() && began.elapsed() < ms(5000));
    let record = chat.stored(|_| true).await;
    assert_eq!((record.complete, record.stats.supplement), (false, None));
    assert_eq!(chat.skipped("not_finished").await, 1);
    assert!(chat.tavily.until(ms(5000), |tavily| tavily.cancelled() == 1).await, "the search is cancelled");
}

/// An error frame ends the message: there is no answer to supplement, even if the stream continues.
#[tokio::test]
async fn failed_answer_does_not_wait() {
    let failed = tencent::references("m", &[1]) + "data:{\"code\":500,\"message\":\"x\"}\n\n";
    let script = Script::sse_steps([Step::Send(failed.into()), Step::Pause(FOR_EVER)]);
    let chat = chat(script, Script::hang(), "supplement = \"always\"\nmax_wait_ms = 10000", "").await;
    let began = std::time::Instant::now();
    let body = serde_json::json!({ "query": super::QUESTION }).to_string();
    let mut response = chat.proxy.post("/chat", body).await;
    response.until("\"code\":500").await;
    assert!(began.elapsed() < ms(5000));
    assert_eq!(chat.stored(|_| true).await.stats.supplement, None);
}

//! A client that disconnects cancels the search, unless the answer was finished: then its results go into the record.

use citetap::{
    citation::record::SupplementStatus,
    replay::{Outcome, Script},
};
use serde_json::json;

use super::{Chat, FOR_EVER, QUESTION, answer, chat, finds, ms};
use crate::net::ClientResponse;

async fn open(chat: &Chat) -> ClientResponse {
    let mut response = chat.proxy.post("/chat", json!({ "query": QUESTION }).to_string()).await;
    response.until("delta_content").await;
    assert!(chat.tavily.until(ms(5000), |tavily| tavily.request_count() == 1).await, "the search is under way");
    response
}

#[tokio::test]
async fn disconnect_before_the_finish_cancels_the_search() {
    let chat = chat(answer(&[1], FOR_EVER), Script::hang(), "supplement = \"always\"", "").await;
    drop(open(&chat).await);
    assert!(chat.tavily.until(ms(5000), |tavily| tavily.cancelled() == 1).await);
    assert_eq!(chat.tavily.requests()[0].outcome, Outcome::Cancelled);
    let record = chat.stored(|_| true).await;
    assert_eq!((record.complete, record.citations.len(), record.stats.supplement), (false, 1, None));
    assert_eq!(chat.skipped("not_finished").await, 1);
}

#[tokio::test]
async fn disconnect_after_the_finish_still_adds_results() {
    let keys = "supplement = \"always\"\nmax_wait_ms = 10000";
    let chat = chat(answer(&[1], ms(100)), finds().delay(ms(1200)), keys, "").await;
    let response = open(&chat).await;
    tokio::time::sleep(ms(600)).await;
    drop(response);
    let record = chat.stored(|record| record.stats.supplement == Some(SupplementStatus::Joined)).await;
    assert_eq!((record.complete, record.citations.len()), (true, 3));
    assert_eq!(chat.tavily.cancelled(), 0);
}

/// A response that is not tapped has no record to supplement.
#[tokio::test]
async fn untapped_response_cancels_the_search() {
    let refused = Script::json("{}").status(http::StatusCode::FORBIDDEN).delay(ms(200));
    let chat = chat(refused, Script::hang(), "supplement = \"always\"", "").await;
    assert_eq!(chat.ask().await.status, 403);
    assert!(chat.tavily.until(ms(5000), |tavily| tavily.cancelled() == 1).await);
    assert_eq!(chat.outcome("skipped").await, 0, "nor is it counted as a message");
}

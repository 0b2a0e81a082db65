//! The request is relayed as it arrives, and its query is extracted.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use citetap::{citation::record::SupplementStatus, replay::Script};
use futures_util::StreamExt;
use http::Request;
use http_body_util::StreamBody;
use hyper::body::Frame;
use serde_json::{Value, json};

use super::{QUESTION, answer, bytes_of, chat, finds, ms, numbers};
use crate::net::{Client, Whole, post};

const MIB: usize = 1024 * 1024;

/// The request that the service received, once it has arrived.
async fn search_request(chat: &super::Chat) -> Value {
    assert!(chat.tavily.until(ms(5000), |tavily| tavily.requests().iter().any(|seen| seen.body_len > 0)).await);
    serde_json::from_slice(&chat.tavily.requests()[0].body).unwrap()
}

#[tokio::test]
async fn query_of_each_request_shape_is_searched() {
    let web = json!({"messages": [{"local_message_id": "l", "content_block": [{"block_type": 10000, "content":
        {"text_block": {"text": QUESTION}, "pc_event_block": ""}, "block_id": "b"}]}]});
    let samantha = json!({"messages": [{"content": json!({ "text": QUESTION }).to_string(), "content_type": 2001}]});
    for (shape, keys, body) in [
        (
            "openai",
            "",
            json!({"messages": [{"role": "user", "content": "早先"}, {"role": "user", "content": QUESTION}]}),
        ),
        ("parts", "", json!({"messages": [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}]})),
        ("doubao web", "", web),
        ("samantha", "", samantha),
        ("lexiang", "", json!({"query": QUESTION, "stream": true})),
        ("prompt", "", json!({ "prompt": QUESTION })),
        ("pointer", "supplement_query = \"/turns/-/say\"", json!({"query": "no", "turns": [{"say": QUESTION}]})),
    ] {
        let chat =
            chat(answer(&[], ms(300)), finds(), &format!("supplement = \"always\"\nmax_wait_ms = 5000\n{keys}"), "")
                .await;
        let body = body.to_string();
        let whole = chat.proxy.post("/chat", body.clone()).await.whole().await;
        assert_eq!(chat.upstream.requests()[0].body, body.as_bytes(), "{shape}");
        assert_eq!(search_request(&chat).await["query"], QUESTION, "{shape}");
        assert_eq!(whole.split().1[0].citations.len(), 3, "{shape}");
    }
}

#[tokio::test]
async fn request_without_a_query_is_not_searched() {
    for body in ["{}", "", "not json", r#"{"messages":[{"role":"assistant","content":"x"}]}"#] {
        let chat = chat(answer(&[1], ms(100)), finds(), "supplement = \"always\"\nmax_wait_ms = 10000", "").await;
        let whole = chat.proxy.post("/chat", body).await.whole().await;
        assert_eq!(whole.split().1[0].stats.supplement, None, "{body}");
        assert!(super::finish_after(&whole) < ms(5000), "no search to wait for");
        assert_eq!(chat.tavily.request_count(), 0, "{body}");
        let reason = if body.is_empty() { "no_body" } else { "no_query" };
        assert_eq!(chat.skipped(reason).await, 1, "{body}");
    }
}

/// A body of this size that asks [`QUESTION`].
fn body_of(len: usize) -> String {
    let body = json!({ "query": QUESTION, "pad": "" }).to_string();
    let pad = "x".repeat(len - body.len());
    json!({ "query": QUESTION, "pad": pad }).to_string()
}

#[tokio::test]
async fn body_over_the_cap_is_relayed_but_not_searched() {
    for (len, searched) in [(MIB, true), (MIB + 1, false), (3 * MIB, false)] {
        let chat = chat(answer(&[1], ms(600)), finds(), "supplement = \"always\"\nmax_wait_ms = 5000", "").await;
        let body = body_of(len);
        assert_eq!(body.len(), len);
        let (theirs, ours) = chat.proxy.post("/chat", body.clone()).await.whole().await.split();
        assert_eq!(theirs, bytes_of(&[1]));
        let seen = chat.upstream.requests().remove(0);
        assert_eq!(seen.body_len, len as u64);
        assert!(seen.body == body.as_bytes()[..len.min(MIB)], "unchanged");
        assert_eq!(chat.tavily.request_count(), usize::from(searched), "{len}");
        assert_eq!(ours[0].stats.supplement, searched.then_some(SupplementStatus::Joined));
        if !searched {
            assert_eq!(chat.skipped("too_large").await, 1);
        }
    }
}

/// In pieces of unknown length, over h1 and h2. The search starts when the body is complete.
#[tokio::test]
async fn body_in_pieces_is_relayed_as_it_arrives() {
    for h2 in [false, true] {
        let chat = chat(answer(&[], ms(400)), finds(), "supplement = \"always\"\nmax_wait_ms = 5000", "").await;
        let body = json!({ "query": QUESTION }).to_string().into_bytes();
        let pieces: Vec<Bytes> = body.chunks(7).map(Bytes::copy_from_slice).collect();
        let stream = futures_util::stream::iter(pieces).then(|piece| async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Ok::<_, Infallible>(Frame::data(piece))
        });
        let request = Request::post("/chat").body(StreamBody::new(stream)).unwrap();
        let mut client = if h2 { Client::h2(chat.proxy.addr).await } else { Client::h1(chat.proxy.addr).await };
        let whole = client.send(request).await.whole().await;
        assert_eq!(chat.upstream.requests()[0].body, body);
        assert_eq!(search_request(&chat).await["query"], QUESTION);
        assert_eq!(numbers(&whole.split().1[0]).len(), 3, "h2: {h2}");
    }
}

/// A search without a response delays neither the request nor the start of the response.
#[tokio::test]
async fn search_delays_nothing_before_the_finish() {
    let chat = chat(answer(&[1], ms(10)), Script::hang(), "supplement = \"always\"\nmax_wait_ms = 2000", "").await;
    let whole = chat.ask().await;
    assert!(whole.pieces[0].0 < ms(1500), "{:?}", whole.pieces[0].0);
    assert!(super::finish_after(&whole) >= ms(1900));
}

#[tokio::test]
async fn event_type_domains_of_the_route_are_enforced() {
    let types = "[search.event_types]\nhack = [\"coin.example\"]\n[search]";
    let keys = "supplement = \"always\"\nmax_wait_ms = 5000\nsupplement_event_type = \"hack\"";
    let chat = chat(answer(&[1], ms(400)), finds(), keys, types).await;
    let whole: Whole = chat.ask().await;
    let record = whole.split().1.remove(0);
    assert_eq!(record.citations.len(), 2);
    assert_eq!(record.citations[1].hostname.as_deref(), Some("coin.example"));
    assert_eq!(search_request(&chat).await["include_domains"], json!(["coin.example"]));
    assert_eq!(chat.metric("citetap_search_results_dropped_total").await, 2);
}

/// Requests beyond the cap on concurrent searches are relayed without a search.
#[tokio::test]
async fn concurrent_searches_are_capped() {
    let chat = chat(answer(&[1], ms(300)), Script::hang(), "supplement = \"always\"\nmax_wait_ms = 1500", "").await;
    let body = || post("/chat", json!({ "query": QUESTION }).to_string());
    let asks = (0..70).map(|_| async { Client::h1(chat.proxy.addr).await.send(body()).await.whole().await });
    let responses = futures_util::future::join_all(asks).await;
    assert!(responses.iter().all(|whole| whole.split().0 == bytes_of(&[1])));
    assert_eq!(chat.tavily.request_count(), 64);
    assert_eq!(chat.metric("citetap_supplements_skipped_total{reason=\"busy\"}").await, 6);
}

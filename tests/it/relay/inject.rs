//! `inject` of a route and of a request.

use citetap::replay::{Script, Step};
use http::Method;

use crate::net::{Client, Proxy, Whole, chat, chat_with, post, request, tencent};

fn growing() -> Script {
    let pieces = [
        tencent::references("m", &[1]),
        tencent::text("m", "一"),
        tencent::references("m", &[1, 2]),
        tencent::text("m", "二"),
        tencent::finish("m"),
    ];
    Script::sse_steps(pieces.map(|piece| Step::Send(piece.into())))
}

fn input() -> String {
    tencent::references("m", &[1])
        + &tencent::text("m", "一")
        + &tencent::references("m", &[1, 2])
        + &tencent::text("m", "二")
        + &tencent::finish("m")
}

async fn ask(proxy: &Proxy, inject: &str) -> Whole {
    let headers = [("x-citetap-inject", inject)];
    Client::h1(proxy.addr).await.send(request(Method::POST, "/chat", &headers, "{}")).await.whole().await
}

#[tokio::test]
async fn request_header_selects_off_live_or_final() {
    let (upstream, proxy) = chat(growing(), "").await;
    let off = ask(&proxy, "off").await;
    assert_eq!(off.text(), input());
    assert_eq!(proxy.stored("m").await.citations.len(), 2, "tapped and stored without an event");

    let (theirs, ours) = ask(&proxy, "live").await.split();
    assert_eq!(theirs, input().into_bytes());
    let lists: Vec<_> = ours.iter().map(|record| (record.citations.len(), record.complete, record.stored)).collect();
    assert_eq!(lists, [(1, false, false), (2, false, false), (2, true, true)]);

    let (theirs, ours) = ask(&proxy, " final ").await.split();
    assert_eq!(theirs, input().into_bytes());
    assert_eq!(ours.len(), 1);
    assert!(upstream.requests().iter().all(|seen| !seen.headers.contains_key("x-citetap-inject")));
}

#[tokio::test]
async fn unknown_inject_value_is_refused_before_the_upstream() {
    let (upstream, proxy) = chat(growing(), "").await;
    for wish in ["on", "FINAL", "", "final,off"] {
        let headers = [("x-citetap-inject", wish)];
        let response = Client::h1(proxy.addr).await.send(request(Method::POST, "/chat", &headers, "{}")).await;
        let problem = response.is_problem(400, "bad-request").await;
        assert!(problem["detail"].as_str().unwrap().contains("final, live or off"));
    }
    assert_eq!(upstream.request_count(), 0);
}

#[tokio::test]
async fn request_header_overrides_the_routes_inject() {
    let (_upstream, proxy) = chat_with(growing(), "", "inject = \"off\"").await;
    assert_eq!(proxy.post("/chat", "{}").await.whole().await.text(), input());
    assert_eq!(ask(&proxy, "final").await.split().1.len(), 1);

    let (_upstream, proxy) = chat_with(growing(), "", "inject = \"live\"").await;
    assert_eq!(Client::h2(proxy.addr).await.send(post("/chat", "{}")).await.whole().await.split().1.len(), 3);
    assert_eq!(ask(&proxy, "off").await.text(), input());
}

#[tokio::test]
async fn answer_without_sources_has_an_event_if_emit_empty() {
    let bare = || Script::sse(tencent::text("m", "无") + &tencent::finish("m"));
    let (_upstream, proxy) = chat(bare(), "").await;
    assert_eq!(proxy.post("/chat", "{}").await.whole().await.split().1.len(), 0);
    let (_upstream, proxy) = chat_with(bare(), "", "emit_empty = true").await;
    let (_, ours) = proxy.post("/chat", "{}").await.whole().await.split();
    assert_eq!(ours.len(), 1);
    assert!(ours[0].citations.is_empty() && ours[0].complete);
}

/// No event, no record and no nonce, even if the request selects an injection.
#[tokio::test]
async fn tap_off_relays_without_parsing() {
    let (_upstream, proxy) = chat_with(growing(), "", "tap = \"off\"").await;
    for inject in ["final", "live"] {
        let whole = ask(&proxy, inject).await;
        assert_eq!(whole.text(), input());
        assert!(!whole.headers.contains_key("x-citetap-nonce"));
    }
    assert_eq!(proxy.get("/citations/m").await.status, 404);
    let metrics = proxy.get("/metrics").await.whole().await.text();
    assert!(metrics.contains("citetap_tap_skipped_total{reason=\"off\"} 2"), "{metrics}");
}

//! Responses that are not streamed: relayed with their length, and recorded.

use citetap::replay::Script;

use crate::net::{Client, chat, post};

#[tokio::test]
async fn unstreamed_answer_is_recorded_as_complete() {
    let json = std::fs::read(crate::support::fixtures().join("tencent/whole.json")).unwrap();
    let id = "c3f7bdf537c46724392c4428e47e04c1";
    for h2 in [false, true] {
        let (_upstream, proxy) = chat(Script::json(json.clone()), "").await;
        let mut client = if h2 { Client::h2(proxy.addr).await } else { Client::h1(proxy.addr).await };
        let whole = client.send(post("/chat", "{}")).await.whole().await;
        assert_eq!(whole.bytes(), json);
        assert_eq!(whole.header("content-length"), Some(json.len().to_string().as_str()));
        let record = proxy.stored(id).await;
        assert!(record.complete && record.citations.len() == 2, "h2: {h2}");
        let metrics = proxy.get("/metrics").await.whole().await.text();
        assert!(metrics.contains("outcome=\"complete\"") && !metrics.contains("client_gone"), "h2: {h2}");
    }
}

//! Responses of the facade that are cut, and clients that disconnect.

use std::time::{Duration, Instant};

use citetap::replay::{Script, Step};

use super::{LEXIANG, asking, chat, chunks, facade, failed};
use crate::net::{Client, LIMIT, Proxy, eventually, post, tencent};

fn begun(then: impl IntoIterator<Item = Step>) -> Script {
    let first = tencent::references("m", &[1, 2]) + &tencent::text("m", "一");
    let mut steps = vec![Step::Send(first.into()), Step::Pause(Duration::from_millis(50))];
    steps.extend(then);
    Script::sse_steps(steps)
}

async fn kept(proxy: &Proxy) {
    let record = proxy.stored("m").await;
    assert!(!record.complete);
    assert_eq!(record.citations.len(), 2);
}

async fn outcome(proxy: &Proxy, outcome: &str) {
    let label = format!("outcome=\"{outcome}\"");
    let found = eventually(|| async {
        let metrics = proxy.get("/metrics").await.whole().await.text();
        let free = metrics.lines().any(|line| line.starts_with("citetap_streams_in_flight") && line.ends_with(" 0"));
        (metrics.contains(&label) && free).then_some(metrics)
    });
    assert!(found.await.is_some(), "{outcome}");
}

#[tokio::test]
async fn cut_upstream_is_502_or_aborts_the_stream() {
    let (_upstream, proxy) = facade(vec![(LEXIANG, begun([Step::Abort]))], "").await;
    let response = chat(&proxy, asking("lexiang", false)).await;
    assert!(response.header("x-citetap-request").is_some());
    let error = failed(response, 502, "upstream_ended").await;
    assert_eq!(error["type"], "upstream_error");
    kept(&proxy).await;
    outcome(&proxy, "upstream_cut").await;
    for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
        let whole = client.send(post("/v1/chat/completions", asking("lexiang", true))).await.whole().await;
        assert!(whole.error.is_some() && !whole.text().contains("[DONE]"), "{}", whole.text());
        assert!(whole.text().contains("\"complete\":false"), "the event has the citations so far");
    }
}

#[tokio::test]
async fn cut_document_of_an_openai_upstream_is_502() {
    let cut = Script::json(&br#"{"id":"c-1","choices":[{"message":{"content":"x"}}]}"#[..]).cut_after(20);
    let (_upstream, proxy) = facade(vec![("/v1", cut)], "").await;
    failed(chat(&proxy, asking("plain", false)).await, 502, "upstream_ended").await;
    outcome(&proxy, "upstream_cut").await;
}

#[tokio::test]
async fn end_without_finish_is_502_or_an_error_in_the_stream() {
    let (_upstream, proxy) = facade(vec![(LEXIANG, begun([]))], "").await;
    let response = chat(&proxy, asking("lexiang", false)).await;
    assert_eq!(response.status, 502);
    assert!(response.json().await["error"]["message"].as_str().unwrap().contains("before it had finished"));
    let whole = chat(&proxy, asking("lexiang", true)).await.whole().await;
    assert!(chunks(&whole).iter().any(|chunk| chunk["error"]["type"] == "upstream_error"), "{}", whole.text());
    kept(&proxy).await;
}

#[tokio::test]
async fn error_frame_in_a_collected_stream_is_502() {
    let error = "data:{\"code\":7,\"message\":\"out of quota\"}\n\n";
    let (_upstream, proxy) = facade(vec![(LEXIANG, begun([Step::Send(error.into())]))], "").await;
    let error = failed(chat(&proxy, asking("lexiang", false)).await, 502, "7").await;
    assert_eq!(error["message"], "out of quota");
    kept(&proxy).await;
    outcome(&proxy, "complete").await;
}

#[tokio::test]
async fn silent_upstream_is_504_for_a_document() {
    for (timeouts, what) in [("upstream_idle = \"300ms\"", "upstream_idle"), ("total = \"400ms\"", "total_timeout")] {
        let script = begun([Step::Pause(Duration::from_secs(60))]);
        let (upstream, proxy) =
            facade(vec![(LEXIANG, script)], &format!("[timeouts]\ncommit = \"10s\"\n{timeouts}\n")).await;
        failed(chat(&proxy, asking("lexiang", false)).await, 504, "upstream_ended").await;
        assert!(upstream.until(LIMIT, |upstream| upstream.cancelled() == 1).await);
        kept(&proxy).await;
        outcome(&proxy, what).await;
    }
}

#[tokio::test]
async fn client_disconnect_cancels_upstream_and_stores_record() {
    for (h2, stream) in [(false, false), (true, false), (false, true), (true, true)] {
        let script = begun([Step::Pause(Duration::from_secs(60))]);
        let (upstream, proxy) = facade(vec![(LEXIANG, script)], "").await;
        let mut client = if h2 { Client::h2(proxy.addr).await } else { Client::h1(proxy.addr).await };
        let body = asking("lexiang", stream);
        let asking = tokio::spawn(async move {
            let mut response = client.send(post("/v1/chat/completions", body)).await;
            while let Some(Ok(_)) = response.piece().await {}
        });
        let sent =
            |upstream: &citetap::replay::Upstream| upstream.requests().first().is_some_and(|seen| seen.bytes_out > 0);
        assert!(upstream.until(LIMIT, sent).await);
        // Wait until the bytes have arrived.
        tokio::time::sleep(Duration::from_millis(200)).await;
        asking.abort();
        let left = Instant::now();
        assert!(upstream.until(LIMIT, |upstream| upstream.cancelled() == 1).await);
        assert!(left.elapsed() < Duration::from_secs(2), "{:?}", left.elapsed());
        kept(&proxy).await;
        outcome(&proxy, "client_gone").await;
    }
}

#[tokio::test]
async fn drain_lets_documents_and_streams_finish() {
    let script = begun([Step::Pause(Duration::from_millis(500)), Step::Send(tencent::finish("m").into())]);
    let (upstream, mut proxy) =
        facade(vec![(LEXIANG, script)], "[timeouts]\ncommit = \"10s\"\ndrain = \"15s\"\n").await;
    let mut client = Client::h1(proxy.addr).await;
    let request =
        tokio::spawn(
            async move { client.send(post("/v1/chat/completions", asking("lexiang", false))).await.json().await },
        );
    let streamed = chat(&proxy, asking("lexiang", true)).await;
    assert!(upstream.until(LIMIT, |upstream| upstream.request_count() == 2).await);
    proxy.signals.drain.cancel();
    assert_eq!(request.await.unwrap()["citetap"]["complete"], true);
    chunks(&streamed.whole().await);
    proxy.ended().await;
}

#[tokio::test]
async fn after_the_grace_document_is_503_and_stream_aborts() {
    let script = begun([Step::Pause(Duration::from_secs(60))]);
    let (upstream, mut proxy) =
        facade(vec![(LEXIANG, script)], "[timeouts]\ncommit = \"10s\"\ndrain = \"300ms\"\n").await;
    let mut client = Client::h1(proxy.addr).await;
    let request = tokio::spawn(async move {
        let response = client.send(post("/v1/chat/completions", asking("lexiang", false))).await;
        failed(response, 503, "draining").await
    });
    let streamed = chat(&proxy, asking("lexiang", true)).await;
    assert!(upstream.until(LIMIT, |upstream| upstream.request_count() == 2).await);
    proxy.signals.drain.cancel();
    request.await.unwrap();
    assert!(streamed.whole().await.error.is_some());
    proxy.ended().await;
}

/// A client that does not read a stream stalls its upstream. A client that waits for a document has nothing to read.
#[tokio::test]
async fn slow_document_is_not_a_stalled_client() {
    let script = begun([Step::Pause(Duration::from_millis(900)), Step::Send(tencent::finish("m").into())]);
    let (_upstream, proxy) =
        facade(vec![(LEXIANG, script)], "[timeouts]\ncommit = \"10s\"\nclient_stall = \"300ms\"\n").await;
    let document = chat(&proxy, asking("lexiang", false)).await.json().await;
    assert_eq!(document["choices"][0]["message"]["content"], "一");
}

//! `GET /console/status`: current state and recent faults.

use citetap::replay::{Script, Scripted, Step, Upstream};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{
    api::tenants,
    net::{Client, Proxy, eventually, post, request, route, tencent},
    process::dead_port,
};

async fn status(proxy: &Proxy, headers: &[(&str, &str)]) -> Value {
    let response = Client::h1(proxy.addr).await.send(request(Method::GET, "/console/status", headers, "")).await;
    assert_eq!((response.status.as_u16(), response.header("cache-control")), (200, Some("no-store")));
    response.json().await
}

/// Waits for this number of faults. The end of a stream is recorded after it.
async fn faults(proxy: &Proxy, count: usize) -> Vec<Value> {
    let all = eventually(|| async {
        let faults = status(proxy, &[]).await["faults"].as_array().unwrap().clone();
        (faults.len() >= count).then_some(faults)
    });
    let all = all.await.expect("so many faults");
    assert_eq!(all.len(), count, "{all:?}");
    all
}

#[tokio::test]
async fn status_reports_the_current_state() {
    let upstream = Upstream::bind(vec![Scripted::new("/", Script::sse(tencent::answer("m-1")))]).await.unwrap();
    let proxy = Proxy::start(&route("chat", &upstream.url())).await;
    let before = status(&proxy, &[]).await;
    assert_eq!(
        before["store"],
        json!({"kind": "memory", "healthy": true, "queued": 0, "retrying": 0, "lastCommitMs": null})
    );
    proxy.post("/chat/x", "{}").await.whole().await;
    // A client may see the end before the stream is counted as closed.
    let status_now =
        eventually(|| async { Some(status(&proxy, &[]).await).filter(|status_now| status_now["streams"] == 0) });
    let status_now = status_now.await.expect("no stream is open");
    assert!(status_now["store"]["lastCommitMs"].as_f64().is_some(), "{status_now}");
    assert_eq!(
        (&status_now["version"], &status_now["draining"], &status_now["search"]),
        (&citetap::VERSION.into(), &false.into(), &false.into())
    );
    assert_eq!(status_now["faults"], json!([]), "a complete stream is no fault");
    let [started, now] =
        ["startedAt", "now"].map(|key| status_now[key].as_str().unwrap().parse::<jiff::Timestamp>().unwrap());
    assert!(started <= now && status_now["commit"].is_string());
    proxy.post("/console/status", "{}").await.is_problem(405, "method-not-allowed").await;
}

#[tokio::test]
async fn faults_are_listed_newest_first() {
    let half = tencent::references("m-1", &[1]) + &tencent::text("m-1", "第一句");
    let stream = "data:{\"completion_id\":\"m-2\",\"delta_content\":\"x\"}\n\ndata:{ no json\n\n".to_owned()
        + &tencent::finish("m-2");
    let upstream = Upstream::bind(vec![
        Scripted::new("/cut", Script::sse_steps([Step::Send(half.clone().into()), Step::Abort])),
        Scripted::new("/down", Script::json("{\"secret\":1}").status(StatusCode::SERVICE_UNAVAILABLE)),
        Scripted::new("/client", Script::json("{}").status(StatusCode::NOT_FOUND)),
        Scripted::new("/odd", Script::sse(stream)),
        Scripted::new("/hang", Script::hang()),
    ])
    .await
    .unwrap();
    let toml = "[timeouts]\nfirst_byte = \"50ms\"\n".to_owned()
        + &route("chat", &upstream.url())
        + "provider = \"tencent\"\n"
        + &route("gone", &format!("http://127.0.0.1:{}", dead_port()));
    let proxy = Proxy::start(&toml).await;
    let cut = proxy.post("/chat/cut?secret=1", "{\"secret\":1}").await;
    let request = cut.header("x-citetap-request").unwrap().to_owned();
    cut.whole().await;
    let found = faults(&proxy, 1).await.remove(0);
    assert_eq!(
        (&found["route"], &found["provider"], &found["what"], &found["status"], &found["requestId"]),
        (&json!("chat"), &json!("tencent"), &json!("upstream_cut"), &json!(200), &json!(request))
    );
    assert!(found["at"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{found}");

    for (path, count) in [("/chat/down", 2), ("/chat/client", 2), ("/chat/odd", 3), ("/chat/hang", 4), ("/gone/x", 5)] {
        proxy.post(path, "{}").await.whole().await;
        faults(&proxy, count).await;
    }
    let all = faults(&proxy, 5).await;
    let listed: Vec<(&str, u64)> =
        all.iter().map(|one| (one["what"].as_str().unwrap(), one["status"].as_u64().unwrap())).collect();
    assert_eq!(
        listed,
        [
            ("upstream-unreachable", 502),
            ("upstream-timeout", 504),
            ("frames_unread", 200),
            ("upstream_status", 503),
            ("upstream_cut", 200)
        ]
    );
    assert_eq!((&all[0]["route"], &all[0]["provider"]), (&json!("gone"), &json!("auto")));
    assert!(!format!("{all:?}").contains("secret"));
}

#[tokio::test]
async fn own_failures_are_listed() {
    let upstream = Upstream::bind(vec![
        Scripted::new("/hang", Script::hang()),
        Scripted::new("/html", Script::new([Step::Send("<p>".into())])),
    ])
    .await
    .unwrap();
    let toml = format!(
        "[limits]\nstreams = 1\n{}[routes.openai]\nmodels = [\"m\"]\nrequest = \"template\"\n\
                        path = \"/html\"\ntemplate = '{{\"q\":\"{{{{query}}}}\"}}'\n",
        route("chat", &upstream.url())
    );
    let proxy = Proxy::start(&toml).await;
    let request = r#"{"model":"m","messages":[{"role":"user","content":"secret"}]}"#;
    assert_eq!(proxy.post("/v1/chat/completions", request).await.status, 502);
    assert_eq!(faults(&proxy, 1).await[0]["what"], "upstream-answer");

    let addr = proxy.addr;
    let open = tokio::spawn(async move { Client::h1(addr).await.try_send(post("/chat/hang", "{}")).await.map(drop) });
    eventually(|| async { (status(&proxy, &[]).await["streams"] == 1).then_some(()) }).await.unwrap();
    assert_eq!(proxy.post("/chat/hang", "{}").await.status, 503);
    assert_eq!(proxy.post("/v1/chat/completions", request).await.status, 503);
    let all = faults(&proxy, 3).await;
    assert_eq!((&all[0]["what"], &all[0]["route"]), (&json!("overloaded"), &Value::Null), "before its route was known");
    assert_eq!((&all[1]["what"], &all[1]["route"]), (&json!("overloaded"), &json!("chat")));
    open.abort();
}

#[tokio::test]
async fn tenant_sees_only_its_own_faults() {
    let (_upstream, proxy) = tenants::two().await;
    for _ in 0..51 {
        drop(tenants::chat(&proxy, "/chat/open", tenants::ALPHA).await);
    }
    let shown = eventually(|| async {
        let faults = status(&proxy, tenants::ALPHA).await["faults"].as_array().unwrap().clone();
        (faults.len() == 50).then_some(faults)
    });
    let shown = shown.await.expect("fifty, and no more");
    assert!(shown.iter().all(|one| one["what"] == "client_gone"), "{shown:?}");
    assert_eq!(status(&proxy, tenants::BETA).await["faults"], json!([]));
    let response = proxy.get("/console/status").await;
    response.is_problem(401, "unauthorized").await;
}

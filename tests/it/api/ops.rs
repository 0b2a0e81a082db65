//! Operators' endpoints.

use std::collections::BTreeSet;

use http::Method;

use super::{answering, ask, proxy, streamed};

#[tokio::test]
async fn health_readiness_and_version_respond() {
    let (_upstream, proxy) = answering(&[]).await;
    for (path, text) in [("/healthz", "ok\n"), ("/readyz", "ready\n")] {
        let response = proxy.get(path).await;
        assert_eq!(response.status, 200);
        assert_eq!(response.header("cache-control"), Some("no-store"));
        assert!(response.header("content-type").unwrap().starts_with("text/plain"));
        assert_eq!(response.whole().await.text(), text);
        assert_eq!(ask(&proxy, Method::HEAD, path, &[]).await.whole().await.bytes(), b"");
    }
    let version = proxy.get("/version").await.json().await;
    assert_eq!(version["name"], "citetap");
    assert_eq!(version["version"], citetap::VERSION);
    assert_eq!(version["commit"], citetap::COMMIT);
}

#[tokio::test]
async fn draining_is_healthy_but_not_ready() {
    let (_upstream, proxy) = proxy(vec![], "[timeouts]\ndrain_delay = \"60s\"\n").await;
    proxy.signals.drain.cancel();
    let not_ready = crate::net::eventually(|| async {
        let response = proxy.get("/readyz").await;
        (response.status == 503).then_some(response)
    });
    not_ready.await.expect("not ready").is_problem(503, "draining").await;
    assert_eq!(proxy.get("/healthz").await.status, 200);
}

/// The metric names that dashboards and alerts use.
const NAMES: [&str; 29] = [
    "citetap_requests_total",
    "citetap_streams_ended_total",
    "citetap_upstream_time_to_first_byte_seconds_bucket",
    "citetap_stream_duration_seconds_count",
    "citetap_streams_in_flight",
    "citetap_frames_total",
    "citetap_citations_extracted_total",
    "citetap_injections_total",
    "citetap_tap_skipped_total",
    "citetap_relayed_bytes_total",
    "citetap_commit_wait_seconds_sum",
    "citetap_store_operations_total",
    "citetap_store_queue_depth",
    "citetap_tasks",
    "citetap_build_info",
    "citetap_relay_overhead_seconds_bucket",
    "citetap_streams_limit",
    "citetap_ready",
    "citetap_messages_total",
    "citetap_citations_per_message_sum",
    "citetap_commits_total",
    "citetap_store_operation_duration_seconds_bucket",
    "citetap_store_records_total",
    "citetap_store_dropped_total",
    "citetap_store_up",
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_start_time_seconds",
    "process_virtual_memory_bytes",
];

/// `Accept` headers of two versions of Prometheus.
const SCRAPES: [&str; 2] = [
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
];

#[tokio::test]
async fn metrics_format_follows_accept() {
    let (_upstream, proxy) = answering(&[]).await;
    let plain = ["", "*/*", "text/html,*/*;q=0.8", "text/plain;version=0.0.4", "application/openmetrics-text;q=0"];
    let heavier = ["application/openmetrics-text;q=0.3,text/plain;q=0.5"];
    for accept in plain.into_iter().chain(heavier) {
        let response = ask(&proxy, Method::GET, "/metrics", &[("accept", accept)]).await;
        assert_eq!(response.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"), "{accept}");
        let text = response.whole().await.text();
        assert!(text.contains("# TYPE citetap_store_records_total counter\n"), "{accept}: {text}");
        assert!(!text.contains("# EOF") && !text.contains("# UNIT"), "{accept}: {text}");
    }
    for accept in SCRAPES.into_iter().chain(["application/openmetrics-text"]) {
        let response = ask(&proxy, Method::GET, "/metrics", &[("accept", accept)]).await;
        assert!(response.header("content-type").unwrap().starts_with("application/openmetrics-text; version=1.0.0"));
        let text = response.whole().await.text();
        assert!(text.contains("# TYPE citetap_store_records counter\n"), "{accept}: {text}");
    }
}

#[tokio::test]
async fn metrics_are_openmetrics_with_the_expected_names() {
    let (_upstream, proxy) = answering(&["m-1"]).await;
    streamed(&proxy, "m-1").await;
    proxy.get("/chat/nothing-here").await.whole().await;
    let response = ask(&proxy, Method::GET, "/metrics", &[("accept", "application/openmetrics-text")]).await;
    let text = response.whole().await.text();
    assert!(text.ends_with("# EOF\n") && text.matches("# EOF").count() == 1, "{text}");

    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let names: BTreeSet<&str> = samples.map(|line| line.split(['{', ' ']).next().unwrap()).collect();
    for name in NAMES {
        assert!(names.contains(name), "{name} in {names:?}");
    }
    for line in [
        r#"citetap_requests_total{route="chat",provider="tencent",status="200"} 1"#,
        r#"citetap_requests_total{route="chat",provider="tencent",status="404"} 1"#,
        r#"citetap_citations_extracted_total{provider="tencent"} 2"#,
        r#"citetap_injections_total{provider="tencent",result="final"} 1"#,
        r#"citetap_store_operations_total{store="memory",op="put",result="ok"} 1"#,
        r#"citetap_store_records_total{store="memory",result="ok"} 1"#,
        r#"citetap_commits_total{stored="true"} 1"#,
        r#"citetap_messages_total{provider="tencent",sources="cited"} 1"#,
        r#"citetap_citations_per_message_sum{provider="tencent"} 2.0"#,
        r#"citetap_relay_overhead_seconds_count{provider="tencent"} 1"#,
        "citetap_streams_in_flight 0",
        "citetap_streams_limit 10000",
        "citetap_ready 1",
        "citetap_store_up 1.0",
    ] {
        assert!(text.lines().any(|one| one == line), "{line} in {text}");
    }
    // Every family has one description with a type.
    let described: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    assert_eq!(described.iter().collect::<BTreeSet<_>>().len(), described.len(), "{described:?}");
    let typed = |name: &&&str| described.iter().any(|one| name.starts_with(one.split(' ').next().unwrap()));
    assert_eq!(names.iter().filter(typed).count(), names.len());
}

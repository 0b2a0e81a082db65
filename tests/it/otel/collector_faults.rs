//! Telemetry must not change relayed bytes when it is off, or affect chats when the collector fails.

use std::time::{Duration, Instant};

use citetap::replay::{Script, Scripted, Upstream};
use futures_util::future::join_all;

use super::{TRACEPARENT, TRACESTATE, chat, collector::Collector, exporting, openai, perplexity};
use crate::{
    net::{Client, split},
    process::{Running, citetap, dead_port},
};

const OUTAGE: &str = "the collector takes no telemetry; chats go on, and what it misses is dropped";

async fn upstream() -> Upstream {
    Upstream::bind(vec![Scripted::new("/", Script::sse(perplexity()))]).await.unwrap()
}

/// Also invalid ones: they pass unchanged.
const CONTEXTS: [&[(&str, &str)]; 3] = [
    &[("traceparent", TRACEPARENT), ("tracestate", TRACESTATE)],
    &[("traceparent", "00-NOT-ONE"), ("tracestate", "a=1"), ("tracestate", "b=2")],
    &[("traceparent", TRACEPARENT), ("traceparent", TRACEPARENT), ("tracestate", "")],
];

async fn passes_unchanged(running: &Running, upstream: &Upstream) {
    for sent in CONTEXTS {
        let before = upstream.request_count();
        Client::h1(running.addr).await.send(chat("chat", sent)).await.whole().await;
        let headers = &upstream.requests()[before].headers;
        for name in ["traceparent", "tracestate"] {
            let expected: Vec<&str> = sent.iter().filter(|(one, _)| *one == name).map(|(_, value)| *value).collect();
            assert_eq!(headers.get_all(name).iter().collect::<Vec<_>>(), expected, "{sent:?}");
        }
    }
}

#[tokio::test]
async fn without_endpoint_trace_context_is_relayed_unchanged() {
    let upstream = upstream().await;
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("citetap.toml"), format!("store = \"memory:\"\n{}", openai(&upstream))).unwrap();
    let running = Running::start(citetap(dir.path(), &["serve", "--listen", "127.0.0.1:0"])).await;
    passes_unchanged(&running, &upstream).await;
    let threads = std::fs::read_dir(format!("/proc/{}/task", running.id())).unwrap();
    let names = threads.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("comm")).unwrap());
    assert!(!names.into_iter().any(|name| name.starts_with("OpenTelemetry")), "it costs no thread");
}

#[tokio::test]
async fn disabled_or_unavailable_exporters_change_nothing() {
    let collector = Collector::start().await;
    for (env, warned) in [
        (&[("OTEL_SDK_DISABLED", "true")] as &[_], 0),
        (&[("OTEL_TRACES_EXPORTER", "none"), ("OTEL_METRICS_EXPORTER", "none")], 0),
        (&[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")], 2),
        (&[("OTEL_PROPAGATORS", "none"), ("OTEL_METRICS_EXPORTER", "none"), ("OTEL_TRACES_SAMPLER", "always_off")], 0),
    ] {
        let upstream = upstream().await;
        let dir = tempfile::tempdir().unwrap();
        let running = Running::start(exporting(dir.path(), &openai(&upstream), &collector.url(), env)).await;
        passes_unchanged(&running, &upstream).await;
        let lines = running.log();
        let warnings: Vec<_> = lines.iter().filter(|line| line["message"] == "telemetry is not exported").collect();
        assert_eq!(warnings.len(), warned, "{env:?}: {warnings:?}");
        assert!(warnings.iter().all(|line| line["why"].as_str().unwrap().contains("http/protobuf")), "{warnings:?}");
    }
    assert_eq!(collector.requests().len(), 0);
}

/// No listener, a listener that never responds, and one that rejects.
#[tokio::test]
async fn stalled_collector_does_not_affect_chats() {
    let hangs = Collector::of(Script::hang()).await;
    let refuses = Collector::of(Script::json("{}").status(http::StatusCode::FORBIDDEN)).await;
    for url in [format!("http://127.0.0.1:{}", dead_port()), hangs.url(), refuses.url()] {
        let upstream = upstream().await;
        let dir = tempfile::tempdir().unwrap();
        let env = [
            ("OTEL_BSP_MAX_QUEUE_SIZE", "16"),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "8"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "400"),
        ];
        let mut running = Running::start(exporting(dir.path(), &openai(&upstream), &url, &env)).await;
        // Many more than the queue's capacity.
        for _ in 0..5 {
            let all = join_all(
                (0..20).map(|_| async { Client::h1(running.addr).await.send(chat("chat", &[])).await.whole().await }),
            );
            for whole in all.await {
                assert_eq!(whole.error, None);
                assert_eq!(split(&whole.bytes()).0, perplexity());
            }
        }
        running.logged(OUTAGE, 1).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        // One log line per signal, however often it is retried.
        let lines = running.log().into_iter().filter(|line| line["message"] == OUTAGE).count();
        assert!((1..=2).contains(&lines), "{url}: {lines} lines");
        running.signal("TERM");
        let began = Instant::now();
        assert!(running.ended(Duration::from_secs(10)).await.success());
        assert!(began.elapsed() < Duration::from_secs(5), "{url}: {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn recovered_collector_is_logged() {
    let refused = Script::json("{}").status(http::StatusCode::FORBIDDEN);
    let collector = Collector::of(refused.then(Script::new([]))).await;
    let upstream = upstream().await;
    let dir = tempfile::tempdir().unwrap();
    let env = [("OTEL_METRICS_EXPORTER", "none")];
    let running = Running::start(exporting(dir.path(), &openai(&upstream), &collector.url(), &env)).await;
    Client::h1(running.addr).await.send(chat("chat", &[])).await.whole().await;
    running.logged(OUTAGE, 1).await;
    Client::h1(running.addr).await.send(chat("chat", &[])).await.whole().await;
    running.logged("the collector takes telemetry again", 1).await;
}

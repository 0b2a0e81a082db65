//! Traces and metrics over OTLP, from the real binary to a decoding collector.

mod collector;
mod collector_faults;
mod span_ends;

use std::{path::Path, process::Command, time::SystemTime};

use bytes::Bytes;
use citetap::replay::{Script, Scripted, Step, Upstream};
use http::{Method, Request};
use http_body_util::Full;
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind};

use self::collector::{Collector, attributes, hex};
use crate::{
    net::{Client, LIMIT, eventually, request, route},
    process::{Running, citetap},
    support::fixtures,
};

/// The trace context of the client.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";
const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACESTATE: &str = "vendor=t61rcWkgMzE,other=1";

/// Words that must be in no span, metric or attribute.
const PRIVATE: [&str; 6] =
    ["SECRET-PROMPT", "SECRET-KEY", "SECRET-QUERY", "SECRET-COOKIE", "SECRET-PATH", "San Francisco"];

fn ask(method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> Request<Full<Bytes>> {
    let mut all =
        vec![("content-type", "application/json"), ("cookie", "SECRET-COOKIE"), ("authorization", "Bearer SECRET-KEY")];
    all.extend(headers);
    request(method, path, &all, body.to_owned())
}

const BODY: &str = r#"{"messages":[{"role":"user","content":"SECRET-PROMPT"}],"stream":true,"model":"sonar-pro"}"#;

fn chat(route: &str, headers: &[(&str, &str)]) -> Request<Full<Bytes>> {
    ask(Method::POST, &format!("/{route}/SECRET-PATH?q=SECRET-QUERY"), headers, BODY)
}

fn perplexity() -> Bytes {
    std::fs::read(fixtures().join("openai/perplexity.sse")).unwrap().into()
}

/// `serve` in front of `upstream`, exporting to `collector` immediately unless `env` overrides it.
fn exporting(dir: &Path, toml: &str, collector: &str, env: &[(&str, &str)]) -> Command {
    std::fs::write(dir.join("citetap.toml"), format!("store = \"memory:\"\n{toml}")).unwrap();
    let mut command = citetap(dir, &["serve", "--listen", "127.0.0.1:0"]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector);
    command.envs([("OTEL_BSP_SCHEDULE_DELAY", "50"), ("OTEL_METRIC_EXPORT_INTERVAL", "100")]);
    command.envs(env.iter().copied());
    command
}

fn openai(upstream: &Upstream) -> String {
    format!("{}provider = \"openai\"\n", route("chat", &upstream.url()))
}

fn nanos(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos().try_into().unwrap()
}

#[tokio::test]
async fn chat_span_ends_with_its_stream() {
    let sse = perplexity();
    let (most, last) = (sse.slice(..sse.len() - 1500), sse.slice(sse.len() - 1500..));
    let pause = std::time::Duration::from_millis(300);
    let steps = vec![Step::Send(most), Step::Pause(pause), Step::Send(last)];
    let upstream = Upstream::bind(vec![Scripted::new("/", Script::sse_steps(steps))]).await.unwrap();
    let collector = Collector::start().await;
    let dir = tempfile::tempdir().unwrap();
    let env = [
        ("OTEL_SERVICE_NAME", "answers"),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,service.version=9"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-collector-key=made-up"),
    ];
    let running = Running::start(exporting(dir.path(), &openai(&upstream), &collector.url(), &env)).await;

    let began = nanos(SystemTime::now());
    let mut client = Client::h1(running.addr).await;
    let sent = [("traceparent", TRACEPARENT), ("tracestate", TRACESTATE), ("baggage", "a=b")];
    let mut response = client.send(chat("chat", &sent)).await;
    response.until("\"completion_tokens\":2").await;
    let not_over = nanos(SystemTime::now());
    let whole = response.whole().await;
    assert_eq!(whole.error, None);
    let [span]: [Span; 1] = collector.got(1).await.try_into().unwrap();

    assert_eq!((span.name.as_str(), span.kind()), ("chat sonar-pro", SpanKind::Client));
    assert_eq!((hex(&span.trace_id).as_str(), hex(&span.parent_span_id).as_str()), (TRACE, PARENT));
    assert_eq!(span.trace_state, TRACESTATE);
    assert!(span.start_time_unix_nano >= began && span.end_time_unix_nano > not_over, "{span:?}");
    assert!(span.status.as_ref().is_none_or(|status| status.code == 0), "{span:?}");
    let mut attrs = attributes(&span.attributes);
    let first: f64 = attrs.remove("gen_ai.response.time_to_first_chunk").unwrap().parse().unwrap();
    assert!((0.0..LIMIT.as_secs_f64()).contains(&first));
    let port = upstream.url().rsplit_once(':').unwrap().1.trim_end_matches('/').to_owned();
    let expected = [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "openai"),
        ("gen_ai.request.model", "sonar-pro"),
        ("gen_ai.response.model", "sonar"),
        ("gen_ai.response.id", "58cb9740-f356-49e9-b71e-a02a1376c1b9"),
        ("gen_ai.response.finish_reasons", "stop"),
        ("gen_ai.usage.input_tokens", "10"),
        ("gen_ai.usage.output_tokens", "336"),
        ("citetap.citations.count", "7"),
        ("citetap.route", "chat"),
        ("http.request.method", "POST"),
        ("http.response.status_code", "200"),
        ("server.address", "127.0.0.1"),
        ("server.port", &port),
    ];
    assert_eq!(attrs, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());

    let upstream_saw = &upstream.requests()[0].headers;
    let parent = format!("00-{TRACE}-{}-01", hex(&span.span_id));
    assert_eq!(upstream_saw.get_all("traceparent").iter().collect::<Vec<_>>(), [parent.as_str()]);
    assert_eq!(upstream_saw.get_all("tracestate").iter().collect::<Vec<_>>(), [TRACESTATE]);
    assert_eq!(upstream_saw["baggage"], "a=b");

    let traces = collector.traces();
    let resource = attributes(&traces[0].resource_spans[0].resource.as_ref().unwrap().attributes);
    assert_eq!(resource["service.name"], "answers");
    assert_eq!((&*resource["deployment.environment.name"], &*resource["service.version"]), ("test", "9"));
    assert!(resource.contains_key("service.instance.id") && resource["telemetry.sdk.language"] == "rust");
    assert!(collector.requests().iter().all(|seen| seen.headers["x-collector-key"] == "made-up"));

    is_measured(&collector).await;
    nothing_private(&collector, &running);
}

async fn is_measured(collector: &Collector) {
    let name = "gen_ai.client.token.usage";
    eventually(|| async { (!collector.points(name).is_empty()).then_some(()) }).await.expect("metrics");
    let one = |name: &str| {
        let points = collector.points(name);
        assert_eq!(points.len(), 1, "{name}: {points:?}");
        let point = points[0].clone();
        assert_eq!(point.attributes["gen_ai.operation.name"], "chat", "{name}");
        assert_eq!(point.attributes["gen_ai.provider.name"], "openai", "{name}");
        assert_eq!(point.attributes["gen_ai.request.model"], "sonar-pro", "{name}");
        assert_eq!(point.attributes["gen_ai.response.model"], "sonar", "{name}");
        assert!(point.attributes.contains_key("server.address") && !point.attributes.contains_key("error.type"));
        assert_eq!((point.bounds.first(), point.bounds.last()), (Some(&0.01), Some(&81.92)), "{name}");
        point
    };
    let duration = one("gen_ai.client.operation.duration");
    assert_eq!(duration.count, 1);
    assert!(duration.sum >= 0.3, "{duration:?}");
    let first = one("gen_ai.client.operation.time_to_first_chunk");
    assert_eq!(first.count, 1);
    assert!(first.sum < duration.sum, "{first:?}");
    let each = one("gen_ai.client.operation.time_per_output_chunk");
    assert!(each.count >= 1 && each.sum > 0.1, "the pause is between two: {each:?}");
    assert!(each.sum + first.sum <= duration.sum, "{each:?}");
    let mut tokens: Vec<_> = collector
        .points(name)
        .into_iter()
        .map(|point| (point.attributes["gen_ai.token.type"].clone(), point.sum))
        .collect();
    tokens.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(tokens, [("input".to_owned(), 10.0), ("output".to_owned(), 336.0)]);
    let units: Vec<_> = collector.metrics().into_values().map(|metric| (metric.name, metric.unit)).collect();
    assert_eq!(units.iter().filter(|(_, unit)| unit == "s").count(), 3, "{units:?}");
}

fn nothing_private(collector: &Collector, running: &Running) {
    for seen in collector.requests() {
        let body = String::from_utf8_lossy(&seen.body);
        for word in PRIVATE {
            assert!(!body.contains(word), "{word} in {body}");
        }
    }
    let log = running.out().join("\n");
    assert!(!log.contains("made-up"), "the collector's key is in no log: {log}");
}

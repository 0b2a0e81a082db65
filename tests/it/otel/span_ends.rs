//! The span of a request ends with every kind of end, and records it.

use std::time::Duration;

use citetap::replay::{Script, Scripted, Step, Upstream};
use http::{Method, StatusCode};
use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode as Code};

use super::{
    PRIVATE, TRACEPARENT, ask, chat,
    collector::{Attributes, Collector, attributes},
    exporting, perplexity,
};
use crate::{
    net::{Client, eventually, route},
    process::{Running, dead_port},
    support::fixtures,
};

const FOR_EVER: Duration = Duration::from_secs(600);

fn is_error(span: &Span, kind: &str) -> Attributes {
    let attrs = attributes(&span.attributes);
    assert_eq!(attrs["error.type"], kind, "{attrs:?}");
    let status = span.status.clone().unwrap();
    assert_eq!((status.code(), status.message.as_str()), (Code::Error, ""));
    assert!(span.end_time_unix_nano > span.start_time_unix_nano);
    attrs
}

#[tokio::test]
async fn every_end_of_an_answer_ends_its_span() {
    let part = perplexity().slice(..3000);
    let cut = Script::sse_steps([Step::Send(part.clone()), Step::Abort]);
    let silent = Script::sse_steps([Step::Send(part), Step::Pause(FOR_EVER)]);
    let fails = std::fs::read(fixtures().join("openai/error-in-stream.sse")).unwrap();
    let upstream = Upstream::bind(vec![
        Scripted::new("/cut", cut),
        Scripted::new("/silent", silent),
        Scripted::new("/fails", Script::sse(fails)),
        Scripted::new("/limited", Script::json(r#"{"error":"SECRET-PROMPT"}"#).status(StatusCode::TOO_MANY_REQUESTS)),
        Scripted::new("/hangs", Script::hang()),
        Scripted::new("/list", Script::json("{}")),
    ])
    .await
    .unwrap();
    let collector = Collector::start().await;
    let dir = tempfile::tempdir().unwrap();
    let dead = route("dead", &format!("http://127.0.0.1:{}", dead_port())) + "provider = \"openai\"\n";
    let toml = ["cut", "silent", "fails", "limited", "hangs"]
        .map(|name| {
            format!(
                "{}provider = \"openai\"\n",
                route(name, &format!("{}/{name}", upstream.url().trim_end_matches('/')))
            )
        })
        .join("")
        + &route("list", &format!("{}/list", upstream.url().trim_end_matches('/')))
        + &dead;
    let mut running = Running::start(exporting(dir.path(), &toml, &collector.url(), &[])).await;
    let newest = |count| {
        let collector = &collector;
        async move { collector.got(count).await.pop().unwrap() }
    };

    let whole = Client::h1(running.addr).await.send(chat("cut", &[])).await.whole().await;
    assert!(whole.error.is_some());
    let span = newest(1).await;
    let attrs = is_error(&span, "upstream_cut");
    assert_eq!((span.name.as_str(), &*attrs["gen_ai.response.model"]), ("chat sonar-pro", "sonar"));
    assert!(!attrs.contains_key("gen_ai.response.finish_reasons") && span.parent_span_id.is_empty());

    Client::h1(running.addr).await.send(chat("fails", &[])).await.whole().await;
    is_error(&newest(2).await, "upstream_error");

    Client::h1(running.addr).await.send(chat("limited", &[])).await.whole().await;
    let attrs = is_error(&newest(3).await, "429");
    assert_eq!(&*attrs["http.response.status_code"], "429");

    Client::h1(running.addr).await.send(chat("dead", &[])).await.whole().await;
    let span = newest(4).await;
    let attrs = is_error(&span, "upstream-unreachable");
    assert!(!attrs.contains_key("http.response.status_code"));
    assert_eq!(span.name, "chat", "no upstream read the request, so its model is unknown");

    // The client disconnects within the answer, and before it.
    let mut response = Client::h1(running.addr).await.send(chat("silent", &[])).await;
    response.until("sonar").await;
    drop(response);
    is_error(&newest(5).await, "client_gone");
    let mut client = Client::h1(running.addr).await;
    let result = tokio::time::timeout(Duration::from_millis(200), client.send(chat("hangs", &[]))).await;
    assert!(result.is_err());
    drop(client);
    is_error(&newest(6).await, "client_gone");

    // Requests that are not chats have their own span names.
    let listed = Client::h1(running.addr).await.send(ask(Method::GET, "/list", &[], "")).await.whole().await;
    assert_eq!(listed.status, 200);
    let span = newest(7).await;
    let attrs = attributes(&span.attributes);
    assert_eq!(span.name, "GET");
    assert!(!attrs.keys().any(|name| name.starts_with("gen_ai.")) && !attrs.contains_key("error.type"), "{attrs:?}");

    // A request in flight when citetap stops.
    let mut response = Client::h1(running.addr).await.send(chat("silent", &[])).await;
    response.until("sonar").await;
    running.signal("TERM");
    running.signal("TERM");
    running.ended(Duration::from_secs(10)).await;

    let errors = collector.points("gen_ai.client.operation.duration");
    let errors: Vec<_> = errors.iter().filter_map(|point| point.attributes.get("error.type")).collect();
    assert!(errors.contains(&&"upstream_cut".to_owned()) && errors.contains(&&"429".to_owned()), "{errors:?}");
    for seen in collector.requests() {
        let body = String::from_utf8_lossy(&seen.body);
        PRIVATE.iter().for_each(|word| assert!(!body.contains(word), "{word} in {body}"));
    }
}

#[tokio::test]
async fn drain_flushes_spans() {
    let upstream = Upstream::bind(vec![Scripted::new(
        "/",
        Script::sse_steps([Step::Send(perplexity().slice(..3000)), Step::Pause(FOR_EVER)]),
    )]);
    let upstream = upstream.await.unwrap();
    let collector = Collector::start().await;
    let dir = tempfile::tempdir().unwrap();
    let toml = format!("[timeouts]\ndrain = \"200ms\"\n{}", super::openai(&upstream));
    // Nothing is exported before the end.
    let slow = [("OTEL_BSP_SCHEDULE_DELAY", "60000"), ("OTEL_METRIC_EXPORT_INTERVAL", "60000")];
    let mut running = Running::start(exporting(dir.path(), &toml, &collector.url(), &slow)).await;
    let mut response = Client::h1(running.addr).await.send(chat("chat", &[])).await;
    response.until("sonar").await;
    assert_eq!(collector.requests().len(), 0);
    running.signal("TERM");
    assert!(running.ended(Duration::from_secs(10)).await.success());
    let spans = collector.spans();
    assert_eq!(spans.len(), 1);
    is_error(&spans[0], "shutdown");
    assert_eq!(collector.points("gen_ai.client.operation.duration").len(), 1);
}

#[tokio::test]
async fn sampling_off_is_propagated_to_the_upstream() {
    let upstream = Upstream::bind(vec![Scripted::new("/", Script::sse(perplexity()))]).await.unwrap();
    let collector = Collector::start().await;
    let dir = tempfile::tempdir().unwrap();
    let env = [("OTEL_TRACES_SAMPLER", "always_off")];
    let toml = super::openai(&upstream);
    let running = Running::start(exporting(dir.path(), &toml, &collector.url(), &env)).await;
    Client::h1(running.addr).await.send(chat("chat", &[("traceparent", TRACEPARENT)])).await.whole().await;
    let parent = upstream.requests()[0].headers["traceparent"].to_str().unwrap().to_owned();
    assert!(parent.starts_with(&TRACEPARENT[..36]) && parent.ends_with("-00"), "{parent}");
    let measured = eventually(|| async { (!collector.metrics().is_empty()).then_some(()) });
    measured.await.expect("metrics are exported");
    assert_eq!(collector.spans(), []);
}

//! Traces and metrics over OTLP, following OpenTelemetry's conventions for generative AI:
//! <https://opentelemetry.io/docs/specs/semconv/gen-ai/>. Disabled, at no cost, unless the `OTEL_*` variables name an
//! endpoint.
//!
//! Spans wait in the SDK's bounded queue, which drops on overflow, and are sent from the SDK's threads: a chat never
//! waits for a collector. No attribute contains text of a prompt or an answer, a key, a path or a query.

mod chat_span;
mod otlp_client;
mod settings;
#[cfg(test)]
mod settings_tests;

use std::{env, mem::ManuallyDrop, sync::Arc, thread, time::Duration};

use http::HeaderMap;
use opentelemetry::{
    Context, KeyValue,
    metrics::{Histogram, Meter, MeterProvider},
    propagation::TextMapPropagator,
    trace::{SpanKind, TraceContextExt, Tracer, TracerProvider},
};
use opentelemetry_http::{HeaderExtractor, HeaderInjector};
use opentelemetry_otlp::{ExporterBuildError, MetricExporter, SpanExporter, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    metrics::{PeriodicReader, SdkMeterProvider},
    propagation::TraceContextPropagator,
    resource::{EnvResourceDetector, TelemetryResourceDetector},
    trace::{BatchSpanProcessor, SdkTracer, SdkTracerProvider, Span},
};
use tokio::{runtime::Handle, sync::oneshot, time::timeout};

pub use chat_span::{ChatEnd, ChatSpan, UpstreamRequest};
use otlp_client::OtlpClient;
use settings::{METRICS, Settings, Signal, TRACES};

const SCOPE: &str = "citetap";

/// Bucket boundaries recommended by the conventions.
const SECONDS: [f64; 14] = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
const TOKENS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

pub struct Otel {
    traces: Option<Traces>,
    metrics: Option<GenAiMetrics>,
}

struct Traces {
    tracer: SdkTracer,
    /// `None`: the client's trace headers are passed on unchanged.
    propagator: Option<TraceContextPropagator>,
    /// Never dropped: dropping blocks until the collector has answered.
    provider: ManuallyDrop<SdkTracerProvider>,
}

struct GenAiMetrics {
    duration: Histogram<f64>,
    first_chunk: Histogram<f64>,
    per_chunk: Histogram<f64>,
    tokens: Histogram<u64>,
    provider: ManuallyDrop<SdkMeterProvider>,
}

impl Otel {
    /// Sets up the exporters that the `OTEL_*` variables ask for; `None` if there are none. Logs unsupported settings.
    /// Exports run on the current runtime.
    pub fn from_env() -> Option<Arc<Self>> {
        let settings = Settings::new(|name| env::var(name).ok());
        let resource = resource(&settings);
        let traces = build_signal(&settings, &TRACES, |collector| Traces::new(&settings, collector, resource.clone()));
        let metrics = build_signal(&settings, &METRICS, |collector| GenAiMetrics::new(collector, resource.clone()));
        let any = traces.is_some() || metrics.is_some();
        any.then(|| {
            tracing::info!(
                traces = traces.is_some(),
                metrics = metrics.is_some(),
                "exporting telemetry to a collector"
            );
            Arc::new(Self { traces, metrics })
        })
    }

    /// Starts the span of an upstream request. Continues the trace in the client's `headers` and replaces it with this
    /// span.
    pub fn start_span(self: &Arc<Self>, request: UpstreamRequest, headers: &mut HeaderMap) -> Box<ChatSpan> {
        let span = self.traces.as_ref().map(|traces| traces.begin(headers));
        Box::new(ChatSpan::new(Arc::clone(self), request, span))
    }

    /// Sends the pending telemetry, waiting at most `within`.
    pub async fn shutdown(&self, within: Duration) {
        // The SDK blocks, so use threads; not the runtime's blocking pool, whose shutdown waits for them.
        let mut done = Vec::new();
        if let Some(traces) = &self.traces {
            let provider = SdkTracerProvider::clone(&traces.provider);
            done.push(spawn_thread(move || drop(provider.shutdown_with_timeout(within))));
        }
        if let Some(metrics) = &self.metrics {
            let provider = SdkMeterProvider::clone(&metrics.provider);
            done.push(spawn_thread(move || drop(provider.shutdown_with_timeout(within))));
        }
        let all = async {
            for one in done {
                let _ = one.await;
            }
        };
        if timeout(within, all).await.is_err() {
            tracing::warn!("the collector did not accept the last telemetry in time");
        }
    }
}

fn spawn_thread(work: impl FnOnce() + Send + 'static) -> oneshot::Receiver<()> {
    let (sender, receiver) = oneshot::channel();
    // If no thread can be started, the sender is dropped and the receiver resolves at once.
    let _ = thread::Builder::new().name("citetap-otel".to_owned()).spawn(move || {
        work();
        let _ = sender.send(());
    });
    receiver
}

fn build_signal<T>(
    settings: &Settings,
    signal: &Signal,
    build: impl FnOnce(OtlpClient) -> Result<T, ExporterBuildError>,
) -> Option<T> {
    let runtime = Handle::try_current().ok()?;
    let built = match settings.is_enabled(signal) {
        Ok(false) => return None,
        Ok(true) => OtlpClient::new(signal.name, runtime, settings.timeout(signal))
            .map_err(|error| error.to_string())
            .and_then(|collector| build(collector).map_err(|error| error.to_string())),
        Err(why) => Err(why),
    };
    built.inspect_err(|why| tracing::warn!(signal = signal.name, why, "telemetry is not exported")).ok()
}

fn resource(settings: &Settings) -> Resource {
    let version = KeyValue::new("service.version", crate::VERSION);
    let instance = KeyValue::new("service.instance.id", uuid::Uuid::new_v4().to_string());
    let base = Resource::builder_empty().with_service_name(SCOPE).with_attributes([version, instance]);
    let detected = base.with_detectors(&[Box::new(TelemetryResourceDetector), Box::new(EnvResourceDetector::new())]);
    match settings.get("OTEL_SERVICE_NAME") {
        Some(name) => detected.with_service_name(name),
        None => detected,
    }
    .build()
}

impl Traces {
    fn new(settings: &Settings, collector: OtlpClient, resource: Resource) -> Result<Self, ExporterBuildError> {
        let exporter = SpanExporter::builder().with_http().with_http_client(collector).build()?;
        let processor = BatchSpanProcessor::builder(exporter).build();
        let provider = SdkTracerProvider::builder().with_span_processor(processor).with_resource(resource).build();
        let propagator = settings.propagates_context().then(TraceContextPropagator::new);
        Ok(Self { tracer: provider.tracer(SCOPE), propagator, provider: ManuallyDrop::new(provider) })
    }

    fn begin(&self, headers: &mut HeaderMap) -> Span {
        let from = self.propagator.as_ref();
        let parent = from
            .map_or_else(Context::new, |from| from.extract_with_context(&Context::new(), &HeaderExtractor(headers)));
        let builder = self.tracer.span_builder(chat_span::OPERATION).with_kind(SpanKind::Client);
        let span = self.tracer.build_with_context(builder, &parent);
        if let Some(propagator) = &self.propagator {
            let context =
                Context::new().with_remote_span_context(opentelemetry::trace::Span::span_context(&span).clone());
            headers.remove("tracestate");
            propagator.inject_context(&context, &mut HeaderInjector(headers));
            if headers.get("tracestate").is_some_and(http::HeaderValue::is_empty) {
                headers.remove("tracestate");
            }
        }
        span
    }
}

impl GenAiMetrics {
    fn new(collector: OtlpClient, resource: Resource) -> Result<Self, ExporterBuildError> {
        let exporter = MetricExporter::builder().with_http().with_http_client(collector).build()?;
        let reader = PeriodicReader::builder(exporter).build();
        let provider = SdkMeterProvider::builder().with_reader(reader).with_resource(resource).build();
        let meter = provider.meter(SCOPE);
        Ok(Self {
            duration: seconds(&meter, "gen_ai.client.operation.duration", "GenAI operation duration."),
            first_chunk: seconds(
                &meter,
                "gen_ai.client.operation.time_to_first_chunk",
                "From the request to the first piece of a streamed answer.",
            ),
            per_chunk: seconds(
                &meter,
                "gen_ai.client.operation.time_per_output_chunk",
                "Between two pieces of a streamed answer.",
            ),
            tokens: meter
                .u64_histogram("gen_ai.client.token.usage")
                .with_unit("{token}")
                .with_description("Tokens, where the upstream says how many.")
                .with_boundaries(TOKENS.to_vec())
                .build(),
            provider: ManuallyDrop::new(provider),
        })
    }
}

fn seconds(meter: &Meter, name: &'static str, help: &'static str) -> Histogram<f64> {
    meter.f64_histogram(name).with_unit("s").with_description(help).with_boundaries(SECONDS.to_vec()).build()
}

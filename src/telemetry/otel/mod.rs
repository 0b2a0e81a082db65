//! Traces and metrics over OTLP, by OpenTelemetry's conventions for generative AI: <https://opentelemetry.io/docs/specs/semconv/gen-ai/>.
//! Off, and without a cost, unless the environment says where they go.
//!
//! Spans wait in a queue of the SDK's that drops what is beyond it, and are sent from its own threads: no chat waits for a
//! collector. No attribute has a word of a prompt or an answer, a key, a path or a query.

mod chat;
mod collector;
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

pub use chat::{Asked, Chat, Ending};
use collector::Collector;
use settings::{METRICS, Settings, Signal, TRACES};

const SCOPE: &str = "citetap";

/// As the conventions want them.
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
    metrics: Option<Measures>,
}

struct Traces {
    tracer: SdkTracer,
    /// `None`: the client's headers pass on as they came.
    propagator: Option<TraceContextPropagator>,
    /// Never dropped: it would wait for the collector.
    provider: ManuallyDrop<SdkTracerProvider>,
}

struct Measures {
    duration: Histogram<f64>,
    first_chunk: Histogram<f64>,
    per_chunk: Histogram<f64>,
    tokens: Histogram<u64>,
    provider: ManuallyDrop<SdkMeterProvider>,
}

impl Otel {
    /// As the `OTEL_*` variables say; `None` where they ask for nothing. What they ask for in vain is logged. Sends on the
    /// runtime that it is called on.
    pub fn from_env() -> Option<Arc<Self>> {
        let settings = Settings::new(|name| env::var(name).ok());
        let resource = resource(&settings);
        let traces = wanted(&settings, &TRACES, |collector| Traces::new(&settings, collector, resource.clone()));
        let metrics = wanted(&settings, &METRICS, |collector| Measures::new(collector, resource.clone()));
        let any = traces.is_some() || metrics.is_some();
        any.then(|| {
            tracing::info!(traces = traces.is_some(), metrics = metrics.is_some(), "telemetry goes to a collector");
            Arc::new(Self { traces, metrics })
        })
    }

    /// A request is about to go to its upstream. Its headers are the client's, and name this span when it leaves.
    pub fn begin(self: &Arc<Self>, asked: Asked, headers: &mut HeaderMap) -> Box<Chat> {
        let span = self.traces.as_ref().map(|traces| traces.begin(headers));
        Box::new(Chat::new(Arc::clone(self), asked, span))
    }

    /// Sends what waits. Whoever does not take it in time does not get it.
    pub async fn shutdown(&self, within: Duration) {
        // Threads, as the SDK blocks; not the runtime's, which would be waited for.
        let mut done = Vec::new();
        if let Some(traces) = &self.traces {
            let provider = SdkTracerProvider::clone(&traces.provider);
            done.push(aside(move || drop(provider.shutdown_with_timeout(within))));
        }
        if let Some(metrics) = &self.metrics {
            let provider = SdkMeterProvider::clone(&metrics.provider);
            done.push(aside(move || drop(provider.shutdown_with_timeout(within))));
        }
        let all = async {
            for one in done {
                let _ = one.await;
            }
        };
        if timeout(within, all).await.is_err() {
            tracing::warn!("the collector did not take the last telemetry in time");
        }
    }
}

fn aside(work: impl FnOnce() + Send + 'static) -> oneshot::Receiver<()> {
    let (tell, told) = oneshot::channel();
    // Without a thread the sender is dropped, and there is nothing to wait for.
    let _ = thread::Builder::new().name("citetap-otel".to_owned()).spawn(move || {
        work();
        let _ = tell.send(());
    });
    told
}

fn wanted<T>(
    settings: &Settings,
    signal: &Signal,
    make: impl FnOnce(Collector) -> Result<T, ExporterBuildError>,
) -> Option<T> {
    let runtime = Handle::try_current().ok()?;
    let made = match settings.wants(signal) {
        Ok(false) => return None,
        Ok(true) => Collector::new(signal.name, runtime, settings.timeout(signal))
            .map_err(|error| error.to_string())
            .and_then(|collector| make(collector).map_err(|error| error.to_string())),
        Err(why) => Err(why),
    };
    made.inspect_err(|why| tracing::warn!(signal = signal.name, why, "telemetry is not exported")).ok()
}

fn resource(settings: &Settings) -> Resource {
    let version = KeyValue::new("service.version", crate::VERSION);
    let instance = KeyValue::new("service.instance.id", uuid::Uuid::new_v4().to_string());
    let ours = Resource::builder_empty().with_service_name(SCOPE).with_attributes([version, instance]);
    let said = ours.with_detectors(&[Box::new(TelemetryResourceDetector), Box::new(EnvResourceDetector::new())]);
    match settings.get("OTEL_SERVICE_NAME") {
        Some(name) => said.with_service_name(name),
        None => said,
    }
    .build()
}

impl Traces {
    fn new(settings: &Settings, collector: Collector, resource: Resource) -> Result<Self, ExporterBuildError> {
        let exporter = SpanExporter::builder().with_http().with_http_client(collector).build()?;
        let processor = BatchSpanProcessor::builder(exporter).build();
        let provider = SdkTracerProvider::builder().with_span_processor(processor).with_resource(resource).build();
        let propagator = settings.propagates().then(TraceContextPropagator::new);
        Ok(Self { tracer: provider.tracer(SCOPE), propagator, provider: ManuallyDrop::new(provider) })
    }

    fn begin(&self, headers: &mut HeaderMap) -> Span {
        let from = self.propagator.as_ref();
        let parent = from
            .map_or_else(Context::new, |from| from.extract_with_context(&Context::new(), &HeaderExtractor(headers)));
        let builder = self.tracer.span_builder(chat::OPERATION).with_kind(SpanKind::Client);
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

impl Measures {
    fn new(collector: Collector, resource: Resource) -> Result<Self, ExporterBuildError> {
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

//! Every metric, span field and log message name, once. Nothing here, nor anything that calls it,
//! names a user's text, a key or a URL's query.

use std::{io::IsTerminal, sync::atomic::Ordering::Relaxed};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text::encode},
    metrics::{
        MetricType,
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::{ConstGauge, Gauge},
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};
use tracing_subscriber::{EnvFilter, fmt::writer::BoxMakeWriter};

use crate::{
    config::{Log, LogFormat},
    store::writer::Writer,
};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct RequestLabels {
    pub route: String,
    pub provider: String,
    pub status: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct RouteLabel {
    pub route: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ProviderLabel {
    pub provider: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct FrameLabels {
    pub provider: String,
    pub kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct InjectionLabels {
    pub provider: String,
    pub result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct OutcomeLabels {
    pub route: String,
    pub outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ReasonLabel {
    pub reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ResultLabel {
    pub result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct SupplementLabels {
    pub route: String,
    /// `joined`, `late`, `empty`, `failed` or `skipped`.
    pub outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct BuildLabels {
    pub version: &'static str,
    pub commit: &'static str,
}

type Histograms = Family<RouteLabel, Histogram, fn() -> Histogram>;

/// The metrics. Names and labels as operators look for them.
pub struct Metrics {
    registry: Registry,
    pub requests: Family<RequestLabels, Counter>,
    pub outcomes: Family<OutcomeLabels, Counter>,
    pub first_byte: Histograms,
    pub duration: Histograms,
    pub streams: Gauge,
    pub frames: Family<FrameLabels, Counter>,
    pub citations: Family<ProviderLabel, Counter>,
    pub markers: Family<ProviderLabel, Counter>,
    pub injections: Family<InjectionLabels, Counter>,
    pub tap_skipped: Family<ReasonLabel, Counter>,
    pub relayed: Counter,
    pub commit_wait: Histogram,
    pub searches: Family<ResultLabel, Counter>,
    pub search_dropped: Counter,
    pub rate_limited: Counter,
    pub supplements: Family<SupplementLabels, Counter>,
    pub supplements_skipped: Family<ReasonLabel, Counter>,
}

fn latency() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 16))
}

fn lifetime() -> Histogram {
    Histogram::new(exponential_buckets(0.05, 2.0, 14))
}

impl Metrics {
    pub fn new(writer: Writer, store: &'static str) -> Self {
        let this = Self {
            registry: Registry::default(),
            requests: Family::default(),
            outcomes: Family::default(),
            first_byte: Histograms::new_with_constructor(latency),
            duration: Histograms::new_with_constructor(lifetime),
            streams: Gauge::default(),
            frames: Family::default(),
            citations: Family::default(),
            markers: Family::default(),
            injections: Family::default(),
            tap_skipped: Family::default(),
            relayed: Counter::default(),
            commit_wait: latency(),
            searches: Family::default(),
            search_dropped: Counter::default(),
            rate_limited: Counter::default(),
            supplements: Family::default(),
            supplements_skipped: Family::default(),
        };
        this.registered(writer, store)
    }

    fn registered(mut self, writer: Writer, store: &'static str) -> Self {
        let build: Family<BuildLabels, Gauge> = Family::default();
        build.get_or_create(&BuildLabels { version: crate::VERSION, commit: crate::COMMIT }).set(1);
        let root = &mut self.registry;
        root.register_collector(Box::new(Process));
        let ours = root.sub_registry_with_prefix("citetap");
        ours.register("requests", "Relayed requests by the status that the client got", self.requests.clone());
        ours.register("streams_ended", "Relayed answers by how they ended", self.outcomes.clone());
        let help = "From the request to the head of the upstream's answer";
        ours.register_with_unit("upstream_time_to_first_byte", help, Unit::Seconds, self.first_byte.clone());
        let help = "From the request to the end of the answer";
        ours.register_with_unit("stream_duration", help, Unit::Seconds, self.duration.clone());
        ours.register("streams_in_flight", "Relayed requests that are open now", self.streams.clone());
        ours.register("frames", "Frames that were tapped, and those that could not be read", self.frames.clone());
        ours.register("citations_extracted", "Sources found", self.citations.clone());
        ours.register("markers_rewritten", "Markers in answers that were rewritten", self.markers.clone());
        ours.register("injections", "Citation events by result", self.injections.clone());
        ours.register("tap_skipped", "Answers and frames that passed untapped", self.tap_skipped.clone());
        ours.register_with_unit("relayed", "Bytes of answers sent to clients", Unit::Bytes, self.relayed.clone());
        let help = "How long finishes waited for the store";
        ours.register_with_unit("commit_wait", help, Unit::Seconds, self.commit_wait.clone());
        ours.register("searches", "Searches by result", self.searches.clone());
        let help = "Search results outside the domains that were asked for";
        ours.register("search_results_dropped", help, self.search_dropped.clone());
        let help = "Requests beyond what their tenant may ask";
        ours.register("rate_limited", help, self.rate_limited.clone());
        let help = "Messages of routes with a supplement, by what became of its search";
        ours.register("supplements", help, self.supplements.clone());
        let help = "Messages whose search was not needed or not made, and why";
        ours.register("supplements_skipped", help, self.supplements_skipped.clone());
        ours.register("build_info", "What is running", build);
        ours.register_collector(Box::new(Tasks));
        ours.register_collector(Box::new(StoreCollector { writer, store }));
        self
    }

    /// OpenMetrics text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

/// Reads the writer's own counters when asked.
struct StoreCollector {
    writer: Writer,
    store: &'static str,
}

impl std::fmt::Debug for StoreCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreCollector").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Collector for StoreCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let stats = self.writer.stats();
        let help = "Records by what became of them";
        let mut operations = encoder.encode_descriptor("store_operations", help, None, MetricType::Counter)?;
        for (result, count) in [
            ("ok", &stats.committed),
            ("error", &stats.failed),
            ("retried", &stats.retried),
            ("refused", &stats.refused),
            ("dropped", &stats.dropped),
        ] {
            let labels = [("store", self.store), ("op", "put"), ("result", result)];
            ConstCounter::new(count.load(Relaxed)).encode(operations.encode_family(&labels)?)?;
        }
        let mut gauge = |name, help, value: f64| {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
        };
        let count = |n: u64| n as f64;
        gauge("store_queue_depth", "Records waiting for the writer", self.writer.depth() as f64)?;
        gauge("store_retry_depth", "Records waiting for a later try", count(stats.waiting.load(Relaxed)))?;
        gauge("store_last_commit_seconds", "How long the last commit took", stats.last_commit().as_secs_f64())
    }
}

/// What the runtime that asks is busy with.
#[derive(Debug)]
struct Tasks;

impl Collector for Tasks {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return Ok(()) };
        let alive = ConstGauge::new(runtime.metrics().num_alive_tasks() as f64);
        let help = "Tasks that are alive: those of connections and streams, and a few that always are";
        alive.encode(encoder.encode_descriptor("tasks", help, None, MetricType::Gauge)?)
    }
}

/// What `/proc` says of this process; absent where there is none.
#[derive(Debug)]
struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut gauge = |name, help, value: Option<f64>| match value {
            Some(value) => {
                let gauge = ConstGauge::new(value);
                gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
            }
            None => Ok(()),
        };
        gauge("process_resident_memory_bytes", "Resident memory", resident_bytes())?;
        let fds = std::fs::read_dir("/proc/self/fd").ok().map(|fds| fds.count() as f64);
        gauge("process_open_fds", "Open file descriptors", fds)
    }
}

fn resident_bytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024.0)
}

/// Where log lines go. A server's log is its output; other commands keep standard output for data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogTo {
    Stdout,
    Stderr,
}

/// Starts logging. `RUST_LOG` wins over the configuration. A second call changes nothing.
pub fn init(log: &Log, to: LogTo) {
    let filter = EnvFilter::try_from_default_env().or_else(|_| EnvFilter::try_new(&log.level));
    let filter = filter.unwrap_or_else(|_| EnvFilter::new("info"));
    let (writer, terminal) = match to {
        LogTo::Stdout => (BoxMakeWriter::new(std::io::stdout), std::io::stdout().is_terminal()),
        LogTo::Stderr => (BoxMakeWriter::new(std::io::stderr), std::io::stderr().is_terminal()),
    };
    let json = match log.format {
        LogFormat::Auto => !terminal,
        LogFormat::Json => true,
        LogFormat::Text => false,
    };
    let colour = terminal && std::env::var_os("NO_COLOR").is_none();
    let base = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_ansi(colour)
        .with_target(false)
        // It would say on standard error that a line was lost, and panic where nobody reads that either.
        .log_internal_errors(false);
    let started = if json { base.json().flatten_event(true).try_init() } else { base.try_init() };
    if started.is_ok() {
        // The message of a panic may hold what a stranger sent: only its place is logged.
        std::panic::set_hook(Box::new(|panic| {
            let place = panic.location().map(|at| format!("{}:{}", at.file(), at.line()));
            tracing::error!(place, "panicked");
        }));
    }
}

//! All metrics: names, labels and help texts. Label values come only from the configuration and the code, so their
//! number is bounded.

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

use super::{
    StoreMetrics,
    process::{ProcessCollector, RuntimeCollector, Runtimes},
    prometheus_text,
    store_metrics::StoreCollector,
};
use crate::store::writer::Writer;

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
pub struct KindLabel {
    pub kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct StoredLabel {
    pub stored: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct MessageLabels {
    pub provider: String,
    /// `cited`: the answer refers to a source; `uncited`: it has sources and refers to none; `none`: it has no sources.
    pub sources: &'static str,
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

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

pub struct Metrics {
    registry: Registry,
    /// Their tasks are counted.
    pub runtimes: Runtimes,
    pub requests: Family<RequestLabels, Counter>,
    pub outcomes: Family<OutcomeLabels, Counter>,
    pub first_byte: Histograms<RouteLabel>,
    pub duration: Histograms<RouteLabel>,
    pub overhead: Histograms<ProviderLabel>,
    pub streams: Gauge,
    pub ready: Gauge,
    pub messages: Family<MessageLabels, Counter>,
    pub per_message: Histograms<ProviderLabel>,
    pub faults: Family<KindLabel, Counter>,
    pub frames: Family<FrameLabels, Counter>,
    pub citations: Family<ProviderLabel, Counter>,
    pub markers: Family<ProviderLabel, Counter>,
    pub injections: Family<InjectionLabels, Counter>,
    pub tap_skipped: Family<ReasonLabel, Counter>,
    pub relayed: Counter,
    pub commits: Family<StoredLabel, Counter>,
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

/// Buckets from 1 µs to 0.3 s.
fn overhead() -> Histogram {
    Histogram::new(exponential_buckets(0.000_001, 4.0, 10))
}

/// Buckets up to the most citations of a record.
fn counts() -> Histogram {
    Histogram::new([0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0])
}

impl Metrics {
    /// Registers all metrics. `streams` is the limit of concurrent streams, exported as a gauge.
    pub fn new(writer: Writer, store_metrics: &StoreMetrics, streams: usize) -> Self {
        let this = Self {
            registry: Registry::default(),
            runtimes: Runtimes::default(),
            requests: Family::default(),
            outcomes: Family::default(),
            first_byte: Family::new_with_constructor(latency),
            duration: Family::new_with_constructor(lifetime),
            overhead: Family::new_with_constructor(overhead),
            streams: Gauge::default(),
            ready: Gauge::default(),
            messages: Family::default(),
            per_message: Family::new_with_constructor(counts),
            faults: Family::default(),
            frames: Family::default(),
            citations: Family::default(),
            markers: Family::default(),
            injections: Family::default(),
            tap_skipped: Family::default(),
            relayed: Counter::default(),
            commits: Family::default(),
            commit_wait: latency(),
            searches: Family::default(),
            search_dropped: Counter::default(),
            rate_limited: Counter::default(),
            supplements: Family::default(),
            supplements_skipped: Family::default(),
        };
        // Create both series at 0: `rate()` ignores the first value of a series.
        for stored in ["true", "false"] {
            drop(this.commits.get_or_create(&StoredLabel { stored }));
        }
        this.register(writer, store_metrics, streams)
    }

    fn register(mut self, writer: Writer, store_metrics: &StoreMetrics, streams: usize) -> Self {
        let build: Family<BuildLabels, Gauge> = Family::default();
        build.get_or_create(&BuildLabels { version: crate::VERSION, commit: crate::COMMIT }).set(1);
        let root = &mut self.registry;
        root.register_collector(Box::new(ProcessCollector::new()));
        let prefixed = root.sub_registry_with_prefix("citetap");
        prefixed.register("requests", "Relayed requests by the status that the client got", self.requests.clone());
        prefixed.register("streams_ended", "Relayed answers by how they ended", self.outcomes.clone());
        let help = "From the request to the head of the upstream's answer";
        prefixed.register_with_unit("upstream_time_to_first_byte", help, Unit::Seconds, self.first_byte.clone());
        let help = "From the request to the end of the answer";
        prefixed.register_with_unit("stream_duration", help, Unit::Seconds, self.duration.clone());
        let help = "Longest time that one chunk of an answer spent in the tap, per answer";
        prefixed.register_with_unit("relay_overhead", help, Unit::Seconds, self.overhead.clone());
        prefixed.register("streams_in_flight", "Relayed requests in progress", self.streams.clone());
        let limit: Gauge = Gauge::default();
        limit.set(i64::try_from(streams).unwrap_or(i64::MAX));
        prefixed.register("streams_limit", "Limit of relayed requests in progress", limit);
        prefixed.register("ready", "1 while /readyz answers 200", self.ready.clone());
        let help = "Messages by their sources: cited, uncited (the answer names none of them) or none";
        prefixed.register("messages", help, self.messages.clone());
        prefixed.register("citations_per_message", "Number of sources per message", self.per_message.clone());
        prefixed.register("faults", "Faults, as listed by the console", self.faults.clone());
        prefixed.register("frames", "Tapped frames, and those that could not be parsed", self.frames.clone());
        prefixed.register("citations_extracted", "Sources found", self.citations.clone());
        prefixed.register("markers_rewritten", "Rewritten citation markers", self.markers.clone());
        prefixed.register("injections", "Citation events by result", self.injections.clone());
        prefixed.register("tap_skipped", "Answers and frames relayed without being tapped", self.tap_skipped.clone());
        prefixed.register_with_unit("relayed", "Bytes of answers sent to clients", Unit::Bytes, self.relayed.clone());
        prefixed.register("commits", "Citation events by their value of stored", self.commits.clone());
        let help = "How long the end of an answer waited for the store";
        prefixed.register_with_unit("commit_wait", help, Unit::Seconds, self.commit_wait.clone());
        prefixed.register("searches", "Searches by result", self.searches.clone());
        let help = "Search results dropped as outside the requested domains";
        prefixed.register("search_results_dropped", help, self.search_dropped.clone());
        let help = "Requests refused by their tenant's rate limit";
        prefixed.register("rate_limited", help, self.rate_limited.clone());
        let help = "Messages of routes with a supplement, by the outcome of its search";
        prefixed.register("supplements", help, self.supplements.clone());
        let help = "Messages whose search was not needed or not made, and why";
        prefixed.register("supplements_skipped", help, self.supplements_skipped.clone());
        prefixed.register("build_info", "Version and commit of this build", build);
        prefixed.register_collector(Box::new(RuntimeCollector(self.runtimes.clone())));
        store_metrics.register(prefixed);
        prefixed.register_collector(Box::new(StoreCollector { writer, store: store_metrics.store() }));
        self
    }

    pub fn open_metrics(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    /// The metrics in the Prometheus text format.
    pub fn prometheus_text(&self) -> String {
        prometheus_text::from_open_metrics(&self.open_metrics())
    }
}

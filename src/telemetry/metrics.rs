//! The metrics, by the names and labels that operators look for. No label has more values than the configuration and
//! the code give it.

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
    Operations, classic,
    process::{Process, Tasks},
    store::StoreCollector,
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
    /// `cited`: the answer names one; `uncited`: it names none of those that came; `none`: there were none.
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

/// 1 µs to 0.3 s.
fn overhead() -> Histogram {
    Histogram::new(exponential_buckets(0.000_001, 4.0, 10))
}

/// Up to as many as a record has.
fn counts() -> Histogram {
    Histogram::new([0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0])
}

impl Metrics {
    /// `streams` may be open at one time.
    pub fn new(writer: Writer, operations: &Operations, streams: usize) -> Self {
        let this = Self {
            registry: Registry::default(),
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
        // A rate sees nothing of a series whose first value is not 0.
        for stored in ["true", "false"] {
            drop(this.commits.get_or_create(&StoredLabel { stored }));
        }
        this.registered(writer, operations, streams)
    }

    fn registered(mut self, writer: Writer, operations: &Operations, streams: usize) -> Self {
        let build: Family<BuildLabels, Gauge> = Family::default();
        build.get_or_create(&BuildLabels { version: crate::VERSION, commit: crate::COMMIT }).set(1);
        let root = &mut self.registry;
        root.register_collector(Box::new(Process::new()));
        let ours = root.sub_registry_with_prefix("citetap");
        ours.register("requests", "Relayed requests by the status that the client got", self.requests.clone());
        ours.register("streams_ended", "Relayed answers by how they ended", self.outcomes.clone());
        let help = "From the request to the head of the upstream's answer";
        ours.register_with_unit("upstream_time_to_first_byte", help, Unit::Seconds, self.first_byte.clone());
        let help = "From the request to the end of the answer";
        ours.register_with_unit("stream_duration", help, Unit::Seconds, self.duration.clone());
        let help = "The longest that a piece of an answer was with the tap, of each answer";
        ours.register_with_unit("relay_overhead", help, Unit::Seconds, self.overhead.clone());
        ours.register("streams_in_flight", "Relayed requests that are open now", self.streams.clone());
        let limit: Gauge = Gauge::default();
        limit.set(i64::try_from(streams).unwrap_or(i64::MAX));
        ours.register("streams_limit", "Relayed requests that may be open", limit);
        ours.register("ready", "1 while /readyz says so", self.ready.clone());
        let help = "Messages by their sources: cited, uncited (the answer names none of them) or none";
        ours.register("messages", help, self.messages.clone());
        ours.register("citations_per_message", "Sources of a message", self.per_message.clone());
        ours.register("faults", "What went wrong, as the console lists it", self.faults.clone());
        ours.register("frames", "Frames that were tapped, and those that could not be read", self.frames.clone());
        ours.register("citations_extracted", "Sources found", self.citations.clone());
        ours.register("markers_rewritten", "Markers in answers that were rewritten", self.markers.clone());
        ours.register("injections", "Citation events by result", self.injections.clone());
        ours.register("tap_skipped", "Answers and frames that passed untapped", self.tap_skipped.clone());
        ours.register_with_unit("relayed", "Bytes of answers sent to clients", Unit::Bytes, self.relayed.clone());
        ours.register("commits", "Citation events by whether they say stored", self.commits.clone());
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
        operations.register(ours);
        ours.register_collector(Box::new(StoreCollector { writer, store: operations.store() }));
        self
    }

    pub fn open_metrics(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    /// The same in Prometheus' own text format.
    pub fn classic(&self) -> String {
        classic::from_open_metrics(&self.open_metrics())
    }
}

//! Metrics of the store: its calls, and the writer's counters.

use std::{sync::atomic::Ordering::Relaxed, time::Instant};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{
        MetricType,
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::ConstGauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

use crate::store::writer::Writer;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StoreCallLabels {
    store: &'static str,
    op: &'static str,
    /// `ok`, `error`, or `given_up` if the caller stopped waiting.
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StoreCallDurationLabels {
    store: &'static str,
    op: &'static str,
}

/// Counts and times store calls by operation and result.
#[derive(Clone)]
pub struct StoreMetrics {
    store: &'static str,
    count: Family<StoreCallLabels, Counter>,
    duration: Family<StoreCallDurationLabels, Histogram, fn() -> Histogram>,
}

/// Buckets from 0.1 ms to 15 s.
fn durations() -> Histogram {
    Histogram::new(exponential_buckets(0.000_1, 2.5, 14))
}

impl StoreMetrics {
    pub fn new(store: &'static str) -> Self {
        Self { store, count: Family::default(), duration: Family::new_with_constructor(durations) }
    }

    pub fn store(&self) -> &'static str {
        self.store
    }

    /// Starts timing a call; it is recorded when the guard is dropped.
    pub fn begin(&self, op: &'static str) -> StoreCall<'_> {
        StoreCall { store_metrics: self, op, began: Instant::now(), result: "given_up" }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("store_operations", "Calls of the store by their result", self.count.clone());
        let help = "How long calls of the store took";
        registry.register_with_unit("store_operation_duration", help, Unit::Seconds, self.duration.clone());
    }
}

pub struct StoreCall<'o> {
    store_metrics: &'o StoreMetrics,
    op: &'static str,
    began: Instant,
    result: &'static str,
}

impl StoreCall<'_> {
    pub fn finish<T, E>(mut self, result: Result<T, E>) -> Result<T, E> {
        self.result = if result.is_ok() { "ok" } else { "error" };
        result
    }
}

impl Drop for StoreCall<'_> {
    fn drop(&mut self) {
        let StoreMetrics { store, count, duration } = self.store_metrics;
        let (store, op) = (*store, self.op);
        count.get_or_create(&StoreCallLabels { store, op, result: self.result }).inc();
        duration.get_or_create(&StoreCallDurationLabels { store, op }).observe(self.began.elapsed().as_secs_f64());
    }
}

/// Exports the writer's counters on each scrape.
pub(super) struct StoreCollector {
    pub writer: Writer,
    pub store: &'static str,
}

impl std::fmt::Debug for StoreCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreCollector").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Collector for StoreCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let stats = self.writer.stats();
        let help = "Records by the result of their commit: errors are retried, and retried is part of ok";
        let mut records = encoder.encode_descriptor("store_records", help, None, MetricType::Counter)?;
        for (result, count) in [("ok", &stats.committed), ("error", &stats.failed), ("retried", &stats.retried)] {
            let labels = [("store", self.store), ("result", result)];
            ConstCounter::new(count.load(Relaxed)).encode(records.encode_family(&labels)?)?;
        }
        let help = "Lost records: the queue was full, or all retries failed";
        let mut dropped = encoder.encode_descriptor("store_dropped", help, None, MetricType::Counter)?;
        for (reason, count) in [("queue_full", &stats.refused), ("given_up", &stats.dropped)] {
            let labels = [("store", self.store), ("reason", reason)];
            ConstCounter::new(count.load(Relaxed)).encode(dropped.encode_family(&labels)?)?;
        }
        let mut gauge = |name, help, value: f64| {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
        };
        let count = |n: u64| n as f64;
        gauge("store_queue_depth", "Records waiting for the writer", self.writer.queue_depth() as f64)?;
        gauge("store_queue_limit", "Records that may wait for the writer", self.writer.queue_capacity() as f64)?;
        gauge("store_retry_depth", "Records waiting for a later try", count(stats.waiting.load(Relaxed)))?;
        let up = f64::from(u8::from(self.writer.is_healthy()));
        gauge("store_up", "1 while the store writes, 0 after a write that failed or takes long", up)?;
        gauge("store_last_commit_seconds", "How long the last commit took", stats.last_commit().as_secs_f64())
    }
}

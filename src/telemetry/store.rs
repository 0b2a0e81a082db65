//! What the store does, and what becomes of records.

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
struct OperationLabels {
    store: &'static str,
    op: &'static str,
    /// `ok`, `error` or `given_up`: whoever asked waited no longer.
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DurationLabels {
    store: &'static str,
    op: &'static str,
}

/// Calls of a store, by what they ask and how they end.
#[derive(Clone)]
pub struct Operations {
    store: &'static str,
    count: Family<OperationLabels, Counter>,
    duration: Family<DurationLabels, Histogram, fn() -> Histogram>,
}

/// 0.1 ms to 15 s.
fn durations() -> Histogram {
    Histogram::new(exponential_buckets(0.000_1, 2.5, 14))
}

impl Operations {
    pub fn new(store: &'static str) -> Self {
        Self { store, count: Family::default(), duration: Family::new_with_constructor(durations) }
    }

    pub fn store(&self) -> &'static str {
        self.store
    }

    /// A call begins; it ends when this is dropped.
    pub fn begin(&self, op: &'static str) -> Call<'_> {
        Call { operations: self, op, began: Instant::now(), result: "given_up" }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("store_operations", "Calls of the store by their result", self.count.clone());
        let help = "How long calls of the store took";
        registry.register_with_unit("store_operation_duration", help, Unit::Seconds, self.duration.clone());
    }
}

pub struct Call<'o> {
    operations: &'o Operations,
    op: &'static str,
    began: Instant,
    result: &'static str,
}

impl Call<'_> {
    pub fn ended<T, E>(mut self, result: Result<T, E>) -> Result<T, E> {
        self.result = if result.is_ok() { "ok" } else { "error" };
        result
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let Operations { store, count, duration } = self.operations;
        let (store, op) = (*store, self.op);
        count.get_or_create(&OperationLabels { store, op, result: self.result }).inc();
        duration.get_or_create(&DurationLabels { store, op }).observe(self.began.elapsed().as_secs_f64());
    }
}

/// Reads the writer's own counters when asked.
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
        let help = "Records by what the store said: those of error are tried again, and retried is a part of ok";
        let mut records = encoder.encode_descriptor("store_records", help, None, MetricType::Counter)?;
        for (result, count) in [("ok", &stats.committed), ("error", &stats.failed), ("retried", &stats.retried)] {
            let labels = [("store", self.store), ("result", result)];
            ConstCounter::new(count.load(Relaxed)).encode(records.encode_family(&labels)?)?;
        }
        let help = "Records that are lost: the queue was full, or later tries failed as well";
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
        gauge("store_queue_depth", "Records waiting for the writer", self.writer.depth() as f64)?;
        gauge("store_queue_limit", "Records that may wait for the writer", self.writer.limit() as f64)?;
        gauge("store_retry_depth", "Records waiting for a later try", count(stats.waiting.load(Relaxed)))?;
        let up = f64::from(u8::from(self.writer.healthy()));
        gauge("store_up", "1 while the store writes, 0 after a write that failed or takes long", up)?;
        gauge("store_last_commit_seconds", "How long the last commit took", stats.last_commit().as_secs_f64())
    }
}

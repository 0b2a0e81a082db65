//! Metrics of the process and the runtime, read from the system on each scrape.

use std::{
    fs,
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};
use rustix::{
    process::{Resource, getrlimit},
    time::{ClockId, clock_gettime},
};
use tokio::runtime::Handle;

/// The runtimes of the process: the main one, and one per worker.
#[derive(Debug, Clone, Default)]
pub struct Runtimes(Arc<RwLock<Vec<Handle>>>);

impl Runtimes {
    /// Replaces the runtimes whose tasks are counted.
    pub fn set(&self, runtimes: Vec<Handle>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = runtimes;
    }

    fn alive_tasks(&self) -> usize {
        let runtimes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        runtimes.iter().map(|runtime| runtime.metrics().num_alive_tasks()).sum()
    }
}

/// Number of live tasks of all runtimes.
#[derive(Debug)]
pub(super) struct RuntimeCollector(pub Runtimes);

impl Collector for RuntimeCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let alive = ConstGauge::new(self.0.alive_tasks() as f64);
        let help = "Live tasks: those of connections and streams, and a few permanent ones";
        alive.encode(encoder.encode_descriptor("tasks", help, None, MetricType::Gauge)?)
    }
}

/// Process metrics under the names of the official Prometheus clients. Values that only `/proc` provides are omitted
/// without it.
#[derive(Debug)]
pub(super) struct ProcessCollector {
    started: Duration,
}

impl ProcessCollector {
    /// Takes the current time as the start of the process.
    pub fn new() -> Self {
        Self { started: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() }
    }
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        let seconds = ConstCounter::new(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9);
        let help = "User and system CPU time";
        seconds.encode(encoder.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?)?;

        let mut gauge = |name, help, value: Option<f64>| match value {
            Some(value) => {
                let gauge = ConstGauge::new(value);
                gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
            }
            None => Ok(()),
        };
        let status = fs::read_to_string("/proc/self/status").ok();
        let status_field = |name| status.as_deref().and_then(|status| parse_field(status, name));
        gauge("process_resident_memory_bytes", "Resident memory", status_field("VmRSS:").map(|kib| kib * 1024.0))?;
        gauge("process_virtual_memory_bytes", "Virtual memory", status_field("VmSize:").map(|kib| kib * 1024.0))?;
        gauge("process_threads", "Threads", status_field("Threads:"))?;
        let fds = fs::read_dir("/proc/self/fd").ok().map(|fds| fds.count() as f64);
        gauge("process_open_fds", "Open file descriptors", fds)?;
        let limit = getrlimit(Resource::Nofile).current.map(|limit| limit as f64);
        gauge("process_max_fds", "Limit of open file descriptors", limit)?;
        let help = "Start time since the Unix epoch";
        gauge("process_start_time_seconds", help, Some(self.started.as_secs_f64()))
    }
}

fn parse_field(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

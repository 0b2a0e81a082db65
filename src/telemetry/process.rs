//! What the system says of this process.

use std::{
    fs,
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

/// What the runtime that asks is busy with.
#[derive(Debug)]
pub(super) struct Tasks;

impl Collector for Tasks {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return Ok(()) };
        let alive = ConstGauge::new(runtime.metrics().num_alive_tasks() as f64);
        let help = "Tasks that are alive: those of connections and streams, and a few that always are";
        alive.encode(encoder.encode_descriptor("tasks", help, None, MetricType::Gauge)?)
    }
}

/// Under the names that Prometheus' own clients use. What only `/proc` says is absent where there is none.
#[derive(Debug)]
pub(super) struct Process {
    started: Duration,
}

impl Process {
    /// Started now.
    pub fn new() -> Self {
        Self { started: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() }
    }
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        let seconds = ConstCounter::new(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9);
        let help = "Processor time, of the user and of the system";
        seconds.encode(encoder.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?)?;

        let mut gauge = |name, help, value: Option<f64>| match value {
            Some(value) => {
                let gauge = ConstGauge::new(value);
                gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
            }
            None => Ok(()),
        };
        let status = fs::read_to_string("/proc/self/status").ok();
        let said = |name| status.as_deref().and_then(|status| number_of(status, name));
        gauge("process_resident_memory_bytes", "Resident memory", said("VmRSS:").map(|kib| kib * 1024.0))?;
        gauge("process_virtual_memory_bytes", "Virtual memory", said("VmSize:").map(|kib| kib * 1024.0))?;
        gauge("process_threads", "Threads", said("Threads:"))?;
        let fds = fs::read_dir("/proc/self/fd").ok().map(|fds| fds.count() as f64);
        gauge("process_open_fds", "Open file descriptors", fds)?;
        let most = getrlimit(Resource::Nofile).current.map(|most| most as f64);
        gauge("process_max_fds", "File descriptors that may be open", most)?;
        let help = "When it started, since the epoch";
        gauge("process_start_time_seconds", help, Some(self.started.as_secs_f64()))
    }
}

fn number_of(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

//! Resources of the process, from `/proc` and from its own metrics.

use std::{fs, time::Duration};

use http::Method;
use serde_json::{Value, json};

use crate::{
    net::{Client, request},
    process::Running,
};

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Gauges {
    pub at: Duration,
    pub rss: u64,
    pub fds: usize,
    pub threads: usize,
    pub tasks: usize,
    pub streams: usize,
    /// Records in the store's queue, including retries.
    pub waiting: usize,
}

const MIB: f64 = 1024.0 * 1024.0;

impl Gauges {
    pub async fn read(running: &Running, at: Duration) -> Self {
        let response = Client::h1(running.addr).await.send(request(Method::GET, "/metrics", &[], "")).await;
        let metrics = response.whole().await.text();
        let gauge = |name: &str| {
            let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("{name} in {metrics}")).parse::<f64>().unwrap() as usize
        };
        let proc = |file: &str| format!("/proc/{}/{file}", running.id());
        let status = fs::read_to_string(proc("status")).unwrap();
        let of = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
        };
        Self {
            at,
            rss: of("VmRSS:") * 1024,
            fds: fs::read_dir(proc("fd")).unwrap().count(),
            threads: usize::try_from(of("Threads:")).unwrap(),
            tasks: gauge("citetap_tasks"),
            streams: gauge("citetap_streams_in_flight"),
            waiting: gauge("citetap_store_queue_depth") + gauge("citetap_store_retry_depth"),
        }
    }

    /// True when no load is left. hyper-util's connection pool, of which every worker has one, starts a timer task with its
    /// first idle connection and keeps it. The warm-up may not have left an idle connection in every pool.
    pub fn rests_as(&self, idle: &Self) -> bool {
        let pools = std::thread::available_parallelism().unwrap().get();
        self.fds <= idle.fds && self.tasks <= idle.tasks + pools && self.streams == 0 && self.waiting == 0
    }

    pub fn json(&self) -> Value {
        json!({"rssMiB": mib(self.rss), "fds": self.fds, "threads": self.threads, "tasks": self.tasks})
    }
}

pub fn mib(bytes: u64) -> f64 {
    (bytes as f64 / MIB * 10.0).round() / 10.0
}

/// The median of the samples between two parts of the run.
pub fn median_rss(seen: &[Gauges], from: f64, to: f64) -> u64 {
    let end = seen.last().map_or(0.0, |last| last.at.as_secs_f64());
    let part = |gauges: &&Gauges| (from * end..=to * end).contains(&gauges.at.as_secs_f64());
    let mut rss: Vec<u64> = seen.iter().filter(part).map(|gauges| gauges.rss).collect();
    rss.sort_unstable();
    rss[rss.len() / 2]
}

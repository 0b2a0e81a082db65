//! Mixed load for a while: nothing grows, no byte changes, nothing panics.
//!
//! `tests/soak` runs this for minutes, the test command for seconds.

mod api_clients;
mod chat_clients;
mod gauges;
mod report;
mod setup;

use std::{
    fs,
    io::{IsTerminal as _, Write as _},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use bytes::Bytes;
use citetap::replay::{Script, Scripted, Upstream};
use futures_util::future::join_all;
use http::Method;
use serde_json::json;
use tokio::task::JoinSet;

use self::{
    api_clients::ApiClients,
    chat_clients::ChatClients,
    gauges::{Gauges, median_rss, mib},
    report::Report,
    setup::Setup,
};
use crate::{
    api::tenants::ALPHA,
    golden::captures,
    net::{Client, LIMIT, request, tencent},
    process::{Running, citetap},
    rng::Rng,
};

/// Seconds in the test command.
const SECONDS: u64 = 15;
/// Concurrent chats: connections with one stream, and with several.
const H1: usize = 16;
const H2: (usize, usize) = (3, 6);
const API: usize = 3;
const WRONG: usize = 3;

/// Allowed growth between the second quarter of the run and the last. Records are bounded (they expire after 5 s), so a
/// leak shows. The allocator, SQLite's page caches (2 MiB per connection) and the current mix vary by less than this.
/// In ten minutes it is a leak of about half a KiB per stream.
const GROWTH: u64 = 12 << 20;
/// Threads beyond those of an idle process: blocking ones, which end by themselves.
const THREADS: usize = 16;

struct Soak {
    running: Arc<Running>,
    upstream: Upstream,
    warm: Option<Upstream>,
    setup: Setup,
    dir: tempfile::TempDir,
    report: Arc<Report>,
    rng: Rng,
}

impl Soak {
    async fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut setup = Setup::new(&mut rng);
        let upstream = Upstream::bind(std::mem::take(&mut setup.scripts)).await.unwrap();
        let warm = Upstream::bind(vec![Scripted::new("/", Script::sse(tencent::answer("warm")))]).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("citetap.toml"), setup::toml(&upstream.url(), &warm.url())).unwrap();
        let command = citetap(dir.path(), &["serve", "--listen", "127.0.0.1:0"]);
        let running = Arc::new(Running::start_as_is(command).await);
        Self { running, upstream, warm: Some(warm), setup, dir, report: Arc::default(), rng }
    }

    /// Resources of the idle process, after every store connection has been opened and the upstream pool has been used.
    async fn idle(&mut self) -> Gauges {
        for path in ["/warm/x", "/stats", "/stats"] {
            let ask = || request(Method::GET, path, ALPHA, "");
            join_all((0..24).map(async |_| Client::h1(self.running.addr).await.send(ask()).await.whole().await)).await;
        }
        if let Some(warm) = self.warm.take() {
            warm.shutdown().await;
        }
        let began = Instant::now();
        let mut last = Gauges::read(&self.running, Duration::ZERO).await;
        // Its connections are closed when two samples are equal.
        while began.elapsed() < LIMIT {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let now = Gauges::read(&self.running, Duration::ZERO).await;
            if (now.fds, now.tasks, now.threads) == (last.fds, last.tasks, last.threads) {
                return now;
            }
            last = now;
        }
        panic!("it never rests: {last:?}")
    }

    fn spawn_clients(&mut self, until: Instant) -> JoinSet<()> {
        let (addr, report) = (self.running.addr, Arc::clone(&self.report));
        let items = Arc::new(std::mem::take(&mut self.setup.items));
        let chats = Arc::new(ChatClients { addr, items, report: Arc::clone(&report), until });
        let bodies: Vec<Bytes> = captures().into_iter().map(|(_, path)| fs::read(path).unwrap().into()).collect();
        let api_clients = Arc::new(ApiClients { addr, report, captures: Arc::new(bodies), until });
        let (mut all, rng) = (JoinSet::new(), &mut self.rng);
        for _ in 0..H1 {
            all.spawn(Arc::clone(&chats).h1(rng.fork()));
        }
        for _ in 0..H2.0 {
            all.spawn(Arc::clone(&chats).h2(rng.fork(), H2.1));
        }
        for _ in 0..API {
            all.spawn(Arc::clone(&api_clients).api(rng.fork()));
        }
        for _ in 0..WRONG {
            all.spawn(Arc::clone(&api_clients).wrong(rng.fork()));
        }
        all.spawn(Arc::clone(&api_clients).health());
        all.spawn(Arc::clone(&api_clients).locks(self.dir.path().join("soak.db"), rng.fork()));
        let (running, dir) = (Arc::clone(&self.running), self.dir.path().to_owned());
        let rng = rng.fork();
        all.spawn(async move { api_clients.reloads(running, &dir, rng).await });
        all
    }

    fn line(&self, now: &Gauges, seconds: u64) -> String {
        let Report { streams, requests, altered, .. } = &*self.report;
        format!(
            "{}/{seconds} s  {} streams  {} requests  {} altered  {} MiB  {} fds  {} tasks  {} faults",
            now.at.as_secs(),
            streams.load(Relaxed),
            requests.load(Relaxed),
            altered.load(Relaxed),
            mib(now.rss),
            now.fds,
            now.tasks,
            self.report.faults().len(),
        )
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mixed_load_leaks_nothing() {
    let requested_seconds: Option<u64> = std::env::var("SOAK_SECONDS").ok().map(|seconds| seconds.parse().unwrap());
    let (seconds, seed) = (requested_seconds.unwrap_or(SECONDS), Rng::seed("SOAK_SEED"));
    let terminal = std::io::stderr().is_terminal();
    let say = |line: &str| {
        if requested_seconds.is_some() {
            writeln!(std::io::stderr(), "{line}").unwrap();
        }
    };
    say(&format!("{seconds} s, seed {seed}"));
    let mut soak = Soak::new(seed).await;
    let idle = soak.idle().await;
    let began = Instant::now();
    let mut clients = soak.spawn_clients(began + Duration::from_secs(seconds));
    let mut seen: Vec<Gauges> = Vec::new();
    let every = Duration::from_millis((seconds * 10).clamp(250, 2000));
    let (mut reported_at, mut faults) = (Instant::now(), 0);
    while !clients.is_empty() {
        while let Some(done) = clients.try_join_next() {
            if let Err(error) = done {
                soak.report.fault(format!("a client of ours: {error}"));
            }
        }
        let now = Gauges::read(&soak.running, began.elapsed()).await;
        seen.push(now);
        for fault in soak.report.faults().iter().skip(faults) {
            faults += 1;
            say(&format!("{}{fault}", if terminal { "\r\x1b[K" } else { "" }));
        }
        let line = soak.line(&now, seconds);
        if requested_seconds.is_some() && terminal {
            write!(std::io::stderr(), "\r\x1b[K{line}").unwrap();
        } else if reported_at.elapsed() > Duration::from_secs(30) {
            reported_at = Instant::now();
            say(&line);
        }
        tokio::time::sleep(every).await;
    }
    if terminal {
        say("");
    }
    let Soak { running, upstream, report, dir, .. } = soak;
    // The proxy keeps idle upstream connections. They end with the upstream.
    upstream.shutdown().await;
    let rest = at_rest(&running, &idle).await;
    check_report(&report, &running, &idle, &rest, &seen);

    let peak = |of: fn(&Gauges) -> usize| seen.iter().map(of).max().unwrap_or_default();
    let figures = json!({
        "seconds": seconds, "seed": seed,
        "streams": report.streams.load(Relaxed), "requests": report.requests.load(Relaxed),
        "stored": report.stored.load(Relaxed), "notStored": report.not_stored.load(Relaxed),
        "left": report.left.load(Relaxed), "stalled": report.stalled.load(Relaxed),
        "locks": report.locks.load(Relaxed), "reloads": report.reloads.load(Relaxed),
        "slowestHealthMs": report.slowest_health_ms.load(Relaxed),
        "altered": report.altered.load(Relaxed), "faults": report.faults().len(),
        "idle": idle.json(), "rest": rest.json(),
        "peak": {"rssMiB": mib(seen.iter().map(|now| now.rss).max().unwrap_or_default()), "fds": peak(|now| now.fds),
                 "threads": peak(|now| now.threads), "tasks": peak(|now| now.tasks), "streams": peak(|now| now.streams)},
        "rssMiB": {"secondQuarter": mib(median_rss(&seen, 0.25, 0.5)), "lastQuarter": mib(median_rss(&seen, 0.75, 1.0))},
        "answers": report.counts(),
    });
    say(&figures.to_string());
    let faults = report.faults();
    assert!(faults.is_empty(), "{figures}\n{}", faults.join("\n"));
    assert!(report.streams.load(Relaxed) > seconds * 4, "too few streams for a result: {figures}");
    drop(dir);
}

/// Waits until no load is left. Returns the remaining resources.
async fn at_rest(running: &Running, idle: &Gauges) -> Gauges {
    let began = Instant::now();
    loop {
        let now = Gauges::read(running, Duration::ZERO).await;
        if now.rests_as(idle) || began.elapsed() > LIMIT {
            return now;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn check_report(report: &Report, running: &Running, idle: &Gauges, rest: &Gauges, seen: &[Gauges]) {
    if !rest.rests_as(idle) {
        report.fault(format!("something stays: {rest:?}, and idle it was {idle:?}"));
    }
    let (before, after) = (median_rss(seen, 0.25, 0.5), median_rss(seen, 0.75, 1.0));
    if after > before + GROWTH {
        report.fault(format!("memory grows: {} MiB, then {} MiB", mib(before), mib(after)));
    }
    if let Some(most) = seen.iter().find(|now| now.threads > idle.threads + THREADS) {
        report.fault(format!("threads: {most:?}"));
    }
    let lines = running.out().into_iter().chain(running.err());
    for line in lines.filter(|line| line.contains("panicked")) {
        report.fault(line);
    }
}

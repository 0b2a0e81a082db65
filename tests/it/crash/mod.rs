//! SIGKILL at any time: no record that was reported as stored is lost (P5).

pub mod expected;
pub mod load;
pub mod streams;

use std::{
    io::{IsTerminal as _, Write as _},
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use citetap::{citation::Record, replay::Upstream};
use tokio::task::JoinSet;

use self::expected::{ExpectedRecords, Findings, check_file};
use crate::{
    net::{route, split},
    process::{Running, as_sent, citetap},
    rng::Rng,
};

/// Number of kills in the test command. `tests/crash` sets another.
const CYCLES: usize = 20;
/// After this many kills a new file is used, so that startup stays fast.
const CYCLES_OF_A_FILE: usize = 40;
/// The last processes of a file delete records older than this.
const SWEEPS: usize = 3;
const TTL: Duration = Duration::from_secs(4);
/// Records are compared while they are younger than this. Their streams began earlier.
const YOUNG: Duration = Duration::from_secs(2);

/// Time for clients to notice that their server is dead.
const CLIENT_EXIT: Duration = Duration::from_secs(5);

pub async fn demo(dir: &Path, speed: &str) -> Running {
    let args = ["demo", "--listen", "127.0.0.1:0", "--store", "crash.db", "--fresh-ids", "--speed", speed];
    Running::start(citetap(dir, &args)).await
}

pub async fn kept(demo: &Running, id: &str) -> Record {
    let response = demo.get(&format!("/citations/{id}")).await;
    assert_eq!(response.status, 200, "{id} was delivered as stored");
    serde_json::from_value(response.json().await).unwrap()
}

#[tokio::test]
async fn record_reported_as_stored_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let demo_1 = demo(dir.path(), "100").await;
    let mut response = demo_1.post("/doubao/chat").await;
    let seen = response.until("event: SSE_REPLY_END").await;
    let (_, ours) = split(seen.as_bytes());
    assert!(ours[0].stored);
    let before = kept(&demo_1, &ours[0].message_id).await;
    demo_1.kill();

    let demo_2 = demo(dir.path(), "100").await;
    let after = kept(&demo_2, &ours[0].message_id).await;
    assert_eq!(after, before);
    assert_eq!(as_sent(after), as_sent(ours[0].clone()));
}

/// When a process is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// Before or soon after it listens: the file is created, read and migrated.
    Start,
    Load,
    /// Stream ends and last commits close together.
    Drain,
}

/// Waits for the clients. A client may miss the reset and would wait for ever, so the wait is bounded.
async fn over(mut clients: JoinSet<()>) {
    while let Ok(Some(ended)) = tokio::time::timeout(CLIENT_EXIT, clients.join_next()).await {
        ended.unwrap();
    }
}

struct Loop {
    upstream: Upstream,
    rng: Rng,
    findings: Findings,
    dir: tempfile::TempDir,
    expected: ExpectedRecords,
    /// Startup time on this machine.
    start: Duration,
}

impl Loop {
    async fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let upstream = Upstream::bind(streams::scripts(&mut rng)).await.unwrap();
        let (findings, expected, start) = (Findings::default(), ExpectedRecords::default(), Duration::from_millis(100));
        Self { upstream, rng, findings, dir: tempfile::tempdir().unwrap(), expected, start }
    }

    fn toml(&self, ttl: Duration) -> String {
        let mut toml = format!(
            "store = \"sqlite:crash.db\"\n[records]\nttl = \"{}s\"\nsweep = \"1s\"\n[timeouts]\ndrain = \"300ms\"\n",
            ttl.as_secs()
        );
        for dialect in streams::DIALECTS {
            let provider = if dialect == "samantha" { "doubao" } else { dialect };
            toml += &route(dialect, &format!("{}/{dialect}", self.upstream.url()));
            toml += &format!("provider = \"{provider}\"\n");
        }
        toml
    }

    /// One process from its start to SIGKILL.
    async fn cycle(&mut self, ttl: Duration, age: Duration) {
        self.findings.cycles += 1;
        let moment = match self.rng.within(0..10) {
            0 => Moment::Start,
            1 => Moment::Drain,
            _ => Moment::Load,
        };
        if moment == Moment::Start {
            self.findings.starts += 1;
            return self.killed_at_its_start(ttl).await;
        }
        let running = self.started(ttl).await;
        self.expected.check_new(&running, age, &mut self.findings).await;
        let (observations, clients) = load::start(running.addr, &mut self.rng);
        tokio::time::sleep(self.rng.millis(0..700)).await;
        if moment == Moment::Drain {
            self.findings.drains += 1;
            running.signal("TERM");
            tokio::time::sleep(self.rng.millis(0..500)).await;
        }
        let output = running.err().into_iter().chain(running.out());
        let panics: Vec<String> = output.filter(|line| line.contains("panicked")).collect();
        assert_eq!(panics, [""; 0]);
        running.kill();
        over(clients).await;
        self.expected.enter(&observations, &mut self.findings);
    }

    async fn started(&mut self, ttl: Duration) -> Running {
        let began = Instant::now();
        let running = Running::serve(self.dir.path(), &self.toml(ttl)).await;
        self.start = began.elapsed();
        running
    }

    async fn killed_at_its_start(&mut self, ttl: Duration) {
        std::fs::write(self.dir.path().join("citetap.toml"), self.toml(ttl)).unwrap();
        let mut command = citetap(self.dir.path(), &["serve", "--listen", "127.0.0.1:0"]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        tokio::time::sleep(self.rng.millis(0..self.start.as_millis() as usize + 50)).await;
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// This number of kills on a new file, then a comparison of its complete content.
    async fn file(&mut self, cycles: usize, progress: &impl Fn(&Findings)) {
        const MONTH: Duration = Duration::from_secs(30 * 86400);
        self.dir = tempfile::tempdir().unwrap();
        self.expected = ExpectedRecords::default();
        let sweeps = SWEEPS.min(cycles / 2);
        for _ in sweeps..cycles {
            self.cycle(MONTH, MONTH).await;
            progress(&self.findings);
        }
        let running = self.started(MONTH).await;
        self.expected.check_all(&running, &mut self.findings).await;
        self.expected.check_list(&running, &mut self.findings).await;
        running.kill();
        for _ in 0..sweeps {
            self.cycle(TTL, YOUNG).await;
            progress(&self.findings);
        }
        check_file(&self.dir.path().join("crash.db"), &mut self.findings).await;
        let running = self.started(MONTH).await;
        self.expected.check_new(&running, YOUNG, &mut self.findings).await;
        self.expected.check_list(&running, &mut self.findings).await;
    }
}

/// `tests/crash` runs this with its own number of kills and shows the progress.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_at_random_times_lose_no_stored_record() {
    let requested_cycles: Option<usize> = std::env::var("CRASH_CYCLES").ok().map(|cycles| cycles.parse().unwrap());
    let (cycles, seed) = (requested_cycles.unwrap_or(CYCLES), Rng::seed("CRASH_SEED"));
    let began = Instant::now();
    let terminal = std::io::stderr().is_terminal();
    let say = |line: &str| writeln!(std::io::stderr(), "{line}").unwrap();
    if requested_cycles.is_some() {
        say(&format!("{cycles} kills, seed {seed}"));
    }
    let progress = |findings: &Findings| {
        let Findings { cycles: done, streams, reported, missing, torn, mixed, .. } = findings;
        let line = format!(
            "{done}/{cycles} kills  {streams} streams  {reported} stored  {missing} missing  {torn} torn  {mixed} mixed"
        );
        if requested_cycles.is_some() && terminal {
            write!(std::io::stderr(), "\r\x1b[K{line}").unwrap();
        } else if requested_cycles.is_some() && done.is_multiple_of(50) {
            say(&line);
        }
    };
    let mut this = Loop::new(seed).await;
    while this.findings.cycles < cycles && this.findings.is_clean() {
        this.file(CYCLES_OF_A_FILE.min(cycles - this.findings.cycles), &progress).await;
    }
    let line = format!("{} in {} s, seed {seed}", this.findings.line(), began.elapsed().as_secs());
    if requested_cycles.is_some() {
        say(&format!("{}{line}", if terminal { "\r\x1b[K" } else { "" }));
    }
    assert!(this.findings.is_clean(), "{line}\n{}", this.findings.faults.join("\n"));
    assert!(this.findings.reported > cycles * 5, "too few streams for a result: {line}");
}

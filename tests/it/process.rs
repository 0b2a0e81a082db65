//! The real binary as a child process.

use std::{
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use citetap::citation::Record;
use serde_json::Value;

use crate::net::{Client, ClientResponse, LIMIT, get, post, split};

/// A `citetap` command in `dir` without the environment of the test run.
pub fn citetap(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_citetap"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["CITETAP", "TAVILY", "OTEL_"].iter().any(|ours| text.starts_with(ours))
            || matches!(&*text, "PORT" | "RUST_LOG")
        {
            command.env_remove(name);
        }
    }
    command.args(args).current_dir(dir);
    command
}

/// Wraps the command in a shell that sets resource limits. `limits` are shell lines such as `ulimit -n 64`.
pub fn confined(plain: &Command, limits: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{limits}; exec \"$0\" \"$@\"")).arg(plain.get_program()).args(plain.get_args());
    if let Some(dir) = plain.get_current_dir() {
        command.current_dir(dir);
    }
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// A terminated command.
#[derive(Debug)]
pub struct CommandOutput {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl CommandOutput {
    pub fn json(&self) -> Value {
        assert_eq!(self.code, 0, "{self:?}");
        serde_json::from_str(&self.out).unwrap()
    }
}

pub fn run(command: Command, stdin: impl Into<Vec<u8>>) -> CommandOutput {
    let output = assert_cmd::Command::from_std(command).write_stdin(stdin).timeout(LIMIT).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    CommandOutput { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

/// Runs a shell line as a user would paste it.
pub fn shell(line: &str) -> Vec<u8> {
    let output = Command::new("sh").args(["-c", line]).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Commit wait of [`Running`], unless the command sets its own.
pub const COMMIT: &str = "CITETAP__TIMEOUTS__COMMIT";

type Lines = Arc<Mutex<Vec<String>>>;

/// A running `serve` or `demo`. Killed when dropped.
pub struct Running {
    child: Child,
    out: Lines,
    err: Lines,
    pub addr: SocketAddr,
}

impl Running {
    /// Starts it and waits until it logs its address.
    pub async fn start(mut command: Command) -> Self {
        be_patient(&mut command);
        Self::start_as_is(command).await
    }

    /// Starts it with its default commit wait.
    pub async fn start_as_is(command: Command) -> Self {
        let mut running = Self::spawn(command, ([127, 0, 0, 1], 0).into());
        let began = Instant::now();
        loop {
            if let Some(addr) = running.out().iter().find_map(|line| address(line)) {
                running.addr = addr;
                return running;
            }
            running.has_not_ended(began);
            pause().await;
        }
    }

    /// Starts one that does not listen on a single TCP port, and waits until it is ready.
    pub async fn start_elsewhere(mut command: Command) -> Self {
        be_patient(&mut command);
        let mut running = Self::spawn(command, ([127, 0, 0, 1], 0).into());
        let began = Instant::now();
        while !running.out().iter().any(|line| line.contains("\"listening\"")) {
            running.has_not_ended(began);
            pause().await;
        }
        running
    }

    /// Starts one that may not log its address, and waits until it is ready.
    pub async fn start_at(command: Command, addr: SocketAddr) -> Self {
        let mut running = Self::spawn(command, addr);
        let began = Instant::now();
        while tokio::net::TcpStream::connect(addr).await.is_err() {
            running.has_not_ended(began);
            pause().await;
        }
        running
    }

    fn spawn(mut command: Command, addr: SocketAddr) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (out, err) = (collect(child.stdout.take().unwrap()), collect(child.stderr.take().unwrap()));
        Self { child, out, err, addr }
    }

    fn has_not_ended(&mut self, began: Instant) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none() && began.elapsed() < LIMIT, "{ended:?} {:?} {:?}", self.out(), self.err());
    }

    /// `serve` with this file in `dir`, on a free port.
    pub async fn serve(dir: &Path, toml: &str) -> Self {
        std::fs::write(dir.join("citetap.toml"), toml).unwrap();
        Self::start(citetap(dir, &["serve", "--listen", "127.0.0.1:0"])).await
    }

    pub async fn get(&self, path: &str) -> ClientResponse {
        Client::h1(self.addr).await.send(get(path)).await
    }

    pub async fn post(&self, path: &str) -> ClientResponse {
        Client::h1(self.addr).await.send(post(path, "{}")).await
    }

    /// The lines of standard output so far.
    pub fn out(&self) -> Vec<String> {
        self.out.lock().unwrap().clone()
    }

    pub fn err(&self) -> Vec<String> {
        self.err.lock().unwrap().clone()
    }

    /// The log on standard output. Checks that each line is an object with the common fields.
    pub fn log(&self) -> Vec<Value> {
        let parse = |line: String| {
            let log: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            assert!(log["timestamp"].is_string() && log["level"].is_string(), "{line}");
            log
        };
        self.out().into_iter().map(parse).collect()
    }

    /// Waits for this number of log lines with this message.
    pub async fn logged(&self, message: &str, count: usize) -> Vec<Value> {
        let began = Instant::now();
        loop {
            let lines: Vec<Value> = self.log().into_iter().filter(|line| line["message"] == message).collect();
            if lines.len() >= count {
                return lines;
            }
            assert!(began.elapsed() < LIMIT, "{} of {count} {message:?}: {:?}", lines.len(), self.out());
            pause().await;
        }
    }

    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sets a soft resource limit of the running process, by its `prlimit` name.
    pub fn limit(&self, resource: &str, value: &str) {
        let (pid, limit) = (self.child.id().to_string(), format!("--{resource}={value}:"));
        assert!(Command::new("prlimit").args(["--pid", &pid, &limit]).status().unwrap().success());
    }

    /// The soft and the hard limit on open files.
    pub fn files(&self) -> (u64, u64) {
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", self.child.id())).unwrap();
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
        let mut numbers = line.split_whitespace().map(|number| number.parse().unwrap_or(u64::MAX));
        (numbers.next().unwrap(), numbers.next().unwrap())
    }

    /// Peak memory in bytes.
    pub fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// CPU time used so far. Linux counts it in hundredths of a second.
    pub fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let after_name: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: u64 = after_name[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum();
        Duration::from_millis(ticks * 10)
    }

    /// Sends SIGKILL and waits until the process has ended.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until the process ends.
    pub async fn ended(&mut self, limit: Duration) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(began.elapsed() < limit, "still running after {limit:?}: {:?} {:?}", self.out(), self.err());
            pause().await;
        }
    }
}

/// A longer commit wait, because on a busy disk an event would otherwise have `stored: false`.
fn be_patient(command: &mut Command) {
    if !command.get_envs().any(|(name, _)| name == COMMIT) {
        command.env(COMMIT, "10s");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(from: impl Read + Send + 'static) -> Lines {
    let lines = Lines::default();
    let kept = Arc::clone(&lines);
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            kept.lock().unwrap().push(line);
        }
    });
    lines
}

/// Parses the address from the log of `serve` or the output of `demo`.
fn address(line: &str) -> Option<SocketAddr> {
    if let Ok(log) = serde_json::from_str::<Value>(line) {
        let listening = log["message"] == "listening";
        return listening.then(|| log["listen"].as_str())?.and_then(|listen| listen.parse().ok());
    }
    let rest = line.split_once(" demo on http://")?.1;
    rest.split_once(',')?.0.parse().ok()
}

pub async fn pause() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}

/// The only record in a stream, which must precede the first finish.
pub fn the_record(stream: &[u8]) -> Record {
    let (_, mut ours) = split(stream);
    let text = String::from_utf8_lossy(stream);
    assert_eq!(ours.len(), 1, "one event: {text}");
    let at = text.find("event: citations").unwrap();
    for finish in ["event: SSE_REPLY_END", "event:finish", "\"finish_reason\":\"stop\""] {
        assert!(text.find(finish).is_none_or(|finish| at < finish), "not before the finish: {text}");
    }
    ours.remove(0)
}

/// The record as its event has it: snippets truncated, failed citations omitted.
pub fn as_sent(mut record: Record) -> Record {
    for round in &mut record.rounds {
        round.failures.clear();
    }
    for citation in &mut record.citations {
        for text in citation.content.iter_mut().chain(&mut citation.snippets) {
            *text = text.chars().take(200).collect();
        }
    }
    record
}

/// A port of this machine without a listener.
pub fn dead_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

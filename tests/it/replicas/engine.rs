//! A PostgreSQL or Redis for one test, with methods to make it fail.

use std::{
    net::TcpStream,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::process::dead_port;

/// Maximum startup time, including recovery from its log.
const START: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Postgres,
    Redis,
}

/// Its processes end when it is dropped.
pub struct Engine {
    kind: Kind,
    /// Its data directory, as seen in its mount namespace.
    data: PathBuf,
    port: u16,
    child: Child,
    disk: Disk,
    _dir: tempfile::TempDir,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disk {
    Plain,
    /// A small disk of its own, which can be filled.
    Small,
}

impl Engine {
    pub async fn start(kind: Kind, disk: Disk) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        std::fs::create_dir(&data).unwrap();
        if is_root() && kind == Kind::Postgres {
            // PostgreSQL then runs as another user, who needs access to the path.
            run(Command::new("chmod").arg("711").arg(dir.path()));
            run(Command::new("chown").arg("postgres").arg(&data));
        }
        let port = dead_port();
        let first = match (kind, disk) {
            (Kind::Redis, _) => String::new(),
            (Kind::Postgres, _) => format!("{} {}; ", as_postgres(disk), initdb(&data)),
        };
        let mount = match disk {
            Disk::Plain => String::new(),
            Disk::Small => {
                let owner = if is_root() { format!(",uid={}", id(&["-u", "postgres"])) } else { String::new() };
                format!("mount -t tmpfs -o size=96m,mode=700{owner} tmpfs '{}'; ", data.display())
            }
        };
        let child = spawn(kind, &data, port, disk, &(mount + &first));
        let mut engine = Self { kind, data, port, child, disk, _dir: dir };
        engine.wait_until_ready().await;
        engine
    }

    pub fn url(&self) -> String {
        match self.kind {
            Kind::Postgres => format!("postgres://citetap@127.0.0.1:{}/postgres", self.port),
            Kind::Redis => format!("redis://127.0.0.1:{}/0", self.port),
        }
    }

    /// Stops all its processes. Clients are not notified.
    pub fn pause(&self) {
        self.signal_all("STOP");
    }

    pub fn resume(&self) {
        self.signal_all("CONT");
    }

    /// Ends it at once, without notifying its clients, and closes the listener.
    pub fn crash(&mut self) {
        let signal = match (self.kind, self.disk) {
            // PostgreSQL's immediate shutdown: no checkpoint, recovery at the next start. SIGKILL would leave processes
            // that hold the data.
            (Kind::Postgres, Disk::Plain) => "QUIT",
            // To its supervising shell.
            (Kind::Postgres, Disk::Small) => "TERM",
            (Kind::Redis, _) => "KILL",
        };
        signal_one(self.child.id(), signal);
        self.child.wait().unwrap();
    }

    pub async fn again(&mut self) {
        assert_eq!(self.disk, Disk::Plain);
        self.child = spawn(self.kind, &self.data, self.port, self.disk, "");
        self.wait_until_ready().await;
    }

    /// Allows reads and rejects writes.
    pub fn read_only(&self, yes: bool) {
        match self.kind {
            Kind::Postgres => {
                let value = if yes { "on" } else { "off" };
                self.ask(&format!("ALTER SYSTEM SET default_transaction_read_only = {value}"));
                self.ask("SELECT pg_reload_conf()");
            }
            Kind::Redis => self.ask(if yes { "REPLICAOF 127.0.0.1 1" } else { "REPLICAOF NO ONE" }),
        }
    }

    /// Fills the disk.
    pub fn full(&self, yes: bool) {
        match self.kind {
            Kind::Postgres => {
                let filler = PathBuf::from(format!("/proc/{}/root{}/filler", self.child.id(), self.data.display()));
                if yes {
                    let mut file = std::fs::File::create(&filler).unwrap();
                    let full = std::io::copy(&mut std::io::repeat(0), &mut file).unwrap_err();
                    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
                } else {
                    std::fs::remove_file(&filler).unwrap();
                }
            }
            Kind::Redis => self.ask(if yes { "CONFIG SET maxmemory 1" } else { "CONFIG SET maxmemory 0" }),
        }
    }

    /// Runs a statement or command, as an operator would.
    fn ask(&self, what: &str) {
        let port = self.port.to_string();
        match self.kind {
            Kind::Postgres => {
                let psql = ["-h", "127.0.0.1", "-p", &port, "-U", "citetap", "-d", "postgres", "-qc", what];
                run(Command::new(program("psql")).args(psql));
            }
            Kind::Redis => run(Command::new("redis-cli").args(["-p", &port]).args(what.split(' '))),
        }
    }

    async fn wait_until_ready(&mut self) {
        let began = Instant::now();
        let port = self.port.to_string();
        loop {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none() && began.elapsed() < START, "the engine does not start: {ended:?}");
            let probe = match self.kind {
                Kind::Postgres => {
                    Command::new(program("pg_isready")).args(["-q", "-h", "127.0.0.1", "-p", &port]).status()
                }
                Kind::Redis => Command::new("redis-cli").args(["-p", &port, "ping"]).stdout(Stdio::null()).status(),
            };
            if probe.unwrap().success() && TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// PostgreSQL has many processes.
    fn signal_all(&self, signal: &str) {
        let main = self.child.id();
        signal_one(main, signal);
        for child in children(main) {
            // One may have ended since.
            let _ = Command::new("kill").args([format!("-{signal}"), child]).status();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.resume();
            self.crash();
        }
    }
}

fn spawn(kind: Kind, data: &Path, port: u16, disk: Disk, first: &str) -> Child {
    let serve = match kind {
        Kind::Postgres => format!(
            "{} {} -D '{}' -p {port} -k '' -c listen_addresses=127.0.0.1 -c shared_buffers=16MB -c max_wal_size=32MB \
             -c min_wal_size=2MB",
            as_postgres(disk),
            program("postgres").display(),
            data.display()
        ),
        Kind::Redis => format!(
            "redis-server --bind 127.0.0.1 --port {port} --dir '{}' --save '' --appendonly yes --appendfsync always",
            data.display()
        ),
    };
    let script = match disk {
        Disk::Plain => format!("set -e; {first}exec {serve}"),
        // A full disk ends PostgreSQL, and operators restart it. The disk is unmounted with its last process.
        Disk::Small => format!(
            "set -e; {first}set +e; trap 'kill -QUIT $server; wait $server; exit' TERM; \
             while :; do {serve} & server=$!; wait $server; sleep 0.2; done"
        ),
    };
    let mut command = match disk {
        Disk::Plain => Command::new("sh"),
        Disk::Small => {
            let mut unshared = Command::new("unshare");
            // Users other than root can mount in a user namespace.
            unshared.args(if is_root() { &["--mount", "sh"][..] } else { &["--map-root-user", "--mount", "sh"] });
            unshared
        }
    };
    // Ctrl-C in the terminal is for the test, which stops the engine.
    command.args(["-c", &script]).current_dir("/").process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn initdb(data: &Path) -> String {
    format!(
        "{} -D '{}' -A trust -U citetap -E UTF8 --locale=C --wal-segsize=1 --no-sync --no-instructions",
        program("initdb").display(),
        data.display()
    )
}

/// PostgreSQL refuses to run as root.
fn as_postgres(disk: Disk) -> String {
    match disk {
        _ if is_root() => "setpriv --reuid=postgres --regid=postgres --clear-groups".to_owned(),
        // In the namespace of the mount we are root.
        Disk::Small => format!("unshare --map-user={} --map-group={}", id(&["-u"]), id(&["-g"])),
        Disk::Plain => String::new(),
    }
}

fn is_root() -> bool {
    id(&["-u"]) == "0"
}

fn id(what: &[&str]) -> String {
    let output = Command::new("id").args(what).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Debian installs PostgreSQL's programs by version, outside the PATH.
fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        versions.map(|version| version.path().join("bin").join(name)).filter(|path| path.exists()).collect();
    found.sort();
    found.pop().unwrap_or_else(|| PathBuf::from(name))
}

/// Its child processes.
fn children(of: u32) -> Vec<String> {
    let tasks = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    tasks.split_whitespace().map(str::to_owned).collect()
}

fn signal_one(pid: u32, signal: &str) {
    run(Command::new("kill").args([format!("-{signal}"), pid.to_string()]));
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

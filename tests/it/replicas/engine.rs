//! A PostgreSQL or Redis of a test's own, which can be ill-treated.

use std::{
    net::TcpStream,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::process::dead_port;

/// For an engine to start, which may have to read its log again.
const START: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Postgres,
    Redis,
}

/// Its processes end when it is dropped.
pub struct Engine {
    kind: Kind,
    /// Where its data is, as seen from its own mounts.
    data: PathBuf,
    port: u16,
    child: Child,
    disk: Disk,
    _dir: tempfile::TempDir,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disk {
    Plain,
    /// A small one, of its own: it can be filled up.
    Small,
}

impl Engine {
    pub async fn start(kind: Kind, disk: Disk) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        std::fs::create_dir(&data).unwrap();
        if is_root() && kind == Kind::Postgres {
            // PostgreSQL runs as another user then, who must find the way.
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
        engine.answers().await;
        engine
    }

    pub fn url(&self) -> String {
        match self.kind {
            Kind::Postgres => format!("postgres://citetap@127.0.0.1:{}/postgres", self.port),
            Kind::Redis => format!("redis://127.0.0.1:{}/0", self.port),
        }
    }

    /// It does nothing any more, and nobody is told.
    pub fn pause(&self) {
        self.signal_all("STOP");
    }

    pub fn resume(&self) {
        self.signal_all("CONT");
    }

    /// It ends at once, without a word to its clients, and nobody listens there any more.
    pub fn crash(&mut self) {
        let signal = match (self.kind, self.disk) {
            // What PostgreSQL calls immediate: no checkpoint, its log is read again at the next start. Killed, it would
            // leave processes that hold the data.
            (Kind::Postgres, Disk::Plain) => "QUIT",
            // To the shell that looks after it.
            (Kind::Postgres, Disk::Small) => "TERM",
            (Kind::Redis, _) => "KILL",
        };
        signal_one(self.child.id(), signal);
        self.child.wait().unwrap();
    }

    pub async fn again(&mut self) {
        assert_eq!(self.disk, Disk::Plain);
        self.child = spawn(self.kind, &self.data, self.port, self.disk, "");
        self.answers().await;
    }

    /// Reads are answered, writes are refused.
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

    /// There is no room for anything new.
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

    /// Says something to it, as an operator would.
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

    async fn answers(&mut self) {
        let began = Instant::now();
        let port = self.port.to_string();
        loop {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none() && began.elapsed() < START, "the engine does not start: {ended:?}");
            let asked = match self.kind {
                Kind::Postgres => {
                    Command::new(program("pg_isready")).args(["-q", "-h", "127.0.0.1", "-p", &port]).status()
                }
                Kind::Redis => Command::new("redis-cli").args(["-p", &port, "ping"]).stdout(Stdio::null()).status(),
            };
            if asked.unwrap().success() && TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// PostgreSQL is many processes.
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
        // A full disk ends PostgreSQL, and its operators start it again; the disk goes with its last process.
        Disk::Small => format!(
            "set -e; {first}set +e; trap 'kill -QUIT $server; wait $server; exit' TERM; \
             while :; do {serve} & server=$!; wait $server; sleep 0.2; done"
        ),
    };
    let mut command = match disk {
        Disk::Plain => Command::new("sh"),
        Disk::Small => {
            let mut unshared = Command::new("unshare");
            // Another user than root may mount where they are root, in a namespace of their own.
            unshared.args(if is_root() { &["--mount", "sh"][..] } else { &["--map-root-user", "--mount", "sh"] });
            unshared
        }
    };
    // A signal from the terminal is for the tests, which stop it.
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
    let asked = Command::new("id").args(what).output().unwrap();
    String::from_utf8(asked.stdout).unwrap().trim().to_owned()
}

/// Debian keeps PostgreSQL's programs by version, beside the path.
fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        versions.map(|version| version.path().join("bin").join(name)).filter(|path| path.exists()).collect();
    found.sort();
    found.pop().unwrap_or_else(|| PathBuf::from(name))
}

/// The processes that it has started.
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

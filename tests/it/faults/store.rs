//! A store that rejects writes, in several ways. Chats are unaffected, their events have `stored: false`, `/readyz`
//! reports the reason, and afterwards everything is stored without a restart.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use citetap::{
    citation::Record,
    replay::{Script, Scripted, Upstream},
};
use sqlx::{ConnectOptions as _, SqliteConnection, sqlite::SqliteConnectOptions};

use crate::{
    net::{eventually, route, split, tencent},
    process::{COMMIT, Running, as_sent, citetap, confined},
};

/// The commit wait, and the time that a busy machine may add to it.
const WAIT: Duration = Duration::from_millis(250);
const MARGIN: Duration = Duration::from_secs(3);

const DURING: [&str; 3] = ["during-1", "during-2", "during-3"];

/// citetap on a database file, and an upstream with every message.
struct Rig {
    citetap: Running,
    dir: PathBuf,
    _upstream: Upstream,
    _temp: tempfile::TempDir,
}

impl Rig {
    /// `around` wraps the command. It gets the plain command and the folder of the file.
    async fn new(around: impl FnOnce(Command, &Path) -> Command) -> Self {
        let ids = ["before", "after", "later"].into_iter().chain(DURING);
        let scripts = ids.map(|id| Scripted::new(format!("/{id}"), Script::sse(tencent::answer(id)))).collect();
        let upstream = Upstream::bind(scripts).await.unwrap();
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("data");
        fs::create_dir(&dir).unwrap();
        let toml = format!("store = \"sqlite:data/c.db\"\n{}provider = \"tencent\"\n", route("chat", &upstream.url()));
        fs::write(temp.path().join("citetap.toml"), toml).unwrap();
        let plain = citetap(temp.path(), &["serve", "--listen", "127.0.0.1:0"]);
        let mut command = around(plain, &dir);
        command.env(COMMIT, format!("{}ms", WAIT.as_millis()));
        let citetap = Running::start(command).await;
        let rig = Self { citetap, dir, _upstream: upstream, _temp: temp };
        rig.stores("before").await;
        rig
    }

    fn file(&self) -> PathBuf {
        self.dir.join("c.db")
    }

    async fn other(&self) -> SqliteConnection {
        SqliteConnectOptions::new().filename(self.file()).connect().await.unwrap()
    }

    /// A chat receives every byte, and its event in time, whatever the store does.
    async fn chat(&self, id: &str) -> Record {
        let began = Instant::now();
        let whole = self.citetap.post(&format!("/chat/{id}")).await.whole().await;
        let took = began.elapsed();
        assert_eq!((whole.status.as_u16(), whole.error.as_deref()), (200, None), "{id}");
        let (theirs, mut ours) = split(&whole.bytes());
        assert!(theirs == tencent::answer(id).into_bytes(), "{id}: {}", whole.text());
        assert_eq!(ours.len(), 1, "{id}: {}", whole.text());
        assert!(took < WAIT + MARGIN, "{id} took {took:?}");
        let event = ours.remove(0);
        assert!(event.complete && event.citations.len() == 2, "{event:?}");
        event
    }

    /// A chat whose event has `stored: true`. On a busy disk it may need a second attempt.
    async fn stores(&self, id: &str) {
        let stored = eventually(|| async { Some(self.chat(id).await).filter(|event| event.stored) }).await;
        let event = stored.expect("it is stored");
        assert_eq!(as_sent(self.record(id).await.unwrap()), as_sent(event));
    }

    async fn record(&self, id: &str) -> Option<Record> {
        let response = self.citetap.get(&format!("/citations/{id}")).await;
        if response.status == 200 { Some(serde_json::from_value(response.json().await).unwrap()) } else { None }
    }

    /// Waits until `/readyz` fails. Returns the reason.
    async fn unready(&self) -> String {
        let refusal = eventually(|| async {
            let response = self.citetap.get("/readyz").await;
            if response.status == 503 { Some(response.is_problem(503, "store-unavailable").await) } else { None }
        });
        refusal.await.expect("readiness tells")["detail"].as_str().unwrap().to_owned()
    }

    async fn ready(&self) {
        let ready = eventually(|| async { (self.citetap.get("/readyz").await.status == 200).then_some(()) });
        assert!(ready.await.is_some(), "/readyz recovers");
    }

    /// Moves the file and its side files, as an operator does.
    async fn moves_away(&self) -> PathBuf {
        let away = tempfile::tempdir_in(self._temp.path()).unwrap().keep();
        for entry in fs::read_dir(&self.dir).unwrap() {
            let entry = entry.unwrap();
            fs::rename(entry.path(), away.join(entry.file_name())).unwrap();
        }
        away
    }

    /// Expectations while the store rejects writes.
    async fn assert_chats_continue(&self, why: &[&str]) {
        for id in DURING {
            let event = self.chat(id).await;
            assert!(!event.stored, "{id} was reported as stored");
        }
        let reason = self.unready().await;
        assert!(why.iter().any(|why| reason.contains(why)), "{reason:?} names none of {why:?}");
        assert_eq!(self.citetap.get("/healthz").await.status, 200);
        let kept = self.record("before").await.expect("a stored record can be read");
        assert!(kept.complete);
        assert!(!self.chat(DURING[0]).await.stored);
    }

    /// Expectations afterwards, in the same process.
    async fn recovers(&self) {
        self.ready().await;
        for id in DURING {
            let kept = eventually(|| self.record(id)).await;
            assert!(kept.is_some_and(|kept| kept.complete && kept.stored), "{id} is stored by a later try");
        }
        self.stores("after").await;
        assert!(self.record("before").await.is_some());
        let panics: Vec<_> = self.citetap.out().into_iter().filter(|line| line.contains("panicked")).collect();
        assert!(panics.is_empty(), "{panics:?}");
    }
}

/// Another process holds the lock for any time.
#[tokio::test]
async fn locked_file_delays_no_chat() {
    let rig = Rig::new(|plain, _| plain).await;
    let mut other = rig.other().await;
    let began = Instant::now();
    sqlx::raw_sql("BEGIN EXCLUSIVE").execute(&mut other).await.unwrap();
    rig.assert_chats_continue(&["takes long", "locked"]).await;
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "the failure is reported before SQLite's own timeout and its retry"
    );
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    rig.recovers().await;
}

/// Another process holds the lock for a moment: too long for the event, too short to report the store as failing.
#[tokio::test]
async fn slow_file_delays_no_chat_beyond_the_wait() {
    const HELD: Duration = Duration::from_secs(1);
    let rig = Rig::new(|plain, _| plain).await;
    let mut other = rig.other().await;
    sqlx::raw_sql("BEGIN EXCLUSIVE").execute(&mut other).await.unwrap();
    let began = Instant::now();
    let (event, ()) = tokio::join!(rig.chat("after"), async {
        tokio::time::sleep(HELD).await;
        let status = rig.citetap.get("/readyz").await.status;
        // Unless this machine took a second for it.
        assert!(status == 200 || began.elapsed() > HELD * 2, "it is slow, not out of order");
        sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    });
    assert!(!event.stored);
    let kept = eventually(|| rig.record("after")).await.expect("it is stored later");
    assert!(kept.stored && began.elapsed() >= HELD);
    rig.stores("later").await;
}

/// A full disk. It is a file system of its own if the tests may mount one, as root or in a user namespace; otherwise a
/// limit on the size of files has the same effect.
#[tokio::test]
async fn full_disk_affects_no_chat_and_recovers() {
    let namespace = [&["--mount"][..], &["--mount", "--map-root-user"]].into_iter().find(|namespace| {
        let tried = Command::new("unshare").args(*namespace).args(["sh", "-c", "mount -t tmpfs tmpfs /mnt"]).output();
        tried.is_ok_and(|tried| tried.status.success())
    });
    let rig = Rig::new(|plain, dir| match namespace {
        Some(namespace) => {
            let mount = format!("mount -t tmpfs -o size=1m,mode=700 tmpfs '{}'", dir.display());
            let mut unshared = Command::new("unshare");
            unshared.args(namespace);
            within(unshared, &confined(&plain, &mount))
        }
        None => confined(&plain, "trap '' XFSZ"),
    })
    .await;
    // The mount is visible only inside the namespace.
    let inside = PathBuf::from(format!("/proc/{}/root{}", rig.citetap.id(), rig.dir.display()));
    let filler = inside.join("filler");
    if namespace.is_some() {
        assert!(!rig.file().exists(), "the file is on the small disk");
        let mut file = fs::File::create(&filler).unwrap();
        let full = std::io::copy(&mut std::io::repeat(0), &mut file).unwrap_err();
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    } else {
        rig.citetap.limit("fsize", "1024");
    }
    rig.assert_chats_continue(&[if namespace.is_some() { "no space left" } else { "sqlite" }]).await;
    if namespace.is_some() {
        fs::remove_file(&filler).unwrap();
    } else {
        rig.citetap.limit("fsize", "unlimited");
    }
    rig.recovers().await;
}

/// The file and its folder are read-only. Root could write anyway, so citetap runs without that capability. On Unix an
/// open file stays writable, so another failed write makes citetap reopen it.
#[tokio::test]
async fn read_only_file_affects_no_chat_and_recovers() {
    let rig = Rig::new(|plain, _| {
        let root = fs::metadata("/proc/self").unwrap();
        let root = std::os::unix::fs::MetadataExt::uid(&root) == 0;
        let plain = if root {
            let mut without = Command::new("setpriv");
            without.args(["--bounding-set", "-dac_override,-dac_read_search", "--"]);
            within(without, &plain)
        } else {
            plain
        };
        confined(&plain, "trap '' XFSZ")
    })
    .await;
    let modes = |file: u32, dir: u32| {
        for entry in fs::read_dir(&rig.dir).unwrap() {
            fs::set_permissions(entry.unwrap().path(), Permissions::from_mode(file)).unwrap();
        }
        fs::set_permissions(&rig.dir, Permissions::from_mode(dir)).unwrap();
    };
    modes(0o400, 0o500);
    rig.citetap.limit("fsize", "0");
    assert!(!rig.chat("later").await.stored);
    rig.unready().await;
    rig.citetap.limit("fsize", "unlimited");
    rig.assert_chats_continue(&["sqlite"]).await;
    modes(0o600, 0o700);
    rig.recovers().await;
}

/// Pages of the file or its log are overwritten while citetap runs. Unreadable records are not served and chats
/// continue. After an operator moves the file away, citetap creates a new one and writes the queued records to it.
#[tokio::test]
async fn damaged_file_affects_no_chat() {
    for harm in [Harm::Pages, Harm::Log, Harm::TornLog] {
        let rig = Rig::new(|plain, _| plain).await;
        rig.stores("later").await;
        let mut reported = vec![rig.record("before").await.unwrap(), rig.record("later").await.unwrap()];
        harm.to(&rig).await;
        for id in DURING {
            // SQLite can still write pages from its cache, so a damaged log alone does not stop it.
            let event = rig.chat(id).await;
            assert!(!event.stored || !matches!(harm, Harm::Pages), "{harm:?}: {id} was reported as stored");
            reported.push(event);
        }
        for one in &reported {
            let response = rig.citetap.get(&format!("/citations/{}", one.message_id)).await;
            if response.status == 200 {
                let kept: Record = serde_json::from_value(response.json().await).unwrap();
                assert_eq!(as_sent(Record { stored: true, ..kept }), as_sent(Record { stored: true, ..one.clone() }));
            } else if one.stored || response.status == 503 {
                response.is_problem(503, "store-unavailable").await;
            } else {
                assert!(matches!(response.status.as_u16(), 202 | 404), "not there yet: {}", response.status);
            }
        }
        if matches!(harm, Harm::Pages) {
            assert!(rig.unready().await.contains("damaged"), "{harm:?}");
        }
        assert_eq!(rig.citetap.get("/healthz").await.status, 200);
        rig.moves_away().await;
        rig.stores("after").await;
        rig.ready().await;
        assert_eq!(rig.record("before").await, None, "{harm:?}: it was in the moved file");
        if matches!(harm, Harm::Pages) {
            for id in DURING {
                assert!(eventually(|| rig.record(id)).await.is_some(), "{id} waited");
            }
        }
    }
}

/// A file that was moved, removed or replaced is not written any more, because such writes would be lost.
#[tokio::test]
async fn moved_file_is_not_written() {
    let rig = Rig::new(|plain, _| plain).await;
    let first = rig.moves_away().await;
    rig.stores("after").await;
    assert_eq!(rig.record("before").await, None, "it was in the moved file");
    let second = rig.moves_away().await;
    rig.stores("later").await;
    assert_eq!(rig.record("after").await, None);
    // Moved back, as a restored backup.
    rig.moves_away().await;
    for (file, name) in
        fs::read_dir(&first).unwrap().map(|file| file.unwrap()).map(|file| (file.path(), file.file_name()))
    {
        fs::rename(file, rig.dir.join(name)).unwrap();
    }
    rig.stores("during-1").await;
    assert!(rig.record("before").await.is_some() && rig.record("later").await.is_none());
    // A file of another program is reported and not changed.
    rig.moves_away().await;
    fs::write(rig.file(), "dear diary, ".repeat(1000)).unwrap();
    assert!(!rig.chat("during-2").await.stored);
    let reason = rig.unready().await;
    assert!(reason.contains("replaced") && !reason.contains("data"), "the reason contains a path: {reason}");
    assert_eq!(fs::read_to_string(rig.file()).unwrap(), "dear diary, ".repeat(1000));
    fs::remove_file(rig.file()).unwrap();
    rig.ready().await;
    assert!(eventually(|| rig.record("during-2")).await.is_some(), "it waited");
    assert!(second.join("c.db").exists());
}

/// What is done to the file.
#[derive(Debug, Clone, Copy)]
enum Harm {
    Pages,
    Log,
    TornLog,
}

impl Harm {
    async fn to(self, rig: &Rig) {
        let log = rig.dir.join("c.db-wal");
        match self {
            Self::Pages => {
                let mut other = rig.other().await;
                sqlx::raw_sql("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut other).await.unwrap();
                overwrite(&rig.file(), 4096);
            }
            Self::Log => overwrite(&log, 32),
            Self::TornLog => {
                let len = fs::metadata(&log).unwrap().len();
                assert!(len > 8192, "the records are in the log");
                fs::OpenOptions::new().write(true).open(&log).unwrap().set_len(len / 2 + 100).unwrap();
            }
        }
    }
}

/// Overwrites every page of the file after `from`.
fn overwrite(file: &Path, from: u64) {
    use std::os::unix::fs::FileExt as _;
    let open = fs::OpenOptions::new().write(true).open(file).unwrap();
    let len = open.metadata().unwrap().len();
    assert!(len > from + 4096, "{len} bytes in {}", file.display());
    for at in (from..len).step_by(512) {
        open.write_all_at(&[0xa5; 64], at).unwrap();
    }
}

/// `outer` with all of `plain` as its last arguments, in the same folder and environment.
fn within(mut outer: Command, plain: &Command) -> Command {
    outer.arg(plain.get_program()).args(plain.get_args());
    if let Some(dir) = plain.get_current_dir() {
        outer.current_dir(dir);
    }
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}

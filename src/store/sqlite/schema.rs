//! Opens and migrates a database file. Changes nothing until the file is known to be ours, intact and writable.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    time::Duration,
};

use sqlx::{
    ConnectOptions as _, Connection as _, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};

use tokio::time::{Instant, sleep};

use super::{
    daily,
    error::{DAMAGED, is_locked, open_error, refusal_error},
};
use crate::store::StoreError;

/// `application_id` in the file header (`citp`): distinguishes our files from other programs'.
pub(super) const APPLICATION_ID: i32 = 0x6369_7470;

/// Applied in order; a file's `user_version` is the number applied. Never edit a released migration.
pub(super) const MIGRATIONS: [Migration; 3] = [
    Migration { sql: include_str!("../migrations/sqlite/0001_records.sql"), backfill: Backfill::Nothing },
    Migration { sql: include_str!("../migrations/sqlite/0002_tasks.sql"), backfill: Backfill::Nothing },
    Migration { sql: include_str!("../migrations/sqlite/0003_daily.sql"), backfill: Backfill::Daily },
];

pub(super) struct Migration {
    pub(super) sql: &'static str,
    backfill: Backfill,
}

/// A data migration that SQL alone cannot do.
enum Backfill {
    Nothing,
    Daily,
}

/// How long a statement waits for another process's lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Delay between attempts where SQLite does not wait itself.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// Larger files are not checked at start, which would take minutes; damage shows when a page is read.
const CHECK_MAX_BYTES: u64 = 256 << 20;

/// Size to which the write-ahead log is truncated after a burst (64 MiB).
const WAL_KEEP_BYTES: &str = "67108864";

/// Creates or migrates the file to the current version, or returns why it cannot be used.
pub(super) async fn prepare(path: &Path) -> Result<(), StoreError> {
    create_private(path).await?;
    // Not in WAL mode yet: switching would modify a file that may not be ours.
    let mut probe = base(path).connect().await.map_err(|error| open_error(path, &error))?;
    let checked = check(&mut probe, path).await;
    let closed = probe.close().await.map_err(|error| open_error(path, &error));
    let page_size = checked?;
    closed?;
    check_whole_pages(path, page_size).await?;

    let mut writer = connect_writer(path).await.map_err(|error| open_error(path, &error))?;
    let migrated = migrate(&mut writer, path).await;
    let closed = writer.close().await.map_err(|error| open_error(path, &error));
    migrated.and(closed)
}

/// Connects in WAL mode. Retries, because the switch to WAL does not honour the busy timeout.
pub(super) async fn connect_writer(path: &Path) -> Result<SqliteConnection, sqlx::Error> {
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        match writer_options(path).connect().await {
            Err(error) if is_locked(&error) && Instant::now() < deadline => sleep(BUSY_PAUSE).await,
            done => return done,
        }
    }
}

fn writer_options(path: &Path) -> SqliteConnectOptions {
    base(path)
        .journal_mode(SqliteJournalMode::Wal)
        // In WAL mode anything below FULL can lose commits on power failure.
        .synchronous(SqliteSynchronous::Full)
        // On macOS a plain fsync does not flush the disk cache. No effect elsewhere.
        .pragma("fullfsync", "ON")
        .pragma("checkpoint_fullfsync", "ON")
        .pragma("journal_size_limit", WAL_KEEP_BYTES)
}

pub(super) fn reader_options(path: &Path) -> SqliteConnectOptions {
    base(path).pragma("query_only", "ON")
}

fn base(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(plain_file(path))
        .create_if_missing(false)
        .busy_timeout(BUSY_TIMEOUT)
        .pragma("cell_size_check", "ON")
        .disable_statement_logging()
}

/// Prevents SQLite's special reading of `:memory:`, an empty name and `file:…`.
fn plain_file(path: &Path) -> PathBuf {
    if path.is_relative() { Path::new(".").join(path) } else { path.to_owned() }
}

/// (device, inode): distinguishes files at the same path.
pub(super) type FileId = (u64, u64);

pub(super) async fn file_id(path: &Path) -> Option<FileId> {
    let file = tokio::fs::metadata(plain_file(path)).await.ok()?;
    #[cfg(unix)]
    let id = (std::os::unix::fs::MetadataExt::dev(&file), std::os::unix::fs::MetadataExt::ino(&file));
    // On other systems an open file cannot be moved.
    #[cfg(not(unix))]
    let id = (0, u64::from(file.is_file()));
    Some(id)
}

/// Creates the file with mode 0600. SQLite would make it world-readable; its -wal and -shm files copy this mode.
async fn create_private(path: &Path) -> Result<(), StoreError> {
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    options.mode(0o600);
    match options.open(plain_file(path)).await {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(refusal_error(
            path,
            &error.kind().to_string(),
            "check that the folder exists and that this user may write to it",
        )),
    }
}

/// Checks identity and integrity. Returns the page size.
async fn check(conn: &mut SqliteConnection, path: &Path) -> Result<u64, StoreError> {
    let fail = |error: sqlx::Error| open_error(path, &error);
    version(conn, path).await?;
    let query = "SELECT c.page_count, s.page_size FROM pragma_page_count c, pragma_page_size s";
    let (pages, page_size): (u32, u32) = sqlx::query_as(query).fetch_one(&mut *conn).await.map_err(fail)?;
    let page_size = u64::from(page_size);
    if u64::from(pages) * page_size > CHECK_MAX_BYTES {
        return Ok(page_size);
    }
    let query = sqlx::query_scalar("PRAGMA quick_check(1)");
    let verdict: String = query.fetch_one(&mut *conn).await.map_err(fail)?;
    if verdict == "ok" {
        Ok(page_size)
    } else {
        // Drop the verdict: it may quote the file's content.
        Err(refusal_error(path, "the database is damaged", DAMAGED))
    }
}

/// Refuses a truncated file: SQLite reads the missing part of the last page as zeros, silently corrupting a record.
async fn check_whole_pages(path: &Path, page_size: u64) -> Result<(), StoreError> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    // While a log exists, it may hold the complete page.
    if tokio::fs::metadata(log).await.is_ok_and(|log| log.len() > 0) {
        return Ok(());
    }
    match tokio::fs::metadata(path).await {
        Ok(file) if file.len().is_multiple_of(page_size) => Ok(()),
        Ok(_) => Err(refusal_error(path, "the file was cut short", DAMAGED)),
        Err(error) => Err(refusal_error(path, &error.kind().to_string(), "check the disk")),
    }
}

/// Number of migrations applied to the file.
async fn version(conn: &mut SqliteConnection, path: &Path) -> Result<usize, StoreError> {
    let (application, version, objects): (i32, i64, i64) = sqlx::query_as(
        "SELECT a.application_id, v.user_version, (SELECT count(*) FROM sqlite_schema)
         FROM pragma_application_id a, pragma_user_version v",
    )
    .fetch_one(&mut *conn)
    .await
    .map_err(|error| open_error(path, &error))?;
    let empty = application == 0 && version == 0 && objects == 0;
    if application != APPLICATION_ID && !empty {
        return Err(refusal_error(path, "it is another program's database", "name another file"));
    }
    match usize::try_from(version) {
        Ok(version) if version <= MIGRATIONS.len() => Ok(version),
        _ => {
            let known = MIGRATIONS.len();
            let what = format!("it was written by a newer citetap (schema {version}, this one knows up to {known})");
            Err(refusal_error(path, &what, "run that version or newer, or name another file"))
        }
    }
}

/// Applies the missing migrations. If two processes start at once, the second waits for the lock and finds nothing to
/// do.
async fn migrate(conn: &mut SqliteConnection, path: &Path) -> Result<(), StoreError> {
    let fail = |error: sqlx::Error| open_error(path, &error);
    let mut tx = conn.begin_with("BEGIN IMMEDIATE").await.map_err(fail)?;
    let done = version(&mut tx, path).await?;
    if done < MIGRATIONS.len() {
        for migration in &MIGRATIONS[done..] {
            sqlx::raw_sql(migration.sql).execute(&mut *tx).await.map_err(fail)?;
            match migration.backfill {
                Backfill::Nothing => {}
                Backfill::Daily => daily::backfill_daily(&mut tx).await.map_err(fail)?,
            }
        }
        // Pragmas take no parameters; both values are constants.
        let stamp = format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {};", MIGRATIONS.len());
        sqlx::raw_sql(sqlx::AssertSqlSafe(stamp)).execute(&mut *tx).await.map_err(fail)?;
    }
    tx.commit().await.map_err(fail)
}

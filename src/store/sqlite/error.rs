//! Maps SQLite errors to [`StoreError`]. Only the numeric code is passed on: SQLite's text may quote a record.

use std::path::Path;

use sqlx::Error;

use crate::store::StoreError;

/// Maps an error at run time.
pub(super) fn engine_error(error: Error) -> StoreError {
    match error {
        Error::PoolClosed => StoreError::Closed,
        Error::Database(_) => {
            let code = code(&error);
            StoreError::Engine(format!("sqlite: {} (code {code})", what(code)))
        }
        Error::PoolTimedOut => StoreError::Engine("sqlite: every read connection is busy".to_owned()),
        Error::Io(error) => StoreError::Engine(format!("sqlite: {}", error.kind())),
        Error::WorkerCrashed => StoreError::Engine("sqlite: the connection's thread is gone".to_owned()),
        Error::ColumnDecode { .. } | Error::Decode(_) => {
            StoreError::Engine("sqlite: a stored row is not readable".to_owned())
        }
        _ => StoreError::Engine("sqlite: the driver failed".to_owned()),
    }
}

/// Maps an error while opening: names the file, the problem and the remedy.
pub(super) fn open_error(path: &Path, error: &Error) -> StoreError {
    let code = code(error);
    refusal_error(path, &format!("{} (code {code})", what(code)), advice(code))
}

pub(super) fn refusal_error(path: &Path, what: &str, advice: &str) -> StoreError {
    StoreError::Engine(format!("sqlite: cannot use {}: {what}; {advice}", path.display()))
}

/// True if another connection holds the lock.
pub(super) fn is_locked(error: &Error) -> bool {
    code(error) & 0xff == 5
}

/// The extended result code; 0 if there is none.
fn code(error: &Error) -> i32 {
    let code = error.as_database_error().and_then(|error| error.code());
    code.and_then(|code| code.parse().ok()).unwrap_or(0)
}

/// Describes a result code. Its low byte is the primary code: <https://www.sqlite.org/rescode.html>.
fn what(code: i32) -> &'static str {
    match code & 0xff {
        3 | 23 => "permission denied",
        5 | 6 => "locked by another process",
        7 => "out of memory",
        8 => "read-only",
        10 => "disk i/o error",
        11 => "the database is damaged",
        13 => "no space left",
        14 => "the file cannot be opened",
        18 => "a record is too large",
        19 => "a constraint was violated",
        26 => "the file is not a SQLite database",
        _ => "the engine failed",
    }
}

fn advice(code: i32) -> &'static str {
    match code & 0xff {
        3 | 8 | 14 | 23 => "check that the folder exists and that this user may write the file and its folder",
        5 | 6 => "stop the other process or give this one its own file",
        11 => DAMAGED,
        13 => "free space on that disk",
        26 => "name another file, or move this one away to start with an empty store",
        _ => "check the disk",
    }
}

pub(super) const DAMAGED: &str =
    "restore a backup, or move the file away together with its -wal and -shm files to start with an empty store";

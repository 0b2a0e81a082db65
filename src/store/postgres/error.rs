//! Maps PostgreSQL errors to [`StoreError`]. Only the five characters of the SQLSTATE are passed on: messages may quote
//! rows, and the driver's may quote the URL.

use std::{io::ErrorKind, time::Duration};

use sqlx::Error;

use crate::store::StoreError;

/// A failure within a call.
#[derive(Debug)]
pub(super) enum PostgresError {
    Sql(Error),
    Store(StoreError),
    /// No answer within this time.
    Timeout(Duration),
}

impl From<Error> for PostgresError {
    fn from(error: Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for PostgresError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<PostgresError> for StoreError {
    fn from(error: PostgresError) -> Self {
        match error {
            PostgresError::Store(error) => error,
            PostgresError::Timeout(limit) => engine_error(&format!("no answer within {} s", limit.as_secs())),
            PostgresError::Sql(error) => engine_error(&match &error {
                Error::Database(_) => {
                    let code = code(&error);
                    format!("{} (code {code})", what(&code))
                }
                Error::Io(error) if error.kind() == ErrorKind::InvalidData => "TLS failed".to_owned(),
                Error::Io(error) => error.kind().to_string(),
                Error::Tls(_) => "TLS failed".to_owned(),
                Error::ColumnDecode { .. } | Error::Decode(_) => "a stored row is not readable".to_owned(),
                Error::Configuration(_) => "the URL has a parameter that is not known or cannot be read".to_owned(),
                Error::Protocol(_) => "what answers is not PostgreSQL".to_owned(),
                _ => "the driver failed".to_owned(),
            }),
        }
    }
}

impl PostgresError {
    /// True if the server did not answer or is not ready: worth retrying. Any other error is an answer.
    pub(super) fn is_unreachable(&self) -> bool {
        match self {
            Self::Timeout(_) => true,
            // The driver reports a bad certificate with this kind.
            Self::Sql(Error::Io(error)) => error.kind() != ErrorKind::InvalidData,
            // Starting up, shutting down, session terminated by an operator, or no connection slot left.
            Self::Sql(error @ Error::Database(_)) => {
                matches!(code(error).as_str(), "57P01" | "57P02" | "57P03" | "53300")
            }
            _ => false,
        }
    }

    /// True if only the transaction failed and the connection can be used again.
    pub(super) fn connection_survives(&self) -> bool {
        match self {
            Self::Store(_) => true,
            Self::Sql(error @ Error::Database(_)) => !self.is_unreachable() && !code(error).starts_with("08"),
            _ => false,
        }
    }

    pub(super) fn is_code(&self, expected: &str) -> bool {
        matches!(self, Self::Sql(error) if code(error) == expected)
    }

    /// Error for a refused open: the problem and the remedy.
    pub(super) fn into_open_error(self) -> StoreError {
        let advice = match &self {
            Self::Sql(error @ Error::Database(_)) => advice(&code(error)),
            Self::Sql(Error::Tls(_) | Error::Io(_)) => {
                "check sslmode and sslrootcert in the URL, and the server's certificate"
            }
            Self::Sql(Error::Configuration(_)) => "see the comment on `store` in config/citetap.toml",
            Self::Sql(_) => "check the host and the port in the URL",
            Self::Store(_) | Self::Timeout(_) => return self.into(),
        };
        match StoreError::from(self) {
            StoreError::Engine(what) => StoreError::Engine(format!("{what}; {advice}")),
            other => other,
        }
    }
}

pub(super) fn engine_error(what: &str) -> StoreError {
    StoreError::Engine(format!("postgres: {what}"))
}

/// The SQLSTATE, or an empty string: <https://www.postgresql.org/docs/current/errcodes-appendix.html>.
fn code(error: &Error) -> String {
    let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default();
    code.chars().filter(char::is_ascii_alphanumeric).take(5).collect()
}

fn what(code: &str) -> &'static str {
    match code {
        "25006" => "the server takes no writes: it is a standby, or set to be read-only",
        "28000" => "the server does not let this user in",
        "28P01" => "the password is wrong",
        "3D000" => "there is no such database",
        "3F000" => "there is no such schema",
        "40P01" => "the server broke a deadlock",
        "42501" => "permission denied",
        "42P01" => "a table is missing",
        "53100" => "the server's disk is full",
        "53200" => "the server is out of memory",
        "53300" => "the server has no connection left",
        "53400" => "the server has reached a limit of its configuration",
        "54000" => "a record is too large",
        "55P03" => "another transaction holds a lock",
        "57014" => "a statement took too long",
        "57P01" | "57P02" => "the server is shutting down",
        "57P03" => "the server is starting up",
        "58030" => "the server cannot read or write its disk",
        "XX001" | "XX002" => "the database is damaged",
        _ => match code.get(..2) {
            Some("08") => "the connection broke",
            Some("22") => "the server cannot take a value",
            Some("23") => "a constraint was violated",
            Some("28") => "the server does not let this user in",
            Some("53") => "the server lacks something it needs",
            _ => "the engine failed",
        },
    }
}

fn advice(code: &str) -> &'static str {
    match code {
        "25006" => "name the primary server",
        "3D000" => "create it (CREATE DATABASE), or name another at the end of the URL",
        "3F000" => "create it (CREATE SCHEMA), or name another in search_path",
        "42501" => "let the user create tables in the schema (GRANT CREATE, USAGE ON SCHEMA), or name another user",
        "53100" => "free space on the server's disk",
        _ if code.starts_with("28") => "check user and password in the URL, and the server's pg_hba.conf",
        _ => "the server's log tells more",
    }
}

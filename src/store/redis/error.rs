//! Maps Redis errors to [`StoreError`]. The server's text is never passed on: it can quote a command and with it a
//! record.

use std::{error::Error, io, sync::Arc};

use redis::{ErrorKind, RedisError};

use crate::store::StoreError;

/// Maps an error at run time.
pub(super) fn engine_error(error: &RedisError) -> StoreError {
    StoreError::Engine(format!("redis: {}", what(error)))
}

pub(super) fn timeout_error() -> StoreError {
    StoreError::Engine("redis: the server does not answer in time".to_owned())
}

/// The reply has an unexpected shape.
pub(super) fn unreadable_error() -> StoreError {
    StoreError::Engine("redis: a stored value is not readable".to_owned())
}

/// True if the server refuses us; retrying does not help.
pub(super) fn is_refusal(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig => true,
        _ if is_client_limit(error) => false,
        _ => matches!(code(error).as_str(), "NOAUTH" | "WRONGPASS" | "NOPERM" | "ERR" | "DENIED"),
    }
}

/// True if the connection is dead, or replies can no longer be matched to requests.
pub(super) fn breaks_connection(error: &RedisError) -> bool {
    // READONLY: the server is a replica now, and a new connection may reach the primary.
    error.is_io_error()
        || error.is_unrecoverable_error()
        || matches!(code(error).as_str(), "NOAUTH" | "READONLY" | "MOVED" | "UNBLOCKED")
}

/// Error code; of several errors, that of the first.
fn code(error: &RedisError) -> String {
    let first = || {
        let errors = error.clone().into_server_errors()?;
        errors.first().map(|(_, error)| error.code().to_owned())
    };
    error.code().map(str::to_owned).or_else(first).unwrap_or_default()
}

fn what(error: &RedisError) -> String {
    match error.kind() {
        ErrorKind::AuthenticationFailed => return PASSWORD.to_owned(),
        ErrorKind::Io => return io_error(error),
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => {
            return "what answers there is not what a Redis server answers".to_owned();
        }
        _ => {}
    }
    let code = code(error);
    match code.as_str() {
        "NOAUTH" | "WRONGPASS" => PASSWORD,
        "NOPERM" => {
            "this user may not run a command or use a key; grant it +@all -@dangerous +info +config|get, ~citetap:* \
             and &citetap:*, or the ?prefix= of the store's URL instead of citetap"
        }
        "DENIED" => "the server is in protected mode; give it a password, or bind it to an address of its own",
        "LOADING" => "the server is reading its data from disk",
        "READONLY" => "the server is a replica and takes no writes; name the primary",
        "OOM" => "the server's memory is full; raise its maxmemory, or keep records for a shorter time",
        "MISCONF" => "the server takes no writes because it cannot save to disk; its log tells why",
        "BUSY" => "the server is busy with a script",
        "MASTERDOWN" => "the replica has lost its primary",
        "NOREPLICAS" => "too few replicas are connected for the server to take writes",
        "CLUSTERDOWN" => "the cluster is down",
        "MOVED" | "ASK" | "TRYAGAIN" | "CROSSSLOT" => {
            "this node of a cluster has only some of the keys; name a proxy for the cluster, or a server of its own"
        }
        "NOSCRIPT" => "the server forgot a script at once",
        "WRONGTYPE" => "a key under our prefix is somebody else's; set another ?prefix=",
        "ERR" if error.detail().is_some_and(|detail| detail.contains("DB index")) => {
            "there is no database of that number; name another after the host, such as /0"
        }
        "ERR" if is_client_limit(error) => "the server has as many clients as it takes",
        // A code cannot contain user text.
        code if !code.is_empty() && code.len() <= 16 && code.bytes().all(|byte| byte.is_ascii_uppercase()) => {
            return format!("the server failed ({code})");
        }
        _ => "the driver failed",
    }
    .to_owned()
}

fn is_client_limit(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.contains("max number of clients"))
}

const PASSWORD: &str = "the server refuses the user name or password";

fn io_error(error: &RedisError) -> String {
    if error.is_timeout() {
        return "the server does not answer in time".to_owned();
    }
    // The driver wraps the source in its own `Arc`.
    let source = error.source().and_then(|source| source.downcast_ref::<Arc<dyn Error + Send + Sync>>());
    match source.and_then(|source| source.downcast_ref()).map(io::Error::kind) {
        Some(io::ErrorKind::ConnectionRefused) => "nothing listens at that address".to_owned(),
        Some(io::ErrorKind::NotFound) => "there is no socket at that path".to_owned(),
        Some(io::ErrorKind::InvalidData) => {
            "the TLS handshake failed; check the certificate and its authority".to_owned()
        }
        Some(kind) => format!("no connection: {kind}"),
        None => "the connection was lost".to_owned(),
    }
}

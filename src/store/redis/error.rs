//! What Redis says, in our words. Its own text is never passed on: it can quote a command, and with that anybody's text.

use std::{error::Error, io, sync::Arc};

use redis::{ErrorKind, RedisError};

use crate::store::StoreError;

/// A failure while running.
pub(super) fn engine(error: &RedisError) -> StoreError {
    StoreError::Engine(format!("redis: {}", what(error)))
}

pub(super) fn late() -> StoreError {
    StoreError::Engine("redis: the server does not answer in time".to_owned())
}

/// What came back is not what a command returns.
pub(super) fn unreadable() -> StoreError {
    StoreError::Engine("redis: a stored value is not readable".to_owned())
}

/// The server is there and does not want us, now or later: to try again changes nothing.
pub(super) fn refuses(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig => true,
        _ if is_crowded(error) => false,
        _ => matches!(code(error).as_str(), "NOAUTH" | "WRONGPASS" | "NOPERM" | "ERR" | "DENIED"),
    }
}

/// Nothing more comes through this connection, or nothing that we could match to a question.
pub(super) fn breaks(error: &RedisError) -> bool {
    // READONLY: it is a replica now, and a new connection may find the primary.
    error.is_io_error()
        || error.is_unrecoverable_error()
        || matches!(code(error).as_str(), "NOAUTH" | "READONLY" | "MOVED" | "UNBLOCKED")
}

/// Of several errors the first one's.
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
        "ERR" if is_crowded(error) => "the server has as many clients as it takes",
        // A code cannot hold anybody's text.
        code if !code.is_empty() && code.len() <= 16 && code.bytes().all(|byte| byte.is_ascii_uppercase()) => {
            return format!("the server failed ({code})");
        }
        _ => "the driver failed",
    }
    .to_owned()
}

fn is_crowded(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.contains("max number of clients"))
}

const PASSWORD: &str = "the server refuses the user name or password";

fn io_error(error: &RedisError) -> String {
    if error.is_timeout() {
        return "the server does not answer in time".to_owned();
    }
    // The driver's source is its own pointer to the error.
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

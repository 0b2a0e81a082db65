//! Session setup, and the pool of read connections.
//!
//! # Cancel safety
//!
//! A connection leaves the pool while in use. After an error or cancellation it is dropped instead of returned.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use sqlx::{ConnectOptions as _, Connection as _, Error, PgConnection, postgres::PgConnectOptions};
use tokio::{
    sync::{OnceCell, Semaphore, SemaphorePermit},
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    error::{PostgresError, engine_error},
    schema::{self, SchemaId},
};
use crate::{config::EngineUrl, store::StoreError};

/// Concurrent reads; further ones wait.
const READERS: usize = 4;
/// Limit for a whole read, including the wait for a permit and a connection.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Limit for opening a connection.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection idle for longer is pinged before use.
const PING_AFTER_IDLE: Duration = Duration::from_secs(1);
/// Limit for the answer to that ping.
const PING_TIMEOUT: Duration = Duration::from_secs(2);
/// Prepared statements per connection; list queries alone have 64 variants.
const STATEMENT_CACHE: usize = 256;
/// Accepted URL parameters, besides `options[…]`. The driver logs unknown ones with their value, so they are refused
/// first.
const URL_PARAMETERS: [&str; 18] = [
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "password",
    "port",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "ssl-mode",
    "ssl-root-cert",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "statement-cache-capacity",
    "user",
];

/// Plans must not depend on statistics, which a new partition lacks, nor be made for every call: every query is meant
/// to use an index. Commits are durable whatever the server's default is.
const SESSION_SETTINGS: &str = "
    SELECT set_config('synchronous_commit',
        CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false);
    SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SET client_min_messages = error;
    SET jit = off;
    SET plan_cache_mode = force_generic_plan;
    SET enable_seqscan = off;
    SET enable_bitmapscan = off;
    SET enable_hashjoin = off;
    SET enable_mergejoin = off;
    SET enable_sort = off;
    SET idle_in_transaction_session_timeout = '30s';";

/// Server-side limits, so that a read abandoned here does not continue there.
const READ_SETTINGS: &str = "SET statement_timeout = '5s'; SET lock_timeout = '4s';";
/// Below the writer's timeout.
const WRITE_SETTINGS: &str = "SET statement_timeout = '25s'; SET lock_timeout = '10s';";

pub(super) struct Pool {
    options: PgConnectOptions,
    /// Set by the first connection, which creates or checks the schema.
    schema: OnceCell<SchemaId>,
    idle: Mutex<Vec<IdleConn>>,
    permits: Semaphore,
    closed: CancellationToken,
}

/// An idle connection.
pub(super) struct IdleConn {
    pub(super) conn: PgConnection,
    since: Instant,
}

impl IdleConn {
    pub(super) fn new(conn: PgConnection) -> Self {
        Self { conn, since: Instant::now() }
    }

    /// True if the connection still works. The server may have closed it, or be gone without notice.
    pub(super) async fn is_alive(&mut self) -> bool {
        self.since.elapsed() < PING_AFTER_IDLE
            || timeout(PING_TIMEOUT, self.conn.ping()).await.is_ok_and(|pong| pong.is_ok())
    }
}

pub(super) struct ReadConn<'a> {
    pool: &'a Pool,
    pub(super) conn: PgConnection,
    _permit: SemaphorePermit<'a>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

impl Pool {
    pub(super) fn new(url: &EngineUrl) -> Result<Self, PostgresError> {
        let known = |name: &str| URL_PARAMETERS.contains(&name) || name.starts_with("options[");
        if !url.reveal().query_pairs().all(|(name, _)| known(&name)) {
            return Err(Error::Configuration("unknown".into()).into());
        }
        let options = PgConnectOptions::from_url(url.reveal())?.disable_statement_logging();
        let options = options.statement_cache_capacity(STATEMENT_CACHE);
        let named = options.get_application_name().is_some();
        let options = if named { options } else { options.application_name("citetap") };
        Ok(Self {
            options,
            schema: OnceCell::new(),
            idle: Mutex::default(),
            permits: Semaphore::new(READERS),
            closed: CancellationToken::new(),
        })
    }

    pub(super) fn options(&self) -> PgConnectOptions {
        self.options.clone()
    }

    pub(super) fn known_schema(&self) -> Option<SchemaId> {
        self.schema.get().cloned()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    pub(super) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Opens a connection to a schema that is ready.
    pub(super) async fn connect(&self, access: Access) -> Result<(PgConnection, SchemaId), PostgresError> {
        if self.is_closed() {
            return Err(StoreError::Closed.into());
        }
        let open = async {
            let mut conn = PgConnection::connect_with(&self.options).await?;
            sqlx::raw_sql(SESSION_SETTINGS).execute(&mut conn).await?;
            sqlx::raw_sql(if access == Access::Read { READ_SETTINGS } else { WRITE_SETTINGS })
                .execute(&mut conn)
                .await?;
            Ok::<_, sqlx::Error>(conn)
        };
        let mut conn = timeout(CONNECT_TIMEOUT, open).await.map_err(|_| PostgresError::Timeout(CONNECT_TIMEOUT))??;
        let schema = self.schema.get_or_try_init(|| schema::prepare(&mut conn)).await?.clone();
        Ok((conn, schema))
    }

    /// Runs `work` on a read connection, within [`READ_TIMEOUT`].
    pub(super) async fn read<T>(
        &self,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, PostgresError>,
    ) -> Result<T, StoreError> {
        let read = async {
            let mut read_conn = self.acquire_read().await?;
            let value = work(&mut read_conn.conn).await?;
            read_conn.release();
            Ok(value)
        };
        Ok(timeout(READ_TIMEOUT, read).await.unwrap_or(Err(PostgresError::Timeout(READ_TIMEOUT)))?)
    }

    /// Waits for a permit and returns a live read connection.
    pub(super) async fn acquire_read(&self) -> Result<ReadConn<'_>, PostgresError> {
        let permit = self.permits.acquire().await.map_err(|_| StoreError::Closed)?;
        if let Some(mut idle) = self.take_idle() {
            if idle.is_alive().await {
                return Ok(ReadConn { pool: self, conn: idle.conn, _permit: permit });
            }
            // Whatever closed this connection has closed the other idle ones as well.
            self.idle().clear();
        }
        let (conn, _) = self.connect(Access::Read).await?;
        Ok(ReadConn { pool: self, conn, _permit: permit })
    }

    pub(super) async fn close(&self) {
        self.closed.cancel();
        self.permits.close();
        let idle = std::mem::take(&mut *self.idle());
        for IdleConn { conn, .. } in idle {
            let _ = timeout(Duration::from_secs(1), conn.close()).await;
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<IdleConn>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_idle(&self) -> Option<IdleConn> {
        self.idle().pop()
    }
}

impl ReadConn<'_> {
    /// Returns the connection to the pool. Call it only after all results have been read.
    pub(super) fn release(self) {
        if !self.pool.is_closed() {
            self.pool.idle().push(IdleConn::new(self.conn));
        }
    }
}

/// Checks the server's settings, and warns about those that endanger stored records.
pub(super) async fn check_server(conn: &mut PgConnection) -> Result<(), PostgresError> {
    let query = "SELECT current_setting('fsync'), current_setting('server_encoding'), pg_is_in_recovery(),
                 current_setting('full_page_writes')";
    let (fsync, encoding, standby, whole): (String, String, bool, String) =
        sqlx::query_as(query).fetch_one(conn).await?;
    if encoding != "UTF8" {
        return Err(engine_error(
            "the database's encoding is not UTF8; create it with ENCODING 'UTF8' TEMPLATE template0",
        )
        .into());
    }
    if fsync != "on" || whole != "on" {
        tracing::warn!(
            "fsync or full_page_writes is off on the server: a crash of it can lose records reported as stored"
        );
    }
    if standby {
        tracing::warn!("the server is a standby: nothing can be stored there");
    }
    Ok(())
}

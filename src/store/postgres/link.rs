//! Connections: how a session is set up, and the few that read.
//!
//! # Cancel safety
//!
//! A connection is taken out while it is used. One whose caller goes away, or that fails, is dropped, not used again.

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
    error::{Fault, said},
    schema::{self, Place},
};
use crate::{config::EngineUrl, store::StoreError};

/// Reads that may run at once; further ones wait.
const READERS: usize = 4;
/// A read that takes longer, with its wait for a turn and for a connection, has failed.
pub(super) const READ_WAIT: Duration = Duration::from_secs(5);
/// Until a new connection can be used.
pub(super) const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// A connection that was used a moment ago is not asked first whether it is still there.
const FRESH: Duration = Duration::from_secs(1);
/// Until one that was idle has answered.
const PING_WAIT: Duration = Duration::from_secs(2);
/// Lists alone have 64 forms.
const STATEMENTS: usize = 256;
/// What a URL can have after its question mark, but for `options[…]`. The driver logs others with their value.
const PARAMETERS: [&str; 18] = [
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

/// Plans must not hang on statistics, which a day's tables have none of when it begins, nor be made anew for every call:
/// whatever is asked here is found by an index. What a server's configuration says of commits is not less than durable.
const SESSION: &str = "
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

/// The server's own limits, so that what was given up here does not go on there.
const READING: &str = "SET statement_timeout = '5s'; SET lock_timeout = '4s';";
/// Less than what the writer waits.
const WRITING: &str = "SET statement_timeout = '25s'; SET lock_timeout = '10s';";

pub(super) struct Link {
    options: PgConnectOptions,
    /// What the first connection found or made.
    place: OnceCell<Place>,
    free: Mutex<Vec<Idle>>,
    turns: Semaphore,
    gone: CancellationToken,
}

/// A connection that nobody uses.
pub(super) struct Idle {
    pub(super) conn: PgConnection,
    since: Instant,
}

impl Idle {
    pub(super) fn new(conn: PgConnection) -> Self {
        Self { conn, since: Instant::now() }
    }

    /// The server may have ended it, or be gone without a word.
    pub(super) async fn is_there(&mut self) -> bool {
        self.since.elapsed() < FRESH || timeout(PING_WAIT, self.conn.ping()).await.is_ok_and(|pong| pong.is_ok())
    }
}

pub(super) struct Reading<'a> {
    link: &'a Link,
    pub(super) conn: PgConnection,
    _turn: SemaphorePermit<'a>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Read,
    Write,
}

impl Link {
    pub(super) fn new(url: &EngineUrl) -> Result<Self, Fault> {
        let known = |name: &str| PARAMETERS.contains(&name) || name.starts_with("options[");
        if !url.reveal().query_pairs().all(|(name, _)| known(&name)) {
            return Err(Error::Configuration("unknown".into()).into());
        }
        let options = PgConnectOptions::from_url(url.reveal())?.disable_statement_logging();
        let options = options.statement_cache_capacity(STATEMENTS);
        let named = options.get_application_name().is_some();
        let options = if named { options } else { options.application_name("citetap") };
        Ok(Self {
            options,
            place: OnceCell::new(),
            free: Mutex::default(),
            turns: Semaphore::new(READERS),
            gone: CancellationToken::new(),
        })
    }

    pub(super) fn options(&self) -> PgConnectOptions {
        self.options.clone()
    }

    pub(super) fn known_place(&self) -> Option<Place> {
        self.place.get().cloned()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.gone.is_cancelled()
    }

    pub(super) async fn closed(&self) {
        self.gone.cancelled().await;
    }

    /// A new connection, to a schema that is ready.
    pub(super) async fn connect(&self, how: Use) -> Result<(PgConnection, Place), Fault> {
        if self.is_closed() {
            return Err(StoreError::Closed.into());
        }
        let open = async {
            let mut conn = PgConnection::connect_with(&self.options).await?;
            sqlx::raw_sql(SESSION).execute(&mut conn).await?;
            sqlx::raw_sql(if how == Use::Read { READING } else { WRITING }).execute(&mut conn).await?;
            Ok::<_, sqlx::Error>(conn)
        };
        let mut conn = timeout(CONNECT_WAIT, open).await.map_err(|_| Fault::Silent(CONNECT_WAIT))??;
        let place = self.place.get_or_try_init(|| schema::prepare(&mut conn)).await?.clone();
        Ok((conn, place))
    }

    /// Reads, within the time that a read may take.
    pub(super) async fn read<T>(
        &self,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        let read = async {
            let mut reading = self.reading().await?;
            let value = work(&mut reading.conn).await?;
            reading.done();
            Ok(value)
        };
        Ok(timeout(READ_WAIT, read).await.unwrap_or(Err(Fault::Silent(READ_WAIT)))?)
    }

    /// A connection to read by, when it is our turn. One that was idle may have been ended since.
    pub(super) async fn reading(&self) -> Result<Reading<'_>, Fault> {
        let turn = self.turns.acquire().await.map_err(|_| StoreError::Closed)?;
        if let Some(mut idle) = self.take() {
            if idle.is_there().await {
                return Ok(Reading { link: self, conn: idle.conn, _turn: turn });
            }
            // What ended this one ended the others as well.
            self.free().clear();
        }
        let (conn, _) = self.connect(Use::Read).await?;
        Ok(Reading { link: self, conn, _turn: turn })
    }

    pub(super) async fn close(&self) {
        self.gone.cancel();
        self.turns.close();
        let idle = std::mem::take(&mut *self.free());
        for Idle { conn, .. } in idle {
            let _ = timeout(Duration::from_secs(1), conn.close()).await;
        }
    }

    fn free(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Idle> {
        self.free().pop()
    }
}

impl Reading<'_> {
    /// All that was asked was answered: others may use it. Dropped instead, it is closed.
    pub(super) fn done(self) {
        if !self.link.is_closed() {
            self.link.free().push(Idle::new(self.conn));
        }
    }
}

/// What a session cannot do without, told once.
pub(super) async fn look(conn: &mut PgConnection) -> Result<(), Fault> {
    let query = "SELECT current_setting('fsync'), current_setting('server_encoding'), pg_is_in_recovery(),
                 current_setting('full_page_writes')";
    let (fsync, encoding, standby, whole): (String, String, bool, String) =
        sqlx::query_as(query).fetch_one(conn).await?;
    if encoding != "UTF8" {
        return Err(
            said("the database's encoding is not UTF8; create it with ENCODING 'UTF8' TEMPLATE template0").into()
        );
    }
    if fsync != "on" || whole != "on" {
        tracing::warn!(
            "fsync or full_page_writes is off on the server: a crash of it loses records that were told as stored"
        );
    }
    if standby {
        tracing::warn!("the server is a standby: nothing can be stored there");
    }
    Ok(())
}

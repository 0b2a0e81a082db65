//! One multiplexed connection shared by many calls, reconnected when it is lost.
//!
//! A call that times out discards the connection and with it all calls waiting on it, so that a server that hangs
//! cannot accumulate them.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use redis::{AsyncConnectionConfig, Client, RedisError, aio::MultiplexedConnection, cmd};
use tokio::{sync::Mutex, time::timeout};

use super::{
    error::{breaks_connection, engine_error, is_refusal, timeout_error},
    server_info::ServerInfo,
};
use crate::store::StoreError;

/// Limit for connecting and reading the server's settings.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// After a failed connect, calls in this period get its error instead of retrying.
const RETRY_DELAY: Duration = Duration::from_millis(250);
/// A connection unused for longer is pinged before use; the second is the limit for the answer.
const PING_AFTER_IDLE: Duration = Duration::from_millis(250);
const PING_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval at which the server's settings are read again.
const SETTINGS_INTERVAL: Duration = Duration::from_secs(30);
/// Calls in flight on one connection; further ones wait.
const CALLS_MAX: usize = 256;

pub(super) struct SharedConnection {
    client: Client,
    state: Mutex<State>,
    /// Connections up to this generation are discarded.
    broken_generation: AtomicU64,
}

struct State {
    connected: Option<Connected>,
    failed: Option<(Instant, StoreError)>,
    /// Number of connections made so far.
    generation: u64,
    closed: bool,
}

#[derive(Clone)]
struct Connected {
    conn: MultiplexedConnection,
    server: ServerInfo,
    settings_read: Instant,
    used: Instant,
}

impl Connected {
    /// Checks a connection that was idle: the server may have restarted, and middleboxes drop idle connections.
    async fn revalidate(mut self) -> Option<Self> {
        if self.settings_read.elapsed() > SETTINGS_INTERVAL {
            self.server = timeout(PING_TIMEOUT, ServerInfo::read(&mut self.conn)).await.ok()?.ok()?;
            self.settings_read = Instant::now();
        } else if self.used.elapsed() > PING_AFTER_IDLE {
            timeout(PING_TIMEOUT, cmd("PING").query_async::<()>(&mut self.conn)).await.ok()?.ok()?;
        }
        Some(self)
    }
}

/// Why a connection could not be made.
pub(super) enum ConnectError {
    /// Retrying may help.
    Unreachable(StoreError),
    Refused(StoreError),
}

impl ConnectError {
    pub(super) fn into_error(self) -> StoreError {
        match self {
            Self::Unreachable(error) | Self::Refused(error) => error,
        }
    }
}

impl SharedConnection {
    pub(super) fn new(client: Client) -> Self {
        let state = State { connected: None, failed: None, generation: 0, closed: false };
        Self { client, state: Mutex::new(state), broken_generation: AtomicU64::new(0) }
    }

    /// Runs commands and returns their result, within `limit` in total.
    pub(super) async fn call<T>(
        &self,
        limit: Duration,
        work: impl AsyncFnOnce(&mut MultiplexedConnection, &ServerInfo) -> Result<T, CallError>,
    ) -> Result<T, StoreError> {
        let began = Instant::now();
        let ready =
            timeout(limit, self.ready()).await.unwrap_or_else(|_| Err(ConnectError::Unreachable(timeout_error())));
        let (generation, mut connected) = ready.map_err(ConnectError::into_error)?;
        let left = limit.saturating_sub(began.elapsed());
        let error = match timeout(left, work(&mut connected.conn, &connected.server)).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => error,
            Err(_) => {
                self.mark_broken(generation);
                return Err(timeout_error());
            }
        };
        match error {
            CallError::Store(error) => Err(error),
            CallError::Redis(error) => {
                if breaks_connection(&error) {
                    self.mark_broken(generation);
                }
                Err(engine_error(&error))
            }
        }
    }

    /// The server's properties, if it is reachable.
    pub(super) async fn server(&self) -> Result<ServerInfo, ConnectError> {
        Ok(self.ready().await?.1.server)
    }

    pub(super) async fn close(&self) {
        let mut state = self.state.lock().await;
        (state.connected, state.closed) = (None, true);
    }

    async fn ready(&self) -> Result<(u64, Connected), ConnectError> {
        let mut state = self.state.lock().await;
        if state.closed {
            return Err(ConnectError::Refused(StoreError::Closed));
        }
        if let Some((when, error)) = &state.failed
            && when.elapsed() < RETRY_DELAY
        {
            return Err(ConnectError::Unreachable(error.clone()));
        }
        let usable = state.generation > self.broken_generation.load(Relaxed);
        let connected = match state.connected.take().filter(|_| usable) {
            Some(connected) => connected.revalidate().await,
            None => None,
        };
        let mut connected = match connected {
            Some(connected) => connected,
            None => self.connect(&mut state).await?,
        };
        connected.used = Instant::now();
        state.connected = Some(connected.clone());
        Ok((state.generation, connected))
    }

    async fn connect(&self, state: &mut State) -> Result<Connected, ConnectError> {
        state.generation += 1;
        let connected = timeout(CONNECT_TIMEOUT, async {
            // Disable the driver's timeouts: they would keep a hanging connection.
            let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
            let config = config.set_concurrency_limit(CALLS_MAX);
            let mut conn = self.client.get_multiplexed_async_connection_with_config(&config).await?;
            let server = ServerInfo::read(&mut conn).await?;
            let now = Instant::now();
            Ok::<_, RedisError>(Connected { conn, server, settings_read: now, used: now })
        });
        let failure = match connected.await {
            Ok(Ok(connected)) => match connected.server.check() {
                Ok(()) => {
                    state.failed = None;
                    return Ok(connected);
                }
                Err(error) => ConnectError::Refused(error),
            },
            Ok(Err(error)) if is_refusal(&error) => ConnectError::Refused(engine_error(&error)),
            Ok(Err(error)) => ConnectError::Unreachable(engine_error(&error)),
            Err(_) => ConnectError::Unreachable(timeout_error()),
        };
        let (ConnectError::Refused(error) | ConnectError::Unreachable(error)) = &failure;
        state.failed = Some((Instant::now(), error.clone()));
        Err(failure)
    }

    /// Discards the connection, unless a newer one exists. Does not block.
    fn mark_broken(&self, generation: u64) {
        self.broken_generation.fetch_max(generation, Relaxed);
        if let Ok(mut state) = self.state.try_lock()
            && state.generation <= generation
        {
            state.connected = None;
        }
    }
}

/// Why a call failed.
pub(super) enum CallError {
    Redis(RedisError),
    Store(StoreError),
}

impl From<RedisError> for CallError {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

impl From<StoreError> for CallError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

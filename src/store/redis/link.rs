//! One connection to the server that many calls share, made anew when it is lost.
//!
//! A call that gets no answer in time takes the connection down with it: whatever waits in it is let go, so a server that
//! hangs cannot make us hold more and more.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use redis::{AsyncConnectionConfig, Client, RedisError, aio::MultiplexedConnection, cmd};
use tokio::{sync::Mutex, time::timeout};

use super::{
    error::{breaks, engine, late, refuses},
    server::Server,
};
use crate::store::StoreError;

/// To connect, and to learn what the server is.
const CONNECT: Duration = Duration::from_secs(3);
/// So long after a failure nobody tries again: all who wait get its answer.
const PAUSE: Duration = Duration::from_millis(250);
/// A connection that was not used for so long is asked whether it is still there, and has so long to answer.
const IDLE: Duration = Duration::from_millis(250);
const ALIVE: Duration = Duration::from_secs(1);
/// The server's settings are looked at so often.
const SETTINGS: Duration = Duration::from_secs(30);
/// Calls that may be under way in one connection; further ones wait.
const CALLS: usize = 256;

pub(super) struct Link {
    client: Client,
    state: Mutex<State>,
    /// The connections up to this one are not used again.
    broken: AtomicU64,
}

struct State {
    up: Option<Up>,
    failed: Option<(Instant, StoreError)>,
    /// Counts the connections.
    turn: u64,
    closed: bool,
}

#[derive(Clone)]
struct Up {
    conn: MultiplexedConnection,
    server: Server,
    read: Instant,
    used: Instant,
}

impl Up {
    /// Whoever has heard nothing of a connection for a while does not know that it is one: servers restart, and what is
    /// in between forgets those who are silent.
    async fn still(mut self) -> Option<Self> {
        if self.read.elapsed() > SETTINGS {
            self.server = timeout(ALIVE, Server::read(&mut self.conn)).await.ok()?.ok()?;
            self.read = Instant::now();
        } else if self.used.elapsed() > IDLE {
            timeout(ALIVE, cmd("PING").query_async::<()>(&mut self.conn)).await.ok()?.ok()?;
        }
        Some(self)
    }
}

/// Why a connection was not made.
pub(super) enum Failure {
    /// To try again may help.
    Unreachable(StoreError),
    Refused(StoreError),
}

impl Failure {
    pub(super) fn into_error(self) -> StoreError {
        match self {
            Self::Unreachable(error) | Self::Refused(error) => error,
        }
    }
}

impl Link {
    pub(super) fn new(client: Client) -> Self {
        let state = State { up: None, failed: None, turn: 0, closed: false };
        Self { client, state: Mutex::new(state), broken: AtomicU64::new(0) }
    }

    /// Runs some commands and gives what they return, within `limit` in all.
    pub(super) async fn call<T>(
        &self,
        limit: Duration,
        work: impl AsyncFnOnce(&mut MultiplexedConnection, &Server) -> Result<T, Trouble>,
    ) -> Result<T, StoreError> {
        let began = Instant::now();
        let ready = timeout(limit, self.ready()).await.unwrap_or_else(|_| Err(Failure::Unreachable(late())));
        let (turn, mut up) = ready.map_err(Failure::into_error)?;
        let left = limit.saturating_sub(began.elapsed());
        let trouble = match timeout(left, work(&mut up.conn, &up.server)).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(trouble)) => trouble,
            Err(_) => {
                self.give_up(turn);
                return Err(late());
            }
        };
        match trouble {
            Trouble::Ours(error) => Err(error),
            Trouble::Theirs(error) => {
                if breaks(&error) {
                    self.give_up(turn);
                }
                Err(engine(&error))
            }
        }
    }

    /// What the server is, if it can be reached.
    pub(super) async fn server(&self) -> Result<Server, Failure> {
        Ok(self.ready().await?.1.server)
    }

    pub(super) async fn close(&self) {
        let mut state = self.state.lock().await;
        (state.up, state.closed) = (None, true);
    }

    async fn ready(&self) -> Result<(u64, Up), Failure> {
        let mut state = self.state.lock().await;
        if state.closed {
            return Err(Failure::Refused(StoreError::Closed));
        }
        if let Some((when, error)) = &state.failed
            && when.elapsed() < PAUSE
        {
            return Err(Failure::Unreachable(error.clone()));
        }
        let usable = state.turn > self.broken.load(Relaxed);
        let up = match state.up.take().filter(|_| usable) {
            Some(up) => up.still().await,
            None => None,
        };
        let mut up = match up {
            Some(up) => up,
            None => self.connect(&mut state).await?,
        };
        up.used = Instant::now();
        state.up = Some(up.clone());
        Ok((state.turn, up))
    }

    async fn connect(&self, state: &mut State) -> Result<Up, Failure> {
        state.turn += 1;
        let connected = timeout(CONNECT, async {
            // The limits are ours: those of the driver would leave the connection as it is.
            let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
            let config = config.set_concurrency_limit(CALLS);
            let mut conn = self.client.get_multiplexed_async_connection_with_config(&config).await?;
            let server = Server::read(&mut conn).await?;
            let now = Instant::now();
            Ok::<_, RedisError>(Up { conn, server, read: now, used: now })
        });
        let failure = match connected.await {
            Ok(Ok(up)) => match up.server.check() {
                Ok(()) => {
                    state.failed = None;
                    return Ok(up);
                }
                Err(error) => Failure::Refused(error),
            },
            Ok(Err(error)) if refuses(&error) => Failure::Refused(engine(&error)),
            Ok(Err(error)) => Failure::Unreachable(engine(&error)),
            Err(_) => Failure::Unreachable(late()),
        };
        let (Failure::Refused(error) | Failure::Unreachable(error)) = &failure;
        state.failed = Some((Instant::now(), error.clone()));
        Err(failure)
    }

    /// Unless somebody has made another one since. Waits for nobody.
    fn give_up(&self, turn: u64) {
        self.broken.fetch_max(turn, Relaxed);
        if let Ok(mut state) = self.state.try_lock()
            && state.turn <= turn
        {
            state.up = None;
        }
    }
}

/// Why a call failed.
pub(super) enum Trouble {
    Theirs(RedisError),
    Ours(StoreError),
}

impl From<RedisError> for Trouble {
    fn from(error: RedisError) -> Self {
        Self::Theirs(error)
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Ours(error)
    }
}

//! The bus over LISTEN and NOTIFY. PostgreSQL limits a notification to 8000 bytes: a longer payload is stored in a
//! table, and the notification carries its row number.

use std::{sync::Arc, time::Duration};

use sqlx::{
    Executor as _,
    postgres::{PgListener, PgPoolOptions},
};
use tokio::{sync::mpsc, time::timeout};

use super::{
    error::{PostgresError, engine_error},
    pool::{Access, CONNECT_TIMEOUT, Pool},
    text::{escape, unescape},
};
use crate::store::{Bus, Result, StoreError, StoreFut, Subscription};

/// Longest payload sent in the notification itself, in bytes.
const INLINE_MAX: usize = 7_900;
/// First character of a notification: the payload follows, or the number of its row.
const INLINE: char = '=';
const STORED: char = '#';
/// Payloads buffered per subscription. On overflow the subscription ends with an error.
const PENDING_MAX: usize = 1024;
/// An idle connection is probed at this interval, because a dead one reports nothing.
const KEEPALIVE: Duration = Duration::from_secs(10);

pub(super) struct PostgresBus {
    pub(super) pool: Arc<Pool>,
}

impl Bus for PostgresBus {
    fn publish<'a>(&'a self, payload: &'a str) -> StoreFut<'a, ()> {
        Box::pin(async move {
            let channel = self.pool.schema_id().await?.channel();
            let payload = escape(payload);
            // Nothing is kept, so do not wait for the disk.
            let query = if payload.len() < INLINE_MAX {
                sqlx::query("SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)")
                    .bind(channel)
                    .bind(format!("{INLINE}{payload}"))
            } else {
                sqlx::query(
                    "WITH old AS (DELETE FROM citetap_word WHERE n IN (SELECT n FROM citetap_word
                        WHERE said < now() - interval '1 minute' ORDER BY n LIMIT 100 FOR UPDATE SKIP LOCKED)),
                     new AS (INSERT INTO citetap_word (word) VALUES ($3) RETURNING n)
                     SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2 || n) FROM new",
                )
                .bind(channel)
                .bind(STORED.to_string())
                .bind(payload.into_owned())
            };
            let sent = self.pool.read(async |conn| {
                query.execute(conn).await?;
                Ok(())
            });
            sent.await
        })
    }

    fn subscribe(&self) -> StoreFut<'_, Box<dyn Subscription>> {
        Box::pin(async move {
            let channel = self.pool.schema_id().await?.channel();
            let open = async {
                // The driver requires a pool here; it never holds more than this connection.
                let pool = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None);
                let pool = pool.acquire_timeout(CONNECT_TIMEOUT).connect_lazy_with(self.pool.options());
                let mut listener = PgListener::connect_with(&pool).await?;
                // Do not reconnect silently: notifications sent meanwhile are lost, and the subscriber must learn that.
                listener.eager_reconnect(false);
                listener.listen(&channel).await?;
                Ok::<_, PostgresError>(listener)
            };
            let listener = timeout(CONNECT_TIMEOUT, open).await.map_err(|_| PostgresError::Timeout(CONNECT_TIMEOUT));
            let listener = listener.and_then(|opened| opened)?;
            let (sender, payloads) = mpsc::channel(PENDING_MAX);
            tokio::spawn(forward(listener, Arc::clone(&self.pool), sender));
            Ok(Box::new(PostgresSubscription { payloads, pool: Arc::clone(&self.pool) }) as Box<dyn Subscription>)
        })
    }
}

/// Forwards notifications to the subscription. Returns when the subscription is dropped or on any failure, which closes
/// the channel.
async fn forward(mut listener: PgListener, pool: Arc<Pool>, sender: mpsc::Sender<String>) {
    loop {
        let received = tokio::select! {
            () = sender.closed() => return,
            () = pool.closed() => return,
            received = timeout(KEEPALIVE, listener.try_recv()) => received,
        };
        let notification = match received {
            Ok(Ok(Some(notification))) => notification,
            Ok(_) => return,
            Err(_) => match timeout(CONNECT_TIMEOUT, listener.execute("SELECT 1")).await {
                Ok(Ok(_)) => continue,
                _ => return,
            },
        };
        let body = notification.payload();
        let payload = match body.strip_prefix(STORED).map(str::parse::<i64>) {
            None => Some(body.strip_prefix(INLINE).unwrap_or(body).to_owned()),
            Some(Ok(n)) => fetch(&pool, n).await,
            Some(Err(_)) => None,
        };
        let Some(payload) = payload else { return };
        if sender.try_send(unescape(payload)).is_err() {
            return;
        }
    }
}

async fn fetch(pool: &Pool, n: i64) -> Option<String> {
    let query = sqlx::query_scalar("SELECT word FROM citetap_word WHERE n = $1").bind(n);
    pool.read(async |conn| Ok(query.fetch_optional(conn).await?)).await.ok().flatten()
}

struct PostgresSubscription {
    payloads: mpsc::Receiver<String>,
    pool: Arc<Pool>,
}

impl Subscription for PostgresSubscription {
    fn recv(&mut self) -> StoreFut<'_, String> {
        Box::pin(async move {
            match self.payloads.recv().await {
                Some(payload) => Ok(payload),
                None if self.pool.is_closed() => Err(StoreError::Closed),
                None => Err(engine_error("the LISTEN connection was lost; notifications may be missing")),
            }
        })
    }
}

impl Pool {
    /// Known once a connection has been made.
    async fn schema_id(&self) -> Result<super::schema::SchemaId> {
        if self.is_closed() {
            return Err(StoreError::Closed);
        }
        match self.known_schema() {
            Some(schema) => Ok(schema),
            None => Ok(self.connect(Access::Read).await?.1),
        }
    }
}

//! Words between replicas, by LISTEN and NOTIFY. A notification takes less than 8000 bytes: a longer word waits in a table
//! for those who listen, and the notification says where.

use std::{sync::Arc, time::Duration};

use sqlx::{
    Executor as _,
    postgres::{PgListener, PgPoolOptions},
};
use tokio::{sync::mpsc, time::timeout};

use super::{
    error::{Fault, said},
    link::{CONNECT_WAIT, Link, Use},
    text::{escape, unescape},
};
use crate::store::{Bus, Ear, Result, StoreError, StoreFut};

/// Of a notification, with its mark.
const SHORT_MAX: usize = 7_900;
/// What begins a notification with the word itself, and one with the number of its row.
const SHORT: char = '=';
const LONG: char = '#';
/// Words that wait for an ear; with more it has missed some.
const WAITING: usize = 1024;
/// A connection that is silent for so long is looked at: it may be gone, and nobody would tell.
const LOOK: Duration = Duration::from_secs(10);

pub(super) struct PostgresBus {
    pub(super) link: Arc<Link>,
}

impl Bus for PostgresBus {
    fn say<'a>(&'a self, word: &'a str) -> StoreFut<'a, ()> {
        Box::pin(async move {
            let channel = self.link.place().await?.channel();
            let word = escape(word);
            // A word is kept for nobody, so it need not wait for the disk.
            let query = if word.len() < SHORT_MAX {
                sqlx::query("SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)")
                    .bind(channel)
                    .bind(format!("{SHORT}{word}"))
            } else {
                sqlx::query(
                    "WITH old AS (DELETE FROM citetap_word WHERE n IN (SELECT n FROM citetap_word
                        WHERE said < now() - interval '1 minute' ORDER BY n LIMIT 100 FOR UPDATE SKIP LOCKED)),
                     new AS (INSERT INTO citetap_word (word) VALUES ($3) RETURNING n)
                     SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2 || n) FROM new",
                )
                .bind(channel)
                .bind(LONG.to_string())
                .bind(word.into_owned())
            };
            let said = self.link.read(async |conn| {
                query.execute(conn).await?;
                Ok(())
            });
            said.await
        })
    }

    fn listen(&self) -> StoreFut<'_, Box<dyn Ear>> {
        Box::pin(async move {
            let channel = self.link.place().await?.channel();
            let open = async {
                // A pool, because that is what the driver wants; never more than the one connection.
                let pool = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None);
                let pool = pool.acquire_timeout(CONNECT_WAIT).connect_lazy_with(self.link.options());
                let mut listener = PgListener::connect_with(&pool).await?;
                // What was said while it was away is missed: that must be told.
                listener.eager_reconnect(false);
                listener.listen(&channel).await?;
                Ok::<_, Fault>(listener)
            };
            let listener = timeout(CONNECT_WAIT, open).await.map_err(|_| Fault::Silent(CONNECT_WAIT));
            let listener = listener.and_then(|opened| opened)?;
            let (heard, words) = mpsc::channel(WAITING);
            tokio::spawn(listening(listener, Arc::clone(&self.link), heard));
            Ok(Box::new(PostgresEar { words, link: Arc::clone(&self.link) }) as Box<dyn Ear>)
        })
    }
}

/// Ends when nobody hears any more, and with the first failure: whoever hears finds the end of the words.
async fn listening(mut listener: PgListener, link: Arc<Link>, heard: mpsc::Sender<String>) {
    loop {
        let word = tokio::select! {
            () = heard.closed() => return,
            () = link.closed() => return,
            word = timeout(LOOK, listener.try_recv()) => word,
        };
        let word = match word {
            Ok(Ok(Some(word))) => word,
            Ok(_) => return,
            Err(_) => match timeout(CONNECT_WAIT, listener.execute("SELECT 1")).await {
                Ok(Ok(_)) => continue,
                _ => return,
            },
        };
        let payload = word.payload();
        let word = match payload.strip_prefix(LONG).map(str::parse::<i64>) {
            None => Some(payload.strip_prefix(SHORT).unwrap_or(payload).to_owned()),
            Some(Ok(n)) => fetch(&link, n).await,
            Some(Err(_)) => None,
        };
        let Some(word) = word else { return };
        if heard.try_send(unescape(word)).is_err() {
            return;
        }
    }
}

async fn fetch(link: &Link, n: i64) -> Option<String> {
    let query = sqlx::query_scalar("SELECT word FROM citetap_word WHERE n = $1").bind(n);
    link.read(async |conn| Ok(query.fetch_optional(conn).await?)).await.ok().flatten()
}

struct PostgresEar {
    words: mpsc::Receiver<String>,
    link: Arc<Link>,
}

impl Ear for PostgresEar {
    fn hear(&mut self) -> StoreFut<'_, String> {
        Box::pin(async move {
            match self.words.recv().await {
                Some(word) => Ok(word),
                None if self.link.is_closed() => Err(StoreError::Closed),
                None => Err(said("the connection that listens was lost, and words may be with it")),
            }
        })
    }
}

impl Link {
    /// Known once there was a connection.
    async fn place(&self) -> Result<super::schema::Place> {
        if self.is_closed() {
            return Err(StoreError::Closed);
        }
        match self.known_place() {
            Some(place) => Ok(place),
            None => Ok(self.connect(Use::Read).await?.1),
        }
    }
}

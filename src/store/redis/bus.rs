//! Words between replicas: a channel of the server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::StreamExt as _;
use redis::{
    Client,
    aio::{PubSubSink, PubSubStream},
    cmd,
};
use tokio::{
    sync::mpsc,
    time::{interval, timeout},
};

use super::{
    error::{engine, late},
    link::Link,
};
use crate::store::{Bus, Ear, StoreError, StoreFut};

const SAY: Duration = Duration::from_secs(5);
const LISTEN: Duration = Duration::from_secs(3);
/// A silent connection is asked so often whether it is one.
const PULSE: Duration = Duration::from_secs(10);
/// Words, and bytes of them, that wait for whoever listens. With more he has fallen behind, and is told.
const WAITING: usize = 4096;
const WAITING_BYTES: usize = 32 << 20;

pub(super) struct RedisBus {
    pub(super) link: Arc<Link>,
    pub(super) client: Client,
    pub(super) channel: String,
}

impl Bus for RedisBus {
    fn say<'a>(&'a self, word: &'a str) -> StoreFut<'a, ()> {
        Box::pin(async move {
            let said = self
                .link
                .call(SAY, async |conn, _| Ok(cmd("PUBLISH").arg(&self.channel).arg(word).query_async(conn).await?));
            said.await
        })
    }

    fn listen(&self) -> StoreFut<'_, Box<dyn Ear>> {
        Box::pin(async move {
            let subscribed = timeout(LISTEN, async {
                let (mut sink, stream) = self.client.get_async_pubsub().await?.split();
                sink.subscribe(&self.channel).await?;
                Ok((sink, stream))
            });
            let (sink, stream) = subscribed.await.map_err(|_| late())?.map_err(|error| engine(&error))?;
            let (words, heard) = mpsc::channel(WAITING);
            let bytes = Arc::new(AtomicUsize::new(0));
            tokio::spawn(forward(sink, stream, words, Arc::clone(&bytes)));
            Ok(Box::new(RedisEar { heard, bytes }) as Box<dyn Ear>)
        })
    }
}

struct RedisEar {
    heard: mpsc::Receiver<String>,
    bytes: Arc<AtomicUsize>,
}

impl Ear for RedisEar {
    fn hear(&mut self) -> StoreFut<'_, String> {
        Box::pin(async move {
            let word = self.heard.recv().await;
            let word = word.ok_or_else(|| StoreError::Engine("redis: the connection was lost".to_owned()))?;
            self.bytes.fetch_sub(word.len(), Relaxed);
            Ok(word)
        })
    }
}

/// Takes words as they come, so that none waits where nobody counts it. Ends with the connection, with whoever listens, and
/// when he falls behind.
async fn forward(mut sink: PubSubSink, mut stream: PubSubStream, words: mpsc::Sender<String>, bytes: Arc<AtomicUsize>) {
    let mut pulse = interval(PULSE);
    loop {
        tokio::select! {
            message = stream.next() => {
                let Some(Ok(word)) = message.map(|message| message.get_payload::<String>()) else { return };
                if bytes.fetch_add(word.len(), Relaxed) > WAITING_BYTES || words.try_send(word).is_err() {
                    return;
                }
            }
            () = words.closed() => return,
            _ = pulse.tick() => {
                if !matches!(timeout(SAY, sink.ping::<redis::Value>()).await, Ok(Ok(_))) {
                    return;
                }
            }
        }
    }
}

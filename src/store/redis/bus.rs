//! The bus over a Redis channel.

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
    connection::SharedConnection,
    error::{engine_error, timeout_error},
};
use crate::store::{Bus, StoreError, StoreFut, Subscription};

const PUBLISH_TIMEOUT: Duration = Duration::from_secs(5);
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(3);
/// Interval at which a subscribed connection is pinged.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// Payloads buffered per subscription, in number and bytes. On overflow the subscription ends with an error.
const PENDING_MAX: usize = 4096;
const PENDING_BYTES_MAX: usize = 32 << 20;

pub(super) struct RedisBus {
    pub(super) connection: Arc<SharedConnection>,
    pub(super) client: Client,
    pub(super) channel: String,
}

impl Bus for RedisBus {
    fn publish<'a>(&'a self, payload: &'a str) -> StoreFut<'a, ()> {
        Box::pin(async move {
            let sent = self.connection.call(PUBLISH_TIMEOUT, async |conn, _| {
                Ok(cmd("PUBLISH").arg(&self.channel).arg(payload).query_async(conn).await?)
            });
            sent.await
        })
    }

    fn subscribe(&self) -> StoreFut<'_, Box<dyn Subscription>> {
        Box::pin(async move {
            let subscribed = timeout(SUBSCRIBE_TIMEOUT, async {
                let (mut sink, stream) = self.client.get_async_pubsub().await?.split();
                sink.subscribe(&self.channel).await?;
                Ok((sink, stream))
            });
            let (sink, stream) =
                subscribed.await.map_err(|_| timeout_error())?.map_err(|error| engine_error(&error))?;
            let (sender, receiver) = mpsc::channel(PENDING_MAX);
            let pending_bytes = Arc::new(AtomicUsize::new(0));
            tokio::spawn(forward(sink, stream, sender, Arc::clone(&pending_bytes)));
            Ok(Box::new(RedisSubscription { receiver, pending_bytes }) as Box<dyn Subscription>)
        })
    }
}

struct RedisSubscription {
    receiver: mpsc::Receiver<String>,
    pending_bytes: Arc<AtomicUsize>,
}

impl Subscription for RedisSubscription {
    fn recv(&mut self) -> StoreFut<'_, String> {
        Box::pin(async move {
            let payload = self.receiver.recv().await;
            let payload = payload.ok_or_else(|| StoreError::Engine("redis: the connection was lost".to_owned()))?;
            self.pending_bytes.fetch_sub(payload.len(), Relaxed);
            Ok(payload)
        })
    }
}

/// Forwards payloads to the subscription without blocking, so that they queue only where they are counted. Returns when
/// the connection fails, the subscription is dropped, or its buffer overflows.
async fn forward(
    mut sink: PubSubSink,
    mut stream: PubSubStream,
    sender: mpsc::Sender<String>,
    pending_bytes: Arc<AtomicUsize>,
) {
    let mut keepalive = interval(KEEPALIVE);
    loop {
        tokio::select! {
            message = stream.next() => {
                let Some(Ok(payload)) = message.map(|message| message.get_payload::<String>()) else { return };
                if pending_bytes.fetch_add(payload.len(), Relaxed) > PENDING_BYTES_MAX || sender.try_send(payload).is_err() {
                    return;
                }
            }
            () = sender.closed() => return,
            _ = keepalive.tick() => {
                if !matches!(timeout(PUBLISH_TIMEOUT, sink.ping::<redis::Value>()).await, Ok(Ok(_))) {
                    return;
                }
            }
        }
    }
}

//! Clients that send requests until the server is killed and remember its responses.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use citetap::citation::Record;
use http::Method;
use tokio::task::JoinSet;

use super::streams::{DIALECTS, VARIANTS};
use crate::{
    net::{Client, ClientResponse, frames, get, request, split},
    rng::Rng,
};

/// Connections with one stream at a time, and h2 connections with several.
const H1: usize = 16;
const H2: usize = 2;
const STREAMS_OF_H2: usize = 10;

/// A record that a client learned is stored.
pub struct StoredReport {
    pub record: Record,
    pub at: Instant,
}

/// The result of a delete request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// The server confirmed it.
    Yes,
    /// The server did not respond: either state is correct.
    Unknown,
}

#[derive(Default)]
pub struct Observations {
    pub streams: AtomicU64,
    pub reported: Mutex<Vec<StoredReport>>,
    pub forgotten: Mutex<Vec<(String, Deletion)>>,
}

impl Observations {
    pub fn note(&self, records: impl IntoIterator<Item = Record>) {
        let at = Instant::now();
        let stored = records.into_iter().filter(|record| record.stored);
        self.reported.lock().unwrap().extend(stored.map(|record| StoredReport { record, at }));
    }
}

/// All clients at once. They end when the server no longer responds.
pub fn start(addr: SocketAddr, rng: &mut Rng) -> (Arc<Observations>, JoinSet<()>) {
    let (observations, mut clients) = (Arc::<Observations>::default(), JoinSet::new());
    for _ in 0..H1 {
        let (observations, rng) = (Arc::clone(&observations), rng.fork());
        clients.spawn(async move {
            let _ = h1(addr, rng, &observations).await;
        });
    }
    for _ in 0..H2 {
        let (observations, rng) = (Arc::clone(&observations), rng.fork());
        clients.spawn(async move {
            let _ = h2(addr, rng, observations).await;
        });
    }
    (observations, clients)
}

fn ask(rng: &mut Rng) -> http::Request<http_body_util::Full<bytes::Bytes>> {
    let path = format!("/{}/{:02}", rng.pick(&DIALECTS), rng.within(0..VARIANTS));
    let profile: &[(&str, &str)] = if rng.one_in(4) { &[("x-citetap-profile", "openai")] } else { &[] };
    request(Method::POST, &path, profile, r#"{"stream":true}"#)
}

/// Returns `None` when the server is gone.
async fn h1(addr: SocketAddr, mut rng: Rng, observations: &Observations) -> Option<()> {
    loop {
        let mut client = Client::try_h1(addr).await.ok()?;
        for _ in 0..rng.within(1..6) {
            observations.streams.fetch_add(1, Relaxed);
            let response = client.try_send(ask(&mut rng)).await.ok()?;
            let (records, whole) = read_stream(response).await;
            let of = records.first().map(|record| record.message_id.clone());
            observations.note(records);
            if !whole {
                return None;
            }
            match of {
                Some(id) if rng.one_in(12) => forget(&mut client, id, observations).await?,
                Some(id) if rng.one_in(4) => look(&mut client, &id, observations).await?,
                _ => {}
            }
        }
    }
}

/// What the API reports as stored is stored.
async fn look(client: &mut Client, id: &str, observations: &Observations) -> Option<()> {
    let response = client.try_send(get(&format!("/citations/{id}?wait=1"))).await.ok()?;
    let found = response.status == 200;
    let whole = response.whole().await;
    // A response cut by the kill is ignored.
    if found && whole.error.is_none() {
        observations.note(serde_json::from_slice::<Record>(&whole.bytes()).ok());
    }
    whole.error.is_none().then_some(())
}

async fn forget(client: &mut Client, id: String, observations: &Observations) -> Option<()> {
    let note = |what| observations.forgotten.lock().unwrap().push((id.clone(), what));
    let result = client.try_send(request(Method::DELETE, &format!("/citations/{id}"), &[], "")).await;
    match result {
        Ok(response) if response.status == 204 => note(Deletion::Yes),
        // A record with `stored: false` may not be there yet.
        Ok(response) => assert_eq!(response.status, 404, "{id}"),
        Err(_) => {
            note(Deletion::Unknown);
            return None;
        }
    }
    Some(())
}

async fn h2(addr: SocketAddr, mut rng: Rng, observations: Arc<Observations>) -> Option<()> {
    let mut client = Client::try_h2(addr).await.ok()?;
    let mut reading = JoinSet::new();
    loop {
        while reading.len() < STREAMS_OF_H2 {
            observations.streams.fetch_add(1, Relaxed);
            let response = client.try_send(ask(&mut rng)).await;
            let Ok(response) = response else {
                while reading.join_next().await.is_some() {}
                return None;
            };
            let observations = Arc::clone(&observations);
            reading.spawn(async move {
                observations.note(read_stream(response).await.0);
            });
        }
        reading.join_next().await;
    }
}

/// Reads to any end: the records in complete frames, and whether the end was clean.
pub async fn read_stream(mut response: ClientResponse) -> (Vec<Record>, bool) {
    let mut bytes = Vec::new();
    let clean = loop {
        match response.piece().await {
            Some(Ok(piece)) => bytes.extend_from_slice(&piece),
            end => break end.is_none(),
        }
    };
    let mut whole = frames(&bytes);
    // Bytes after the last blank line are not a frame.
    let torn = if bytes.ends_with(b"\n\n") { None } else { whole.pop() };
    let until = bytes.len() - torn.map_or(0, <[u8]>::len);
    (split(&bytes[..until]).1, clean)
}

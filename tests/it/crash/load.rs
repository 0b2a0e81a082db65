//! Clients that ask without rest until the server is gone, and remember what they were told.

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
    chance::Chance,
    net::{Answer, Client, frames, get, request, split},
};

/// Connections with one stream at a time, and h2 connections with several.
const H1: usize = 16;
const H2: usize = 2;
const STREAMS_OF_H2: usize = 10;

/// A record that somebody was told is stored.
pub struct Told {
    pub record: Record,
    pub at: Instant,
}

/// What came of a request to forget a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgotten {
    /// It said so.
    Yes,
    /// It was asked and did not answer: either is right.
    Unknown,
}

#[derive(Default)]
pub struct Heard {
    pub streams: AtomicU64,
    pub told: Mutex<Vec<Told>>,
    pub forgotten: Mutex<Vec<(String, Forgotten)>>,
}

impl Heard {
    pub fn note(&self, records: impl IntoIterator<Item = Record>) {
        let at = Instant::now();
        let stored = records.into_iter().filter(|record| record.stored);
        self.told.lock().unwrap().extend(stored.map(|record| Told { record, at }));
    }
}

/// All of them at once. They end when nobody answers any more.
pub fn start(addr: SocketAddr, chance: &mut Chance) -> (Arc<Heard>, JoinSet<()>) {
    let (heard, mut clients) = (Arc::<Heard>::default(), JoinSet::new());
    for _ in 0..H1 {
        let (heard, chance) = (Arc::clone(&heard), chance.fork());
        clients.spawn(async move {
            let _ = h1(addr, chance, &heard).await;
        });
    }
    for _ in 0..H2 {
        let (heard, chance) = (Arc::clone(&heard), chance.fork());
        clients.spawn(async move {
            let _ = h2(addr, chance, heard).await;
        });
    }
    (heard, clients)
}

fn ask(chance: &mut Chance) -> http::Request<http_body_util::Full<bytes::Bytes>> {
    let path = format!("/{}/{:02}", chance.pick(&DIALECTS), chance.within(0..VARIANTS));
    let profile: &[(&str, &str)] = if chance.one_in(4) { &[("x-citetap-profile", "openai")] } else { &[] };
    request(Method::POST, &path, profile, r#"{"stream":true}"#)
}

/// `None` when the server is gone.
async fn h1(addr: SocketAddr, mut chance: Chance, heard: &Heard) -> Option<()> {
    loop {
        let mut client = Client::try_h1(addr).await.ok()?;
        for _ in 0..chance.within(1..6) {
            heard.streams.fetch_add(1, Relaxed);
            let answer = client.try_send(ask(&mut chance)).await.ok()?;
            let (records, whole) = read_stream(answer).await;
            let of = records.first().map(|record| record.message_id.clone());
            heard.note(records);
            if !whole {
                return None;
            }
            match of {
                Some(id) if chance.one_in(12) => forget(&mut client, id, heard).await?,
                Some(id) if chance.one_in(4) => look(&mut client, &id, heard).await?,
                _ => {}
            }
        }
    }
}

/// What the API says is stored, is.
async fn look(client: &mut Client, id: &str, heard: &Heard) -> Option<()> {
    let answer = client.try_send(get(&format!("/citations/{id}?wait=1"))).await.ok()?;
    let found = answer.status == 200;
    let whole = answer.whole().await;
    // A text that was cut by the end of the server is none.
    if found && whole.error.is_none() {
        heard.note(serde_json::from_slice::<Record>(&whole.bytes()).ok());
    }
    whole.error.is_none().then_some(())
}

async fn forget(client: &mut Client, id: String, heard: &Heard) -> Option<()> {
    let note = |what| heard.forgotten.lock().unwrap().push((id.clone(), what));
    let asked = client.try_send(request(Method::DELETE, &format!("/citations/{id}"), &[], "")).await;
    match asked {
        Ok(answer) if answer.status == 204 => note(Forgotten::Yes),
        // A record whose event said that it is not stored may not be there yet.
        Ok(answer) => assert_eq!(answer.status, 404, "{id}"),
        Err(_) => {
            note(Forgotten::Unknown);
            return None;
        }
    }
    Some(())
}

async fn h2(addr: SocketAddr, mut chance: Chance, heard: Arc<Heard>) -> Option<()> {
    let mut client = Client::try_h2(addr).await.ok()?;
    let mut reading = JoinSet::new();
    loop {
        while reading.len() < STREAMS_OF_H2 {
            heard.streams.fetch_add(1, Relaxed);
            let answer = client.try_send(ask(&mut chance)).await;
            let Ok(answer) = answer else {
                while reading.join_next().await.is_some() {}
                return None;
            };
            let heard = Arc::clone(&heard);
            reading.spawn(async move {
                heard.note(read_stream(answer).await.0);
            });
        }
        reading.join_next().await;
    }
}

/// Reads to whatever end: the records in whole frames, and whether the end was a clean one.
pub async fn read_stream(mut answer: Answer) -> (Vec<Record>, bool) {
    let mut bytes = Vec::new();
    let clean = loop {
        match answer.piece().await {
            Some(Ok(piece)) => bytes.extend_from_slice(&piece),
            end => break end.is_none(),
        }
    };
    let mut whole = frames(&bytes);
    // What follows the last blank line is not a frame yet.
    let torn = if bytes.ends_with(b"\n\n") { None } else { whole.pop() };
    let until = bytes.len() - torn.map_or(0, <[u8]>::len);
    (split(&bytes[..until]).1, clean)
}

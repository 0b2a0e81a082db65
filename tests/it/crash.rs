//! `kill -9` in any instant: nothing that was delivered as stored is lost (P5).

use std::{path::Path, time::Duration};

use citetap::citation::Record;

use crate::{
    net::{Answer, Client, post, split},
    process::{Running, as_sent, citetap},
};

pub async fn demo(dir: &Path, speed: &str) -> Running {
    let args = ["demo", "--listen", "127.0.0.1:0", "--store", "crash.db", "--fresh-ids", "--speed", speed];
    Running::start(citetap(dir, &args)).await
}

pub async fn kept(demo: &Running, id: &str) -> Record {
    let answer = demo.get(&format!("/citations/{id}")).await;
    assert_eq!(answer.status, 200, "{id} was delivered as stored");
    serde_json::from_value(answer.json().await).unwrap()
}

#[tokio::test]
async fn a_record_that_was_seen_as_stored_survives() {
    let dir = tempfile::tempdir().unwrap();
    let demo_1 = demo(dir.path(), "100").await;
    let mut answer = demo_1.post("/doubao/chat").await;
    let seen = answer.until("event: SSE_REPLY_END").await;
    let (_, ours) = split(seen.as_bytes());
    assert!(ours[0].stored);
    let before = kept(&demo_1, &ours[0].message_id).await;
    demo_1.kill();

    let demo_2 = demo(dir.path(), "100").await;
    let after = kept(&demo_2, &ours[0].message_id).await;
    assert_eq!(after, before);
    assert_eq!(as_sent(after), as_sent(ours[0].clone()));
}

/// Reads to whatever end; gives the records that said they are stored.
async fn read(mut answer: Answer) -> Vec<Record> {
    let mut bytes = Vec::new();
    while let Some(Ok(piece)) = answer.piece().await {
        bytes.extend_from_slice(&piece);
    }
    // The last frame may be cut; what is whole counts.
    let whole = memchr::memmem::rfind(&bytes, b"\n\n").map_or(0, |at| at + 2);
    split(&bytes[..whole]).1.into_iter().filter(|record| record.stored).collect()
}

#[tokio::test]
async fn killed_at_random_instants_with_streams_open() {
    const CYCLES: usize = 5;
    const STREAMS: u64 = 12;
    let dir = tempfile::tempdir().unwrap();
    let mut all: Vec<Record> = Vec::new();
    let mut running = demo(dir.path(), "6").await;
    for _ in 0..CYCLES {
        let mut reading = Vec::new();
        for n in 0..STREAMS {
            let path = ["/doubao/x", "/tencent/x", "/doubao-en/x"][n as usize % 3];
            let mut client = Client::h1(running.addr).await;
            reading.push(tokio::spawn(async move {
                // Spread out, so that some finish about when the end comes.
                tokio::time::sleep(Duration::from_millis(n * 40)).await;
                match client.try_send(post(path, "{}")).await {
                    Ok(answer) => read(answer).await,
                    Err(_) => Vec::new(),
                }
            }));
        }
        let random = u64::from(uuid::Uuid::new_v4().as_bytes()[0]);
        tokio::time::sleep(Duration::from_millis(700 + random * 3)).await;
        running.kill();
        for one in reading {
            all.extend(one.await.unwrap());
        }
        running = demo(dir.path(), "6").await;
        for seen in &all {
            assert_eq!(as_sent(kept(&running, &seen.message_id).await), as_sent(seen.clone()));
        }
    }
    assert!(!all.is_empty(), "some were delivered");
}

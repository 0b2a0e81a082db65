//! A message in flight at one replica, requested from the other.

use std::time::{Duration, Instant};

use citetap::citation::Record;

use super::{Cluster, Disk, Kind, Script, Step, kept, on_each_engine, tencent};
use crate::{
    net::{Client, ClientResponse, eventually, frames, request},
    process::Running,
};

on_each_engine!(
    record_of_one_replica_is_read_from_the_other,
    record_deleted_at_one_replica_is_gone_at_the_other,
    killed_replica_ends_waits_at_the_other,
);

/// Two sources, a third after `pause`, the finish after another.
fn growing(id: &str, pause: Duration) -> Script {
    let pieces = [
        tencent::references(id, &[1, 2]),
        tencent::references(id, &[1, 2, 3]),
        tencent::text(id, "第一句[1]。") + &tencent::finish(id),
    ];
    let steps = pieces.into_iter().flat_map(|piece| [Step::Send(piece.into()), Step::Pause(pause)]);
    Script::sse_steps(steps.collect::<Vec<_>>())
}

async fn begun(replica: &Running, id: &str) -> ClientResponse {
    let mut response = replica.post(&format!("/chat/{id}")).await;
    response.until("reference_chunks").await;
    response
}

/// Repeats the request until the message is in flight.
async fn in_flight(replica: &Running, id: &str) -> Record {
    let path = format!("/citations/{id}");
    let response = eventually(|| async {
        let response = replica.get(&path).await;
        if response.status == 202 { Some(response) } else { None }
    });
    serde_json::from_value(response.await.expect("known at the other replica").json().await).unwrap()
}

fn events(stream: &[u8]) -> Vec<Record> {
    let data = |frame: &&[u8]| citetap::sse::Event::read(frame).data.map(|data| serde_json::from_str(&data).unwrap());
    frames(stream).iter().filter_map(data).collect()
}

async fn record_of_one_replica_is_read_from_the_other(kind: Kind) {
    let cluster = Cluster::new(kind, Disk::Plain, vec![("/m-1", growing("m-1", Duration::from_secs(2)))]).await;
    let (one, other) = (cluster.replica("10s", "127.0.0.1:0").await, cluster.replica("10s", "127.0.0.1:0").await);
    let open = begun(&one, "m-1").await;
    let so_far = in_flight(&other, "m-1").await;
    assert!(so_far.citations.len() == 2 && !so_far.complete && !so_far.stored);
    other.get("/citations/m-1?provider=doubao").await.is_problem(404, "unknown-message").await;

    let watching = async { other.get("/citations/m-1/events").await.whole().await };
    let waiting = async { other.get("/citations/m-1?wait=20").await };
    let (whole, waited, watched) = tokio::join!(open.whole(), waiting, watching);
    let reported = whole.split().1.remove(0);
    assert!(reported.complete && reported.stored && reported.citations.len() == 3);
    assert_eq!(waited.status, 200);
    assert_eq!(serde_json::from_value::<Record>(waited.json().await).unwrap(), reported);
    let seen = events(&watched.bytes());
    assert_eq!(watched.error, None);
    assert_eq!(seen.first().map(|first| (first.citations.len(), first.complete)), Some((2, false)));
    assert!(seen.iter().any(|record| record.citations.len() == 3 && !record.complete), "it is seen to grow: {seen:?}");
    assert_eq!(seen.last(), Some(&reported));
    assert_eq!((kept(&one, "m-1").await, kept(&other, "m-1").await), (Some(reported.clone()), Some(reported)));

    // The message is unknown, so there is no wait.
    let began = Instant::now();
    other.get("/citations/m-2?wait=20").await.is_problem(404, "unknown-message").await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

async fn record_deleted_at_one_replica_is_gone_at_the_other(kind: Kind) {
    let cluster = Cluster::new(kind, Disk::Plain, vec![("/m-1", growing("m-1", Duration::from_millis(1)))]).await;
    let (one, other) = (cluster.replica("10s", "127.0.0.1:0").await, cluster.replica("10s", "127.0.0.1:0").await);
    begun(&one, "m-1").await.whole().await;
    assert!(kept(&other, "m-1").await.is_some());
    let forget = request(http::Method::DELETE, "/citations/m-1", &[], "");
    assert_eq!(Client::h1(other.addr).await.send(forget).await.status, 204);
    for replica in [&one, &other] {
        replica.get("/citations/m-1").await.is_problem(404, "unknown-message").await;
        replica.get("/citations/m-1/events").await.is_problem(404, "unknown-message").await;
    }
}

async fn killed_replica_ends_waits_at_the_other(kind: Kind) {
    let cluster = Cluster::new(kind, Disk::Plain, vec![("/m-1", growing("m-1", Duration::from_secs(300)))]).await;
    let (one, other) = (cluster.replica("10s", "127.0.0.1:0").await, cluster.replica("10s", "127.0.0.1:0").await);
    let _open = begun(&one, "m-1").await;
    in_flight(&other, "m-1").await;
    let watching = other.get("/citations/m-1/events").await;
    one.kill();
    let began = Instant::now();
    let watched = watching.whole().await;
    assert_eq!(watched.error, None);
    assert!(began.elapsed() < Duration::from_secs(19), "{:?}", began.elapsed());
    assert!(events(&watched.bytes()).iter().all(|record| !record.stored), "the citations so far");
    other.get("/citations/m-1").await.is_problem(404, "unknown-message").await;
}

//! The engine is paused, killed, restarted, read-only or full: chats continue, `stored` is correct, and everything is
//! stored after recovery.

use std::time::{Duration, Instant};

use citetap::citation::Record;
use http::StatusCode;

use super::{Cluster, Disk, Engine, Kind, kept, on_each_engine};
use crate::{
    crash::streams::{RecordState, look},
    net::{LIMIT, eventually},
    process::{Running, as_sent},
    rng::Rng,
};

/// The default commit wait.
const COMMIT: &str = "250ms";
/// Chats during each fault, at each replica.
const CHATS: usize = 4;
/// The stream with the largest record.
const LARGE: usize = 0;
/// Additional time of a stream: the commit wait, and a busy machine.
const SLACK: Duration = Duration::from_millis(2500);
/// Time to notice a fault of the engine. A paused engine is noticed by timeouts.
const SEEN: Duration = Duration::from_secs(10);
/// Memory limit of two replicas during faults.
const MEMORY: u64 = 256 << 20;

on_each_engine!(paused_engine_recovers, crashed_engine_recovers, read_only_engine_recovers, full_disk_recovers);

async fn paused_engine_recovers(kind: Kind) {
    run_fault(kind, Disk::Plain, "paused", |engine| engine.pause(), async |engine| engine.resume()).await;
}

async fn crashed_engine_recovers(kind: Kind) {
    run_fault(kind, Disk::Plain, "crashed", Engine::crash, async |engine| engine.again().await).await;
}

async fn read_only_engine_recovers(kind: Kind) {
    run_fault(kind, Disk::Plain, "read-only", |engine| engine.read_only(true), async |engine| engine.read_only(false))
        .await;
}

async fn full_disk_recovers(kind: Kind) {
    let disk = if kind == Kind::Postgres { Disk::Small } else { Disk::Plain };
    run_fault(kind, disk, "full", |engine| engine.full(true), async |engine| engine.full(false)).await;
}

/// Observations of clients, with the time since the fault began.
struct Timeline {
    kind: Kind,
    began: Instant,
}

impl Timeline {
    #[expect(clippy::print_stderr, reason = "the timeline is shown if the test fails or with --nocapture")]
    fn log(&self, what: &str) {
        eprintln!("{:?} {:6.2} s  {what}", self.kind, self.began.elapsed().as_secs_f64());
    }
}

async fn run_fault(
    kind: Kind,
    disk: Disk,
    what: &str,
    inflict: impl FnOnce(&mut Engine),
    relieve: impl AsyncFnOnce(&mut Engine),
) {
    let mut cluster = Cluster::new(kind, disk, Vec::new()).await;
    let replicas = [cluster.replica(COMMIT, "127.0.0.1:0").await, cluster.replica(COMMIT, "127.0.0.1:0").await];
    let mut rng = Rng::new(11);
    for replica in &replicas {
        assert_healthy(replica, &mut rng).await;
    }
    let mut timeline = Timeline { kind, began: Instant::now() };
    inflict(&mut cluster.engine);
    timeline.log(&format!("the engine is {what}"));

    // On a full disk, existing files may have room for some more records.
    let felt = async { while chat(&replicas[0], LARGE).await.0.stored {} };
    tokio::time::timeout(SEEN, felt).await.expect("trouble");
    let mut not_stored = Vec::new();
    for replica in &replicas {
        for _ in 0..CHATS {
            // A small record may still fit.
            let variant = if disk == Disk::Small { LARGE } else { rng.within(LARGE + 1..12) };
            let (record, took) = chat(replica, variant).await;
            timeline.log(&format!("a chat of {took:.2?}, stored: {}", record.stored));
            assert!(!record.stored, "stored during the fault");
            not_stored.push(record);
        }
        let not_ready = eventually(|| async {
            (replica.get("/readyz").await.status == StatusCode::SERVICE_UNAVAILABLE).then_some(())
        });
        tokio::time::timeout(SEEN, not_ready).await.expect("in time").expect("not ready");
        timeline.log("/readyz: 503");
        assert_eq!(replica.get("/healthz").await.status, 200);
        let (began, response) = (Instant::now(), replica.get("/citations").await.status);
        timeline.log(&format!("/citations: {response} after {:.2?}", began.elapsed()));
        assert!(began.elapsed() < SEEN);
    }

    relieve(&mut cluster.engine).await;
    timeline.log("the engine has recovered");
    timeline.began = Instant::now();
    for replica in &replicas {
        let ready = eventually(|| async { (replica.get("/readyz").await.status == 200).then_some(()) }).await;
        ready.expect("ready by itself");
        timeline.log("/readyz: 200");
    }
    for reported in &not_stored {
        let other = &replicas[rng.within(0..2)];
        let stored = eventually(|| kept(other, &reported.message_id)).await;
        let stored = stored.unwrap_or_else(|| panic!("{} was not stored within {LIMIT:?}", reported.message_id));
        assert_eq!(as_sent(Record { stored: false, ..stored }), as_sent(reported.clone()));
    }
    timeline.log(&format!("all {} records of the fault are stored", not_stored.len()));
    for replica in &replicas {
        assert_healthy(replica, &mut rng).await;
        assert!(replica.peak_memory() < MEMORY, "{}", replica.peak_memory());
    }
    timeline.log("new records are stored at once");
}

/// A chat through a replica: its bytes end cleanly, and its record is complete.
async fn chat(replica: &Running, variant: usize) -> (Record, Duration) {
    let began = Instant::now();
    let whole = replica.post(&format!("/tencent/{variant:02}")).await.whole().await;
    let took = began.elapsed();
    assert_eq!((whole.status, &whole.error), (StatusCode::OK, &None));
    let (theirs, mut ours) = whole.split();
    assert!(String::from_utf8_lossy(&theirs).contains("event:finish"));
    assert_eq!((ours.len(), look(&ours[0])), (1, RecordState::Whole));
    assert!(took < SLACK + Duration::from_secs(2), "{took:?}");
    (ours.remove(0), took)
}

/// On a busy machine one commit may exceed the wait.
async fn assert_healthy(replica: &Running, rng: &mut Rng) {
    for _ in 0..20 {
        if chat(replica, rng.within(LARGE + 1..12)).await.0.stored {
            return;
        }
    }
    panic!("nothing is stored: {:?}", replica.out());
}

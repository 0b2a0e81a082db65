//! The engine is paused, gone, started again, read-only, full: chats go on as if nothing were, what is said of storing is
//! true, and everything is stored when the engine is well again.

use std::time::{Duration, Instant};

use citetap::citation::Record;
use http::StatusCode;

use super::{Disk, Engine, House, Kind, kept, on_each_engine};
use crate::{
    chance::Chance,
    crash::streams::{Look, look},
    net::{LIMIT, eventually},
    process::{Running, as_sent},
};

/// How long an event may wait for the engine here: as by default.
const COMMIT: &str = "250ms";
/// Chats during each trouble, at each replica.
const CHATS: usize = 4;
/// The stream with the largest record.
const LARGE: usize = 0;
/// Beyond what a stream takes by itself: the wait for the commit, and a busy machine.
const SLACK: Duration = Duration::from_millis(2500);
/// For an engine's trouble to be seen. One that is paused is waited for.
const SEEN: Duration = Duration::from_secs(10);
/// Two replicas in trouble stay small.
const MEMORY: u64 = 256 << 20;

on_each_engine!(paused, gone_and_back, read_only, full);

async fn paused(kind: Kind) {
    in_trouble(kind, Disk::Plain, "paused", |engine| engine.pause(), async |engine| engine.resume()).await;
}

async fn gone_and_back(kind: Kind) {
    in_trouble(kind, Disk::Plain, "crashed", Engine::crash, async |engine| engine.again().await).await;
}

async fn read_only(kind: Kind) {
    in_trouble(kind, Disk::Plain, "read-only", |engine| engine.read_only(true), async |engine| engine.read_only(false))
        .await;
}

async fn full(kind: Kind) {
    let disk = if kind == Kind::Postgres { Disk::Small } else { Disk::Plain };
    in_trouble(kind, disk, "full", |engine| engine.full(true), async |engine| engine.full(false)).await;
}

/// What somebody at the replicas saw, with the time since the trouble began.
struct Timeline {
    kind: Kind,
    began: Instant,
}

impl Timeline {
    #[expect(clippy::print_stderr, reason = "for whoever wants to see how it went")]
    fn tell(&self, what: &str) {
        eprintln!("{:?} {:6.2} s  {what}", self.kind, self.began.elapsed().as_secs_f64());
    }
}

async fn in_trouble(
    kind: Kind,
    disk: Disk,
    what: &str,
    inflict: impl FnOnce(&mut Engine),
    relieve: impl AsyncFnOnce(&mut Engine),
) {
    let mut house = House::new(kind, disk, Vec::new()).await;
    let replicas = [house.replica(COMMIT, "127.0.0.1:0").await, house.replica(COMMIT, "127.0.0.1:0").await];
    let mut chance = Chance::new(11);
    for replica in &replicas {
        is_well(replica, &mut chance).await;
    }
    let mut line = Timeline { kind, began: Instant::now() };
    inflict(&mut house.engine);
    line.tell(&format!("the engine is {what}"));

    // Where a disk is full, there may be room left in files for some more.
    let felt = async { while chat(&replicas[0], LARGE).await.0.stored {} };
    tokio::time::timeout(SEEN, felt).await.expect("trouble");
    let mut untold = Vec::new();
    for replica in &replicas {
        for _ in 0..CHATS {
            // A small record may still find its place.
            let variant = if disk == Disk::Small { LARGE } else { chance.within(LARGE + 1..12) };
            let (record, took) = chat(replica, variant).await;
            line.tell(&format!("a chat of {took:.2?}, stored: {}", record.stored));
            assert!(!record.stored, "nothing can be stored now");
            untold.push(record);
        }
        let not_ready = eventually(|| async {
            (replica.get("/readyz").await.status == StatusCode::SERVICE_UNAVAILABLE).then_some(())
        });
        tokio::time::timeout(SEEN, not_ready).await.expect("in time").expect("not ready");
        line.tell("/readyz: 503");
        assert_eq!(replica.get("/healthz").await.status, 200);
        let (asked, answer) = (Instant::now(), replica.get("/citations").await.status);
        line.tell(&format!("/citations: {answer} after {:.2?}", asked.elapsed()));
        assert!(asked.elapsed() < SEEN);
    }

    relieve(&mut house.engine).await;
    line.tell("the engine is well again");
    line.began = Instant::now();
    for replica in &replicas {
        let ready = eventually(|| async { (replica.get("/readyz").await.status == 200).then_some(()) }).await;
        ready.expect("ready by itself");
        line.tell("/readyz: 200");
    }
    for told in &untold {
        let other = &replicas[chance.within(0..2)];
        let stored = eventually(|| kept(other, &told.message_id)).await;
        let stored = stored.unwrap_or_else(|| panic!("{} was not stored within {LIMIT:?}", told.message_id));
        assert_eq!(as_sent(Record { stored: false, ..stored }), as_sent(told.clone()));
    }
    line.tell(&format!("all {} records of the trouble are stored", untold.len()));
    for replica in &replicas {
        is_well(replica, &mut chance).await;
        assert!(replica.peak_memory() < MEMORY, "{}", replica.peak_memory());
    }
    line.tell("new ones are stored at once");
}

/// A chat through a replica: its bytes come to a clean end, and its record is whole.
async fn chat(replica: &Running, variant: usize) -> (Record, Duration) {
    let began = Instant::now();
    let whole = replica.post(&format!("/tencent/{variant:02}")).await.whole().await;
    let took = began.elapsed();
    assert_eq!((whole.status, &whole.error), (StatusCode::OK, &None));
    let (theirs, mut ours) = whole.split();
    assert!(String::from_utf8_lossy(&theirs).contains("event:finish"));
    assert_eq!((ours.len(), look(&ours[0])), (1, Look::Whole));
    assert!(took < SLACK + Duration::from_secs(2), "{took:?}");
    (ours.remove(0), took)
}

/// On a busy machine one commit may take longer than an event waits.
async fn is_well(replica: &Running, chance: &mut Chance) {
    for _ in 0..20 {
        if chat(replica, chance.within(LARGE + 1..12)).await.0.stored {
            return;
        }
    }
    panic!("nothing is stored: {:?}", replica.out());
}

//! Measures writes and reads per second of each store engine, one after the other in every round, and bytes per record.
//! `tests/bench/stores` runs it with a private PostgreSQL and Redis.

use std::{
    process::{Command, ExitCode},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use citetap::{
    citation::Record,
    config,
    store::{self, Entry, Filter, StatsFilter, Store, day_of},
};
use serde_json::json;

/// A record with ten web pages of a Doubao answer.
const MODEL: &str = include_str!("../../fixtures/doubao/seed.citations.json");
/// Records per batch, as in the writer queue of a busy replica.
const BATCH: usize = 64;
/// Concurrent readers.
const READERS: usize = 4;
/// Reads pick from this many newest records, which every store still has.
const RECENT: u64 = 4000;
/// Records per conversation.
const PER_CONVERSATION: u64 = 10;

/// Operations per second of one engine in one round.
#[derive(Default, Clone)]
struct Round {
    batched: f64,
    one_by_one: f64,
    gets: f64,
    pages: f64,
    stats: f64,
}

struct Engine {
    name: &'static str,
    store: Arc<dyn Store>,
    /// Records in the store.
    count: Arc<AtomicU64>,
    /// Measures the bytes that the store takes.
    size: Box<dyn Fn() -> Option<u64>>,
    /// `size` of the empty store.
    empty: u64,
    rounds: Vec<Round>,
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (rounds, seconds) = (number(args.next(), 5.0).max(1.0), number(args.next(), 2.0));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let done = runtime
        .map_err(|error| error.to_string())
        .and_then(|runtime| runtime.block_on(run(rounds as usize, Duration::from_secs_f64(seconds))));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("citetap-stores: {error}");
            ExitCode::FAILURE
        }
    }
}

fn number(text: Option<String>, default: f64) -> f64 {
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

async fn run(rounds: usize, time: Duration) -> Result<(), String> {
    let model: Record = serde_json::from_str(MODEL).map_err(|error| error.to_string())?;
    let dir = std::env::temp_dir().join(format!("citetap-stores-{}", std::process::id()));
    std::fs::create_dir_all(&dir).map_err(|error| error.to_string())?;
    let mut engines = engines(&dir).await?;
    for round in 0..rounds {
        for engine in &mut engines {
            eprintln!("round {} of {rounds}: {}", round + 1, engine.name);
            let measured = measure(engine, &model, time).await?;
            engine.rounds.push(measured);
        }
    }
    let report: Vec<_> = engines.iter().map(summary).collect();
    println!(
        "{}",
        json!({ "model_bytes": serde_json::to_string(&model).map_or(0, |text| text.len()), "engines": report })
    );
    for engine in &engines {
        engine.store.close().await;
    }
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}

/// Opens all engines; servers only if `tests/engines` has set their environment variables.
async fn engines(dir: &std::path::Path) -> Result<Vec<Engine>, String> {
    let file = dir.join("stores.db");
    let mut found = vec![
        ("memory", "memory:".to_owned(), Box::new(|| None) as Box<dyn Fn() -> Option<u64>>),
        (
            "sqlite",
            format!("sqlite:{}", file.display()),
            Box::new(move || std::fs::metadata(&file).ok().map(|of| of.len())),
        ),
    ];
    if let Ok(url) = std::env::var("CITETAP_TEST_POSTGRES") {
        let server = url.clone();
        found.push((
            "postgres",
            url,
            Box::new(move || {
                let query = "SELECT pg_database_size(current_database())";
                stdout_of(Command::new("psql").args(["-d", &server, "-Atc", query])).parse().ok()
            }),
        ));
    }
    if let Ok(url) = std::env::var("CITETAP_TEST_REDIS") {
        let server = url.clone();
        found.push((
            "redis",
            url,
            Box::new(move || {
                let output = stdout_of(Command::new("redis-cli").args(["-u", &server, "info", "memory"]));
                output.lines().find_map(|line| line.strip_prefix("used_memory:"))?.trim().parse().ok()
            }),
        ));
    }
    let mut engines = Vec::new();
    for (name, url, size) in found {
        let toml =
            format!("store = {url:?}\n[[routes]]\nname = \"r\"\nprefix = \"/\"\nupstream = \"http://localhost\"\n");
        let config = config::from_toml(&toml, dir).map_err(|errors| errors.to_string())?.config;
        let store = store::open(&config.store, None).await.map_err(|error| error.to_string())?;
        store.ping().await.map_err(|error| format!("{name}: {error}"))?;
        let empty = size().unwrap_or(0);
        engines.push(Engine { name, store, count: Arc::default(), size, empty, rounds: Vec::new() });
    }
    Ok(engines)
}

fn stdout_of(command: &mut Command) -> String {
    command.output().map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

async fn measure(engine: &Engine, model: &Record, time: Duration) -> Result<Round, String> {
    Ok(Round {
        batched: put(engine, model, BATCH, time).await?,
        one_by_one: put(engine, model, 1, time).await?,
        gets: read(engine, time, |store, n| {
            Box::pin(async move { store.get("default", &id(n), None).await.map(|found| found.is_some()) })
        })
        .await?,
        pages: read(engine, time, |store, n| {
            Box::pin(async move {
                let conversation = Some(format!("c{}", n / PER_CONVERSATION));
                let filter = Filter { conversation, ..Filter::default() };
                store.list("default", &filter).await.map(|page| !page.entries.is_empty())
            })
        })
        .await?,
        stats: read(engine, time, |store, _| {
            Box::pin(async move {
                let today = day_of(now_ms());
                let filter =
                    StatsFilter { days: today - 29..today + 1, top: 100, by_day: true, ..StatsFilter::default() };
                store.stats("default", &filter).await.map(|report| !report.days.is_empty())
            })
        })
        .await?,
    })
}

fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as i64)
}

fn id(n: u64) -> String {
    format!("{:017}", 30_000_000_000_000_000 + n)
}

async fn put(engine: &Engine, model: &Record, batch: usize, time: Duration) -> Result<f64, String> {
    let (began, mut written) = (Instant::now(), 0);
    while began.elapsed() < time {
        // Current time stamps, because the memory store evicts the oldest first.
        let now = now_ms();
        let entries: Vec<Entry> = (0..batch)
            .map(|_| {
                let n = engine.count.fetch_add(1, Relaxed);
                let mut record = model.clone();
                record.message_id = id(n);
                record.conversation_id = Some(format!("c{}", n / PER_CONVERSATION));
                Entry { tenant: "default".to_owned(), created_ms: now, record }
            })
            .collect();
        engine.store.put(&entries).await.map_err(|error| format!("{}: {error}", engine.name))?;
        written += batch;
    }
    Ok(written as f64 / began.elapsed().as_secs_f64())
}

type ReadFuture = std::pin::Pin<Box<dyn Future<Output = Result<bool, store::StoreError>> + Send>>;

async fn read(engine: &Engine, time: Duration, ask: fn(Arc<dyn Store>, u64) -> ReadFuture) -> Result<f64, String> {
    let began = Instant::now();
    // Newest records only, because the memory store evicts the first ones.
    let stored = engine.count.load(Relaxed);
    let first = stored.saturating_sub(RECENT);
    let readers: Vec<_> = (0..READERS as u64)
        .map(|reader| {
            let store = Arc::clone(&engine.store);
            tokio::spawn(async move {
                let (mut n, mut done) = (reader, 0_u64);
                while began.elapsed() < time {
                    // A linear congruential generator picks the records.
                    n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let found = ask(Arc::clone(&store), first + (n >> 33) % (stored - first)).await;
                    if !found.map_err(|error| error.to_string())? {
                        return Err("a record is not found".to_owned());
                    }
                    done += 1;
                }
                Ok(done)
            })
        })
        .collect();
    let mut all = 0;
    for reader in readers {
        all += reader.await.map_err(|error| error.to_string())?.map_err(|error| format!("{}: {error}", engine.name))?;
    }
    Ok(all as f64 / began.elapsed().as_secs_f64())
}

fn summary(engine: &Engine) -> serde_json::Value {
    let median = |of: fn(&Round) -> f64| {
        let mut all: Vec<f64> = engine.rounds.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2].round()
    };
    let count = engine.count.load(Relaxed);
    let bytes = (engine.size)().map(|now| now.saturating_sub(engine.empty) / count.max(1));
    json!({
        "engine": engine.name, "records": count, "bytes_per_record": bytes,
        "writes_in_batches": median(|round| round.batched), "writes_one_by_one": median(|round| round.one_by_one),
        "reads": median(|round| round.gets), "pages": median(|round| round.pages),
        "stats": median(|round| round.stats),
    })
}

//! A failing store and a killed process.

use std::{path::Path, time::Duration};

use citetap::replay::{Script, Scripted, Upstream};
use sqlx::{ConnectOptions as _, Connection as _, sqlite::SqliteConnectOptions};

use super::keeping;
use crate::{
    crash::{demo, kept},
    net::{eventually, route, split, tencent},
    process::{Running, as_sent, citetap, confined, run},
};

/// Another process holds the lock longer than the commit wait.
#[tokio::test]
async fn s90_locked_store_delays_no_chat_and_stores_later() {
    let dir = tempfile::tempdir().unwrap();
    let (_upstream, proxy) = keeping(dir.path(), &["m"], "[timeouts]\ncommit = \"200ms\"").await;
    let mut other = SqliteConnectOptions::new().filename(dir.path().join("c.db")).connect().await.unwrap();
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    let whole = proxy.post("/chat/m", "{}").await.whole().await;
    let (theirs, ours) = whole.split();
    assert_eq!((theirs, whole.error), (tencent::answer("m").into_bytes(), None));
    assert!(ours[0].complete && !ours[0].stored);
    assert!(whole.pieces.last().unwrap().0 < Duration::from_secs(3));
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    assert!(proxy.stored("m").await.stored, "later it is there");
    assert_eq!(proxy.get("/readyz").await.status, 200);
}

/// A full disk, simulated by a limit on file size. After a failed write or fsync the connection's caches are not
/// trusted, so it is replaced (`failed_write_replaces_the_connection`).
#[tokio::test]
async fn s90_full_disk_affects_no_chat_and_recovers() {
    let upstream = Upstream::bind(vec![Scripted::new("/", Script::sse(tencent::answer("mess-age")).with_fresh_ids())])
        .await
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let toml = format!("store = \"sqlite:c.db\"\n{}provider = \"tencent\"\n", route("chat", &upstream.url()));
    std::fs::write(dir.path().join("citetap.toml"), toml).unwrap();
    let plain = citetap(dir.path(), &["serve", "--listen", "127.0.0.1:0"]);
    // SIGXFSZ is ignored, so that a write beyond the limit fails instead of killing the process. Only the soft limit is
    // set.
    let running = Running::start(confined(&plain, "trap '' XFSZ; ulimit -S -f 600")).await;
    let mut refused = None;
    for _ in 0..400 {
        let whole = running.post("/chat").await.whole().await;
        assert_eq!(whole.error, None);
        let (theirs, ours) = whole.split();
        assert_eq!(theirs.len(), tencent::answer("mess-age").len());
        if !ours[0].stored {
            refused = Some(ours[0].clone());
            break;
        }
    }
    let refused = refused.expect("the disk is full at some time");
    let unready = eventually(|| async { (running.get("/readyz").await.status == 503).then_some(()) });
    assert!(unready.await.is_some(), "readiness tells");
    assert_eq!(running.get("/healthz").await.status, 200);
    // Space is available again: no restart is needed.
    running.limit("fsize", "unlimited");
    let ready = eventually(|| async { (running.get("/readyz").await.status == 200).then_some(()) });
    assert!(ready.await.is_some(), "ready again");
    let id = refused.message_id;
    let there = eventually(|| async { (running.get(&format!("/citations/{id}")).await.status == 200).then_some(()) });
    assert!(there.await.is_some(), "a failed write is stored by a retry");
}

/// `crash` kills at random times.
#[tokio::test]
async fn s91_record_reported_as_stored_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut seen = Vec::new();
    for path in ["/doubao/chat", "/tencent/x"] {
        let running = demo(dir.path(), "100").await;
        let mut response = running.post(path).await;
        let mut came = Vec::new();
        let record = loop {
            came.extend(response.piece().await.expect("no end").expect("no abort"));
            let whole = memchr::memmem::rfind(&came, b"\n\n").map_or(0, |at| at + 2);
            if let [record] = &split(&came[..whole]).1[..] {
                break record.clone();
            }
        };
        // At the moment the event arrives.
        running.kill();
        seen.push(record);
        let running = demo(dir.path(), "100").await;
        for record in &seen {
            assert!(record.stored);
            let kept = kept(&running, &record.message_id).await;
            assert!(as_sent(kept) == as_sent(record.clone()), "{}", record.message_id);
        }
    }
    assert_eq!(seen.len(), 2);
}

async fn filled(dir: &Path) {
    let (_upstream, proxy) = keeping(dir, &["m"], "").await;
    assert!(proxy.post("/chat/m", "{}").await.whole().await.split().1[0].stored);
    proxy.app.writer.clone().shutdown().await;
}

async fn edited(dir: &Path, sql: &'static str) {
    let mut conn =
        SqliteConnectOptions::new().filename(dir.join("c.db")).create_if_missing(true).connect().await.unwrap();
    sqlx::raw_sql(sql).execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
}

#[tokio::test]
async fn s92_invalid_store_file_is_refused_with_a_reason() {
    let refusal = |dir: &Path| {
        let toml = format!("store = \"sqlite:c.db\"\n{}", route("chat", "http://127.0.0.1:9"));
        std::fs::write(dir.join("citetap.toml"), toml).unwrap();
        let ran = run(citetap(dir, &["serve", "--listen", "127.0.0.1:0"]), "");
        assert_ne!(ran.code, 0, "{ran:?}");
        let output = ran.out + &ran.err;
        assert!(output.contains("c.db"), "it names the file: {output}");
        output
    };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.db");
    filled(dir.path()).await;
    let whole = std::fs::read(&file).unwrap();
    for kept in [whole.len() / 2, whole.len() - 1, 50] {
        std::fs::write(&file, &whole[..kept]).unwrap();
        refusal(dir.path());
    }
    let mut damaged = whole.clone();
    damaged.chunks_mut(4096).skip(1).for_each(|page| page[..64].fill(0xa5));
    std::fs::write(&file, &damaged).unwrap();
    assert!(refusal(dir.path()).contains("damaged"));
    std::fs::write(&file, "dear diary, ".repeat(1000)).unwrap();
    let output = refusal(dir.path());
    assert!(output.contains("not a SQLite database") && !output.contains("diary"), "{output}");

    std::fs::write(&file, &whole).unwrap();
    edited(dir.path(), "PRAGMA user_version = 99").await;
    assert!(refusal(dir.path()).contains("newer"), "a format of the future");
    std::fs::remove_file(&file).unwrap();
    edited(dir.path(), "CREATE TABLE record (n INTEGER PRIMARY KEY)").await;
    assert!(refusal(dir.path()).contains("another program"));
    // An old schema is migrated: `migration_from_schema_1_assigns_tasks`.
}

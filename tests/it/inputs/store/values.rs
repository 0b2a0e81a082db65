//! Values of other keys, expired values, and values read while they are deleted.

use std::time::Duration;

use citetap::store::Entry;
use sqlx::{ConnectOptions as _, Connection as _, sqlite::SqliteConnectOptions};

use super::{answering, keeping, on_file};
use crate::net::{Client, eventually, get};

/// A store could return the value of another key. Each value contains its key and is not served under any other, in
/// every store.
#[tokio::test]
async fn s93_value_of_another_key_is_never_served() {
    let dir = tempfile::tempdir().unwrap();
    let (_upstream, proxy) = keeping(dir.path(), &["m-1", "m-2"], "").await;
    for id in ["m-1", "m-2"] {
        proxy.post(&format!("/chat/{id}"), "{}").await.whole().await;
    }
    let mut other = SqliteConnectOptions::new().filename(dir.path().join("c.db")).connect().await.unwrap();
    let keep = "CREATE TEMP TABLE kept AS SELECT body FROM record WHERE id = 'm-1'";
    sqlx::raw_sql(keep).execute(&mut other).await.unwrap();
    for sql in [
        "UPDATE record SET body = (SELECT body FROM record WHERE id = 'm-2') WHERE id = 'm-1'",
        "UPDATE record SET body = replace(body, '\"tenant\":\"default\"', '\"tenant\":\"other\"') WHERE id = 'm-1'",
        "UPDATE record SET body = '{}' WHERE id = 'm-1'",
        "UPDATE record SET body = '' WHERE id = 'm-1'",
    ] {
        sqlx::raw_sql("UPDATE record SET body = (SELECT body FROM kept) WHERE id = 'm-1'")
            .execute(&mut other)
            .await
            .unwrap();
        assert_eq!(proxy.get("/citations/m-1").await.status, 200);
        sqlx::raw_sql(sql).execute(&mut other).await.unwrap();
        for path in ["/citations/m-1", "/citations/m-1/events", "/citations/m-1?format=html", "/citations"] {
            let response = proxy.get(path).await;
            assert_eq!(response.status, 503, "{path} after {sql}");
            assert!(!response.whole().await.text().contains("example.com"), "{path}");
        }
        assert_eq!(proxy.get("/citations/m-2").await.status, 200, "its own");
    }
    other.close().await.unwrap();
}

/// SQLite: readers beyond the pool and writers without the lock wait for a limited time. What still fails is retried
/// from a bounded list (`retry_queue_at_the_cap_drops_the_oldest`).
#[tokio::test]
async fn s94_readers_and_writers_beyond_the_pool_wait() {
    let dir = tempfile::tempdir().unwrap();
    let ids: Vec<String> = (0..24).map(|n| format!("m-{n}-")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let upstream = answering(&ids).await;
    let (one, two) = (on_file(dir.path(), &upstream, "").await, on_file(dir.path(), &upstream, "").await);
    let mut work = tokio::task::JoinSet::new();
    for (n, id) in ids.iter().enumerate() {
        let (addr, path) = (if n % 2 == 0 { one.addr } else { two.addr }, format!("/chat/{id}"));
        work.spawn(async move {
            let whole = Client::h1(addr).await.send(crate::net::post(&path, "{}")).await.whole().await;
            assert!(whole.split().1[0].stored, "{path}");
        });
        let path = format!("/citations?limit={}", n + 1);
        work.spawn(async move { assert_eq!(Client::h1(addr).await.send(get(&path)).await.status, 200) });
    }
    while let Some(done) = work.join_next().await {
        done.unwrap();
    }
    for id in ids {
        for proxy in [&one, &two] {
            assert_eq!(proxy.get(&format!("/citations/{id}")).await.status, 200, "{id}");
        }
    }
    assert_eq!(
        (one.get("/readyz").await.status, two.get("/readyz").await.status),
        (http::StatusCode::OK, http::StatusCode::OK)
    );
}

/// Records expire while they are read: each response is the complete record or a 404. A record from the future, as
/// after a clock correction, is an ordinary record and expires in its time.
#[tokio::test]
async fn s95_expiring_record_is_complete_or_404() {
    let dir = tempfile::tempdir().unwrap();
    let (_upstream, proxy) =
        keeping(dir.path(), &["m"], "[records]\nttl = \"1s\"\nsweep = \"1s\"\n[timeouts]\ncommit = \"10s\"\n").await;
    let sent = proxy.post("/chat/m", "{}").await.whole().await.split().1.remove(0);
    let mut future = sent.clone();
    future.message_id = "future".to_owned();
    let ahead = jiff::Timestamp::now().as_millisecond() + 3_600_000;
    let entry = Entry { tenant: "default".to_owned(), created_ms: ahead, record: future.clone() };
    proxy.app.store.put(&[entry]).await.unwrap();
    let mut client = Client::h1(proxy.addr).await;
    let mut whole = 0;
    let gone = loop {
        let response = client.send(get("/citations/m")).await;
        if response.status == 404 {
            break response.json().await;
        }
        assert_eq!(response.status, 200);
        let record: citetap::citation::Record = serde_json::from_value(response.json().await).unwrap();
        assert_eq!(record, sent);
        whole += 1;
        assert!(whole < 100_000, "it never expires");
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    assert!(whole > 0 && gone["type"].as_str().unwrap().ends_with("unknown-message"));
    let kept: citetap::citation::Record =
        serde_json::from_value(client.send(get("/citations/future")).await.json().await).unwrap();
    assert_eq!(kept, future);
    let listed = eventually(|| async {
        let listed = proxy.get("/citations").await.json().await;
        (listed["items"].as_array().unwrap().len() == 1).then_some(())
    });
    assert!(listed.await.is_some(), "listed first, as the only record");
}

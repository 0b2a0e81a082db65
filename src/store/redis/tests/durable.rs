//! What `stored` means with each durability setting.

use std::time::Instant;

use super::*;

const ALWAYS: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

async fn has_waitaof(server: &TestServer) -> bool {
    let info: Vec<redis::Value> =
        cmd("COMMAND").arg(&["INFO", "WAITAOF"]).query_async(&mut server.conn().await).await.unwrap();
    info.iter().any(|one| *one != redis::Value::Nil)
}

#[tokio::test]
async fn put_is_durable_only_if_the_server_syncs() {
    let hidden = ["--appendonly", "yes", "--appendfsync", "always", "--rename-command", "CONFIG", ""];
    let rewrite = ["--appendonly", "yes", "--appendfsync", "always", "--no-appendfsync-on-rewrite", "yes"];
    let (yes, no, asked) = (Some(true), Some(false), None);
    // `None`: depends on whether the server has WAITAOF.
    for (args, parameters, durable, warning) in [
        (&["--appendonly", "no"][..], "", no, "set appendonly yes"),
        (&["--appendonly", "no"], "durable=memory", yes, ""),
        (&["--appendonly", "yes", "--appendfsync", "everysec"], "", asked, "appendfsync always"),
        (&["--appendonly", "yes", "--appendfsync", "everysec"], "durable=memory", yes, ""),
        (&["--appendonly", "yes", "--appendfsync", "no"], "", no, "appendfsync always"),
        (&ALWAYS, "", yes, ""),
        (&rewrite, "", asked, "appendfsync always"),
        (&hidden, "", asked, ""),
        (&hidden, "durable=always", yes, ""),
        (
            &["--appendonly", "no", "--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru"],
            "durable=memory",
            yes,
            "noeviction",
        ),
    ] {
        let server = TestServer::start(args).await;
        let durable = match durable {
            Some(durable) => durable,
            None => has_waitaof(&server).await,
        };
        let store = server.store(parameters).await;
        let put = store.put(&[entry("t", "p", "1", 1)]).await;
        let expected = if durable { Ok(()) } else { Err(StoreError::Volatile) };
        assert_eq!(put, expected, "{args:?} {parameters}");
        assert!(store.get("t", "1", None).await.unwrap().is_some(), "kept all the same");
        let found = store.setup_warning().unwrap_or_default();
        assert!(found.contains(warning) && (durable || !found.is_empty()), "{args:?} {parameters}: {found}");
        assert_eq!(store.delete("t", "1", None).await.unwrap(), 1);
    }
}

/// Records reported as stored survive a killed server, and the aggregates match the records.
#[tokio::test]
async fn stored_records_survive_a_killed_server() {
    let mut server = TestServer::start(&ALWAYS).await;
    let store = Arc::new(server.store("").await);
    let mut stored = Vec::new();
    for round in 0..4 {
        let writing = Arc::clone(&store);
        let task = tokio::spawn(async move {
            let mut stored = Vec::new();
            for n in 0.. {
                let ids = [0, 1, 2].map(|part| format!("{round}-{n}-{part}"));
                let batch: Vec<_> = ids.iter().map(|id| entry("t", "p", id, n)).collect();
                match writing.put(&batch).await {
                    Ok(()) => stored.extend(ids),
                    Err(_) => return stored,
                }
            }
            stored
        });
        tokio::time::sleep(Duration::from_millis(80 + 37 * round)).await;
        server.kill();
        stored.extend(task.await.unwrap());
        server.restart(&ALWAYS).await;
        wait_reconnected(&store).await;
        let mut all = std::collections::BTreeSet::new();
        let mut filter = Filter { limit: 1000, ..Filter::default() };
        loop {
            let page = store.list("t", &filter).await.unwrap();
            all.extend(page.entries.into_iter().map(|one| one.record.message_id));
            let Some(next) = page.next else { break };
            filter.cursor = Some(next);
        }
        assert!(stored.iter().all(|id| all.contains(id)), "round {round}: something that was stored is gone");
        assert_eq!(all.len() % 3, 0, "a batch is there whole or not at all");
        let stats = StatsFilter { days: 0..1, ..StatsFilter::default() };
        let report = store.stats("t", &stats).await.unwrap();
        assert_eq!(report.days.iter().map(|day| day.counts.messages).sum::<i64>(), all.len() as i64);
    }
    assert!(stored.len() >= 3, "{}", stored.len());
    // Changed settings are noticed on the new connection.
    server.kill();
    server.restart(&["--appendonly", "no"]).await;
    wait_reconnected(&store).await;
    assert_eq!(store.put(&[entry("t", "p", "1", 1)]).await, Err(StoreError::Volatile));
}

/// Waits until the store is connected to the restarted server.
async fn wait_reconnected(store: &RedisStore) {
    let began = Instant::now();
    while store.ping().await.is_err() {
        assert!(began.elapsed() < Duration::from_secs(20), "it is not found again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn put_waits_for_the_configured_replicas() {
    let primary = TestServer::start(&["--repl-diskless-sync-delay", "0"]).await;
    // Replication needs a TCP port.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let mut conn = primary.conn().await;
    cmd("CONFIG").arg(&["SET", "bind", "127.0.0.1", "port", &port]).query_async::<()>(&mut conn).await.unwrap();
    let alone = primary.store("durable=memory&replicas=1").await;
    let began = std::time::Instant::now();
    assert_eq!(alone.put(&[entry("t", "p", "1", 1)]).await, Err(StoreError::Volatile));
    assert!(began.elapsed() < WRITE_TIMEOUT);

    let replica = TestServer::start(&["--replicaof", "127.0.0.1", &port]).await;
    let mut stored = Err(StoreError::Closed);
    for _ in 0..5 {
        stored = alone.put(&[entry("t", "p", "1", 1)]).await;
        if stored.is_ok() {
            break;
        }
    }
    stored.unwrap();
    let store = replica.store("durable=memory").await;
    assert!(store.get("t", "1", None).await.unwrap().is_some());
    assert!(store.setup_warning().unwrap().contains("is a replica"));
    let error = store.put(&[entry("t", "p", "2", 1)]).await.unwrap_err().to_string();
    assert!(error.contains("is a replica and takes no writes; name the primary"), "{error}");
}

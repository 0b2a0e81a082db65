//! Expiry of keys.

use super::*;

/// An expired record is hidden to the millisecond, swept or not.
#[tokio::test]
async fn expired_record_is_hidden_until_swept() {
    let ttl = Duration::from_secs(3600);
    let store = redis_store(Some(ttl)).await;
    let edge = now() - 3_600_000;
    let mut old = entry("t", "p", "old", edge - 1);
    old.record.task_id = Some("task".to_owned());
    let soon = entry("t", "p", "soon", edge + 60_000);
    store.put(&[old.clone(), soon]).await.unwrap();
    assert_eq!(store.get("t", "old", None).await.unwrap(), None);
    assert_eq!(store.get("t", "old", Some("p")).await.unwrap(), None);
    let page = store.list("t", &Filter::default()).await.unwrap();
    assert_eq!(page.entries.len(), 1);
    let filter = Filter { since_ms: Some(0), domain: Some("example.com".to_owned()), ..Filter::default() };
    assert_eq!(store.list("t", &filter).await.unwrap().entries.len(), 1);
    assert!(store.task("t", "task", None, 9).await.unwrap().entries.is_empty());
    assert_eq!(store.advance(&commit("task")).await.unwrap(), AdvanceOutcome::NoTask);
    assert_eq!(store.delete("t", "old", None).await.unwrap(), 0, "nobody could read it");
    assert!(store.get("t", "soon", None).await.unwrap().is_some());

    store.put(&[old]).await.unwrap();
    let days = day_of(edge - 1)..day_of(now()) + 1;
    let filter = StatsFilter { days, top: 9, ..StatsFilter::default() };
    let messages = async || {
        let report = store.stats("t", &filter).await.unwrap();
        report.days.iter().map(|day| day.counts.messages).sum::<i64>()
    };
    assert_eq!(messages().await, 2);
    assert_eq!(store.sweep(edge).await.unwrap(), 1);
    assert_eq!(messages().await, 1);
}

#[tokio::test]
async fn every_key_expires_without_sweep() {
    let ttl = Duration::from_millis(1500);
    let mut store = redis_store(Some(ttl)).await;
    store.grace_ms = 240;
    let mut one = entry("t", "p", "1", now());
    one.record.conversation_id = Some("talk".to_owned());
    store.put(&[one.clone(), entry("u", "q", "2", now())]).await.unwrap();
    assert!(matches!(store.advance(&commit("talk")).await, Ok(AdvanceOutcome::Moved(_))));
    // A new record of the task extends its cursor.
    one.record.message_id = "3".to_owned();
    one.created_ms += 200;
    store.put(&[one]).await.unwrap();
    store.ping().await.unwrap();
    let keys = keys_of(&store).await;
    assert!(keys.len() > 20, "{keys:?}");
    let of_a_day = |key: &str| key.contains("}:c:") || key.contains("}:s:") || key.ends_with(":probe");
    for key in &keys {
        let left: i64 = run(&store, &["PTTL", key]).await;
        let most = if of_a_day(key) { DAY_MS + 2000 } else { 2000 };
        assert!(left > 0 && left <= most, "{key:?} ends in {left}");
    }
    // The server expires the keys without any sweep or write.
    for _ in 0..200 {
        if keys_of(&store).await.iter().all(|key| of_a_day(key)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("left: {:?}", keys_of(&store).await);
}

/// Sets that are written continuously never expire: adding a member removes old ones.
#[tokio::test]
async fn busy_set_drops_expired_members() {
    let mut store = redis_store(Some(Duration::from_millis(400))).await;
    store.grace_ms = 24;
    let busy = |id: &str| {
        let mut one = entry("t", "p", id, now());
        one.record.conversation_id = Some("talk".to_owned());
        one
    };
    store.put(&[busy("1"), busy("2"), busy("3")]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    store.put(&[busy("4")]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(250)).await;
    store.put(&[busy("5")]).await.unwrap();
    let keys = store.keys("t");
    for set in [keys.newest(), keys.of("v:", "talk"), keys.of("d:", "example.com"), keys.task("talk")] {
        let members: u64 = run(&store, &["ZCARD", &set]).await;
        assert!(members <= 2, "{set} has {members}");
    }
}

/// Switching from a configuration with a TTL to one without, and back.
#[tokio::test]
async fn keys_without_ttl_do_not_expire() {
    let mut store = redis_store(Some(Duration::from_secs(60))).await;
    store.put(&[entry("t", "p", "1", now())]).await.unwrap();
    store.ttl_ms = None;
    store.put(&[entry("t", "p", "1", now())]).await.unwrap();
    for key in keys_of(&store).await {
        let left: i64 = run(&store, &["PTTL", &key]).await;
        assert_eq!(left, -1, "{key:?}");
    }
    store.ttl_ms = Some(60_000);
    store.put(&[entry("t", "p", "1", now())]).await.unwrap();
    for key in keys_of(&store).await {
        let left: i64 = run(&store, &["PTTL", &key]).await;
        assert!(left > 0, "{key:?}");
    }
}

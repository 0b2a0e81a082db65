//! The bus between replicas.

use super::*;
use crate::store::Subscription;

async fn recv(subscription: &mut Box<dyn Subscription>) -> Result<String, StoreError> {
    tokio::time::timeout(Duration::from_secs(20), subscription.recv()).await.expect("no payload arrived")
}

#[tokio::test]
async fn bus_payload_reaches_all_in_its_schema() {
    let (url, elsewhere) = (postgres_url().await, postgres_url().await);
    let (one, two, other) = (open(&url).await, open(&url).await, open(&elsewhere).await);
    let mut subscriptions =
        [one.bus().unwrap().subscribe().await.unwrap(), two.bus().unwrap().subscribe().await.unwrap()];
    let mut elsewhere_subscription = other.bus().unwrap().subscribe().await.unwrap();
    let long = format!("{{\"long\":\"{}\"}}", "汉\u{1}".repeat(250_000));
    let payloads = [
        "{}".to_owned(),
        "#7".to_owned(),
        "=".to_owned(),
        "x".repeat(7899),
        "x".repeat(7900),
        long,
        "last\0".to_owned(),
    ];
    for payload in &payloads {
        two.bus().unwrap().publish(payload).await.unwrap();
    }
    other.bus().unwrap().publish("theirs").await.unwrap();
    for subscription in &mut subscriptions {
        for payload in &payloads {
            assert_eq!(recv(subscription).await.unwrap(), *payload);
        }
    }
    assert_eq!(recv(&mut elsewhere_subscription).await.unwrap(), "theirs");
    // Dropping a waiting `recv` loses nothing.
    for _ in 0..3 {
        assert!(tokio::time::timeout(Duration::from_millis(20), subscriptions[0].recv()).await.is_err());
    }
    one.bus().unwrap().publish("again").await.unwrap();
    assert_eq!(recv(&mut subscriptions[0]).await.unwrap(), "again");
    one.close().await;
    assert_eq!(recv(&mut subscriptions[0]).await, Err(StoreError::Closed));
}

#[tokio::test]
async fn bus_reports_a_lost_connection() {
    let url = postgres_url().await;
    let store = open(&url).await;
    let mut subscription = store.bus().unwrap().subscribe().await.unwrap();
    execute(&url, &terminate_listeners(&store)).await;
    assert!(matches!(recv(&mut subscription).await, Err(StoreError::Engine(_))));
    assert!(recv(&mut subscription).await.is_err(), "the subscription stays closed");
    let mut resubscribed = store.bus().unwrap().subscribe().await.unwrap();
    store.bus().unwrap().publish("payload").await.unwrap();
    assert_eq!(recv(&mut resubscribed).await.unwrap(), "payload");
}

/// SQL that terminates every connection that listens on the store's channel.
fn terminate_listeners(store: &PostgresStore) -> String {
    let channel = store.pool.known_schema().unwrap().channel();
    format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'citetap'
         AND query = 'LISTEN \"{channel}\"'"
    )
}

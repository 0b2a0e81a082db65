//! Words from one replica to the others.

use super::*;
use crate::store::Ear;

async fn hear(ear: &mut Box<dyn Ear>) -> Result<String, StoreError> {
    tokio::time::timeout(Duration::from_secs(20), ear.hear()).await.expect("nothing was heard")
}

#[tokio::test]
async fn what_one_says_all_hear_and_nobody_elsewhere() {
    let (url, elsewhere) = (postgres_url().await, postgres_url().await);
    let (one, two, other) = (open(&url).await, open(&url).await, open(&elsewhere).await);
    let mut ears = [one.bus().unwrap().listen().await.unwrap(), two.bus().unwrap().listen().await.unwrap()];
    let mut strange = other.bus().unwrap().listen().await.unwrap();
    let long = format!("{{\"long\":\"{}\"}}", "汉\u{1}".repeat(250_000));
    let words = [
        "{}".to_owned(),
        "#7".to_owned(),
        "=".to_owned(),
        "x".repeat(7899),
        "x".repeat(7900),
        long,
        "last\0".to_owned(),
    ];
    for word in &words {
        two.bus().unwrap().say(word).await.unwrap();
    }
    other.bus().unwrap().say("theirs").await.unwrap();
    for ear in &mut ears {
        for word in &words {
            assert_eq!(hear(ear).await.unwrap(), *word);
        }
    }
    assert_eq!(hear(&mut strange).await.unwrap(), "theirs");
    // One that waits and is dropped has taken nothing.
    for _ in 0..3 {
        assert!(tokio::time::timeout(Duration::from_millis(20), ears[0].hear()).await.is_err());
    }
    one.bus().unwrap().say("again").await.unwrap();
    assert_eq!(hear(&mut ears[0]).await.unwrap(), "again");
    one.close().await;
    assert_eq!(hear(&mut ears[0]).await, Err(StoreError::Closed));
}

#[tokio::test]
async fn after_a_lost_connection_it_is_told_that_words_may_be_missing() {
    let url = postgres_url().await;
    let store = open(&url).await;
    let mut ear = store.bus().unwrap().listen().await.unwrap();
    execute(&url, &cut(&store)).await;
    assert!(matches!(hear(&mut ear).await, Err(StoreError::Engine(_))));
    assert!(hear(&mut ear).await.is_err(), "and this one hears no more");
    let mut anew = store.bus().unwrap().listen().await.unwrap();
    store.bus().unwrap().say("word").await.unwrap();
    assert_eq!(hear(&mut anew).await.unwrap(), "word");
}

/// Ends every connection that listens on the store's channel.
fn cut(store: &PostgresStore) -> String {
    let channel = store.link.known_place().unwrap().channel();
    format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'citetap'
         AND query = 'LISTEN \"{channel}\"'"
    )
}

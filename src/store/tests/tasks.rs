//! Conformance cases: the order of a task's records, and consumer cursors.

use std::{collections::HashSet, sync::Arc};

use super::entry;
use crate::store::{
    Cursor, Entry, Store, StoreError,
    task::{Advance, AdvanceOutcome, CONSUMED_SOURCES_MAX, CONSUMERS_MAX, Position, Progress},
};

fn of_task(tenant: &str, task: Option<&str>, id: &str, created_ms: i64) -> Entry {
    let mut one = entry(tenant, "p", id, created_ms);
    one.record.task_id = task.map(str::to_owned);
    one
}

/// A commit of these sources, the last one in `q1`.
fn advance(consumer: &str, sources: &[&str], now_ms: i64) -> Advance {
    Advance {
        tenant: "t".to_owned(),
        task: "task".to_owned(),
        consumer: consumer.to_owned(),
        last: sources.last().map(|last| ("q1".to_owned(), (*last).to_owned())),
        sources: sources.iter().map(|source| (*source).to_owned()).collect(),
        now_ms,
    }
}

fn position(source: &str, count: u64, updated_ms: i64) -> Position {
    Position { query: "q1".to_owned(), source: source.to_owned(), count, updated_ms }
}

async fn progress(store: &Arc<dyn Store>, consumer: &str) -> Option<Progress> {
    store.progress("t", "task", consumer).await.unwrap()
}

fn set(sources: &[&str]) -> HashSet<String> {
    sources.iter().map(|source| (*source).to_owned()).collect()
}

pub(super) async fn task_lists_its_records_oldest_first(store: Arc<dyn Store>) {
    let mut talk = entry("t", "p", "of-talk", 5);
    talk.record.conversation_id = Some("talk".to_owned());
    let mut named = of_task("t", Some("task"), "named", 3);
    named.record.conversation_id = Some("talk".to_owned());
    let mut other = of_task("t", Some("task"), "twin", 1);
    other.record.provider = "q".to_owned();
    let all = [
        talk,
        named,
        other,
        of_task("t", Some("task"), "twin", 1),
        of_task("t", None, "alone", 9),
        of_task("t", Some("task"), "last", 12),
        of_task("u", Some("task"), "foreign", 2),
        of_task("t", Some("tas"), "near", 2),
    ];
    store.put(&all).await.unwrap();
    for (tenant, task, expected) in [
        ("t", "task", &["p twin", "q twin", "p named", "p last"][..]),
        ("t", "talk", &["p of-talk"]),
        ("t", "alone", &["p alone"]),
        ("u", "task", &["p foreign"]),
        ("u", "talk", &[]),
        ("t", "named", &[]),
        ("t", "", &[]),
        ("t", "tas%", &[]),
    ] {
        for limit in [1, 2, 3, 1000] {
            let (mut seen, mut after) = (Vec::new(), None::<Cursor>);
            loop {
                let page = store.task(tenant, task, after.as_ref(), limit).await.unwrap();
                assert!(page.entries.len() <= limit);
                let shown = |one: &Entry| format!("{} {}", one.record.provider, one.record.message_id);
                seen.extend(page.entries.iter().map(shown));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(seen, expected, "{tenant} {task} {limit}");
        }
    }
    // Stored again under another task, it leaves the first.
    store.put(&[of_task("t", Some("elsewhere"), "named", 3)]).await.unwrap();
    assert_eq!(store.task("t", "task", None, 9).await.unwrap().entries.len(), 3);
    assert_eq!(store.task("t", "elsewhere", None, 9).await.unwrap().entries.len(), 1);
}

pub(super) async fn cursor_moves_forward_only(store: Arc<dyn Store>) {
    store.put(&[of_task("t", Some("task"), "m", 1)]).await.unwrap();
    assert_eq!(progress(&store, "c").await, None);
    let first = advance("c", &["a", "b"], 10);
    assert_eq!(store.advance(&first).await.unwrap(), AdvanceOutcome::Moved(position("b", 2, 10)));
    assert_eq!(
        store.advance(&first).await.unwrap(),
        AdvanceOutcome::Unchanged(position("b", 2, 10)),
        "the same once more"
    );
    assert_eq!(store.advance(&advance("c", &["a"], 11)).await.unwrap(), AdvanceOutcome::Behind(position("b", 2, 10)));
    // Only new sources count. A clock that steps back does not move `updated_ms` back.
    assert_eq!(
        store.advance(&advance("c", &["b", "failed-1", "d", "c"], 9)).await.unwrap(),
        AdvanceOutcome::Moved(position("c", 4, 10))
    );
    // A source that sorts before the position is progress too.
    assert_eq!(store.advance(&advance("c", &["0"], 12)).await.unwrap(), AdvanceOutcome::Moved(position("0", 5, 12)));
    let passed = Advance { last: None, ..advance("c", &["failed-2"], 13) };
    assert_eq!(
        store.advance(&passed).await.unwrap(),
        AdvanceOutcome::Moved(position("0", 5, 13)),
        "passed, not consumed"
    );
    assert_eq!(store.advance(&passed).await.unwrap(), AdvanceOutcome::Unchanged(position("0", 5, 13)));
    let all = set(&["a", "b", "c", "d", "0", "failed-1", "failed-2"]);
    assert_eq!(progress(&store, "c").await, Some(Progress { position: position("0", 5, 13), consumed: all }));
    assert_eq!(progress(&store, "d").await, None, "another consumer starts at the start");
}

pub(super) async fn cursors_are_separate_per_tenant_and_task(store: Arc<dyn Store>) {
    let all = [
        of_task("t", Some("task"), "m", 1),
        of_task("u", Some("task"), "m", 1),
        of_task("t", Some("tas"), "n", 1),
        of_task("u", Some("theirs"), "n", 1),
    ];
    store.put(&all).await.unwrap();
    store.advance(&advance("c", &["a"], 1)).await.unwrap();
    let foreign = Advance { tenant: "u".to_owned(), ..advance("c", &["b"], 2) };
    assert_eq!(store.advance(&foreign).await.unwrap(), AdvanceOutcome::Moved(position("b", 1, 2)));
    let sibling = Advance { task: "tas".to_owned(), ..advance("c", &["x"], 3) };
    assert_eq!(store.advance(&sibling).await.unwrap(), AdvanceOutcome::Moved(position("x", 1, 3)));
    assert_eq!(progress(&store, "c").await.unwrap().consumed, set(&["a"]));
    assert_eq!(store.progress("u", "task", "c").await.unwrap().unwrap().consumed, set(&["b"]));
    for unknown in ["theirs", "nobody", ""] {
        let unknown = Advance { task: unknown.to_owned(), ..advance("c", &["a"], 1) };
        assert_eq!(store.advance(&unknown).await.unwrap(), AdvanceOutcome::NoTask);
        assert_eq!(store.progress("t", &unknown.task, "c").await.unwrap(), None);
    }
}

/// Cursors are deleted with the last record of their task, in whichever way that goes; not earlier, and not when a
/// record only changes.
pub(super) async fn cursors_are_deleted_with_their_task(store: Arc<dyn Store>) {
    let put = async |entries: &[Entry]| store.put(entries).await.unwrap();
    let begin = async || {
        put(&[of_task("t", Some("task"), "m", 5)]).await;
        store.advance(&advance("c", &["a"], 1)).await.unwrap();
        store.advance(&advance("d", &["a"], 1)).await.unwrap();
    };
    begin().await;
    put(&[of_task("t", Some("task"), "m", 5)]).await;
    put(&[of_task("t", Some("task"), "m", 6)]).await;
    assert!(progress(&store, "c").await.is_some(), "a record that is updated stays in its task");
    put(&[of_task("t", Some("task"), "n", 7)]).await;
    store.delete("t", "m", None).await.unwrap();
    assert!(progress(&store, "c").await.is_some(), "there is another record");
    assert_eq!(store.delete("t", "n", None).await.unwrap(), 1);
    assert_eq!((progress(&store, "c").await, progress(&store, "d").await), (None, None), "deleted");

    begin().await;
    assert_eq!(progress(&store, "c").await.unwrap().position, position("a", 1, 1), "a new task, a new cursor");
    assert_eq!(store.sweep(5).await.unwrap(), 0);
    assert!(progress(&store, "c").await.is_some());
    assert_eq!(store.sweep(6).await.unwrap(), 1, "records are what is counted");
    assert_eq!(progress(&store, "c").await, None, "swept");

    begin().await;
    put(&[of_task("t", Some("elsewhere"), "m", 5)]).await;
    assert_eq!(progress(&store, "c").await, None, "moved to another task");
}

/// Eight tasks commit growing prefixes of one list; the longest wins in any order.
pub(super) async fn cursor_concurrent_commits_furthest_wins(store: Arc<dyn Store>) {
    store.put(&[of_task("t", Some("task"), "m", 1)]).await.unwrap();
    let sources: Vec<String> = (0..64).map(|n| format!("s{n}")).collect();
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let (store, sources) = (Arc::clone(&store), sources.clone());
            tokio::spawn(async move {
                for end in (1..=64).filter(|end| end % 8 == task) {
                    let list: Vec<&str> = sources.iter().take(end).map(String::as_str).collect();
                    match store.advance(&advance("c", &list, 1)).await.unwrap() {
                        AdvanceOutcome::Moved(to) => {
                            assert_eq!((to.count, to.source.as_str()), (end as u64, list[end - 1]))
                        }
                        AdvanceOutcome::Behind(at) => assert!(at.count > end as u64, "{at:?} is not before {end}"),
                        other => panic!("{other:?}"),
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let progress = progress(&store, "c").await.unwrap();
    assert_eq!((progress.position, progress.consumed.len()), (position("s63", 64, 1), 64));
}

pub(super) async fn cursors_and_sources_are_bounded(store: Arc<dyn Store>) {
    store.put(&[of_task("t", Some("task"), "m", 1), of_task("t", Some("more"), "n", 1)]).await.unwrap();
    for n in 0..CONSUMERS_MAX {
        assert!(matches!(store.advance(&advance(&n.to_string(), &["a"], 1)).await, Ok(AdvanceOutcome::Moved(_))));
    }
    assert_eq!(store.advance(&advance("over", &["a"], 1)).await.unwrap(), AdvanceOutcome::TooManyConsumers);
    assert_eq!(progress(&store, "over").await, None);
    assert!(
        matches!(store.advance(&advance("0", &["b"], 2)).await, Ok(AdvanceOutcome::Moved(_))),
        "a known one goes on"
    );
    let elsewhere = Advance { task: "more".to_owned(), ..advance("over", &["a"], 1) };
    assert!(matches!(store.advance(&elsewhere).await, Ok(AdvanceOutcome::Moved(_))));

    // At the cap all sources are remembered; above it the oldest is forgotten.
    let many: Vec<String> = (2..CONSUMED_SOURCES_MAX).map(|n| format!("s{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    store.advance(&advance("0", &many, 3)).await.unwrap();
    let full = progress(&store, "0").await.unwrap();
    assert_eq!((full.consumed.len(), full.consumed.contains("a")), (CONSUMED_SOURCES_MAX, true));
    store.advance(&advance("0", &["z"], 4)).await.unwrap();
    let over = progress(&store, "0").await.unwrap();
    assert_eq!((over.consumed.len(), over.consumed.contains("a")), (CONSUMED_SOURCES_MAX, false));
    assert_eq!(over.position, position("z", CONSUMED_SOURCES_MAX as u64 + 1, 4));
}

pub(super) async fn closed_store_refuses_task_calls(store: Arc<dyn Store>) {
    store.put(&[of_task("t", Some("task"), "m", 1)]).await.unwrap();
    store.close().await;
    assert!(matches!(store.task("t", "task", None, 1).await, Err(StoreError::Closed)));
    assert_eq!(store.progress("t", "task", "c").await, Err(StoreError::Closed));
    assert_eq!(store.advance(&advance("c", &["a"], 1)).await, Err(StoreError::Closed));
}

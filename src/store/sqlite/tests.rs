use std::fs;

use sqlx::{ConnectOptions as _, Row as _};

use super::*;
use crate::{
    citation::bundle::task_id,
    store::{Cursor, task::Position, tests::entry},
};

async fn filled(path: &Path) -> SqliteStore {
    let store = SqliteStore::open(path).await.unwrap();
    let entries: Vec<_> = (0..200).map(|n| entry("t", "p", &n.to_string(), n)).collect();
    store.put(&entries).await.unwrap();
    store
}

/// The error of a refused file; it must name the file and a remedy.
async fn refusal(path: &Path) -> String {
    let Err(StoreError::Engine(message)) = SqliteStore::open(path).await else { panic!("opened") };
    assert!(message.contains(&*path.to_string_lossy()) && message.contains("; "), "{message}");
    message
}

async fn execute(store: &SqliteStore, sql: &'static str) {
    store
        .write(async |tx: &mut Transaction<'_, Sqlite>| {
            sqlx::raw_sql(sql).execute(&mut **tx).await.map_err(engine_error)
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn records_survive_crash_and_reopen() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.db");
    // Not closed, as after a crash: the data is only in the log.
    let crashed = filled(&path).await;
    let copy = folder.path().join("copy.db");
    fs::copy(&path, &copy).unwrap();
    fs::copy(folder.path().join("s.db-wal"), folder.path().join("copy.db-wal")).unwrap();
    let reopened = SqliteStore::open(&copy).await.unwrap();
    assert_eq!(reopened.get("t", "199", None).await.unwrap(), Some(entry("t", "p", "199", 199)));

    crashed.close().await;
    assert!(!folder.path().join("s.db-wal").exists(), "closing folds the log into the file");
    let reopened = SqliteStore::open(&path).await.unwrap();
    assert_eq!(reopened.get("t", "0", None).await.unwrap(), Some(entry("t", "p", "0", 0)));
}

#[tokio::test]
async fn commits_are_synced() {
    let folder = tempfile::tempdir().unwrap();
    let store = filled(&folder.path().join("s.db")).await;
    let (mode, sync): (String, i64) = store
        .write(async |tx: &mut Transaction<'_, Sqlite>| {
            let query = "SELECT j.journal_mode, s.synchronous FROM pragma_journal_mode j, pragma_synchronous s";
            sqlx::query_as(query).fetch_one(&mut **tx).await.map_err(engine_error)
        })
        .await
        .unwrap();
    assert_eq!((mode.as_str(), sync), ("wal", 2));
}

#[tokio::test]
async fn open_non_database_refuses_it_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    let notes = "dear diary, ".repeat(1000);
    fs::write(&path, &notes).unwrap();
    let message = refusal(&path).await;
    assert!(message.contains("not a SQLite database") && !message.contains("diary"), "{message}");
    assert_eq!(fs::read_to_string(&path).unwrap(), notes);
}

#[tokio::test]
async fn open_truncated_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.db");
    filled(&path).await.close().await;
    let whole = fs::read(&path).unwrap();
    for kept in [whole.len() / 2, whole.len() - 1, 4096, 50] {
        fs::write(&path, &whole[..kept]).unwrap();
        refusal(&path).await;
    }
}

#[tokio::test]
async fn open_damaged_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.db");
    filled(&path).await.close().await;
    let mut bytes = fs::read(&path).unwrap();
    for page in bytes.chunks_mut(4096).skip(2).step_by(3) {
        page[..64].fill(0xa5);
    }
    fs::write(&path, &bytes).unwrap();
    assert!(refusal(&path).await.contains("damaged"));
}

#[tokio::test]
async fn open_foreign_database_refuses_it_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("theirs.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&path).create_if_missing(true);
    let mut conn = options.connect().await.unwrap();
    sqlx::raw_sql("CREATE TABLE record (n INTEGER PRIMARY KEY)").execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
    let before = fs::read(&path).unwrap();
    assert!(refusal(&path).await.contains("another program"));
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn open_newer_schema_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.db");
    let store = filled(&path).await;
    execute(&store, "PRAGMA user_version = 99").await;
    store.close().await;
    assert!(refusal(&path).await.contains("newer citetap (schema 99"));
}

#[tokio::test]
async fn open_unusable_path_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    refusal(&folder.path().join("no/such/folder/s.db")).await;
    refusal(folder.path()).await;
}

#[tokio::test]
async fn open_empty_file_becomes_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.db");
    fs::write(&path, "").unwrap();
    filled(&path).await.ping().await.unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn files_are_readable_by_the_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let _store = filled(&folder.path().join("s.db")).await;
    for name in ["s.db", "s.db-wal", "s.db-shm"] {
        let mode = fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{name}");
    }
}

#[tokio::test]
async fn concurrent_opens_share_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.db");
    let (one, two) = tokio::join!(SqliteStore::open(&path), SqliteStore::open(&path));
    let (one, two) = (one.unwrap(), two.unwrap());
    one.put(&[entry("t", "p", "1", 1)]).await.unwrap();
    two.put(&[entry("t", "p", "2", 2)]).await.unwrap();
    assert!(two.get("t", "1", None).await.unwrap().is_some());
    assert!(one.get("t", "2", None).await.unwrap().is_some());
}

#[tokio::test]
async fn value_under_another_key_is_not_served() {
    let folder = tempfile::tempdir().unwrap();
    let store = filled(&folder.path().join("s.db")).await;
    store.put(&[entry("u", "p", "7", 7)]).await.unwrap();
    execute(&store, "UPDATE record SET body = (SELECT body FROM record WHERE tenant = 't' AND id = '8') WHERE tenant = 't' AND id = '7'").await;
    assert_eq!(store.get("t", "7", None).await, Err(StoreError::Mismatch));
    assert!(matches!(store.list("t", &Filter { limit: 1000, ..Filter::default() }).await, Err(StoreError::Mismatch)));

    execute(&store, "UPDATE record SET body = (SELECT body FROM record WHERE tenant = 'u' AND id = '7') WHERE tenant = 't' AND id = '7'").await;
    assert_eq!(store.get("t", "7", None).await, Err(StoreError::Mismatch), "the same id, but another tenant's record");
}

#[tokio::test]
async fn unreadable_value_error_quotes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = filled(&folder.path().join("s.db")).await;
    execute(&store, "UPDATE record SET body = replace(body, 'websearch', 'secret') WHERE id = '7'").await;
    let Err(StoreError::Engine(message)) = store.get("t", "7", None).await else { panic!("served") };
    assert!(!message.contains("secret"), "{message}");
}

#[tokio::test]
async fn failed_write_replaces_the_connection() {
    let folder = tempfile::tempdir().unwrap();
    let store = filled(&folder.path().join("s.db")).await;
    // Simulates a full disk for this connection.
    execute(&store, "PRAGMA max_page_count = 1").await;
    let mut large = entry("t", "p", "large", 1);
    large.record.summary = Some("x".repeat(1 << 20));
    let batch = [entry("t", "p", "small", 1), large];
    let Err(StoreError::Engine(message)) = store.put(&batch).await else { panic!("stored") };
    assert!(message.contains("no space left"), "{message}");
    assert_eq!(store.get("t", "small", None).await.unwrap(), None, "all or nothing");
    assert!(matches!(store.writer.lock().await.slot, ConnSlot::Empty));
    store.put(&batch).await.unwrap();
    assert!(store.get("t", "large", None).await.unwrap().is_some());
}

/// SQLite keeps writing to an unlinked file, whose data is lost when the process ends.
#[tokio::test]
async fn moved_file_is_recreated_for_all_connections() {
    let folder = tempfile::tempdir().unwrap();
    let (path, away) = (folder.path().join("s.db"), folder.path().join("away"));
    let store = filled(&path).await;
    assert!(store.get("t", "7", None).await.unwrap().is_some());
    std::fs::create_dir(&away).unwrap();
    for name in ["s.db", "s.db-wal", "s.db-shm"] {
        std::fs::rename(folder.path().join(name), away.join(name)).unwrap();
    }
    store.put(&[entry("t", "p", "new", 1)]).await.unwrap();
    assert!(path.exists());
    assert!(store.get("t", "new", None).await.unwrap().is_some());
    assert_eq!(store.get("t", "7", None).await.unwrap(), None, "it went with its file");
    store.close().await;
    let again = SqliteStore::open(&path).await.unwrap();
    assert!(again.get("t", "new", None).await.unwrap().is_some(), "it is in the file at the path");
    let old = SqliteStore::open(&away.join("s.db")).await.unwrap();
    assert!(old.get("t", "7", None).await.unwrap().is_some(), "and the other is whole");
    assert_eq!(old.get("t", "new", None).await.unwrap(), None);
}

/// An operator may leave the old log behind, whose pages belong to the moved file.
#[tokio::test]
async fn leftover_log_is_not_read_into_a_new_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.db");
    let store = filled(&path).await;
    assert!(store.get("t", "7", None).await.unwrap().is_some());
    std::fs::rename(&path, folder.path().join("away.db")).unwrap();
    store.put(&[entry("t", "p", "new", 1)]).await.unwrap();
    assert_eq!(store.get("t", "7", None).await.unwrap(), None);
    assert!(store.get("t", "new", None).await.unwrap().is_some());
    store.close().await;
    let again = SqliteStore::open(&path).await.unwrap();
    assert!(again.get("t", "new", None).await.unwrap().is_some());
    again.ping().await.unwrap();
}

#[tokio::test]
async fn dropped_put_leaves_no_partial_write() {
    let folder = tempfile::tempdir().unwrap();
    let store = filled(&folder.path().join("s.db")).await;
    let batch: Vec<_> = (0..100).map(|n| entry("t", "dropped", &n.to_string(), n)).collect();
    for micros in [0, 100, 500, 1000, 5000, 10_000] {
        let _ = tokio::time::timeout(Duration::from_micros(micros), store.put(&batch)).await;
        let filter = Filter { provider: Some("dropped".to_owned()), limit: 1000, ..Filter::default() };
        let found = store.list("t", &filter).await.unwrap().entries.len();
        assert!(found == 0 || found == 100, "{found}");
        let day_filter = StatsFilter { days: 0..1, provider: Some("dropped".to_owned()), ..StatsFilter::default() };
        let read_aggregate =
            store.stats("t", &day_filter).await.unwrap().days.first().map_or(0, |day| day.counts.messages);
        assert_eq!(read_aggregate, found as i64);
        store.ping().await.unwrap();
    }
}

#[tokio::test]
async fn list_query_uses_an_index_newest_first() {
    let folder = tempfile::tempdir().unwrap();
    let store = filled(&folder.path().join("s.db")).await;
    let text = || Some("x".to_owned());
    for bits in 0..64 {
        let on = |bit: u32| bits & (1 << bit) != 0;
        let filter = Filter {
            task: None,
            conversation: on(0).then(text).flatten(),
            provider: on(1).then(text).flatten(),
            domain: on(2).then(text).flatten(),
            q: on(3).then(text).flatten(),
            since_ms: on(4).then_some(1),
            until_ms: on(4).then_some(9),
            limit: 9,
            cursor: on(5).then(|| Cursor { created_ms: 5, provider: "p".to_owned(), id: "5".to_owned() }),
        };
        let sql = query::list("t", &filter, 10).into_string();
        let plan = sqlx::query(sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}")))
            .fetch_all(&store.readers())
            .await
            .unwrap();
        let plan = plan.iter().map(|row| row.get::<String, _>("detail")).collect::<Vec<_>>().join("\n");
        // A domain's records within one millisecond may be sorted; a full sort may not happen.
        assert!(!plan.contains("SCAN") && !plan.contains("B-TREE FOR ORDER BY"), "{filter:?}\n{plan}");
    }
}

#[tokio::test]
async fn task_query_uses_an_index_oldest_first() {
    let folder = tempfile::tempdir().unwrap();
    let store = filled(&folder.path().join("s.db")).await;
    for cursor in [None, Some(Cursor { created_ms: 5, provider: "p".to_owned(), id: "5".to_owned() })] {
        let filter = Filter { task: Some("7".to_owned()), cursor, ..Filter::default() };
        let sql = query::list("t", &filter, 10).into_string();
        let plan = sqlx::query(sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}")));
        let plan = plan.fetch_all(&store.readers()).await.unwrap();
        let plan = plan.iter().map(|row| row.get::<String, _>("detail")).collect::<Vec<_>>().join("\n");
        assert!(plan.contains("record_of_task") && !plan.contains("SCAN") && !plan.contains("B-TREE"), "{plan}");
    }
}

fn commit(source: &str, now_ms: i64) -> Advance {
    Advance {
        tenant: "t".to_owned(),
        task: "7".to_owned(),
        consumer: "c".to_owned(),
        last: Some(("q1".to_owned(), source.to_owned())),
        sources: vec![source.to_owned()],
        now_ms,
    }
}

#[tokio::test]
async fn cursor_commit_survives_crash_and_is_shared() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.db");
    let (one, two) = (filled(&path).await, SqliteStore::open(&path).await.unwrap());
    assert!(matches!(one.advance(&commit("a", 1)).await, Ok(AdvanceOutcome::Moved(_))));
    let position =
        |source: &str, count| Position { query: "q1".to_owned(), source: source.to_owned(), count, updated_ms: 2 };
    assert_eq!(two.advance(&commit("b", 2)).await, Ok(AdvanceOutcome::Moved(position("b", 2))));
    assert_eq!(one.advance(&commit("a", 3)).await, Ok(AdvanceOutcome::Behind(position("b", 2))));
    // Not closed, as after a crash: the data is only in the log.
    fs::copy(&path, folder.path().join("copy.db")).unwrap();
    fs::copy(folder.path().join("s.db-wal"), folder.path().join("copy.db-wal")).unwrap();
    let reopened = SqliteStore::open(&folder.path().join("copy.db")).await.unwrap();
    let progress = reopened.progress("t", "7", "c").await.unwrap().unwrap();
    assert_eq!((progress.position, progress.consumed.len()), (position("b", 2), 2));
}

/// Records from schema 1 are assigned to their conversation as task, or to their own id.
#[tokio::test]
async fn migration_from_schema_1_assigns_tasks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&path).create_if_missing(true);
    let mut old = options.connect().await.unwrap();
    let stamp = format!("PRAGMA application_id = {}; PRAGMA user_version = 1;", schema::APPLICATION_ID);
    sqlx::raw_sql(schema::MIGRATIONS[0].sql).execute(&mut old).await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(stamp)).execute(&mut old).await.unwrap();
    let conversations = [Some("talk"), Some("talk"), Some(""), None, Some("会话"), Some("a b"), None, None];
    for (n, conversation) in (0_i64..).zip(conversations) {
        let mut one = entry("t", "p", &n.to_string(), n);
        one.record.conversation_id = conversation.map(str::to_owned);
        let body = serde_json::json!({ "tenant": "t", "record": one.record }).to_string();
        let query = "INSERT INTO record (tenant, provider, id, created_ms, conversation, body, search)
                     VALUES ('t', 'p', ?1, ?2, ?3, ?4, '')";
        let query = sqlx::query(query).bind(n.to_string()).bind(n).bind(conversation).bind(body);
        query.execute(&mut old).await.unwrap();
    }
    old.close().await.unwrap();

    let store = SqliteStore::open(&path).await.unwrap();
    let ids = async |task: &str| {
        let page = store.task("t", task, None, 0).await.unwrap();
        page.entries.into_iter().map(|entry| entry.record.message_id).collect::<Vec<_>>()
    };
    assert_eq!(ids("talk").await, ["0", "1"]);
    assert_eq!((ids("2").await, ids("3").await), (vec!["2".to_owned()], vec!["3".to_owned()]));
    assert_eq!((ids("4").await.len(), ids("5").await.len()), (0, 0), "not in our alphabet");
    assert!(matches!(store.advance(&commit("a", 1)).await, Ok(AdvanceOutcome::Moved(_))));
    // Storing it again assigns the task id that its bundles use.
    let again = store.get("t", "4", None).await.unwrap().unwrap();
    let task = task_id(&again.record).into_owned();
    store.put(&[again]).await.unwrap();
    assert_eq!(ids(&task).await, ["4"]);
}

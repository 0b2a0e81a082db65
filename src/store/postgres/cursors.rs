//! Read cursors of task consumers in PostgreSQL.

use std::collections::{BTreeSet, HashSet};

use sqlx::{PgConnection, Row as _, postgres::PgRow};

use super::{
    change::{Task, lock_slot},
    error::PostgresError,
    schema::{AdvisoryLock, SchemaId},
    text::{escape, key, unescape},
};
use crate::store::{
    sql_report::sql_int,
    task::{Advance, AdvanceOutcome, CONSUMED_SOURCES_MAX, CONSUMERS_MAX, Position, Progress},
};

/// Cursors refreshed per query after a sweep.
const CURSOR_BATCH: i64 = 1000;

/// SQL for the creation time of a task's newest record; NULL if it has none.
macro_rules! newest {
    ($tenant:literal, $task:literal) => {
        concat!(
            "greatest((SELECT r.created_ms FROM citetap_record r WHERE r.tenant = ",
            $tenant,
            " AND r.task = ",
            $task,
            " AND r.created_ms >= (SELECT horizon_ms FROM citetap_meta) ORDER BY r.created_ms DESC LIMIT 1),
             (SELECT r.created_ms FROM citetap_record_apart r WHERE r.tenant = ",
            $tenant,
            " AND r.task = ",
            $task,
            " ORDER BY r.created_ms DESC LIMIT 1))"
        )
    };
}

/// Ignores the cursor of a task without records, whose row may stay until the next sweep.
pub(super) const PROGRESS: &str = concat!(
    "SELECT c.n, c.query, c.source, c.count, c.updated_ms,
     ARRAY(SELECT s.source FROM citetap_consumed s WHERE s.cursor = c.n) AS consumed
     FROM citetap_cursor c WHERE c.tenant = $1 AND c.task = $2 AND c.consumer = $3 AND ",
    newest!("$1", "$2"),
    " IS NOT NULL"
);

const NEWEST: &str = concat!("SELECT ", newest!("$1", "$2"));

const CURSORS_OF_TASKS: &str = concat!(
    "SELECT c.n, ",
    newest!("c.tenant", "c.task"),
    " AS newest FROM unnest($1::text[], $2::text[]) AS a (tenant, task)
     JOIN citetap_cursor c ON c.tenant = a.tenant AND c.task = a.task"
);

const CURSORS_BEFORE: &str = concat!(
    "SELECT c.n, ",
    newest!("c.tenant", "c.task"),
    " AS newest FROM citetap_cursor c WHERE c.newest_ms < $1 ORDER BY c.newest_ms LIMIT $2"
);

pub(super) async fn progress(
    conn: &mut PgConnection,
    tenant: &str,
    task: &str,
    consumer: &str,
) -> Result<Option<Progress>, PostgresError> {
    // One statement, so that position and sources are consistent.
    let query = sqlx::query(PROGRESS).bind(key(tenant)).bind(key(task)).bind(key(consumer));
    let Some(row) = query.fetch_optional(conn).await? else { return Ok(None) };
    let consumed: Vec<String> = row.try_get("consumed")?;
    let consumed: HashSet<String> = consumed.into_iter().map(unescape).collect();
    Ok(Some(Progress { position: position(&row)?, consumed }))
}

/// Compares and changes in one transaction, under the task's lock: of two concurrent commits the second sees the first.
pub(super) async fn advance(
    conn: &mut PgConnection,
    schema: &SchemaId,
    advance: &Advance,
) -> Result<AdvanceOutcome, PostgresError> {
    let (tenant, task, consumer) = (key(&advance.tenant), key(&advance.task), key(&advance.consumer));
    let query =
        "SELECT pg_advisory_xact_lock_shared($1, $2)::text UNION ALL SELECT pg_advisory_xact_lock($1, $3)::text";
    let lock = AdvisoryLock::Task(lock_slot(&tenant, &task)).number();
    let query = sqlx::query(query).bind(schema.lock_class()).bind(AdvisoryLock::Layout.number()).bind(lock);
    query.execute(&mut *conn).await?;
    let newest: Option<i64> = sqlx::query_scalar(NEWEST).bind(&*tenant).bind(&*task).fetch_one(&mut *conn).await?;
    let Some(newest) = newest else { return Ok(AdvanceOutcome::NoTask) };
    let query = "SELECT n, query, source, count, updated_ms FROM citetap_cursor
                 WHERE tenant = $1 AND task = $2 AND consumer = $3";
    let known = sqlx::query(query).bind(&*tenant).bind(&*task).bind(&*consumer).fetch_optional(&mut *conn).await?;
    let (n, from) = match known {
        Some(row) => (row.try_get("n")?, position(&row)?),
        None => {
            let query = "SELECT count(*) FROM citetap_cursor WHERE tenant = $1 AND task = $2";
            let others: i64 = sqlx::query_scalar(query).bind(&*tenant).bind(&*task).fetch_one(&mut *conn).await?;
            if others >= sql_int(CONSUMERS_MAX) {
                return Ok(AdvanceOutcome::TooManyConsumers);
            }
            let query =
                "INSERT INTO citetap_cursor (tenant, task, consumer, query, source, count, updated_ms, newest_ms)
                         VALUES ($1, $2, $3, '', '', 0, 0, $4) RETURNING n";
            let query = sqlx::query_scalar(query).bind(&*tenant).bind(&*task).bind(&*consumer).bind(newest);
            (query.fetch_one(&mut *conn).await?, Position::default())
        }
    };
    let n: i64 = n;
    let sources: Vec<_> = advance.sources.iter().map(|source| key(source)).collect();
    let query = "INSERT INTO citetap_consumed (cursor, source) SELECT $1, * FROM unnest($2::text[])
                 ON CONFLICT DO NOTHING RETURNING source";
    let new: Vec<String> = sqlx::query_scalar(query).bind(n).bind(&sources).fetch_all(&mut *conn).await?;
    if new.is_empty() {
        return Ok(advance.without_new_sources(from));
    }
    let to = advance.next_position(&from, new.iter().map(String::as_str));
    let query = "UPDATE citetap_cursor SET query = $2, source = $3, count = $4, updated_ms = $5, newest_ms = $6
                 WHERE n = $1";
    sqlx::query(query)
        .bind(n)
        .bind(escape(&to.query))
        .bind(escape(&to.source))
        .bind(i64::try_from(to.count).unwrap_or(i64::MAX))
        .bind(to.updated_ms)
        .bind(newest)
        .execute(&mut *conn)
        .await?;
    let query = "DELETE FROM citetap_consumed WHERE cursor = $1 AND n <=
                 (SELECT n FROM citetap_consumed WHERE cursor = $1 ORDER BY n DESC LIMIT 1 OFFSET $2)";
    sqlx::query(query).bind(n).bind(sql_int(CONSUMED_SOURCES_MAX)).execute(conn).await?;
    Ok(AdvanceOutcome::Moved(to))
}

/// After records of these tasks were deleted or moved: deletes the cursors of tasks without records, updates
/// `newest_ms` of the others.
pub(super) async fn refresh_cursors(conn: &mut PgConnection, tasks: &BTreeSet<Task>) -> Result<(), PostgresError> {
    let (tenants, tasks): (Vec<&str>, Vec<&str>) =
        tasks.iter().map(|(tenant, task)| (tenant.as_str(), task.as_str())).unzip();
    let found = sqlx::query(CURSORS_OF_TASKS).bind(tenants).bind(tasks).fetch_all(&mut *conn).await?;
    update_or_delete(conn, &found, i64::MIN).await
}

/// [`refresh_cursors`] for all tasks that may have lost a record when the horizon moved.
pub(super) async fn refresh_cursors_before(conn: &mut PgConnection, horizon_ms: i64) -> Result<(), PostgresError> {
    loop {
        let query = sqlx::query(CURSORS_BEFORE).bind(horizon_ms).bind(CURSOR_BATCH);
        let found = query.fetch_all(&mut *conn).await?;
        if found.is_empty() {
            return Ok(());
        }
        update_or_delete(conn, &found, horizon_ms).await?;
    }
}

async fn update_or_delete(conn: &mut PgConnection, found: &[PgRow], least: i64) -> Result<(), PostgresError> {
    let (mut orphaned, mut remaining) = (Vec::new(), (Vec::new(), Vec::new()));
    for row in found {
        let n: i64 = row.try_get("n")?;
        match row.try_get::<Option<i64>, _>("newest")? {
            None => orphaned.push(n),
            Some(newest) => {
                remaining.0.push(n);
                remaining.1.push(newest.max(least));
            }
        }
    }
    if !orphaned.is_empty() {
        sqlx::query("DELETE FROM citetap_cursor WHERE n = ANY($1)").bind(orphaned).execute(&mut *conn).await?;
    }
    if !remaining.0.is_empty() {
        let query =
            "UPDATE citetap_cursor c SET newest_ms = a.newest FROM unnest($1::bigint[], $2::bigint[]) AS a (n, newest)
                     WHERE c.n = a.n";
        sqlx::query(query).bind(remaining.0).bind(remaining.1).execute(conn).await?;
    }
    Ok(())
}

fn position(row: &PgRow) -> Result<Position, sqlx::Error> {
    let count: i64 = row.try_get("count")?;
    Ok(Position {
        query: unescape(row.try_get("query")?),
        source: unescape(row.try_get("source")?),
        count: u64::try_from(count).unwrap_or_default(),
        updated_ms: row.try_get("updated_ms")?,
    })
}

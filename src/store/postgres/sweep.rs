//! Expires records. Partitions that are over are dropped as a whole. In the partition with the boundary, the horizon
//! hides older records until that partition is dropped. Only rows of the overflow tables are deleted one by one.

use std::{collections::BTreeSet, time::Duration};

use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use tokio::time::sleep;

use super::{
    cursors,
    daily::ShardedAggregates,
    error::PostgresError,
    partitions,
    schema::{AdvisoryLock, SchemaId},
};
use crate::store::day_of;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// Records hidden or deleted per transaction, so that writes run in between.
const BATCH: i64 = 2000;
/// How long a DROP TABLE may block readers and writers. After a few attempts it is left to the next sweep.
const DROP_LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '250ms'";
const DROP_TRIES: u32 = 4;
const DROP_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Returns how many records expired; 0 if another replica is sweeping.
pub(super) async fn sweep(conn: &mut PgConnection, schema: &SchemaId, before_ms: i64) -> Result<u64, PostgresError> {
    let query = "SELECT pg_try_advisory_lock($1, $2)";
    let query = sqlx::query_scalar(query).bind(schema.lock_class()).bind(AdvisoryLock::Sweep.number());
    let acquired: bool = query.fetch_one(&mut *conn).await?;
    if !acquired {
        return Ok(0);
    }
    let mut expired = 0;
    loop {
        let (hidden, reached) = advance_horizon(conn, schema, before_ms).await?;
        expired += hidden;
        if reached {
            break;
        }
    }
    loop {
        let removed = delete_rows(conn, schema, before_ms).await?;
        expired += removed;
        if removed == 0 {
            break;
        }
    }
    drop_partitions(conn).await?;
    Ok(expired)
}

/// Advances the horizon by a day or [`BATCH`] records. Returns how many records it newly hides, and whether it has
/// reached its target.
async fn advance_horizon(
    conn: &mut PgConnection,
    schema: &SchemaId,
    before_ms: i64,
) -> Result<(u64, bool), PostgresError> {
    let mut tx = conn.begin().await?;
    let (horizon_ms, target) = lock_layout(&mut tx, schema, before_ms).await?;
    if horizon_ms >= target {
        return Ok((0, true));
    }
    let today = day_of(target);
    let query = "SELECT min(day) FROM citetap_daily WHERE shard >= 0 AND day < $1";
    let oldest: Option<i64> = sqlx::query_scalar(query).bind(today).fetch_one(&mut *tx).await?;
    let (to_ms, hidden) = if let Some(day) = oldest {
        // A whole day: deleting its aggregates is all the work.
        let query = "WITH gone AS (DELETE FROM citetap_daily WHERE shard >= 0 AND day <= $1 RETURNING messages)
                     SELECT coalesce(sum(messages), 0)::bigint FROM gone";
        let messages: i64 = sqlx::query_scalar(query).bind(day).fetch_one(&mut *tx).await?;
        ((day + 1).saturating_mul(DAY_MS), messages.unsigned_abs())
    } else {
        let from_ms = horizon_ms.max(today.saturating_mul(DAY_MS));
        let query = "SELECT created_ms FROM citetap_record WHERE created_ms >= $1 AND created_ms < $2
                     ORDER BY created_ms LIMIT 1 OFFSET $3";
        let query = sqlx::query_scalar(query).bind(from_ms).bind(target).bind(BATCH);
        let next: Option<i64> = query.fetch_optional(&mut *tx).await?;
        // Records of one millisecond are hidden together.
        let to_ms = next.map_or(target, |next| next.max(from_ms + 1));
        let query = "SELECT shard, tenant, provider, created_ms, tally FROM citetap_record
                     WHERE created_ms >= $1 AND created_ms < $2";
        let rows = sqlx::query(query).bind(from_ms).bind(to_ms).fetch_all(&mut *tx).await?;
        let mut aggregates = ShardedAggregates::default();
        for row in &rows {
            let (tenant, provider) = (row.try_get("tenant")?, row.try_get("provider")?);
            aggregates.subtract(
                row.try_get("shard")?,
                tenant,
                row.try_get("created_ms")?,
                provider,
                row.try_get("tally")?,
            );
        }
        aggregates.apply(&mut tx).await?;
        (to_ms, rows.len() as u64)
    };
    sqlx::query("UPDATE citetap_meta SET horizon_ms = $1").bind(to_ms).execute(&mut *tx).await?;
    cursors::refresh_cursors_before(&mut tx, to_ms).await?;
    tx.commit().await?;
    Ok((hidden, to_ms >= target))
}

/// Deletes a batch of what the horizon does not hide: overflow rows, and rows from the future if the sweep covers them.
async fn delete_rows(conn: &mut PgConnection, schema: &SchemaId, before_ms: i64) -> Result<u64, PostgresError> {
    let mut tx = conn.begin().await?;
    lock_layout(&mut tx, schema, before_ms).await?;
    let query = "WITH gone AS (DELETE FROM citetap_record_apart WHERE ctid = ANY(ARRAY(
                    SELECT ctid FROM citetap_record_apart WHERE created_ms < $1 ORDER BY created_ms LIMIT $2))
                    RETURNING n, shard, tenant, provider, created_ms, task, tally),
                 late AS (DELETE FROM citetap_record r USING (
                    SELECT n, created_ms FROM citetap_record
                    WHERE created_ms >= (SELECT horizon_ms FROM citetap_meta) AND created_ms < $1
                    ORDER BY created_ms LIMIT $2) AS l WHERE r.n = l.n AND r.created_ms = l.created_ms
                    RETURNING r.n, r.shard, r.tenant, r.provider, r.created_ms, r.task, r.tally),
                 d AS (DELETE FROM citetap_domain_apart d USING gone g WHERE d.n = g.n),
                 e AS (DELETE FROM citetap_domain d USING late g WHERE d.n = g.n AND d.created_ms = g.created_ms)
                 SELECT * FROM gone UNION ALL SELECT * FROM late";
    let rows = sqlx::query(query).bind(before_ms).bind(BATCH).fetch_all(&mut *tx).await?;
    let (mut aggregates, mut affected) = (ShardedAggregates::default(), BTreeSet::new());
    for row in &rows {
        let tenant: &str = row.try_get("tenant")?;
        let created_ms = row.try_get("created_ms")?;
        aggregates.subtract(row.try_get("shard")?, tenant, created_ms, row.try_get("provider")?, row.try_get("tally")?);
        affected.insert((tenant.to_owned(), row.try_get("task")?));
    }
    cursors::refresh_cursors(&mut tx, &affected).await?;
    aggregates.apply(&mut tx).await?;
    tx.commit().await?;
    Ok(rows.len() as u64)
}

/// Locks the layout. Returns the horizon and its target, which is limited to the server's current time.
async fn lock_layout(conn: &mut PgConnection, schema: &SchemaId, before_ms: i64) -> Result<(i64, i64), PostgresError> {
    sqlx::query("SET LOCAL lock_timeout = '2s'").execute(&mut *conn).await?;
    let query = sqlx::query("SELECT pg_advisory_xact_lock($1, $2)")
        .bind(schema.lock_class())
        .bind(AdvisoryLock::Layout.number());
    query.execute(&mut *conn).await?;
    let query =
        "SELECT horizon_ms, least($1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM citetap_meta";
    Ok(sqlx::query_as(query).bind(before_ms).fetch_one(conn).await?)
}

async fn drop_partitions(conn: &mut PgConnection) -> Result<(), PostgresError> {
    let query = "SELECT number FROM citetap_part WHERE to_ms <= (SELECT horizon_ms FROM citetap_meta) ORDER BY number";
    let expired: Vec<i64> = sqlx::query_scalar(query).fetch_all(&mut *conn).await?;
    for number in expired {
        // One table per transaction: with two it could deadlock with a reader.
        for table in ["citetap_domain", "citetap_record"] {
            if !drop_table(conn, table, number).await? {
                return Ok(());
            }
        }
        sqlx::query("DELETE FROM citetap_part WHERE number = $1").bind(number).execute(&mut *conn).await?;
    }
    Ok(())
}

/// Drops a table, with short lock waits. Returns false if it stays in use.
async fn drop_table(conn: &mut PgConnection, table: &str, number: i64) -> Result<bool, PostgresError> {
    for _ in 0..DROP_TRIES {
        let mut tx = conn.begin().await?;
        sqlx::query(DROP_LOCK_TIMEOUT).execute(&mut *tx).await?;
        let sql = format!("DROP TABLE IF EXISTS {table}_{number}");
        match sqlx::query(AssertSqlSafe(sql)).execute(&mut *tx).await.map_err(PostgresError::from) {
            Ok(_) => {
                tx.commit().await?;
                return Ok(true);
            }
            Err(error) if error.is_code("55P03") => {
                tx.rollback().await?;
                sleep(DROP_RETRY_DELAY).await;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Creates today's and the upcoming partitions.
pub(super) async fn create_upcoming_partitions(
    conn: &mut PgConnection,
    schema: &SchemaId,
    plan: &partitions::PartitionPlan,
) -> Result<(), PostgresError> {
    let now = partitions::now_ms();
    let missing = plan.missing(&partitions::read(conn).await?, now, plan.upcoming(now));
    if !missing.is_empty() {
        partitions::create(conn, schema, plan, &missing).await?;
    }
    Ok(())
}

//! The end of records. Days that are over are dropped whole. Of the day on which the border is, what is before it is hidden
//! from everybody by the horizon, and goes with its day. Only what is apart is deleted, row by row.

use std::{collections::BTreeSet, time::Duration};

use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use tokio::time::sleep;

use super::{
    daily::Sharded,
    error::Fault,
    parts,
    schema::{Lock, Place},
    tasks,
};
use crate::store::day_of;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// Records that one transaction hides or removes, so that writes get their turn in between.
const STEP: i64 = 2000;
/// Those who read and write wait no longer for a table to be dropped; it is tried a few times, and then by the next sweep.
const DROP_WAIT: &str = "SET LOCAL lock_timeout = '250ms'";
const DROP_TRIES: u32 = 4;
const DROP_PAUSE: Duration = Duration::from_millis(100);

/// How many records went; none where another replica is at it.
pub(super) async fn sweep(conn: &mut PgConnection, place: &Place, before_ms: i64) -> Result<u64, Fault> {
    let query = "SELECT pg_try_advisory_lock($1, $2)";
    let query = sqlx::query_scalar(query).bind(place.class()).bind(Lock::Sweep.number());
    let ours: bool = query.fetch_one(&mut *conn).await?;
    if !ours {
        return Ok(0);
    }
    let mut gone = 0;
    loop {
        let (hidden, over) = hide(conn, place, before_ms).await?;
        gone += hidden;
        if over {
            break;
        }
    }
    loop {
        let removed = remove(conn, place, before_ms).await?;
        gone += removed;
        if removed == 0 {
            break;
        }
    }
    drop_days(conn).await?;
    Ok(gone)
}

/// Moves the horizon on, by a day or by [`STEP`] records. How many records are behind it now, and is it where it should be?
async fn hide(conn: &mut PgConnection, place: &Place, before_ms: i64) -> Result<(u64, bool), Fault> {
    let mut tx = conn.begin().await?;
    let (horizon_ms, target) = alone(&mut tx, place, before_ms).await?;
    if horizon_ms >= target {
        return Ok((0, true));
    }
    let today = day_of(target);
    let query = "SELECT min(day) FROM citetap_daily WHERE shard >= 0 AND day < $1";
    let oldest: Option<i64> = sqlx::query_scalar(query).bind(today).fetch_one(&mut *tx).await?;
    let (to_ms, hidden) = if let Some(day) = oldest {
        // The whole day: its sums are all that is left of it to be read.
        let query = "WITH gone AS (DELETE FROM citetap_daily WHERE shard >= 0 AND day <= $1 RETURNING messages)
                     SELECT coalesce(sum(messages), 0)::bigint FROM gone";
        let messages: i64 = sqlx::query_scalar(query).bind(day).fetch_one(&mut *tx).await?;
        ((day + 1).saturating_mul(DAY_MS), messages.unsigned_abs())
    } else {
        let from_ms = horizon_ms.max(today.saturating_mul(DAY_MS));
        let query = "SELECT created_ms FROM citetap_record WHERE created_ms >= $1 AND created_ms < $2
                     ORDER BY created_ms LIMIT 1 OFFSET $3";
        let query = sqlx::query_scalar(query).bind(from_ms).bind(target).bind(STEP);
        let next: Option<i64> = query.fetch_optional(&mut *tx).await?;
        // All that share a millisecond go together.
        let to_ms = next.map_or(target, |next| next.max(from_ms + 1));
        let query = "SELECT shard, tenant, provider, created_ms, tally FROM citetap_record
                     WHERE created_ms >= $1 AND created_ms < $2";
        let rows = sqlx::query(query).bind(from_ms).bind(to_ms).fetch_all(&mut *tx).await?;
        let mut sums = Sharded::default();
        for row in &rows {
            let (tenant, provider) = (row.try_get("tenant")?, row.try_get("provider")?);
            sums.take(row.try_get("shard")?, tenant, row.try_get("created_ms")?, provider, row.try_get("tally")?);
        }
        sums.apply(&mut tx).await?;
        (to_ms, rows.len() as u64)
    };
    sqlx::query("UPDATE citetap_meta SET horizon_ms = $1").bind(to_ms).execute(&mut *tx).await?;
    tasks::settle_before(&mut tx, to_ms).await?;
    tx.commit().await?;
    Ok((hidden, to_ms >= target))
}

/// Deletes some of what no horizon hides: what is apart, and what was created later than now, if that is asked for.
async fn remove(conn: &mut PgConnection, place: &Place, before_ms: i64) -> Result<u64, Fault> {
    let mut tx = conn.begin().await?;
    alone(&mut tx, place, before_ms).await?;
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
    let rows = sqlx::query(query).bind(before_ms).bind(STEP).fetch_all(&mut *tx).await?;
    let (mut sums, mut left) = (Sharded::default(), BTreeSet::new());
    for row in &rows {
        let tenant: &str = row.try_get("tenant")?;
        let created_ms = row.try_get("created_ms")?;
        sums.take(row.try_get("shard")?, tenant, created_ms, row.try_get("provider")?, row.try_get("tally")?);
        left.insert((tenant.to_owned(), row.try_get("task")?));
    }
    tasks::settle(&mut tx, &left).await?;
    sums.apply(&mut tx).await?;
    tx.commit().await?;
    Ok(rows.len() as u64)
}

/// With the layout locked: the horizon, and where it should be. By the server's clock, it is never ahead of now.
async fn alone(conn: &mut PgConnection, place: &Place, before_ms: i64) -> Result<(i64, i64), Fault> {
    sqlx::query("SET LOCAL lock_timeout = '2s'").execute(&mut *conn).await?;
    let query = sqlx::query("SELECT pg_advisory_xact_lock($1, $2)").bind(place.class()).bind(Lock::Layout.number());
    query.execute(&mut *conn).await?;
    let query =
        "SELECT horizon_ms, least($1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM citetap_meta";
    Ok(sqlx::query_as(query).bind(before_ms).fetch_one(conn).await?)
}

async fn drop_days(conn: &mut PgConnection) -> Result<(), Fault> {
    let query = "SELECT number FROM citetap_part WHERE to_ms <= (SELECT horizon_ms FROM citetap_meta) ORDER BY number";
    let over: Vec<i64> = sqlx::query_scalar(query).fetch_all(&mut *conn).await?;
    for number in over {
        // One table in a transaction: with two it could wait for somebody who waits for it.
        for table in ["citetap_domain", "citetap_record"] {
            if !drop_table(conn, table, number).await? {
                return Ok(());
            }
        }
        sqlx::query("DELETE FROM citetap_part WHERE number = $1").bind(number).execute(&mut *conn).await?;
    }
    Ok(())
}

/// Is it gone? Whoever is using the tables at the moment is not made to wait for long.
async fn drop_table(conn: &mut PgConnection, table: &str, number: i64) -> Result<bool, Fault> {
    for _ in 0..DROP_TRIES {
        let mut tx = conn.begin().await?;
        sqlx::query(DROP_WAIT).execute(&mut *tx).await?;
        let sql = format!("DROP TABLE IF EXISTS {table}_{number}");
        match sqlx::query(AssertSqlSafe(sql)).execute(&mut *tx).await.map_err(Fault::from) {
            Ok(_) => {
                tx.commit().await?;
                return Ok(true);
            }
            Err(fault) if fault.is_code("55P03") => {
                tx.rollback().await?;
                sleep(DROP_PAUSE).await;
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(false)
}

/// The tables of the days that come.
pub(super) async fn prepare_days(conn: &mut PgConnection, place: &Place, plan: &parts::Plan) -> Result<(), Fault> {
    let now = parts::now_ms();
    let lacking = plan.lacks(&parts::read(conn).await?, now, plan.ahead(now));
    if !lacking.is_empty() {
        parts::make(conn, place, plan, &lacking).await?;
    }
    Ok(())
}

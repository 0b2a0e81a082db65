//! Partitions by creation time: created ahead of need, and dropped as a whole when all their records have expired.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::{
    error::PostgresError,
    schema::{AdvisoryLock, SchemaId},
};
use crate::store::day_of;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// Partitions are created this many days ahead.
const PARTITIONS_AHEAD_DAYS: i64 = 2;
/// Records older than this many days get no partition and go to the overflow tables.
const PARTITIONS_BACK_DAYS: i64 = 400;
/// Aimed number of partitions over a record's lifetime (a lookup by id reads every one). Longer lifetimes get wider
/// partitions.
const TABLES_PER_TTL: i64 = 48;
/// Widest partition in days; also the width if records never expire.
const WIDTH_DAYS_MAX: i64 = 30;

/// A time range that has its own table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Partition {
    pub(super) from_ms: i64,
    pub(super) to_ms: i64,
}

impl Partition {
    pub(super) fn contains(&self, ms: i64) -> bool {
        (self.from_ms..self.to_ms).contains(&ms)
    }
}

/// Decides which time ranges get a partition.
#[derive(Debug, Clone, Copy)]
pub(super) struct PartitionPlan {
    /// Width of a partition in days.
    width_days: i64,
    back_days: i64,
}

impl PartitionPlan {
    pub(super) fn new(ttl: Option<Duration>) -> Self {
        let days = ttl.map(|ttl| i64::try_from(ttl.as_secs() / 86_400).unwrap_or(i64::MAX).saturating_add(1));
        Self {
            width_days: days.map_or(WIDTH_DAYS_MAX, |days| (days / TABLES_PER_TTL + 1).min(WIDTH_DAYS_MAX)),
            back_days: days.map_or(PARTITIONS_BACK_DAYS, |days| days.min(PARTITIONS_BACK_DAYS)),
        }
    }

    /// One time for each day that needs a partition and has none.
    pub(super) fn missing(&self, known: &[Partition], now_ms: i64, created_ms: impl Iterator<Item = i64>) -> Vec<i64> {
        let today = day_of(now_ms);
        let mut missing: Vec<i64> = created_ms
            .filter(|ms| (today - self.back_days..=today + PARTITIONS_AHEAD_DAYS).contains(&day_of(*ms)))
            .filter(|ms| !known.iter().any(|part| part.contains(*ms)))
            .collect();
        missing.sort_unstable();
        missing.dedup_by_key(|ms| day_of(*ms));
        missing
    }

    /// Times of today and the days ahead.
    pub(super) fn upcoming(&self, now_ms: i64) -> impl Iterator<Item = i64> {
        (0..=PARTITIONS_AHEAD_DAYS).map(move |day| now_ms.saturating_add(day * DAY_MS))
    }

    /// The partition for a time, cut to fit between existing ones, which may have another width.
    fn range_for(&self, known: &[Partition], ms: i64) -> Partition {
        let width = self.width_days * DAY_MS;
        let start = ms.div_euclid(width) * width;
        let before = known.iter().map(|part| part.to_ms).filter(|to_ms| *to_ms <= ms);
        let after = known.iter().map(|part| part.from_ms).filter(|from_ms| *from_ms > ms);
        Partition { from_ms: before.fold(start, i64::max), to_ms: after.fold(start + width, i64::min) }
    }
}

pub(super) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

pub(super) async fn read(conn: &mut PgConnection) -> Result<Vec<Partition>, PostgresError> {
    let query = "SELECT from_ms, to_ms FROM citetap_part ORDER BY from_ms";
    let found: Vec<(i64, i64)> = sqlx::query_as(query).fetch_all(conn).await?;
    Ok(found.into_iter().map(|(from_ms, to_ms)| Partition { from_ms, to_ms }).collect())
}

/// Creates the missing partitions for these times. If several replicas try at once, one does it. Tables are created
/// detached and then attached, so readers and writers do not wait.
pub(super) async fn create(
    conn: &mut PgConnection,
    schema: &SchemaId,
    plan: &PartitionPlan,
    moments: &[i64],
) -> Result<Vec<Partition>, PostgresError> {
    let mut tx = conn.begin().await?;
    let query = sqlx::query("SELECT pg_advisory_xact_lock($1, $2)")
        .bind(schema.lock_class())
        .bind(AdvisoryLock::Tables.number());
    query.execute(&mut *tx).await?;
    let horizon_ms: i64 = sqlx::query_scalar("SELECT horizon_ms FROM citetap_meta").fetch_one(&mut *tx).await?;
    let mut known = read(&mut tx).await?;
    for ms in moments {
        // Records before the horizon go to the overflow tables in any case.
        if *ms < horizon_ms || known.iter().any(|part| part.contains(*ms)) {
            continue;
        }
        let part = plan.range_for(&known, *ms);
        let query = "INSERT INTO citetap_part (from_ms, to_ms) VALUES ($1, $2) RETURNING number";
        let query = sqlx::query_scalar(query).bind(part.from_ms).bind(part.to_ms);
        let number: i64 = query.fetch_one(&mut *tx).await?;
        for table in ["citetap_record", "citetap_domain"] {
            let Partition { from_ms, to_ms } = part;
            let sql = format!(
                "CREATE TABLE {table}_{number} (LIKE {table} INCLUDING ALL);
                 ALTER TABLE {table} ATTACH PARTITION {table}_{number} FOR VALUES FROM ({from_ms}) TO ({to_ms})"
            );
            // Safe SQL: names and numbers are our own.
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *tx).await?;
        }
        known.push(part);
    }
    tx.commit().await?;
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn days(days: u64) -> PartitionPlan {
        PartitionPlan::new(Some(Duration::from_secs(days * 86_400)))
    }

    #[test]
    fn partition_width_grows_with_the_ttl() {
        for (plan, width, back) in
            [(days(0), 1, 1), (days(30), 1, 31), (days(46), 1, 47), (days(365), 8, 366), (days(9999), 30, 400)]
        {
            assert_eq!((plan.width_days, plan.back_days), (width, back));
        }
        assert_eq!(PartitionPlan::new(None).width_days, 30);
    }

    #[test]
    fn partition_range_avoids_existing_ones() {
        let day = |from: i64, to: i64| Partition { from_ms: from * DAY_MS, to_ms: to * DAY_MS };
        let week = days(300);
        assert_eq!(week.width_days, 7);
        assert_eq!(week.range_for(&[], 10 * DAY_MS), day(7, 14));
        let known = [day(8, 9), day(11, 12), day(0, 7)];
        assert_eq!(week.range_for(&known, 10 * DAY_MS + 5), day(9, 11));
        assert_eq!(week.range_for(&known, 7 * DAY_MS), day(7, 8));
        assert_eq!(week.range_for(&known, 13 * DAY_MS), day(12, 14));
    }

    #[test]
    fn partition_plan_skips_far_past_and_future() {
        let now = 1000 * DAY_MS + 5;
        let plan = days(30);
        let asked = [0, 968, 969, 1000, 1002, 1003, 9999].map(|day| day * DAY_MS);
        assert_eq!(plan.missing(&[], now, asked.into_iter()), [969, 1000, 1002].map(|day| day * DAY_MS));
        let known = [Partition { from_ms: 1000 * DAY_MS, to_ms: 1001 * DAY_MS }];
        assert_eq!(plan.missing(&known, now, plan.upcoming(now)), [now + DAY_MS, now + 2 * DAY_MS]);
    }
}

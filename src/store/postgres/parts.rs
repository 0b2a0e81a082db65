//! The days: tables of their own for what was created in a stretch of time, made before they are needed and dropped whole.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::{
    error::Fault,
    schema::{Lock, Place},
};
use crate::store::day_of;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// Days that are made before they come.
const AHEAD_DAYS: i64 = 2;
/// Days back that get a table at most; what is older is apart.
const BACK_DAYS: i64 = 400;
/// A call looks into every table: so many of them, about, while records live. Longer lives make longer stretches.
const TABLES: i64 = 48;
/// The longest stretch, also where nothing ends.
const WIDTH_MAX: i64 = 30;

/// What was created in between is in a table of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) from_ms: i64,
    pub(super) to_ms: i64,
}

impl Part {
    pub(super) fn has(&self, ms: i64) -> bool {
        (self.from_ms..self.to_ms).contains(&ms)
    }
}

/// Which stretches of time get a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    /// Days.
    width: i64,
    back: i64,
}

impl Plan {
    pub(super) fn new(ttl: Option<Duration>) -> Self {
        let days = ttl.map(|ttl| i64::try_from(ttl.as_secs() / 86_400).unwrap_or(i64::MAX).saturating_add(1));
        Self {
            width: days.map_or(WIDTH_MAX, |days| (days / TABLES + 1).min(WIDTH_MAX)),
            back: days.map_or(BACK_DAYS, |days| days.min(BACK_DAYS)),
        }
    }

    /// The moments of which one is needed and has no table yet.
    pub(super) fn lacks(&self, known: &[Part], now_ms: i64, created_ms: impl Iterator<Item = i64>) -> Vec<i64> {
        let today = day_of(now_ms);
        let mut lacking: Vec<i64> = created_ms
            .filter(|ms| (today - self.back..=today + AHEAD_DAYS).contains(&day_of(*ms)))
            .filter(|ms| !known.iter().any(|part| part.has(*ms)))
            .collect();
        lacking.sort_unstable();
        lacking.dedup_by_key(|ms| day_of(*ms));
        lacking
    }

    /// The days that come, and this one.
    pub(super) fn ahead(&self, now_ms: i64) -> impl Iterator<Item = i64> {
        (0..=AHEAD_DAYS).map(move |day| now_ms.saturating_add(day * DAY_MS))
    }

    /// The stretch of a moment, as far as others leave it free: they may be of another length.
    fn stretch(&self, known: &[Part], ms: i64) -> Part {
        let width = self.width * DAY_MS;
        let start = ms.div_euclid(width) * width;
        let before = known.iter().map(|part| part.to_ms).filter(|to_ms| *to_ms <= ms);
        let after = known.iter().map(|part| part.from_ms).filter(|from_ms| *from_ms > ms);
        Part { from_ms: before.fold(start, i64::max), to_ms: after.fold(start + width, i64::min) }
    }
}

pub(super) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

pub(super) async fn read(conn: &mut PgConnection) -> Result<Vec<Part>, Fault> {
    let query = "SELECT from_ms, to_ms FROM citetap_part ORDER BY from_ms";
    let found: Vec<(i64, i64)> = sqlx::query_as(query).fetch_all(conn).await?;
    Ok(found.into_iter().map(|(from_ms, to_ms)| Part { from_ms, to_ms }).collect())
}

/// Makes the tables that are lacking for these moments. Several may do this at once: one does it. Nobody who reads or
/// writes waits for it: a table is made by itself, and then becomes a part.
pub(super) async fn make(
    conn: &mut PgConnection,
    place: &Place,
    plan: &Plan,
    moments: &[i64],
) -> Result<Vec<Part>, Fault> {
    let mut tx = conn.begin().await?;
    let query = sqlx::query("SELECT pg_advisory_xact_lock($1, $2)").bind(place.class()).bind(Lock::Tables.number());
    query.execute(&mut *tx).await?;
    let horizon_ms: i64 = sqlx::query_scalar("SELECT horizon_ms FROM citetap_meta").fetch_one(&mut *tx).await?;
    let mut known = read(&mut tx).await?;
    for ms in moments {
        // What is before the horizon is apart in any case.
        if *ms < horizon_ms || known.iter().any(|part| part.has(*ms)) {
            continue;
        }
        let part = plan.stretch(&known, *ms);
        let query = "INSERT INTO citetap_part (from_ms, to_ms) VALUES ($1, $2) RETURNING number";
        let query = sqlx::query_scalar(query).bind(part.from_ms).bind(part.to_ms);
        let number: i64 = query.fetch_one(&mut *tx).await?;
        for table in ["citetap_record", "citetap_domain"] {
            let Part { from_ms, to_ms } = part;
            let sql = format!(
                "CREATE TABLE {table}_{number} (LIKE {table} INCLUDING ALL);
                 ALTER TABLE {table} ATTACH PARTITION {table}_{number} FOR VALUES FROM ({from_ms}) TO ({to_ms})"
            );
            // Names and numbers are our own.
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

    fn days(days: u64) -> Plan {
        Plan::new(Some(Duration::from_secs(days * 86_400)))
    }

    #[test]
    fn longer_lives_make_longer_stretches() {
        for (plan, width, back) in
            [(days(0), 1, 1), (days(30), 1, 31), (days(46), 1, 47), (days(365), 8, 366), (days(9999), 30, 400)]
        {
            assert_eq!((plan.width, plan.back), (width, back));
        }
        assert_eq!(Plan::new(None).width, 30);
    }

    #[test]
    fn a_stretch_leaves_others_theirs() {
        let day = |from: i64, to: i64| Part { from_ms: from * DAY_MS, to_ms: to * DAY_MS };
        let week = days(300);
        assert_eq!(week.width, 7);
        assert_eq!(week.stretch(&[], 10 * DAY_MS), day(7, 14));
        let known = [day(8, 9), day(11, 12), day(0, 7)];
        assert_eq!(week.stretch(&known, 10 * DAY_MS + 5), day(9, 11));
        assert_eq!(week.stretch(&known, 7 * DAY_MS), day(7, 8));
        assert_eq!(week.stretch(&known, 13 * DAY_MS), day(12, 14));
    }

    #[test]
    fn what_is_long_ago_or_far_ahead_has_no_day() {
        let now = 1000 * DAY_MS + 5;
        let plan = days(30);
        let asked = [0, 968, 969, 1000, 1002, 1003, 9999].map(|day| day * DAY_MS);
        assert_eq!(plan.lacks(&[], now, asked.into_iter()), [969, 1000, 1002].map(|day| day * DAY_MS));
        let known = [Part { from_ms: 1000 * DAY_MS, to_ms: 1001 * DAY_MS }];
        assert_eq!(plan.lacks(&known, now, plan.ahead(now)), [now + DAY_MS, now + 2 * DAY_MS]);
    }
}

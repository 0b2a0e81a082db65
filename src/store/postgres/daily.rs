//! Daily aggregates in PostgreSQL, updated in the transaction that changes a record.

use std::collections::{BTreeMap, HashMap};

use sqlx::{PgConnection, Row as _};

use crate::store::stats::{Aggregate, Counts, DailyAggregates, DailyKey, SiteCounts};

/// Shard of the records in the overflow tables.
pub(super) const OVERFLOW_SHARD: i16 = -1;
/// Number of shards; each replica picks one at random, so that replicas rarely wait for each other's row locks.
pub(super) const SHARD_COUNT: u8 = 8;

/// Aggregates by shard. Tenant and provider are encoded as in the tables.
#[derive(Default)]
pub(super) struct ShardedAggregates(BTreeMap<i16, DailyAggregates>);

impl ShardedAggregates {
    pub(super) fn add(
        &mut self,
        shard: i16,
        tenant: &str,
        created_ms: i64,
        provider: &str,
        aggregate: &Aggregate,
        times: i64,
    ) {
        self.0.entry(shard).or_default().add(tenant, created_ms, provider, aggregate, times);
    }

    /// Subtracts the aggregate stored with a deleted row.
    pub(super) fn subtract(&mut self, shard: i16, tenant: &str, created_ms: i64, provider: &str, aggregate_json: &str) {
        let aggregate = serde_json::from_str(aggregate_json).unwrap_or_else(|_| Aggregate::unreadable());
        self.add(shard, tenant, created_ms, provider, &aggregate, -1);
    }

    /// Adds the aggregates to those in the tables. Sorted order prevents deadlocks between writers.
    pub(super) async fn apply(&self, conn: &mut PgConnection) -> Result<(), sqlx::Error> {
        for (shard, aggregates) in &self.0 {
            let changed: Vec<(&DailyKey, &Aggregate)> =
                aggregates.0.iter().filter(|(_, aggregate)| !is_zero(aggregate)).collect();
            if changed.is_empty() {
                continue;
            }
            let numbers = add_counts(conn, *shard, &changed).await?;
            add_sites(conn, &changed, &numbers).await?;
        }
        Ok(())
    }
}

fn is_zero(aggregate: &Aggregate) -> bool {
    aggregate.counts.is_zero() && aggregate.sites.values().all(SiteCounts::is_zero)
}

/// Returns the number of each remaining row. Rows without messages are deleted, and their site rows with them.
async fn add_counts(
    conn: &mut PgConnection,
    shard: i16,
    changed: &[(&DailyKey, &Aggregate)],
) -> Result<HashMap<DailyKey, i64>, sqlx::Error> {
    let mut query = sqlx::query(
        "INSERT INTO citetap_daily AS d (shard, tenant, day, provider, messages, with_sources, citations, cited,
         supplemental, filtered, failed, duplicates, dangling_markers)
         SELECT $1, * FROM unnest($2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[],
         $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[])
         ON CONFLICT (tenant, day, provider, shard) DO UPDATE SET messages = d.messages + excluded.messages,
         with_sources = d.with_sources + excluded.with_sources, citations = d.citations + excluded.citations,
         cited = d.cited + excluded.cited, supplemental = d.supplemental + excluded.supplemental,
         filtered = d.filtered + excluded.filtered, failed = d.failed + excluded.failed,
         duplicates = d.duplicates + excluded.duplicates,
         dangling_markers = d.dangling_markers + excluded.dangling_markers
         RETURNING n, tenant, day, provider, messages",
    )
    .bind(shard)
    .bind(changed.iter().map(|((tenant, ..), _)| tenant.as_str()).collect::<Vec<_>>())
    .bind(changed.iter().map(|((_, day, _), _)| *day).collect::<Vec<_>>())
    .bind(changed.iter().map(|((.., provider), _)| provider.as_str()).collect::<Vec<_>>());
    let counts: Vec<[i64; Counts::LEN]> = changed.iter().map(|(_, aggregate)| aggregate.counts.into()).collect();
    for at in 0..Counts::LEN {
        query = query.bind(counts.iter().map(|counts| counts[at]).collect::<Vec<_>>());
    }
    let (mut numbers, mut empty) = (HashMap::new(), Vec::new());
    for row in query.fetch_all(&mut *conn).await? {
        let n: i64 = row.try_get("n")?;
        if row.try_get::<i64, _>("messages")? > 0 {
            numbers.insert((row.try_get("tenant")?, row.try_get("day")?, row.try_get("provider")?), n);
        } else {
            empty.push(n);
        }
    }
    if !empty.is_empty() {
        sqlx::query("DELETE FROM citetap_daily WHERE n = ANY($1)").bind(empty).execute(conn).await?;
    }
    Ok(numbers)
}

async fn add_sites(
    conn: &mut PgConnection,
    changed: &[(&DailyKey, &Aggregate)],
    numbers: &HashMap<DailyKey, i64>,
) -> Result<(), sqlx::Error> {
    let (mut slots, mut domains, mut aggregates) = (Vec::new(), Vec::new(), [Vec::new(), Vec::new(), Vec::new()]);
    let mut has_negative = false;
    for (slot, aggregate) in changed {
        let Some(n) = numbers.get(*slot) else { continue };
        for (domain, site) in aggregate.sites.iter().filter(|(_, site)| !site.is_zero()) {
            slots.push(*n);
            domains.push(domain.as_str());
            let values: [i64; SiteCounts::LEN] = (*site).into();
            for (sum, value) in aggregates.iter_mut().zip(values) {
                sum.push(value);
            }
            has_negative |= site.messages < 0;
        }
    }
    if slots.is_empty() {
        return Ok(());
    }
    let [messages, citations, cited] = aggregates;
    sqlx::query(
        "INSERT INTO citetap_daily_site AS s (slot, domain, messages, citations, cited)
         SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[])
         ON CONFLICT (slot, domain) DO UPDATE SET messages = s.messages + excluded.messages,
         citations = s.citations + excluded.citations, cited = s.cited + excluded.cited",
    )
    .bind(&slots)
    .bind(&domains)
    .bind(messages)
    .bind(citations)
    .bind(cited)
    .execute(&mut *conn)
    .await?;
    if has_negative {
        sqlx::query(
            "DELETE FROM citetap_daily_site s USING unnest($1::bigint[], $2::text[]) AS a (slot, domain)
             WHERE s.slot = a.slot AND s.domain = a.domain AND s.messages <= 0",
        )
        .bind(&slots)
        .bind(&domains)
        .execute(conn)
        .await?;
    }
    Ok(())
}

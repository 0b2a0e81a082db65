//! Daily aggregates in SQLite, updated in the transaction that changes a record.

use std::collections::HashMap;

use futures_util::TryStreamExt as _;
use sqlx::{
    QueryBuilder, Row as _, Sqlite, SqliteConnection, Transaction,
    query::Query,
    sqlite::{SqliteArguments, SqliteRow},
};

use crate::store::{
    encoded::{EncodedRecord, StoredBody},
    stats::{Aggregate, DailyAggregates, DailyKey},
};

/// Keys per lookup query (SQLite allows 32,766 bound values per statement).
const KEYS_PER_QUERY: usize = 256;
/// Records per round of the backfill (bounds the aggregates held in memory).
const RECORDS_PER_TRANSACTION: i64 = 2000;

/// Columns from which [`read_aggregate`] reads a record's aggregate.
pub(super) const COUNTED_COLUMNS: &str =
    "tenant, provider, created_ms, tally, iif(tally IS NULL, body, NULL) AS uncounted";

/// Aggregates of the stored records that a batch replaces.
pub(super) struct PreviousAggregates<'a> {
    known: HashMap<(&'a str, &'a str, &'a str), (i64, Aggregate)>,
}

impl<'a> PreviousAggregates<'a> {
    pub(super) async fn read(
        tx: &mut Transaction<'_, Sqlite>,
        rows: &[EncodedRecord<'a>],
    ) -> Result<Self, sqlx::Error> {
        let mut known = HashMap::new();
        for rows in rows.chunks(KEYS_PER_QUERY) {
            let mut query = QueryBuilder::new("WITH asked (at, t, p, i) AS (");
            query.push_values(rows.iter().enumerate(), |mut values, (at, row)| {
                let (tenant, provider, id) = row.key();
                // Bound as text: a JSON array would be cut at a NUL.
                values
                    .push_bind(i64::try_from(at).unwrap_or(i64::MAX))
                    .push_bind(tenant)
                    .push_bind(provider)
                    .push_bind(id);
            });
            query.push(") SELECT at, ").push(COUNTED_COLUMNS);
            query.push(" FROM asked CROSS JOIN record ON tenant = t AND provider = p AND id = i");
            // The SQL text depends on the number of keys; caching every variant would evict other statements.
            let found = query.build().persistent(rows.len() == 1).fetch_all(&mut **tx).await?;
            for found in &found {
                let at: i64 = found.try_get("at")?;
                let Some(row) = usize::try_from(at).ok().and_then(|at| rows.get(at)) else { continue };
                known.insert(row.key(), (found.try_get("created_ms")?, read_aggregate(found)?));
            }
        }
        Ok(Self { known })
    }

    /// Adds a row's aggregate and subtracts that of the record it replaces. Returns whether there was one.
    pub(super) fn replace(&mut self, row: &EncodedRecord<'a>, aggregates: &mut DailyAggregates) -> bool {
        let (tenant, provider, _) = row.key();
        aggregates.add(tenant, row.entry.created_ms, provider, &row.aggregate, 1);
        let before = self.known.insert(row.key(), (row.entry.created_ms, row.aggregate.clone()));
        if let Some((created_ms, aggregate)) = &before {
            aggregates.add(tenant, *created_ms, provider, aggregate, -1);
        }
        before.is_some()
    }
}

/// Runs a DELETE that returns [`COUNTED_COLUMNS`] and subtracts the deleted records' aggregates. Returns how many were
/// deleted.
pub(super) async fn remove(
    conn: &mut SqliteConnection,
    delete: Query<'_, Sqlite, SqliteArguments>,
) -> Result<u64, sqlx::Error> {
    let (mut aggregates, mut deleted) = (DailyAggregates::default(), 0);
    let mut rows = delete.fetch(&mut *conn);
    while let Some(row) = rows.try_next().await? {
        aggregates.add(
            row.try_get("tenant")?,
            row.try_get("created_ms")?,
            row.try_get("provider")?,
            &read_aggregate(&row)?,
            -1,
        );
        deleted += 1;
    }
    drop(rows);
    apply(conn, &aggregates).await?;
    Ok(deleted)
}

fn read_aggregate(row: &SqliteRow) -> Result<Aggregate, sqlx::Error> {
    let aggregate: Option<&str> = row.try_get("tally")?;
    let body: Option<&str> = row.try_get("uncounted")?;
    Ok(aggregate.and_then(|aggregate| serde_json::from_str(aggregate).ok()).unwrap_or_else(|| aggregate_of_body(body)))
}

/// A body that cannot be read counts as one message.
fn aggregate_of_body(body: Option<&str>) -> Aggregate {
    let read = body.and_then(|body| serde_json::from_str::<StoredBody>(body).ok());
    read.map_or_else(Aggregate::unreadable, |body| Aggregate::of(&body.record))
}

/// Adds the aggregates to those in the database.
pub(super) async fn apply(conn: &mut SqliteConnection, aggregates: &DailyAggregates) -> Result<(), sqlx::Error> {
    for (slot, aggregate) in &aggregates.0 {
        let sites: Vec<_> = aggregate.sites.iter().filter(|(_, site)| !site.is_zero()).collect();
        if aggregate.counts.is_zero() && sites.is_empty() {
            continue;
        }
        let (n, messages) = add_counts(conn, slot, aggregate).await?;
        if messages <= 0 {
            // The foreign key deletes its site rows.
            sqlx::query("DELETE FROM daily WHERE n = ?1").bind(n).execute(&mut *conn).await?;
            continue;
        }
        if sites.is_empty() {
            continue;
        }
        let rows: Vec<_> =
            sites.iter().map(|(domain, site)| (domain, site.messages, site.citations, site.cited)).collect();
        // Domains contain no control characters, so JSON does not change them.
        let rows = serde_json::to_string(&rows).unwrap_or_default();
        sqlx::query(
            "INSERT INTO daily_site (slot, domain, messages, citations, cited)
             SELECT ?1, value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each(?2) WHERE true
             ON CONFLICT (slot, domain) DO UPDATE SET messages = messages + excluded.messages,
             citations = citations + excluded.citations, cited = cited + excluded.cited",
        )
        .bind(n)
        .bind(&rows)
        .execute(&mut *conn)
        .await?;
        if sites.iter().any(|(_, site)| site.messages < 0) {
            sqlx::query(
                "DELETE FROM daily_site WHERE slot = ?1 AND messages <= 0
                 AND domain IN (SELECT value ->> 0 FROM json_each(?2))",
            )
            .bind(n)
            .bind(&rows)
            .execute(&mut *conn)
            .await?;
        }
    }
    Ok(())
}

/// Returns the row's number and its new message count.
async fn add_counts(
    conn: &mut SqliteConnection,
    slot: &DailyKey,
    aggregate: &Aggregate,
) -> Result<(i64, i64), sqlx::Error> {
    let (tenant, day, provider) = slot;
    let query = sqlx::query_as(
        "INSERT INTO daily (tenant, day, provider, messages, with_sources, citations, cited, supplemental, filtered,
         failed, duplicates, dangling_markers) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
         ON CONFLICT (tenant, day, provider) DO UPDATE SET messages = messages + excluded.messages,
         with_sources = with_sources + excluded.with_sources, citations = citations + excluded.citations,
         cited = cited + excluded.cited, supplemental = supplemental + excluded.supplemental,
         filtered = filtered + excluded.filtered, failed = failed + excluded.failed,
         duplicates = duplicates + excluded.duplicates, dangling_markers = dangling_markers + excluded.dangling_markers
         RETURNING n, messages",
    );
    let query = query.bind(tenant).bind(day).bind(provider);
    let counts: [i64; _] = aggregate.counts.into();
    counts.into_iter().fold(query, |query, count| query.bind(count)).fetch_one(conn).await
}

/// Builds the aggregates of records stored before aggregates existed. Does not rewrite the records, which would double
/// them in the log.
pub(super) async fn backfill_daily(conn: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let mut last = None;
    loop {
        let query = "SELECT n, tenant, provider, created_ms, body FROM record WHERE n > ?1 ORDER BY n LIMIT ?2";
        let mut rows =
            sqlx::query(query).bind(last.unwrap_or(i64::MIN)).bind(RECORDS_PER_TRANSACTION).fetch(&mut *conn);
        let mut aggregates = DailyAggregates::default();
        while let Some(row) = rows.try_next().await? {
            if last.is_none() {
                tracing::info!("building statistics for existing records, once");
            }
            last = Some(row.try_get("n")?);
            let aggregate = aggregate_of_body(row.try_get("body")?);
            aggregates.add(row.try_get("tenant")?, row.try_get("created_ms")?, row.try_get("provider")?, &aggregate, 1);
        }
        drop(rows);
        if aggregates.0.is_empty() {
            return Ok(());
        }
        apply(conn, &aggregates).await?;
    }
}

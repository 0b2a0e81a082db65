//! Sums by day, provider and site, kept up to date in the transaction that changes a record.

use std::collections::HashMap;

use futures_util::TryStreamExt as _;
use sqlx::{
    QueryBuilder, Row as _, Sqlite, SqliteConnection, Transaction,
    query::Query,
    sqlite::{SqliteArguments, SqliteRow},
};

use crate::store::{
    packed::{OwnedBody, Packed},
    stats::{Slot, Sums, Tally},
};

/// Keys in one question for what they count; a statement takes 32,766 values.
const KEYS_STEP: usize = 256;
/// Records that the first count adds up before it writes: more sums than these make are never held.
const COUNT_STEP: i64 = 2000;

/// The columns that tell what a record counts, of a table `record`.
pub(super) const COUNTED: &str = "tenant, provider, created_ms, tally, iif(tally IS NULL, body, NULL) AS uncounted";

/// What the records of a batch count before it is written.
pub(super) struct Before<'a> {
    known: HashMap<(&'a str, &'a str, &'a str), (i64, Tally)>,
}

impl<'a> Before<'a> {
    pub(super) async fn read(tx: &mut Transaction<'_, Sqlite>, rows: &[Packed<'a>]) -> Result<Self, sqlx::Error> {
        let mut known = HashMap::new();
        for rows in rows.chunks(KEYS_STEP) {
            let mut query = QueryBuilder::new("WITH asked (at, t, p, i) AS (");
            query.push_values(rows.iter().enumerate(), |mut values, (at, row)| {
                let (tenant, provider, id) = row.key();
                // Bound as they are: JSON would end a text at a NUL.
                values
                    .push_bind(i64::try_from(at).unwrap_or(i64::MAX))
                    .push_bind(tenant)
                    .push_bind(provider)
                    .push_bind(id);
            });
            query.push(") SELECT at, ").push(COUNTED);
            query.push(" FROM asked CROSS JOIN record ON tenant = t AND provider = p AND id = i");
            // The text differs with the number of keys: most of them would only push others out of the cache.
            let found = query.build().persistent(rows.len() == 1).fetch_all(&mut **tx).await?;
            for found in &found {
                let at: i64 = found.try_get("at")?;
                let Some(row) = usize::try_from(at).ok().and_then(|at| rows.get(at)) else { continue };
                known.insert(row.key(), (found.try_get("created_ms")?, counted(found)?));
            }
        }
        Ok(Self { known })
    }

    /// Counts a row in the place of what its key counted before. Says whether there was such a record.
    pub(super) fn replace(&mut self, row: &Packed<'a>, sums: &mut Sums) -> bool {
        let (tenant, provider, _) = row.key();
        sums.add(tenant, row.entry.created_ms, provider, &row.tally, 1);
        let before = self.known.insert(row.key(), (row.entry.created_ms, row.tally.clone()));
        if let Some((created_ms, tally)) = &before {
            sums.add(tenant, *created_ms, provider, tally, -1);
        }
        before.is_some()
    }
}

/// Runs a DELETE that returns [`COUNTED`], and takes what it removes out of the sums. Returns how many went.
pub(super) async fn remove(
    conn: &mut SqliteConnection,
    delete: Query<'_, Sqlite, SqliteArguments>,
) -> Result<u64, sqlx::Error> {
    let (mut sums, mut gone) = (Sums::default(), 0);
    let mut rows = delete.fetch(&mut *conn);
    while let Some(row) = rows.try_next().await? {
        sums.add(row.try_get("tenant")?, row.try_get("created_ms")?, row.try_get("provider")?, &counted(&row)?, -1);
        gone += 1;
    }
    drop(rows);
    apply(conn, &sums).await?;
    Ok(gone)
}

fn counted(row: &SqliteRow) -> Result<Tally, sqlx::Error> {
    let tally: Option<&str> = row.try_get("tally")?;
    let body: Option<&str> = row.try_get("uncounted")?;
    Ok(tally.and_then(|tally| serde_json::from_str(tally).ok()).unwrap_or_else(|| tally_of(body)))
}

/// A value that cannot be read is a message all the same.
fn tally_of(body: Option<&str>) -> Tally {
    let read = body.and_then(|body| serde_json::from_str::<OwnedBody>(body).ok());
    read.map_or_else(Tally::unreadable, |body| Tally::of(&body.record))
}

/// Adds the sums to those in the file.
pub(super) async fn apply(conn: &mut SqliteConnection, sums: &Sums) -> Result<(), sqlx::Error> {
    for (slot, tally) in &sums.0 {
        let sites: Vec<_> = tally.sites.iter().filter(|(_, site)| !site.is_zero()).collect();
        if tally.counts.is_zero() && sites.is_empty() {
            continue;
        }
        let (n, messages) = add_counts(conn, slot, tally).await?;
        if messages <= 0 {
            // Its sites go with it.
            sqlx::query("DELETE FROM daily WHERE n = ?1").bind(n).execute(&mut *conn).await?;
            continue;
        }
        if sites.is_empty() {
            continue;
        }
        let rows: Vec<_> =
            sites.iter().map(|(domain, site)| (domain, site.messages, site.citations, site.cited)).collect();
        // Domains hold no control characters, so JSON leaves them whole.
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

/// The number of the slot, and its messages now.
async fn add_counts(conn: &mut SqliteConnection, slot: &Slot, tally: &Tally) -> Result<(i64, i64), sqlx::Error> {
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
    let counts: [i64; _] = tally.counts.into();
    counts.into_iter().fold(query, |query, count| query.bind(count)).fetch_one(conn).await
}

/// Counts the records that were there before the sums were. Reads them and writes the sums only: to write every record
/// anew would take as much room again in the log.
pub(super) async fn count_all(conn: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let mut last = None;
    loop {
        let query = "SELECT n, tenant, provider, created_ms, body FROM record WHERE n > ?1 ORDER BY n LIMIT ?2";
        let mut rows = sqlx::query(query).bind(last.unwrap_or(i64::MIN)).bind(COUNT_STEP).fetch(&mut *conn);
        let mut sums = Sums::default();
        while let Some(row) = rows.try_next().await? {
            if last.is_none() {
                tracing::info!("counting the records for statistics, once");
            }
            last = Some(row.try_get("n")?);
            let tally = tally_of(row.try_get("body")?);
            sums.add(row.try_get("tenant")?, row.try_get("created_ms")?, row.try_get("provider")?, &tally, 1);
        }
        drop(rows);
        if sums.0.is_empty() {
            return Ok(());
        }
        apply(conn, &sums).await?;
    }
}

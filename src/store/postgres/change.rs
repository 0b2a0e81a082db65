//! Transactions that change records: locking, removal of replaced rows, insertion, and the aggregates of both.

use std::collections::BTreeSet;

use sha2::{Digest as _, Sha256};
use sqlx::{PgConnection, Row as _, postgres::PgRow};

use super::{
    cursors,
    daily::{OVERFLOW_SHARD, ShardedAggregates},
    error::PostgresError,
    partitions::Partition,
    schema::{AdvisoryLock, LOCK_SLOTS, SchemaId},
    text::{escape, key},
};
use crate::{
    citation::bundle::task_id,
    store::{Entry, encoded::EncodedRecord, sql_report::sql_int},
};

pub(super) struct RecordChange<'a> {
    pub(super) conn: &'a mut PgConnection,
    pub(super) schema: &'a SchemaId,
    pub(super) shard: i16,
}

/// (tenant, task) as encoded in the tables.
pub(super) type Task = (String, String);

/// A deleted row.
struct RemovedRow {
    shard: i16,
    tenant: String,
    provider: String,
    created_ms: i64,
    task: String,
    aggregate_json: String,
}

impl RemovedRow {
    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            shard: row.try_get("shard")?,
            tenant: row.try_get("tenant")?,
            provider: row.try_get("provider")?,
            created_ms: row.try_get("created_ms")?,
            task: row.try_get("task")?,
            aggregate_json: row.try_get("tally")?,
        })
    }
}

/// Lock slot of a tenant's id or task: a hash, because the number of locks per transaction is limited.
pub(super) fn lock_slot(tenant: &str, text: &str) -> u16 {
    let mut hash = Sha256::new();
    hash.update(tenant.len().to_le_bytes());
    hash.update(tenant);
    hash.update(text);
    let [a, b, ..] = *hash.finalize().first_chunk::<32>().unwrap_or(&[0; 32]);
    u16::from_le_bytes([a, b]) % LOCK_SLOTS
}

/// Builds a DELETE over the partitioned tables and the overflow tables, with the records' domains.
macro_rules! removing {
    ($using:literal, $of:literal, $of_days:literal) => {
        concat!(
            "WITH gone AS (DELETE FROM citetap_record r ",
            $using,
            " WHERE ",
            $of,
            $of_days,
            " RETURNING r.n, r.shard, r.tenant, r.provider, r.created_ms, r.task, r.tally),
             apart AS (DELETE FROM citetap_record_apart r ",
            $using,
            " WHERE ",
            $of,
            " RETURNING r.n, r.shard, r.tenant, r.provider, r.created_ms, r.task, r.tally),
             d AS (DELETE FROM citetap_domain d USING gone g WHERE d.n = g.n AND d.created_ms = g.created_ms),
             e AS (DELETE FROM citetap_domain_apart d USING apart g WHERE d.n = g.n)
             SELECT * FROM gone UNION ALL SELECT * FROM apart"
        )
    };
}

/// Includes rows before the horizon: a new row must replace them too.
const DELETE_BY_KEYS: &str = removing!(
    "USING unnest($1::text[], $2::text[], $3::text[]) AS a (tenant, provider, id)",
    "r.tenant = a.tenant AND r.id = a.id AND r.provider = a.provider",
    ""
);

const DELETE_BY_ID: &str = removing!(
    "",
    "r.tenant = $1 AND r.id = $2 AND ($3::text IS NULL OR r.provider = $3)",
    " AND r.created_ms >= (SELECT horizon_ms FROM citetap_meta)"
);

impl RecordChange<'_> {
    /// Stores the rows in place of those with the same keys. The caller has removed duplicate keys.
    pub(super) async fn put(&mut self, rows: &[EncodedRecord<'_>]) -> Result<(), PostgresError> {
        let keys = rows.iter().map(|row| lock_slot(&row.entry.tenant, &row.entry.record.message_id)).collect();
        self.lock(keys).await?;
        let layout = Layout::read(self.conn, rows.len()).await?;

        let text = |of: fn(&Entry) -> &str| rows.iter().map(|row| key(of(row.entry))).collect::<Vec<_>>();
        let (tenants, providers, ids) =
            (text(|entry| &entry.tenant), text(|entry| &entry.record.provider), text(|entry| &entry.record.message_id));
        let query = sqlx::query(DELETE_BY_KEYS).bind(&tenants).bind(&providers).bind(&ids);
        let removed = query.fetch_all(&mut *self.conn).await?;
        let removed = removed.iter().map(RemovedRow::read).collect::<Result<Vec<_>, _>>()?;

        let mut aggregates = ShardedAggregates::default();
        // Rows before the horizon were subtracted when it moved.
        for one in removed.iter().filter(|one| one.shard == OVERFLOW_SHARD || one.created_ms >= layout.horizon_ms) {
            aggregates.subtract(one.shard, &one.tenant, one.created_ms, &one.provider, &one.aggregate_json);
        }
        let mut new: [RecordColumns<'_>; 2] = Default::default();
        for (at, row) in rows.iter().enumerate() {
            let overflow = !layout.has_partition_for(row.entry.created_ms);
            let shard = if overflow { OVERFLOW_SHARD } else { self.shard };
            let n = layout.numbers.get(at).copied().unwrap_or_default();
            aggregates.add(shard, &tenants[at], row.entry.created_ms, &providers[at], &row.aggregate, 1);
            new[usize::from(overflow)].push(n, shard, row, [&tenants[at], &providers[at], &ids[at]]);
        }
        for (rows, statements) in new.into_iter().zip(INSERT) {
            rows.insert(self.conn, statements).await?;
        }

        // Refresh the cursors of tasks that lost a record, or whose newest record moved back in time.
        let has_later_row = |one: &&RemovedRow| {
            let later = |row: &&EncodedRecord<'_>| row.entry.created_ms >= one.created_ms;
            rows.iter().filter(later).any(|row| task_of(row) == (one.tenant.clone(), one.task.clone()))
        };
        let affected = removed
            .iter()
            .filter(|one| !has_later_row(one))
            .map(|one| (one.tenant.clone(), one.task.clone()))
            .collect();
        self.refresh_cursors(affected).await?;
        Ok(aggregates.apply(self.conn).await?)
    }

    pub(super) async fn delete(
        &mut self,
        tenant: &str,
        id: &str,
        provider: Option<&str>,
    ) -> Result<u64, PostgresError> {
        self.lock(BTreeSet::from([lock_slot(tenant, id)])).await?;
        let query = sqlx::query(DELETE_BY_ID).bind(key(tenant)).bind(key(id)).bind(provider.map(key));
        let removed = query.fetch_all(&mut *self.conn).await?;
        let removed = removed.iter().map(RemovedRow::read).collect::<Result<Vec<_>, _>>()?;
        let mut aggregates = ShardedAggregates::default();
        for one in &removed {
            aggregates.subtract(one.shard, &one.tenant, one.created_ms, &one.provider, &one.aggregate_json);
        }
        let number = removed.len() as u64;
        self.refresh_cursors(removed.into_iter().map(|one| (one.tenant, one.task)).collect()).await?;
        aggregates.apply(self.conn).await?;
        Ok(number)
    }

    /// Locks the layout (shared) and these keys.
    async fn lock(&mut self, keys: BTreeSet<u16>) -> Result<(), PostgresError> {
        let keys: Vec<i32> = keys.into_iter().map(|slot| AdvisoryLock::Key(slot).number()).collect();
        let query = "SELECT pg_advisory_xact_lock_shared($1, $2)::text
                     UNION ALL SELECT pg_advisory_xact_lock($1, k)::text FROM unnest($3::int[]) AS k";
        let query = sqlx::query(query).bind(self.schema.lock_class()).bind(AdvisoryLock::Layout.number()).bind(keys);
        query.execute(&mut *self.conn).await?;
        Ok(())
    }

    /// Updates or deletes the cursors of tasks that lost a record.
    async fn refresh_cursors(&mut self, affected: BTreeSet<Task>) -> Result<(), PostgresError> {
        if affected.is_empty() {
            return Ok(());
        }
        let slots: BTreeSet<u16> = affected.iter().map(|(tenant, task)| lock_slot(tenant, task)).collect();
        let slots: Vec<i32> = slots.into_iter().map(|slot| AdvisoryLock::Task(slot).number()).collect();
        let query = "SELECT pg_advisory_xact_lock($1, k)::text FROM unnest($2::int[]) AS k";
        sqlx::query(query).bind(self.schema.lock_class()).bind(slots).execute(&mut *self.conn).await?;
        cursors::refresh_cursors(self.conn, &affected).await
    }
}

fn task_of(row: &EncodedRecord<'_>) -> Task {
    (key(&row.entry.tenant).into_owned(), key(&task_id(&row.entry.record)).into_owned())
}

/// The horizon and partitions, stable while the layout lock is held.
struct Layout {
    horizon_ms: i64,
    parts: Vec<Partition>,
    /// Row numbers for the new rows.
    numbers: Vec<i64>,
}

impl Layout {
    async fn read(conn: &mut PgConnection, rows: usize) -> Result<Self, sqlx::Error> {
        let query = "SELECT horizon_ms, ARRAY(SELECT from_ms FROM citetap_part ORDER BY number) AS starts,
                     ARRAY(SELECT to_ms FROM citetap_part ORDER BY number) AS ends,
                     ARRAY(SELECT nextval('citetap_n') FROM generate_series(1, $1)) AS numbers FROM citetap_meta";
        let row = sqlx::query(query).bind(sql_int(rows)).fetch_one(conn).await?;
        let (starts, ends): (Vec<i64>, Vec<i64>) = (row.try_get("starts")?, row.try_get("ends")?);
        let parts = starts.into_iter().zip(ends).map(|(from_ms, to_ms)| Partition { from_ms, to_ms }).collect();
        Ok(Self { horizon_ms: row.try_get("horizon_ms")?, parts, numbers: row.try_get("numbers")? })
    }

    /// True if a partition takes this time and the horizon does not hide it.
    fn has_partition_for(&self, created_ms: i64) -> bool {
        created_ms >= self.horizon_ms && self.parts.iter().any(|part| part.contains(created_ms))
    }
}

macro_rules! inserting {
    ($table:literal) => {
        concat!(
            "INSERT INTO ",
            $table,
            " (n, shard, tenant, provider, id, created_ms, conversation, task, body, search, tally)
             SELECT * FROM unnest($1::bigint[], $2::smallint[], $3::text[], $4::text[], $5::text[], $6::bigint[],
             $7::text[], $8::text[], $9::text[], $10::text[], $11::text[])"
        )
    };
}

macro_rules! inserting_domains {
    ($table:literal) => {
        concat!(
            "INSERT INTO ",
            $table,
            " (n, tenant, created_ms, domain) SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::text[])"
        )
    };
}

/// INSERT statements for records and domains: into the partitioned and the overflow tables.
const INSERT: [[&str; 2]; 2] = [
    [inserting!("citetap_record"), inserting_domains!("citetap_domain")],
    [inserting!("citetap_record_apart"), inserting_domains!("citetap_domain_apart")],
];

/// New rows for one kind of table, as column arrays.
#[derive(Default)]
struct RecordColumns<'a> {
    n: Vec<i64>,
    shard: Vec<i16>,
    tenant: Vec<&'a str>,
    provider: Vec<&'a str>,
    id: Vec<&'a str>,
    created_ms: Vec<i64>,
    conversation: Vec<Option<String>>,
    task: Vec<String>,
    body: Vec<&'a str>,
    search: Vec<String>,
    aggregate_json: Vec<&'a str>,
    domains: DomainColumns<'a>,
}

#[derive(Default)]
struct DomainColumns<'a> {
    n: Vec<i64>,
    tenant: Vec<&'a str>,
    created_ms: Vec<i64>,
    domain: Vec<&'a str>,
}

impl<'a> RecordColumns<'a> {
    fn push(&mut self, n: i64, shard: i16, row: &'a EncodedRecord<'_>, [tenant, provider, id]: [&'a str; 3]) {
        let Entry { created_ms, record, .. } = row.entry;
        self.n.push(n);
        self.shard.push(shard);
        self.tenant.push(tenant);
        self.provider.push(provider);
        self.id.push(id);
        self.created_ms.push(*created_ms);
        self.conversation.push(record.conversation_id.as_deref().map(|text| key(text).into_owned()));
        self.task.push(key(&task_id(record)).into_owned());
        // serde_json escapes NUL, so the body needs no escaping.
        self.body.push(&row.body);
        self.search.push(escape(&row.search).into_owned());
        self.aggregate_json.push(&row.aggregate_json);
        for domain in &row.domains {
            self.domains.n.push(n);
            self.domains.tenant.push(tenant);
            self.domains.created_ms.push(*created_ms);
            self.domains.domain.push(domain);
        }
    }

    async fn insert(self, conn: &mut PgConnection, statements: [&'static str; 2]) -> Result<(), sqlx::Error> {
        let [records, domains] = statements;
        if self.n.is_empty() {
            return Ok(());
        }
        sqlx::query(records)
            .bind(self.n)
            .bind(self.shard)
            .bind(self.tenant)
            .bind(self.provider)
            .bind(self.id)
            .bind(self.created_ms)
            .bind(self.conversation)
            .bind(self.task)
            .bind(self.body)
            .bind(self.search)
            .bind(self.aggregate_json)
            .execute(&mut *conn)
            .await?;
        let DomainColumns { n, tenant, created_ms, domain } = self.domains;
        if !n.is_empty() {
            sqlx::query(domains).bind(n).bind(tenant).bind(created_ms).bind(domain).execute(conn).await?;
        }
        Ok(())
    }
}

//! One transaction that changes records: what it locks, what it takes away, what it puts in place.

use std::collections::BTreeSet;

use sha2::{Digest as _, Sha256};
use sqlx::{PgConnection, Row as _, postgres::PgRow};

use super::{
    daily::{APART, Sharded},
    error::Fault,
    parts::Part,
    schema::{Lock, Place, SLOTS},
    tasks,
    text::{escape, key},
};
use crate::{
    citation::bundle::task_id,
    store::{Entry, packed::Packed, sums::count},
};

pub(super) struct Change<'a> {
    pub(super) conn: &'a mut PgConnection,
    pub(super) place: &'a Place,
    pub(super) shard: i16,
}

/// Tenant and task, as the tables have them.
pub(super) type Task = (String, String);

/// A row that was removed.
struct Gone {
    shard: i16,
    tenant: String,
    provider: String,
    created_ms: i64,
    task: String,
    tally: String,
}

impl Gone {
    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            shard: row.try_get("shard")?,
            tenant: row.try_get("tenant")?,
            provider: row.try_get("provider")?,
            created_ms: row.try_get("created_ms")?,
            task: row.try_get("task")?,
            tally: row.try_get("tally")?,
        })
    }
}

/// Of a text such as an id, and whose it is.
pub(super) fn slot(tenant: &str, text: &str) -> u16 {
    let mut hash = Sha256::new();
    hash.update(tenant.len().to_le_bytes());
    hash.update(tenant);
    hash.update(text);
    let [a, b, ..] = *hash.finalize().first_chunk::<32>().unwrap_or(&[0; 32]);
    u16::from_le_bytes([a, b]) % SLOTS
}

/// A statement that removes records from both kinds of tables, with their domains.
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

/// Those before the horizon as well: their place is needed.
const REPLACED: &str = removing!(
    "USING unnest($1::text[], $2::text[], $3::text[]) AS a (tenant, provider, id)",
    "r.tenant = a.tenant AND r.id = a.id AND r.provider = a.provider",
    ""
);

const DELETED: &str = removing!(
    "",
    "r.tenant = $1 AND r.id = $2 AND ($3::text IS NULL OR r.provider = $3)",
    " AND r.created_ms >= (SELECT horizon_ms FROM citetap_meta)"
);

impl Change<'_> {
    /// Last write wins whole: of several entries with one key the last is stored.
    pub(super) async fn put(&mut self, rows: &[Packed<'_>]) -> Result<(), Fault> {
        let keys = rows.iter().map(|row| slot(&row.entry.tenant, &row.entry.record.message_id)).collect();
        self.lock(keys).await?;
        let layout = Layout::read(self.conn, rows.len()).await?;

        let text = |of: fn(&Entry) -> &str| rows.iter().map(|row| key(of(row.entry))).collect::<Vec<_>>();
        let (tenants, providers, ids) =
            (text(|entry| &entry.tenant), text(|entry| &entry.record.provider), text(|entry| &entry.record.message_id));
        let query = sqlx::query(REPLACED).bind(&tenants).bind(&providers).bind(&ids);
        let gone = query.fetch_all(&mut *self.conn).await?;
        let gone = gone.iter().map(Gone::read).collect::<Result<Vec<_>, _>>()?;

        let mut sums = Sharded::default();
        // Those of before the horizon count no more.
        for one in gone.iter().filter(|one| one.shard == APART || one.created_ms >= layout.horizon_ms) {
            sums.take(one.shard, &one.tenant, one.created_ms, &one.provider, &one.tally);
        }
        let mut new: [Rows<'_>; 2] = Default::default();
        for (at, row) in rows.iter().enumerate() {
            let apart = !layout.takes(row.entry.created_ms);
            let shard = if apart { APART } else { self.shard };
            let n = layout.numbers.get(at).copied().unwrap_or_default();
            sums.add(shard, &tenants[at], row.entry.created_ms, &providers[at], &row.tally, 1);
            new[usize::from(apart)].push(n, shard, row, [&tenants[at], &providers[at], &ids[at]]);
        }
        for (rows, statements) in new.into_iter().zip(INSERT) {
            rows.insert(self.conn, statements).await?;
        }

        // A task that has lost a record, or whose record was moved back, has another newest one.
        let stays = |one: &&Gone| {
            let later = |row: &&Packed<'_>| row.entry.created_ms >= one.created_ms;
            rows.iter().filter(later).any(|row| task_of(row) == (one.tenant.clone(), one.task.clone()))
        };
        let left = gone.iter().filter(|one| !stays(one)).map(|one| (one.tenant.clone(), one.task.clone())).collect();
        self.settle(left).await?;
        Ok(sums.apply(self.conn).await?)
    }

    pub(super) async fn delete(&mut self, tenant: &str, id: &str, provider: Option<&str>) -> Result<u64, Fault> {
        self.lock(BTreeSet::from([slot(tenant, id)])).await?;
        let query = sqlx::query(DELETED).bind(key(tenant)).bind(key(id)).bind(provider.map(key));
        let gone = query.fetch_all(&mut *self.conn).await?;
        let gone = gone.iter().map(Gone::read).collect::<Result<Vec<_>, _>>()?;
        let mut sums = Sharded::default();
        for one in &gone {
            sums.take(one.shard, &one.tenant, one.created_ms, &one.provider, &one.tally);
        }
        let number = gone.len() as u64;
        self.settle(gone.into_iter().map(|one| (one.tenant, one.task)).collect()).await?;
        sums.apply(self.conn).await?;
        Ok(number)
    }

    /// The layout, and these keys.
    async fn lock(&mut self, keys: BTreeSet<u16>) -> Result<(), Fault> {
        let keys: Vec<i32> = keys.into_iter().map(|slot| Lock::Key(slot).number()).collect();
        let query = "SELECT pg_advisory_xact_lock_shared($1, $2)::text
                     UNION ALL SELECT pg_advisory_xact_lock($1, k)::text FROM unnest($3::int[]) AS k";
        let query = sqlx::query(query).bind(self.place.class()).bind(Lock::Layout.number()).bind(keys);
        query.execute(&mut *self.conn).await?;
        Ok(())
    }

    /// Cursors go with the last record of their task.
    async fn settle(&mut self, left: BTreeSet<Task>) -> Result<(), Fault> {
        if left.is_empty() {
            return Ok(());
        }
        let slots: BTreeSet<u16> = left.iter().map(|(tenant, task)| slot(tenant, task)).collect();
        let slots: Vec<i32> = slots.into_iter().map(|slot| Lock::Task(slot).number()).collect();
        let query = "SELECT pg_advisory_xact_lock($1, k)::text FROM unnest($2::int[]) AS k";
        sqlx::query(query).bind(self.place.class()).bind(slots).execute(&mut *self.conn).await?;
        tasks::settle(self.conn, &left).await
    }
}

fn task_of(row: &Packed<'_>) -> Task {
    (key(&row.entry.tenant).into_owned(), key(&task_id(&row.entry.record)).into_owned())
}

/// Where records go, of one moment: nobody changes it while the layout is locked.
struct Layout {
    horizon_ms: i64,
    parts: Vec<Part>,
    /// As many new ones as were asked for.
    numbers: Vec<i64>,
}

impl Layout {
    async fn read(conn: &mut PgConnection, rows: usize) -> Result<Self, sqlx::Error> {
        let query = "SELECT horizon_ms, ARRAY(SELECT from_ms FROM citetap_part ORDER BY number) AS starts,
                     ARRAY(SELECT to_ms FROM citetap_part ORDER BY number) AS ends,
                     ARRAY(SELECT nextval('citetap_n') FROM generate_series(1, $1)) AS numbers FROM citetap_meta";
        let row = sqlx::query(query).bind(count(rows)).fetch_one(conn).await?;
        let (starts, ends): (Vec<i64>, Vec<i64>) = (row.try_get("starts")?, row.try_get("ends")?);
        let parts = starts.into_iter().zip(ends).map(|(from_ms, to_ms)| Part { from_ms, to_ms }).collect();
        Ok(Self { horizon_ms: row.try_get("horizon_ms")?, parts, numbers: row.try_get("numbers")? })
    }

    /// Is there a day for it that is not gone, even in part?
    fn takes(&self, created_ms: i64) -> bool {
        created_ms >= self.horizon_ms && self.parts.iter().any(|part| part.has(created_ms))
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

/// Records and their domains: into the days, and apart.
const INSERT: [[&str; 2]; 2] = [
    [inserting!("citetap_record"), inserting_domains!("citetap_domain")],
    [inserting!("citetap_record_apart"), inserting_domains!("citetap_domain_apart")],
];

/// New rows of one kind of table, column by column.
#[derive(Default)]
struct Rows<'a> {
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
    tally: Vec<&'a str>,
    domains: Domains<'a>,
}

#[derive(Default)]
struct Domains<'a> {
    n: Vec<i64>,
    tenant: Vec<&'a str>,
    created_ms: Vec<i64>,
    domain: Vec<&'a str>,
}

impl<'a> Rows<'a> {
    fn push(&mut self, n: i64, shard: i16, row: &'a Packed<'_>, [tenant, provider, id]: [&'a str; 3]) {
        let Entry { created_ms, record, .. } = row.entry;
        self.n.push(n);
        self.shard.push(shard);
        self.tenant.push(tenant);
        self.provider.push(provider);
        self.id.push(id);
        self.created_ms.push(*created_ms);
        self.conversation.push(record.conversation_id.as_deref().map(|text| key(text).into_owned()));
        self.task.push(key(&task_id(record)).into_owned());
        // JSON has no NUL of its own.
        self.body.push(&row.body);
        self.search.push(escape(&row.search).into_owned());
        self.tally.push(&row.tally_json);
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
            .bind(self.tally)
            .execute(&mut *conn)
            .await?;
        let Domains { n, tenant, created_ms, domain } = self.domains;
        if !n.is_empty() {
            sqlx::query(domains).bind(n).bind(tenant).bind(created_ms).bind(domain).execute(conn).await?;
        }
        Ok(())
    }
}

//! The tables: made by whoever comes first, refused where they are newer than this program.

use sqlx::{Connection as _, PgConnection};

use super::{
    error::{Fault, said},
    link,
};

/// Applied in order; `citetap_meta` says how many there were. Never edit one that was released.
const MIGRATIONS: [&str; 1] = [include_str!("../migrations/postgres/0001_records.sql")];

/// Where the tables are. Advisory locks and channels are the database's: what tells ours from those of another schema.
#[derive(Debug, Clone)]
pub(super) struct Place {
    schema: u32,
}

/// What a lock is on. Those who take several take them in this order; of several keys, or tasks, the lower first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lock {
    /// Horizon and days. Who writes records shares it, who moves the horizon has it alone.
    Layout,
    /// A slot of (tenant, id): who writes records of an id.
    Key(u16),
    /// A slot of (tenant, task): who writes cursors of a task.
    Task(u16),
    /// Who makes tables.
    Tables,
    /// Who sweeps.
    Sweep,
}

/// Slots of a kind: the number of locks that one transaction can take has a bound.
pub(super) const SLOTS: u16 = 1024;

impl Place {
    pub(super) fn channel(&self) -> String {
        format!("citetap_{}", self.schema)
    }

    /// The first of the two numbers of an advisory lock.
    pub(super) fn class(&self) -> i32 {
        i32::from_ne_bytes(self.schema.to_ne_bytes())
    }
}

impl Lock {
    /// The second number.
    pub(super) fn number(self) -> i32 {
        match self {
            Self::Key(slot) => i32::from(slot),
            Self::Task(slot) => i32::from(SLOTS) + i32::from(slot),
            Self::Layout => -1,
            Self::Tables => -2,
            Self::Sweep => -3,
        }
    }
}

/// Makes the schema one of the current version, or says why it cannot be one. Several may do this at once: one does it,
/// the others wait and then find nothing left to do.
pub(super) async fn prepare(conn: &mut PgConnection) -> Result<Place, Fault> {
    link::look(conn).await?;
    let query = "SELECT n.oid::bigint, current_schema() FROM pg_namespace n WHERE n.nspname = current_schema()";
    let found: Option<(i64, String)> = sqlx::query_as(query).fetch_optional(&mut *conn).await?;
    let Some((oid, _)) = found else {
        return Err(said("search_path names no schema that is there; create it (CREATE SCHEMA) or name another").into());
    };
    let place = Place { schema: u32::try_from(oid).unwrap_or_default() };
    // Looked at first: a user who may not create tables can use those that are there, and so can a standby.
    if version(conn).await? == MIGRATIONS.len() {
        return Ok(place);
    }
    let mut tx = conn.begin().await?;
    let query = sqlx::query("SELECT pg_advisory_xact_lock($1, $2)").bind(place.class()).bind(Lock::Tables.number());
    query.execute(&mut *tx).await?;
    let done = version(&mut tx).await?;
    for sql in MIGRATIONS.iter().skip(done) {
        sqlx::raw_sql(*sql).execute(&mut *tx).await?;
    }
    let known = i32::try_from(MIGRATIONS.len()).unwrap_or(i32::MAX);
    sqlx::query("UPDATE citetap_meta SET schema = $1").bind(known).execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(place)
}

/// How many migrations the schema has had.
async fn version(conn: &mut PgConnection) -> Result<usize, Fault> {
    // Not to_regclass(): in a transaction that has waited for a lock, that still knows what was before.
    let query = "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                 WHERE n.nspname = current_schema() AND c.relname = 'citetap_meta')";
    let there: bool = sqlx::query_scalar(query).fetch_one(&mut *conn).await?;
    if !there {
        return Ok(0);
    }
    let version: i32 = sqlx::query_scalar("SELECT schema FROM citetap_meta").fetch_one(&mut *conn).await?;
    let known = MIGRATIONS.len();
    usize::try_from(version).ok().filter(|version| *version <= known).ok_or_else(|| {
        said(&format!(
            "the tables were made by a newer citetap (schema {version}, this one knows up to {known}); run that version or \
             newer, or name another schema or database"
        ))
        .into()
    })
}

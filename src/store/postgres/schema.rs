//! Schema setup: created by the first replica, refused if newer than this program.

use sqlx::{Connection as _, PgConnection};

use super::{
    error::{PostgresError, engine_error},
    pool,
};

/// Applied in order; `citetap_meta` has the number applied. Never edit a released migration.
const MIGRATIONS: [&str; 1] = [include_str!("../migrations/postgres/0001_records.sql")];

/// Identifies the schema. Advisory locks and channels are per database, so its OID keeps ours apart from those of other
/// schemas.
#[derive(Debug, Clone)]
pub(super) struct SchemaId {
    schema: u32,
}

/// Advisory locks. Acquire several in this order, and keys or tasks in ascending order, to avoid deadlocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AdvisoryLock {
    /// The horizon and the partitions: shared by writers of records, exclusive while the horizon moves.
    Layout,
    /// Slot of (tenant, id), held to write records of an id.
    Key(u16),
    /// Slot of (tenant, task), held to write cursors of a task.
    Task(u16),
    /// Held to create tables.
    Tables,
    /// Held to sweep.
    Sweep,
}

/// Lock slots per kind (PostgreSQL limits the locks of a transaction).
pub(super) const LOCK_SLOTS: u16 = 1024;

impl SchemaId {
    pub(super) fn channel(&self) -> String {
        format!("citetap_{}", self.schema)
    }

    /// First key of our advisory locks.
    pub(super) fn lock_class(&self) -> i32 {
        i32::from_ne_bytes(self.schema.to_ne_bytes())
    }
}

impl AdvisoryLock {
    /// Second key of the advisory lock.
    pub(super) fn number(self) -> i32 {
        match self {
            Self::Key(slot) => i32::from(slot),
            Self::Task(slot) => i32::from(LOCK_SLOTS) + i32::from(slot),
            Self::Layout => -1,
            Self::Tables => -2,
            Self::Sweep => -3,
        }
    }
}

/// Creates or migrates the schema to the current version, or returns why it cannot be used. If several replicas start
/// at once, one migrates; the others wait and find nothing to do.
pub(super) async fn prepare(conn: &mut PgConnection) -> Result<SchemaId, PostgresError> {
    pool::check_server(conn).await?;
    let query = "SELECT n.oid::bigint, current_schema() FROM pg_namespace n WHERE n.nspname = current_schema()";
    let found: Option<(i64, String)> = sqlx::query_as(query).fetch_optional(&mut *conn).await?;
    let Some((oid, _)) = found else {
        return Err(engine_error(
            "search_path names no schema that is there; create it (CREATE SCHEMA) or name another",
        )
        .into());
    };
    let schema = SchemaId { schema: u32::try_from(oid).unwrap_or_default() };
    // Check before locking: a user without CREATE permission, or a standby, can use existing tables.
    if version(conn).await? == MIGRATIONS.len() {
        return Ok(schema);
    }
    let mut tx = conn.begin().await?;
    let query = sqlx::query("SELECT pg_advisory_xact_lock($1, $2)")
        .bind(schema.lock_class())
        .bind(AdvisoryLock::Tables.number());
    query.execute(&mut *tx).await?;
    let done = version(&mut tx).await?;
    for sql in MIGRATIONS.iter().skip(done) {
        sqlx::raw_sql(*sql).execute(&mut *tx).await?;
    }
    let known = i32::try_from(MIGRATIONS.len()).unwrap_or(i32::MAX);
    sqlx::query("UPDATE citetap_meta SET schema = $1").bind(known).execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(schema)
}

/// Number of migrations applied to the schema.
async fn version(conn: &mut PgConnection) -> Result<usize, PostgresError> {
    // Not to_regclass(): in a transaction that waited for a lock it still sees the old catalog.
    let query = "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                 WHERE n.nspname = current_schema() AND c.relname = 'citetap_meta')";
    let there: bool = sqlx::query_scalar(query).fetch_one(&mut *conn).await?;
    if !there {
        return Ok(0);
    }
    let version: i32 = sqlx::query_scalar("SELECT schema FROM citetap_meta").fetch_one(&mut *conn).await?;
    let known = MIGRATIONS.len();
    usize::try_from(version).ok().filter(|version| *version <= known).ok_or_else(|| {
        engine_error(&format!(
            "the tables were made by a newer citetap (schema {version}, this one knows up to {known}); run that version or \
             newer, or name another schema or database"
        ))
        .into()
    })
}

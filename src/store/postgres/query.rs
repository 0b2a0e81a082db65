//! Read queries. For every filter an index provides the order, and reading stops at the end of the page.
//!
//! Every query covers the partitioned tables and the overflow tables and merges both. The horizon is read within the
//! statement, so it is never stale.

use sqlx::{Postgres, QueryBuilder, Row as _, postgres::PgRow};

use super::{
    error::PostgresError,
    text::{escape, key},
};
use crate::store::{
    Entry, Filter,
    encoded::decode,
    page::PAGE_BYTES,
    sql_list::{self, Dialect, Tables},
    sql_report::sql_int,
};

const DIALECT: Dialect = Dialect {
    key: |text| key(text).into_owned(),
    text: |text| escape(text).into_owned(),
    find_fn: "strpos",
    provider_column: "r.provider",
};

/// The partitioned tables, which the horizon applies to, and the overflow tables.
const TABLES: [Tables; 2] = [
    Tables {
        records: "citetap_record",
        domains: "citetap_domain",
        join: "JOIN citetap_record r ON r.n = d.n AND r.created_ms = d.created_ms",
        condition: " AND {created} >= (SELECT horizon_ms FROM citetap_meta)",
    },
    Tables {
        records: "citetap_record_apart",
        domains: "citetap_domain_apart",
        join: "JOIN citetap_record_apart r ON r.n = d.n AND r.created_ms = d.created_ms",
        condition: "",
    },
];

macro_rules! of_id {
    ($table:literal, $of_days:literal) => {
        concat!(
            "(SELECT created_ms, provider, id, body FROM ",
            $table,
            " WHERE tenant = $1 AND id = $2 AND ($3::text IS NULL OR provider = $3)",
            $of_days,
            " ORDER BY created_ms DESC, provider LIMIT 1)"
        )
    };
}

pub(super) const GET: &str = concat!(
    "SELECT * FROM (",
    of_id!("citetap_record", " AND created_ms >= (SELECT horizon_ms FROM citetap_meta)"),
    " UNION ALL ",
    of_id!("citetap_record_apart", ""),
    ") AS found ORDER BY created_ms DESC, provider LIMIT 1"
);

/// The first rows of both kinds of tables. Beyond the size limit of a page bodies are NULL, because the server sends
/// everything it selects.
pub(super) fn list(tenant: &str, filter: &Filter, rows: usize) -> QueryBuilder<Postgres> {
    let order = if filter.task.is_some() { "created_ms, provider, id" } else { "created_ms DESC, provider, id" };
    let mut query = QueryBuilder::new(format!(
        "SELECT created_ms, provider, id, CASE WHEN before < {PAGE_BYTES} THEN body END AS body
         FROM (SELECT *, sum(octet_length(body)) OVER (ORDER BY {order} ROWS UNBOUNDED PRECEDING) - octet_length(body)
         AS before FROM (("
    ));
    for (at, tables) in TABLES.iter().enumerate() {
        query.push(if at == 0 { "" } else { ") UNION ALL (" });
        sql_list::push_list(&mut query, &DIALECT, tables, tenant, filter);
        query.push_bind(sql_int(rows));
    }
    query.push(format_args!(")) AS found) AS weighed ORDER BY {order} LIMIT ")).push_bind(sql_int(rows));
    query
}

/// Decodes a row into an entry and its weight; `None` if the page was full before it.
pub(super) fn read(tenant: &str, row: &PgRow) -> Result<Option<(Entry, usize)>, PostgresError> {
    let Some(body) = row.try_get::<Option<&str>, _>("body")? else { return Ok(None) };
    let stored: (&str, &str) = (row.try_get("provider")?, row.try_get("id")?);
    let is_key = |provider: &str, id: &str| stored == (&*key(provider), &*key(id));
    let entry = decode("postgres", tenant, row.try_get("created_ms")?, body, is_key)?;
    Ok(Some((entry, body.len())))
}

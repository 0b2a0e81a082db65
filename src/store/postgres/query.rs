//! What reads records: whatever is asked, an index gives the order and the reading stops at the page's end.
//!
//! Every question goes to the days and to what is apart, and the two answers are put together. The horizon is read in the
//! statement itself, so nobody sees one that was.

use sqlx::{Postgres, QueryBuilder, Row as _, postgres::PgRow};

use super::error::Fault;
use super::text::{escape, key};
use crate::store::{Cursor, Entry, Filter, packed::unpack, page::PAGE_BYTES, sums::count, terms};

/// The tables of records, those of their domains, and which of them the horizon is for.
const TABLES: [(&str, &str, bool); 2] =
    [("citetap_record", "citetap_domain", true), ("citetap_record_apart", "citetap_domain_apart", false)];

const HORIZON: &str = "(SELECT horizon_ms FROM citetap_meta)";

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

pub(super) fn list(tenant: &str, filter: &Filter, rows: usize) -> QueryBuilder<Postgres> {
    page("created_ms DESC, provider, id", rows, |query, (records, domains, of_days)| {
        query.push("SELECT r.created_ms, r.provider, r.id, r.body FROM ");
        // The column that the driving index orders by.
        let created = if let Some(domain) = &filter.domain {
            query.push(format_args!(
                "{domains} d JOIN {records} r ON r.n = d.n AND r.created_ms = d.created_ms WHERE d.tenant = "
            ));
            query.push_bind(key(tenant).into_owned());
            query.push(" AND d.domain = ").push_bind(escape(&terms::asked_domain(domain)).into_owned());
            "d.created_ms"
        } else {
            query.push(format_args!("{records} r WHERE r.tenant = ")).push_bind(key(tenant).into_owned());
            "r.created_ms"
        };
        if of_days {
            query.push(format_args!(" AND {created} >= {HORIZON}"));
        }
        if let Some(conversation) = &filter.conversation {
            query.push(" AND r.conversation = ").push_bind(key(conversation).into_owned());
        }
        if let Some(provider) = &filter.provider {
            query.push(" AND r.provider = ").push_bind(key(provider).into_owned());
        }
        if let Some(since) = filter.since_ms {
            query.push(format_args!(" AND {created} >= ")).push_bind(since);
        }
        if let Some(until) = filter.until_ms {
            query.push(format_args!(" AND {created} < ")).push_bind(until);
        }
        if let Some(cursor) = &filter.cursor {
            query.push(format_args!(" AND {created} <= ")).push_bind(cursor.created_ms);
            query.push(format_args!(" AND ({created} < ")).push_bind(cursor.created_ms);
            query.push(" OR (r.provider, r.id) > (").push_bind(key(&cursor.provider).into_owned());
            query.push(", ").push_bind(key(&cursor.id).into_owned()).push("))");
        }
        if let Some(q) = &filter.q {
            query.push(" AND strpos(r.search, ").push_bind(escape(&q.to_lowercase()).into_owned()).push(") > 0");
        }
        query.push(format_args!(" ORDER BY {created} DESC, r.provider, r.id LIMIT "));
    })
}

pub(super) fn task(tenant: &str, task: &str, after: Option<&Cursor>, rows: usize) -> QueryBuilder<Postgres> {
    page("created_ms, provider, id", rows, |query, (records, _, of_days)| {
        query.push(format_args!("SELECT created_ms, provider, id, body FROM {records} WHERE tenant = "));
        query.push_bind(key(tenant).into_owned());
        query.push(" AND task = ").push_bind(key(task).into_owned());
        if of_days {
            query.push(format_args!(" AND created_ms >= {HORIZON}"));
        }
        if let Some(after) = after {
            // The first alone tells which days can be left out.
            query.push(" AND created_ms >= ").push_bind(after.created_ms);
            query.push(" AND (created_ms, provider, id) > (").push_bind(after.created_ms);
            query.push(", ").push_bind(key(&after.provider).into_owned());
            query.push(", ").push_bind(key(&after.id).into_owned()).push(")");
        }
        query.push(" ORDER BY created_ms, provider, id LIMIT ");
    })
}

/// The first rows of both kinds of tables, of which `each` writes the query but for its limit. Beyond the weight of a page
/// bodies are left out: whoever reads has no room for them, and all that is answered is sent.
fn page(
    order: &'static str,
    rows: usize,
    each: impl Fn(&mut QueryBuilder<Postgres>, (&'static str, &'static str, bool)),
) -> QueryBuilder<Postgres> {
    let mut query = QueryBuilder::new(format!(
        "SELECT created_ms, provider, id, CASE WHEN before < {PAGE_BYTES} THEN body END AS body
         FROM (SELECT *, sum(octet_length(body)) OVER (ORDER BY {order} ROWS UNBOUNDED PRECEDING) - octet_length(body)
         AS before FROM (("
    ));
    for (at, tables) in TABLES.into_iter().enumerate() {
        if at > 0 {
            query.push(") UNION ALL (");
        }
        each(&mut query, tables);
        query.push_bind(count(rows));
    }
    query.push(format_args!(")) AS found) AS weighed ORDER BY {order} LIMIT ")).push_bind(count(rows));
    query
}

/// The entry in a row and its weight; `None` where its page was full before it.
pub(super) fn read(tenant: &str, row: &PgRow) -> Result<Option<(Entry, usize)>, Fault> {
    let Some(body) = row.try_get::<Option<&str>, _>("body")? else { return Ok(None) };
    let stored: (&str, &str) = (row.try_get("provider")?, row.try_get("id")?);
    let is_key = |provider: &str, id: &str| stored == (&*key(provider), &*key(id));
    let entry = unpack("postgres", tenant, row.try_get("created_ms")?, body, is_key)?;
    Ok(Some((entry, body.len())))
}

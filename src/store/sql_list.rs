//! The list query, shared by the SQL engines.

use sqlx::{Database, Encode, QueryBuilder, Type};

use super::{Filter, terms};

/// How an engine encodes and searches text.
pub(super) struct Dialect {
    /// Encodes text for an indexed column.
    pub(super) key: fn(&str) -> String,
    /// Encodes text for a searched column.
    pub(super) text: fn(&str) -> String,
    /// Function that returns the position of one string in another. Not LIKE, whose wildcards need escaping and which
    /// refuses long patterns.
    pub(super) find_fn: &'static str,
    pub(super) provider_column: &'static str,
}

/// Tables of one list query.
pub(super) struct Tables {
    pub(super) records: &'static str,
    pub(super) domains: &'static str,
    /// Joins a domain's rows `d` to their records `r`.
    pub(super) join: &'static str,
    /// Additional condition on the record, in terms of its column `{created}`.
    pub(super) condition: &'static str,
}

/// Appends the list query up to its LIMIT value. An index provides the order for every combination of filters, so the
/// database stops reading at the end of the page.
pub(super) fn push_list<DB>(
    query: &mut QueryBuilder<DB>,
    dialect: &Dialect,
    tables: &Tables,
    tenant: &str,
    filter: &Filter,
) where
    DB: Database,
    for<'q> i64: Encode<'q, DB> + Type<DB>,
    for<'q> String: Encode<'q, DB> + Type<DB>,
{
    let Dialect { key, text, find_fn, provider_column } = dialect;
    let Tables { records, domains, join, condition } = tables;
    query.push("SELECT r.created_ms, r.provider, r.id, r.body FROM ");
    // The column by which the driving index is ordered.
    let created = if let Some(domain) = &filter.domain {
        query.push(format_args!("{domains} d {join} WHERE d.tenant = ")).push_bind(key(tenant));
        query.push(" AND d.domain = ").push_bind(text(&terms::query_domain(domain)));
        "d.created_ms"
    } else {
        query.push(format_args!("{records} r WHERE r.tenant = ")).push_bind(key(tenant));
        "r.created_ms"
    };
    query.push(condition.replace("{created}", created));
    if let Some(task) = &filter.task {
        query.push(" AND r.task = ").push_bind(key(task));
    }
    if let Some(conversation) = &filter.conversation {
        query.push(" AND r.conversation = ").push_bind(key(conversation));
    }
    if let Some(provider) = &filter.provider {
        query.push(format_args!(" AND {provider_column} = ")).push_bind(key(provider));
    }
    if let Some(since) = filter.since_ms {
        query.push(format_args!(" AND {created} >= ")).push_bind(since);
    }
    if let Some(until) = filter.until_ms {
        query.push(format_args!(" AND {created} < ")).push_bind(until);
    }
    let (after, order) = if filter.task.is_some() { (">", "") } else { ("<", " DESC") };
    if let Some(cursor) = &filter.cursor {
        // Redundant, but only a plain comparison bounds the index scan.
        query.push(format_args!(" AND {created} {after}= ")).push_bind(cursor.created_ms);
        query.push(format_args!(" AND ({created} {after} ")).push_bind(cursor.created_ms);
        query.push(" OR (r.provider, r.id) > (").push_bind(key(&cursor.provider));
        query.push(", ").push_bind(key(&cursor.id)).push("))");
    }
    if let Some(q) = &filter.q {
        query.push(format_args!(" AND {find_fn}(r.search, ")).push_bind(text(&q.to_lowercase())).push(") > 0");
    }
    query.push(format_args!(" ORDER BY {created}{order}, r.provider, r.id LIMIT "));
}

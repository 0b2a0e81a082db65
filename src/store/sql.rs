//! What the SQL engines have in common where they list records.

use sqlx::{Database, Encode, QueryBuilder, Type};

use super::{Filter, terms};

/// How an engine keeps and finds text.
pub(super) struct Dialect {
    /// A text as a column that an index has.
    pub(super) key: fn(&str) -> String,
    /// A text as a column that is searched.
    pub(super) text: fn(&str) -> String,
    /// The function that finds a text in another. Not LIKE: that has wildcards to escape and refuses long patterns.
    pub(super) find: &'static str,
    pub(super) provider: &'static str,
}

/// The tables that one query reads.
pub(super) struct Tables {
    pub(super) records: &'static str,
    pub(super) domains: &'static str,
    /// From a domain's rows `d` to their records `r`.
    pub(super) join: &'static str,
    /// What else a record has to meet, of its column `{created}`.
    pub(super) only: &'static str,
}

/// Pushes a query of the list but for its limit. Whatever is filtered, an index gives the order, so that the reading stops
/// at the page's end.
pub(super) fn list<DB>(query: &mut QueryBuilder<DB>, dialect: &Dialect, tables: &Tables, tenant: &str, filter: &Filter)
where
    DB: Database,
    for<'q> i64: Encode<'q, DB> + Type<DB>,
    for<'q> String: Encode<'q, DB> + Type<DB>,
{
    let Dialect { key, text, find, provider } = dialect;
    let Tables { records, domains, join, only } = tables;
    query.push("SELECT r.created_ms, r.provider, r.id, r.body FROM ");
    // The column that the driving index orders by.
    let created = if let Some(domain) = &filter.domain {
        query.push(format_args!("{domains} d {join} WHERE d.tenant = ")).push_bind(key(tenant));
        query.push(" AND d.domain = ").push_bind(text(&terms::asked_domain(domain)));
        "d.created_ms"
    } else {
        query.push(format_args!("{records} r WHERE r.tenant = ")).push_bind(key(tenant));
        "r.created_ms"
    };
    query.push(only.replace("{created}", created));
    if let Some(task) = &filter.task {
        query.push(" AND r.task = ").push_bind(key(task));
    }
    if let Some(conversation) = &filter.conversation {
        query.push(" AND r.conversation = ").push_bind(key(conversation));
    }
    if let Some(asked) = &filter.provider {
        query.push(format_args!(" AND {provider} = ")).push_bind(key(asked));
    }
    if let Some(since) = filter.since_ms {
        query.push(format_args!(" AND {created} >= ")).push_bind(since);
    }
    if let Some(until) = filter.until_ms {
        query.push(format_args!(" AND {created} < ")).push_bind(until);
    }
    let (after, order) = if filter.task.is_some() { (">", "") } else { ("<", " DESC") };
    if let Some(cursor) = &filter.cursor {
        // The first condition alone bounds the walk along the index.
        query.push(format_args!(" AND {created} {after}= ")).push_bind(cursor.created_ms);
        query.push(format_args!(" AND ({created} {after} ")).push_bind(cursor.created_ms);
        query.push(" OR (r.provider, r.id) > (").push_bind(key(&cursor.provider));
        query.push(", ").push_bind(key(&cursor.id)).push("))");
    }
    if let Some(q) = &filter.q {
        query.push(format_args!(" AND {find}(r.search, ")).push_bind(text(&q.to_lowercase())).push(") > 0");
    }
    query.push(format_args!(" ORDER BY {created}{order}, r.provider, r.id LIMIT "));
}

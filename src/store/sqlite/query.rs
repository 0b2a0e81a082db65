//! The list query: whatever is filtered, an index gives the newest first and the reading stops at the page's end.

use sqlx::{QueryBuilder, Sqlite};

use crate::store::{Filter, terms};

pub(super) fn list(tenant: &str, filter: &Filter, rows: usize) -> QueryBuilder<Sqlite> {
    let mut query = QueryBuilder::new("SELECT r.created_ms, r.provider, r.id, r.body FROM ");
    // The column that the driving index orders by.
    let created = if let Some(domain) = &filter.domain {
        // CROSS fixes the order of the join: from the few rows of the domain to their records.
        query
            .push("record_domain d CROSS JOIN record r ON r.n = d.record WHERE d.tenant = ")
            .push_bind(tenant.to_owned());
        query.push(" AND d.domain = ").push_bind(terms::asked_domain(domain));
        "d.created_ms"
    } else {
        query.push("record r WHERE r.tenant = ").push_bind(tenant.to_owned());
        "r.created_ms"
    };
    if let Some(conversation) = &filter.conversation {
        query.push(" AND r.conversation = ").push_bind(conversation.clone());
    }
    if let Some(provider) = &filter.provider {
        // The plus keeps the planner from the key's index, which would mean sorting everything.
        query.push(" AND +r.provider = ").push_bind(provider.clone());
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
        query.push(" OR (r.provider, r.id) > (").push_bind(cursor.provider.clone());
        query.push(", ").push_bind(cursor.id.clone()).push("))");
    }
    if let Some(q) = &filter.q {
        // Not LIKE: that stops at a NUL, has wildcards to escape and refuses long patterns.
        query.push(" AND instr(r.search, ").push_bind(q.to_lowercase()).push(") > 0");
    }
    query.push(format_args!(" ORDER BY {created} DESC, r.provider, r.id LIMIT "));
    query.push_bind(i64::try_from(rows).unwrap_or(i64::MAX));
    query
}

//! The list query.

use sqlx::{QueryBuilder, Sqlite};

use crate::store::{
    Filter,
    sql::{self, Dialect, Tables},
    sums::count,
};

const DIALECT: Dialect = Dialect {
    key: str::to_owned,
    text: str::to_owned,
    find: "instr",
    // The plus keeps the planner from the key's index, which would mean sorting everything.
    provider: "+r.provider",
};

const TABLES: Tables = Tables {
    records: "record",
    domains: "record_domain",
    // CROSS fixes the order of the join: from the few rows of the domain to their records.
    join: "CROSS JOIN record r ON r.n = d.record",
    only: "",
};

pub(super) fn list(tenant: &str, filter: &Filter, rows: usize) -> QueryBuilder<Sqlite> {
    let mut query = QueryBuilder::new("");
    sql::list(&mut query, &DIALECT, &TABLES, tenant, filter);
    query.push_bind(count(rows));
    query
}

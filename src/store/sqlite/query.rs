//! The list query for SQLite.

use sqlx::{QueryBuilder, Sqlite};

use crate::store::{
    Filter,
    sql_list::{self, Dialect, Tables},
    sql_report::sql_int,
};

const DIALECT: Dialect = Dialect {
    key: str::to_owned,
    text: str::to_owned,
    find_fn: "instr",
    // The unary plus keeps the planner from the primary key's index, which would require a full sort.
    provider_column: "+r.provider",
};

const TABLES: Tables = Tables {
    records: "record",
    domains: "record_domain",
    // CROSS JOIN fixes the join order: from the domain's few rows to their records.
    join: "CROSS JOIN record r ON r.n = d.record",
    condition: "",
};

pub(super) fn list(tenant: &str, filter: &Filter, rows: usize) -> QueryBuilder<Sqlite> {
    let mut query = QueryBuilder::new("");
    sql_list::push_list(&mut query, &DIALECT, &TABLES, tenant, filter);
    query.push_bind(sql_int(rows));
    query
}

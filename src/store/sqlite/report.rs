//! The statistics report from SQLite's daily aggregates. [`crate::store::sql_report`] explains the algorithm.

use sqlx::{Sqlite, SqliteConnection, sqlite::SqliteRow};

use crate::store::{
    sql_report::{ReportQuery, ReportSource, sql_int},
    stats::{self, StatsFilter},
};

/// Selects the filter's slots: `?1` is the tenant, `?2` and `?3` the days, `?4` the provider or NULL.
macro_rules! of_slots {
    () => {
        "d.tenant = ?1 AND d.day >= ?2 AND d.day < ?3 AND (?4 IS NULL OR d.provider = ?4)"
    };
}

pub(super) const DAY_TOTALS: &str =
    concat!("SELECT d.*, 1 AS shards FROM daily d WHERE ", of_slots!(), " ORDER BY d.day, d.provider");

/// Lower bound for the total of the `?5`th site, from the top `?5` sites of each slot.
pub(super) const THRESHOLD: &str = concat!(
    "SELECT sum(s.citations) AS least FROM daily d CROSS JOIN daily_site s ON s.slot = d.n AND s.domain IN
     (SELECT h.domain FROM daily_site h INDEXED BY daily_site_head
      WHERE h.slot = d.n AND h.citations >= 8 ORDER BY h.citations DESC LIMIT ?5) WHERE ",
    of_slots!(),
    " GROUP BY s.domain ORDER BY least DESC LIMIT 1 OFFSET ?5 - 1"
);

/// At most `?6` sites that have a slot with at least `?5` citations.
pub(super) const CANDIDATES: &str = concat!(
    "SELECT DISTINCT s.domain FROM daily d CROSS JOIN daily_site s INDEXED BY daily_site_head
     ON s.slot = d.n AND s.citations >= 8 AND s.citations >= ?5 WHERE ",
    of_slots!(),
    " LIMIT ?6"
);

/// The top `?6` of the sites in `?5`, a JSON array.
pub(super) const TOP_OF_SITES: &str = concat!(
    "SELECT s.domain, sum(s.messages) AS messages, sum(s.citations) AS citations, sum(s.cited) AS cited
     FROM json_each(?5) c CROSS JOIN daily d CROSS JOIN daily_site s ON s.slot = d.n AND s.domain = c.value WHERE ",
    of_slots!(),
    " GROUP BY s.domain ORDER BY sum(s.citations) DESC, s.domain LIMIT ?6"
);

/// The top `?5` of all sites.
pub(super) const TOP_SITES: &str = concat!(
    "SELECT s.domain, sum(s.messages) AS messages, sum(s.citations) AS citations, sum(s.cited) AS cited
     FROM daily d CROSS JOIN daily_site s ON s.slot = d.n WHERE ",
    of_slots!(),
    " GROUP BY s.domain ORDER BY sum(s.citations) DESC, s.domain LIMIT ?5"
);

/// The sites in `?5` per day.
pub(super) const SITES_BY_DAY: &str = concat!(
    "SELECT d.day, d.provider, s.domain, s.messages, s.citations, s.cited
     FROM json_each(?5) c CROSS JOIN daily d CROSS JOIN daily_site s ON s.slot = d.n AND s.domain = c.value WHERE ",
    of_slots!()
);

/// Runs report queries in one transaction, so that all results are from one snapshot.
pub(super) struct ReportReader<'a> {
    pub(super) conn: &'a mut SqliteConnection,
    pub(super) tenant: &'a str,
    pub(super) filter: &'a StatsFilter,
}

impl ReportSource for ReportReader<'_> {
    type Db = Sqlite;

    async fn fetch(&mut self, report_query: ReportQuery<'_>) -> Result<Vec<SqliteRow>, sqlx::Error> {
        let days = stats::capped_days(self.filter);
        let bound = |query| {
            let query = sqlx::query::<Sqlite>(query).bind(self.tenant.to_owned()).bind(days.start).bind(days.end);
            query.bind(self.filter.provider.clone())
        };
        let query = match report_query {
            ReportQuery::DayTotals => bound(DAY_TOTALS),
            ReportQuery::Threshold { rank } => bound(THRESHOLD).bind(sql_int(rank)),
            ReportQuery::Candidates { floor, limit } => bound(CANDIDATES).bind(floor).bind(sql_int(limit)),
            ReportQuery::TopSites { of: Some(sites), limit } => {
                bound(TOP_OF_SITES).bind(json(sites)).bind(sql_int(limit))
            }
            ReportQuery::TopSites { of: None, limit } => bound(TOP_SITES).bind(sql_int(limit)),
            ReportQuery::SitesByDay { sites } => bound(SITES_BY_DAY).bind(json(sites)),
        };
        query.fetch_all(&mut *self.conn).await
    }
}

fn json(sites: &[String]) -> String {
    serde_json::to_string(sites).unwrap_or_default()
}

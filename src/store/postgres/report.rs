//! The statistics report from PostgreSQL's daily aggregates. [`crate::store::sql_report`] explains the algorithm.

use sqlx::{PgConnection, Postgres, postgres::PgRow};

use super::text::key;
use crate::store::{
    sql_report::{ReportQuery, ReportSource, sql_int},
    stats::{self, StatsFilter},
};

/// Selects the filter's slots: `$1` is the tenant, `$2` and `$3` the days, `$4` the provider or NULL.
macro_rules! of_slots {
    () => {
        "d.tenant = $1 AND d.day >= $2 AND d.day < $3 AND ($4::text IS NULL OR d.provider = $4)"
    };
}

/// Totals over all shards.
pub(super) const DAY_TOTALS: &str = concat!(
    "SELECT d.day, d.provider, sum(d.messages)::bigint AS messages, sum(d.with_sources)::bigint AS with_sources,
     sum(d.citations)::bigint AS citations, sum(d.cited)::bigint AS cited, sum(d.supplemental)::bigint AS supplemental,
     sum(d.filtered)::bigint AS filtered, sum(d.failed)::bigint AS failed, sum(d.duplicates)::bigint AS duplicates,
     sum(d.dangling_markers)::bigint AS dangling_markers, count(*) AS shards FROM citetap_daily d WHERE ",
    of_slots!(),
    " GROUP BY d.day, d.provider ORDER BY d.day, d.provider"
);

/// Lower bound for the total of the `$5`th site, from the top `$5` sites of each slot.
pub(super) const THRESHOLD: &str = concat!(
    "SELECT sum(h.citations)::bigint AS least FROM citetap_daily d CROSS JOIN LATERAL
     (SELECT s.domain, s.citations FROM citetap_daily_site s WHERE s.slot = d.n AND s.citations >= 8
      ORDER BY s.citations DESC LIMIT $5) AS h WHERE ",
    of_slots!(),
    " GROUP BY h.domain ORDER BY least DESC LIMIT 1 OFFSET $5 - 1"
);

/// At most `$6` sites that have a slot with at least `$5` citations.
pub(super) const CANDIDATES: &str = concat!(
    "SELECT DISTINCT s.domain FROM citetap_daily d JOIN citetap_daily_site s
     ON s.slot = d.n AND s.citations >= 8 AND s.citations >= $5 WHERE ",
    of_slots!(),
    " LIMIT $6"
);

/// The top `$6` of the sites in `$5`.
pub(super) const TOP_OF_SITES: &str = concat!(
    "SELECT s.domain, sum(s.messages)::bigint AS messages, sum(s.citations)::bigint AS citations,
     sum(s.cited)::bigint AS cited FROM citetap_daily d JOIN citetap_daily_site s
     ON s.slot = d.n AND s.domain = ANY($5::text[]) WHERE ",
    of_slots!(),
    " GROUP BY s.domain ORDER BY sum(s.citations) DESC, s.domain LIMIT $6"
);

/// The top `$5` of all sites.
pub(super) const TOP_SITES: &str = concat!(
    "SELECT s.domain, sum(s.messages)::bigint AS messages, sum(s.citations)::bigint AS citations,
     sum(s.cited)::bigint AS cited FROM citetap_daily d JOIN citetap_daily_site s ON s.slot = d.n WHERE ",
    of_slots!(),
    " GROUP BY s.domain ORDER BY sum(s.citations) DESC, s.domain LIMIT $5"
);

/// The sites in `$5` per day.
pub(super) const SITES_BY_DAY: &str = concat!(
    "SELECT d.day, d.provider, s.domain, sum(s.messages)::bigint AS messages, sum(s.citations)::bigint AS citations,
     sum(s.cited)::bigint AS cited FROM citetap_daily d JOIN citetap_daily_site s
     ON s.slot = d.n AND s.domain = ANY($5::text[]) WHERE ",
    of_slots!(),
    " GROUP BY d.day, d.provider, s.domain"
);

/// Runs report queries in one repeatable-read transaction, so that all results are from one snapshot.
pub(super) struct ReportReader<'a> {
    pub(super) conn: &'a mut PgConnection,
    pub(super) tenant: &'a str,
    pub(super) filter: &'a StatsFilter,
}

impl ReportSource for ReportReader<'_> {
    type Db = Postgres;

    async fn fetch(&mut self, report_query: ReportQuery<'_>) -> Result<Vec<PgRow>, sqlx::Error> {
        let days = stats::capped_days(self.filter);
        let provider = self.filter.provider.as_deref().map(|provider| key(provider).into_owned());
        let bound = |query| {
            let query = sqlx::query::<Postgres>(query).bind(key(self.tenant).into_owned());
            query.bind(days.start).bind(days.end).bind(provider.clone())
        };
        let query = match report_query {
            ReportQuery::DayTotals => bound(DAY_TOTALS),
            ReportQuery::Threshold { rank } => bound(THRESHOLD).bind(sql_int(rank)),
            ReportQuery::Candidates { floor, limit } => bound(CANDIDATES).bind(floor).bind(sql_int(limit)),
            ReportQuery::TopSites { of: Some(sites), limit } => {
                bound(TOP_OF_SITES).bind(keys(sites)).bind(sql_int(limit))
            }
            ReportQuery::TopSites { of: None, limit } => bound(TOP_SITES).bind(sql_int(limit)),
            ReportQuery::SitesByDay { sites } => bound(SITES_BY_DAY).bind(keys(sites)),
        };
        query.fetch_all(&mut *self.conn).await
    }
}

fn keys(sites: &[String]) -> Vec<String> {
    sites.iter().map(|site| key(site).into_owned()).collect()
}

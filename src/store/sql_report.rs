//! The statistics report, shared by the SQL engines.
//!
//! The top sites of a period are found without reading all sites. Let `threshold` be a total that enough sites are
//! known to reach. A site that reaches it has at least `threshold / days` citations on some day, so only such sites are
//! candidates, and an index has them. (Cao and Wang, "Efficient top-K query calculation in distributed networks", PODC
//! 2004.)

use std::collections::HashMap;

use sqlx::{ColumnIndex, Database, Decode, Error, Row, Type};

use super::stats::{self, Counts, DayStats, STATS_TOP_MAX, SiteCounts, SiteStats, StatsFilter, StatsReport};

/// Daily site rows with fewer citations are not in the index; must equal the value in the migrations.
const INDEXED_CITATIONS_MIN: i64 = 8;
/// With more candidates than this, summing all sites is faster.
pub(super) const CANDIDATES_MAX: usize = 2000;

/// A query of the report. A slot is one row of the daily aggregates: a tenant's day and provider, or a shard of that.
pub(super) enum ReportQuery<'a> {
    /// Totals per day and provider, in that order, with the number of `shards` behind each row.
    DayTotals,
    /// Lower bound for the total of the site at this rank, from the top sites of each slot.
    Threshold { rank: usize },
    /// At most `limit` sites that have a slot with at least `floor` citations.
    Candidates { floor: i64, limit: usize },
    /// The sites with the most citations, of these or of all.
    TopSites { of: Option<&'a [String]>, limit: usize },
    /// Totals of these sites per day and provider.
    SitesByDay { sites: &'a [String] },
}

/// Runs report queries for one tenant and period, all in one snapshot.
pub(super) trait ReportSource {
    type Db: Database;

    async fn fetch(&mut self, report_query: ReportQuery<'_>) -> Result<Vec<<Self::Db as Database>::Row>, Error>;
}

pub(super) async fn report<A>(source: &mut A, filter: &StatsFilter) -> Result<StatsReport, Error>
where
    A: ReportSource,
    for<'r> i64: Decode<'r, A::Db> + Type<A::Db>,
    for<'r> String: Decode<'r, A::Db> + Type<A::Db>,
    for<'i> &'i str: ColumnIndex<<A::Db as Database>::Row>,
{
    let (mut days, mut slots) = (Vec::new(), 0);
    for row in &source.fetch(ReportQuery::DayTotals).await? {
        slots += row.try_get::<i64, _>("shards")?;
        days.push(day(row)?);
    }
    let top = filter.top.min(STATS_TOP_MAX);
    if days.is_empty() || top == 0 {
        return Ok(StatsReport { days, sites: Vec::new() });
    }
    let candidates = candidates(source, filter, top, slots).await?;
    let first = source.fetch(ReportQuery::TopSites { of: candidates.as_deref(), limit: top }).await?;
    let sites = first.iter().map(site).collect::<Result<Vec<_>, _>>()?;
    if filter.by_day {
        let listed: Vec<String> = sites.iter().map(|one| one.domain.clone()).collect();
        let index_of = (0..).zip(&days).map(|(at, one)| ((one.day, one.provider.clone()), at));
        let index_of: HashMap<(i64, String), usize> = index_of.collect();
        for row in &source.fetch(ReportQuery::SitesByDay { sites: &listed }).await? {
            let index = index_of.get(&(row.try_get("day")?, row.try_get("provider")?));
            if let Some(day) = index.and_then(|at| days.get_mut(*at)) {
                day.sites.push(site(row)?);
            }
        }
        for day in &mut days {
            day.sites = stats::rank_sites(std::mem::take(&mut day.sites));
        }
    }
    Ok(StatsReport { days, sites })
}

/// Sites that can be among the top; `None` means that all must be summed.
pub(super) async fn candidates<A>(
    source: &mut A,
    filter: &StatsFilter,
    top: usize,
    slots: i64,
) -> Result<Option<Vec<String>>, Error>
where
    A: ReportSource,
    for<'r> i64: Decode<'r, A::Db> + Type<A::Db>,
    for<'r> String: Decode<'r, A::Db> + Type<A::Db>,
    for<'i> &'i str: ColumnIndex<<A::Db as Database>::Row>,
{
    if let Some(domain) = &filter.domain {
        return Ok(Some(vec![stats::query_site(domain)]));
    }
    if top > CANDIDATES_MAX {
        return Ok(None);
    }
    let threshold = source.fetch(ReportQuery::Threshold { rank: top }).await?;
    let Some(threshold) = threshold.first() else { return Ok(None) };
    let Some(floor) = candidate_floor(threshold.try_get("least")?, slots) else { return Ok(None) };
    let found = source.fetch(ReportQuery::Candidates { floor, limit: CANDIDATES_MAX + 1 }).await?;
    let found = found.iter().map(|row| row.try_get("domain")).collect::<Result<Vec<String>, _>>()?;
    Ok((found.len() <= CANDIDATES_MAX).then_some(found))
}

/// Citations that a top site has in at least one slot; `None` if the index does not cover so few.
fn candidate_floor(threshold: i64, slots: i64) -> Option<i64> {
    let slots = slots.max(1);
    // Rounded up: a site that reaches the threshold has a slot with at least this many.
    let floor = threshold / slots + i64::from(threshold % slots > 0);
    (floor >= INDEXED_CITATIONS_MIN).then_some(floor)
}

pub(super) fn sql_int(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn day<D, R>(row: &R) -> Result<DayStats, Error>
where
    D: Database<Row = R>,
    R: Row<Database = D>,
    for<'r> i64: Decode<'r, D> + Type<D>,
    for<'r> String: Decode<'r, D> + Type<D>,
    for<'i> &'i str: ColumnIndex<R>,
{
    let counts = Counts {
        messages: row.try_get("messages")?,
        with_sources: row.try_get("with_sources")?,
        citations: row.try_get("citations")?,
        cited: row.try_get("cited")?,
        supplemental: row.try_get("supplemental")?,
        filtered: row.try_get("filtered")?,
        failed: row.try_get("failed")?,
        duplicates: row.try_get("duplicates")?,
        dangling_markers: row.try_get("dangling_markers")?,
    };
    Ok(DayStats { day: row.try_get("day")?, provider: row.try_get("provider")?, counts, sites: Vec::new() })
}

fn site<D, R>(row: &R) -> Result<SiteStats, Error>
where
    D: Database<Row = R>,
    R: Row<Database = D>,
    for<'r> i64: Decode<'r, D> + Type<D>,
    for<'r> String: Decode<'r, D> + Type<D>,
    for<'i> &'i str: ColumnIndex<R>,
{
    let site = SiteCounts {
        messages: row.try_get("messages")?,
        citations: row.try_get("citations")?,
        cited: row.try_get("cited")?,
    };
    Ok(SiteStats { domain: row.try_get("domain")?, site })
}

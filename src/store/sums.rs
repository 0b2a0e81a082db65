//! What the SQL engines have in common where they report sums.
//!
//! The first sites of a period are found without reading all of them. With `least`, a sum that enough sites are known to
//! reach, a site that reaches it too has a day with at least `least / days` citations: only those can be among the first,
//! and an index has them. (Cao and Wang, "Efficient top-K query calculation in distributed networks", PODC 2004.)

use std::collections::HashMap;

use sqlx::{ColumnIndex, Database, Decode, Error, Row, Type};

use super::stats::{self, Counts, DayStats, STATS_TOP_MAX, Site, SiteStats, StatsFilter, StatsReport};

/// Fewer citations on a day are not in the index of those days: as in its migrations.
const HEAD: i64 = 8;
/// With more candidates it is faster to add up all sites.
pub(super) const CANDIDATES_MAX: usize = 2000;

/// What is asked of the sums of a period. A slot is a tenant's day and provider, or a shard of it.
pub(super) enum Question<'a> {
    /// The sums by day and provider, in that order, and how many `shards` there are of each.
    Days,
    /// The sum `least` that the site of this rank has at least, by the first sites of each slot.
    Least { rank: usize },
    /// So many of the sites, at most, with a slot of `floor` citations or more.
    Candidates { floor: i64, limit: usize },
    /// The first of these sites, or of all, the most citations first.
    First { of: Option<&'a [String]>, limit: usize },
    /// The sums of these sites by day and provider.
    ByDay { sites: &'a [String] },
}

/// Answers questions about one tenant and one period, all of one moment.
pub(super) trait Answers {
    type Db: Database;

    async fn ask(&mut self, question: Question<'_>) -> Result<Vec<<Self::Db as Database>::Row>, Error>;
}

pub(super) async fn report<A>(answers: &mut A, filter: &StatsFilter) -> Result<StatsReport, Error>
where
    A: Answers,
    for<'r> i64: Decode<'r, A::Db> + Type<A::Db>,
    for<'r> String: Decode<'r, A::Db> + Type<A::Db>,
    for<'i> &'i str: ColumnIndex<<A::Db as Database>::Row>,
{
    let (mut days, mut slots) = (Vec::new(), 0);
    for row in &answers.ask(Question::Days).await? {
        slots += row.try_get::<i64, _>("shards")?;
        days.push(day(row)?);
    }
    let top = filter.top.min(STATS_TOP_MAX);
    if days.is_empty() || top == 0 {
        return Ok(StatsReport { days, sites: Vec::new() });
    }
    let candidates = candidates(answers, filter, top, slots).await?;
    let first = answers.ask(Question::First { of: candidates.as_deref(), limit: top }).await?;
    let sites = first.iter().map(site).collect::<Result<Vec<_>, _>>()?;
    if filter.by_day {
        let listed: Vec<String> = sites.iter().map(|one| one.domain.clone()).collect();
        let places = (0..).zip(&days).map(|(at, one)| ((one.day, one.provider.clone()), at));
        let places: HashMap<(i64, String), usize> = places.collect();
        for row in &answers.ask(Question::ByDay { sites: &listed }).await? {
            let place = places.get(&(row.try_get("day")?, row.try_get("provider")?));
            if let Some(day) = place.and_then(|at| days.get_mut(*at)) {
                day.sites.push(site(row)?);
            }
        }
        for day in &mut days {
            day.sites = stats::ranked(std::mem::take(&mut day.sites));
        }
    }
    Ok(StatsReport { days, sites })
}

/// The sites that can be among the first; `None`: any.
pub(super) async fn candidates<A>(
    answers: &mut A,
    filter: &StatsFilter,
    top: usize,
    slots: i64,
) -> Result<Option<Vec<String>>, Error>
where
    A: Answers,
    for<'r> i64: Decode<'r, A::Db> + Type<A::Db>,
    for<'r> String: Decode<'r, A::Db> + Type<A::Db>,
    for<'i> &'i str: ColumnIndex<<A::Db as Database>::Row>,
{
    if let Some(domain) = &filter.domain {
        return Ok(Some(vec![stats::asked_site(domain)]));
    }
    if top > CANDIDATES_MAX {
        return Ok(None);
    }
    let least = answers.ask(Question::Least { rank: top }).await?;
    let Some(least) = least.first() else { return Ok(None) };
    let Some(floor) = floor(least.try_get("least")?, slots) else { return Ok(None) };
    let found = answers.ask(Question::Candidates { floor, limit: CANDIDATES_MAX + 1 }).await?;
    let found = found.iter().map(|row| row.try_get("domain")).collect::<Result<Vec<String>, _>>()?;
    Ok((found.len() <= CANDIDATES_MAX).then_some(found))
}

/// What a site among the first has in one slot at least; `None`: too few for the index.
fn floor(least: i64, slots: i64) -> Option<i64> {
    let slots = slots.max(1);
    // Rounded up: whoever reaches the sum has a day with so many.
    let floor = least / slots + i64::from(least % slots > 0);
    (floor >= HEAD).then_some(floor)
}

pub(super) fn count(n: usize) -> i64 {
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
    let site =
        Site { messages: row.try_get("messages")?, citations: row.try_get("citations")?, cited: row.try_get("cited")? };
    Ok(SiteStats { domain: row.try_get("domain")?, site })
}

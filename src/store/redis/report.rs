//! The statistics report from Redis' daily aggregates.

use std::collections::{BTreeMap, HashMap};

use redis::{aio::MultiplexedConnection, cmd, pipe};

use super::{connection::CallError, error::unreadable_error, keys::Keys};
use crate::store::{
    StoreError,
    stats::{self, Counts, DayStats, STATS_TOP_MAX, SiteCounts, SiteStats, StatsFilter, StatsReport},
};

/// Hash fields per call.
const FIELDS_PER_CALL: usize = 1000;
/// Days per call.
const DAYS_PER_CALL: usize = 64;
/// Most sites summed over one period; more is an error.
const SITES_MAX: usize = 500_000;

pub(super) async fn report(
    conn: &mut MultiplexedConnection,
    keys: &Keys,
    filter: &StatsFilter,
) -> Result<StatsReport, CallError> {
    let mut days = counts(conn, keys, filter).await?;
    let top = filter.top.min(STATS_TOP_MAX);
    if days.is_empty() || top == 0 {
        return Ok(StatsReport { days, sites: Vec::new() });
    }
    let totals = match &filter.domain {
        Some(domain) => {
            let domain = [stats::query_site(domain)];
            let mut total = SiteCounts::default();
            for day in &days {
                for (_, site) in sites_of_day(conn, keys, day, &domain).await? {
                    total.add(&site, 1);
                }
            }
            let [domain] = domain;
            HashMap::from([(domain, total)])
        }
        None => totals(conn, keys, &days).await?,
    };
    let all = totals.into_iter().filter(|(_, site)| !site.is_zero());
    let mut sites = stats::rank_sites(all.map(|(domain, site)| SiteStats { domain, site }).collect());
    sites.truncate(top);
    if filter.by_day {
        let names: Vec<String> = sites.iter().map(|one| one.domain.clone()).collect();
        for day in &mut days {
            let found = sites_of_day(conn, keys, day, &names).await?;
            day.sites = stats::rank_sites(found.into_iter().map(|(domain, site)| SiteStats { domain, site }).collect());
        }
    }
    Ok(StatsReport { days, sites })
}

/// Totals per day and provider.
async fn counts(
    conn: &mut MultiplexedConnection,
    keys: &Keys,
    filter: &StatsFilter,
) -> Result<Vec<DayStats>, CallError> {
    let mut found = Vec::new();
    let all_days: Vec<i64> = stats::capped_days(filter).collect();
    for chunk in all_days.chunks(DAYS_PER_CALL) {
        let mut pipeline = pipe();
        for day in chunk {
            pipeline.hgetall(keys.counts(*day));
        }
        let replies: Vec<BTreeMap<String, String>> = pipeline.query_async(conn).await?;
        for (day, by_provider) in chunk.iter().zip(replies) {
            for (provider, counts) in by_provider {
                if filter.provider.as_ref().is_none_or(|only| *only == provider) {
                    let counts = Counts::from(numbers(&counts)?);
                    found.push(DayStats { day: *day, provider, counts, sites: Vec::new() });
                }
            }
        }
    }
    Ok(found)
}

/// Totals of all sites.
async fn totals(
    conn: &mut MultiplexedConnection,
    keys: &Keys,
    days: &[DayStats],
) -> Result<HashMap<String, SiteCounts>, CallError> {
    let mut totals: HashMap<String, SiteCounts> = HashMap::new();
    for day in days {
        // HSCAN can return a field twice.
        let mut of_day = HashMap::new();
        let (key, mut cursor) = (keys.sites(day.day, &day.provider), 0_u64);
        loop {
            let mut scan = cmd("HSCAN");
            let scan = scan.arg(&key).arg(cursor).arg("COUNT").arg(FIELDS_PER_CALL);
            let (next, found): (u64, Vec<(String, String)>) = scan.query_async(conn).await?;
            for (domain, site) in found {
                of_day.insert(domain, SiteCounts::from(numbers(&site)?));
            }
            if of_day.len().max(totals.len()) > SITES_MAX {
                let what = "redis: too many sites in this period; ask for fewer days or for one domain";
                return Err(StoreError::Engine(what.to_owned()).into());
            }
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        for (domain, site) in of_day {
            totals.entry(domain).or_default().add(&site, 1);
        }
    }
    Ok(totals)
}

/// The named sites that a day has.
async fn sites_of_day(
    conn: &mut MultiplexedConnection,
    keys: &Keys,
    day: &DayStats,
    names: &[String],
) -> Result<Vec<(String, SiteCounts)>, CallError> {
    let (key, mut found) = (keys.sites(day.day, &day.provider), Vec::new());
    for names in names.chunks(FIELDS_PER_CALL) {
        let sites: Vec<Option<String>> = cmd("HMGET").arg(&key).arg(names).query_async(conn).await?;
        for (name, site) in names.iter().zip(sites) {
            if let Some(site) = site {
                found.push((name.clone(), SiteCounts::from(numbers(&site)?)));
            }
        }
    }
    Ok(found)
}

/// Parses the comma-separated numbers that the scripts write.
fn numbers<const N: usize>(text: &str) -> Result<[i64; N], StoreError> {
    let numbers: Result<Vec<i64>, _> = text.split(',').map(str::parse).collect();
    numbers.ok().and_then(|numbers| numbers.try_into().ok()).ok_or_else(unreadable_error)
}

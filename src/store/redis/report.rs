//! The sums of a period, read without its records.

use std::collections::{BTreeMap, HashMap};

use redis::{aio::MultiplexedConnection, cmd, pipe};

use super::{error::unreadable, keys::Keys, link::Trouble};
use crate::store::{
    StoreError,
    stats::{self, Counts, DayStats, STATS_TOP_MAX, Site, SiteStats, StatsFilter, StatsReport},
};

/// Fields that one question takes, or asks for.
const STEP: usize = 1000;
/// Days that one question asks for.
const DAYS: usize = 64;
/// Sites of one period that are added up at most.
const SITES_MAX: usize = 500_000;

pub(super) async fn report(
    conn: &mut MultiplexedConnection,
    keys: &Keys,
    filter: &StatsFilter,
) -> Result<StatsReport, Trouble> {
    let mut days = counts(conn, keys, filter).await?;
    let top = filter.top.min(STATS_TOP_MAX);
    if days.is_empty() || top == 0 {
        return Ok(StatsReport { days, sites: Vec::new() });
    }
    let totals = match &filter.domain {
        Some(domain) => {
            let domain = [stats::asked_site(domain)];
            let mut total = Site::default();
            for day in &days {
                for (_, site) in listed(conn, keys, day, &domain).await? {
                    total.add(&site, 1);
                }
            }
            let [domain] = domain;
            HashMap::from([(domain, total)])
        }
        None => totals(conn, keys, &days).await?,
    };
    let all = totals.into_iter().filter(|(_, site)| !site.is_zero());
    let mut sites = stats::ranked(all.map(|(domain, site)| SiteStats { domain, site }).collect());
    sites.truncate(top);
    if filter.by_day {
        let names: Vec<String> = sites.iter().map(|one| one.domain.clone()).collect();
        for day in &mut days {
            let found = listed(conn, keys, day, &names).await?;
            day.sites = stats::ranked(found.into_iter().map(|(domain, site)| SiteStats { domain, site }).collect());
        }
    }
    Ok(StatsReport { days, sites })
}

/// By day and provider.
async fn counts(conn: &mut MultiplexedConnection, keys: &Keys, filter: &StatsFilter) -> Result<Vec<DayStats>, Trouble> {
    let mut found = Vec::new();
    let asked: Vec<i64> = stats::days(filter).collect();
    for asked in asked.chunks(DAYS) {
        let mut questions = pipe();
        for day in asked {
            questions.hgetall(keys.counts(*day));
        }
        let answers: Vec<BTreeMap<String, String>> = questions.query_async(conn).await?;
        for (day, by_provider) in asked.iter().zip(answers) {
            for (provider, counts) in by_provider {
                if filter.provider.as_ref().is_none_or(|asked| *asked == provider) {
                    let counts = Counts::from(numbers(&counts)?);
                    found.push(DayStats { day: *day, provider, counts, sites: Vec::new() });
                }
            }
        }
    }
    Ok(found)
}

/// Of all sites.
async fn totals(
    conn: &mut MultiplexedConnection,
    keys: &Keys,
    days: &[DayStats],
) -> Result<HashMap<String, Site>, Trouble> {
    let mut totals: HashMap<String, Site> = HashMap::new();
    for day in days {
        // A field may come twice in a scan.
        let mut of_day = HashMap::new();
        let (key, mut cursor) = (keys.sites(day.day, &day.provider), 0_u64);
        loop {
            let mut scan = cmd("HSCAN");
            let scan = scan.arg(&key).arg(cursor).arg("COUNT").arg(STEP);
            let (next, found): (u64, Vec<(String, String)>) = scan.query_async(conn).await?;
            for (domain, site) in found {
                of_day.insert(domain, Site::from(numbers(&site)?));
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

/// Those of the named sites that a day has.
async fn listed(
    conn: &mut MultiplexedConnection,
    keys: &Keys,
    day: &DayStats,
    names: &[String],
) -> Result<Vec<(String, Site)>, Trouble> {
    let (key, mut found) = (keys.sites(day.day, &day.provider), Vec::new());
    for names in names.chunks(STEP) {
        let sites: Vec<Option<String>> = cmd("HMGET").arg(&key).arg(names).query_async(conn).await?;
        for (name, site) in names.iter().zip(sites) {
            if let Some(site) = site {
                found.push((name.clone(), Site::from(numbers(&site)?)));
            }
        }
    }
    Ok(found)
}

/// As a script writes them.
fn numbers<const N: usize>(text: &str) -> Result<[i64; N], StoreError> {
    let numbers: Result<Vec<i64>, _> = text.split(',').map(str::parse).collect();
    numbers.ok().and_then(|numbers| numbers.try_into().ok()).ok_or_else(unreadable)
}

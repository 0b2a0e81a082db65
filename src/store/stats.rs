//! What records add up to, by day, provider and site.
//!
//! A record counts on the UTC day on which its stream began, for as long as it is kept.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use serde::{Deserialize, Serialize};

use super::{Filter, PAGE_MAX, RecordStore, Result, terms};
use crate::citation::{
    corroborate::registrable,
    record::{Origin, Record, Status},
};

/// Days that one call may ask for: its answer has a row for each of them and each provider.
pub const STATS_DAYS_MAX: i64 = 366;
/// Sites that one call lists at most, whatever the filter says.
pub const STATS_TOP_MAX: usize = 10_000;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// The UTC day of an instant, counted from 1970-01-01.
pub fn day_of(ms: i64) -> i64 {
    ms.div_euclid(DAY_MS)
}

/// Which sums a stats call wants.
#[derive(Debug, Clone, Default)]
pub struct StatsFilter {
    /// As [`day_of`] counts them; beyond [`STATS_DAYS_MAX`] the later ones are left out.
    pub days: Range<i64>,
    pub provider: Option<String>,
    /// Lists this site only; a hostname stands for its registrable domain. The other sums stay whole.
    pub domain: Option<String>,
    /// How many sites.
    pub top: usize,
    /// Also tells each day's share of those sites.
    pub by_day: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatsReport {
    /// By day and provider; those without a record are left out.
    pub days: Vec<DayStats>,
    /// Of the whole period, the most citations first.
    pub sites: Vec<SiteStats>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DayStats {
    pub day: i64,
    pub provider: String,
    pub counts: Counts,
    /// Those of the period's sites that this day has, so that each site has its whole line.
    pub sites: Vec<SiteStats>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteStats {
    /// A registrable domain, or a host that is none, such as an address.
    pub domain: String,
    pub site: Site,
}

/// What some records add up to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "[i64; Counts::LEN]", from = "[i64; Counts::LEN]")]
pub struct Counts {
    pub messages: i64,
    /// Messages with a citation.
    pub with_sources: i64,
    /// The upstream's own, without those that were filtered.
    pub citations: i64,
    /// Of these, those that the answer names.
    pub cited: i64,
    /// Found by a search of ours: the answer does not rest on them.
    pub supplemental: i64,
    pub filtered: i64,
    pub failed: i64,
    pub duplicates: i64,
    pub dangling_markers: i64,
}

/// What some records say of one site.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "[i64; Site::LEN]", from = "[i64; Site::LEN]")]
pub struct Site {
    pub messages: i64,
    pub citations: i64,
    pub cited: i64,
}

impl Counts {
    pub(super) const LEN: usize = 9;

    pub fn add(&mut self, other: &Self, times: i64) {
        *self = Self::from(sum((*self).into(), (*other).into(), times));
    }

    pub(super) fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

impl Site {
    pub(super) const LEN: usize = 3;

    pub(super) fn add(&mut self, other: &Self, times: i64) {
        *self = Self::from(sum((*self).into(), (*other).into(), times));
    }

    pub(super) fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

fn sum<const N: usize>(mut one: [i64; N], other: [i64; N], times: i64) -> [i64; N] {
    for (one, other) in one.iter_mut().zip(other) {
        *one = one.saturating_add(other.saturating_mul(times));
    }
    one
}

impl From<Counts> for [i64; Counts::LEN] {
    fn from(counts: Counts) -> Self {
        let Counts {
            messages,
            with_sources,
            citations,
            cited,
            supplemental,
            filtered,
            failed,
            duplicates,
            dangling_markers,
        } = counts;
        [messages, with_sources, citations, cited, supplemental, filtered, failed, duplicates, dangling_markers]
    }
}

impl From<[i64; Counts::LEN]> for Counts {
    fn from(values: [i64; Counts::LEN]) -> Self {
        let [messages, with_sources, citations, cited, supplemental, filtered, failed, duplicates, dangling_markers] =
            values;
        Self { messages, with_sources, citations, cited, supplemental, filtered, failed, duplicates, dangling_markers }
    }
}

impl From<Site> for [i64; Site::LEN] {
    fn from(Site { messages, citations, cited }: Site) -> Self {
        [messages, citations, cited]
    }
}

impl From<[i64; Site::LEN]> for Site {
    fn from([messages, citations, cited]: [i64; Site::LEN]) -> Self {
        Self { messages, citations, cited }
    }
}

/// What one record adds, or what several add on one day.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tally {
    #[serde(rename = "c")]
    pub(super) counts: Counts,
    #[serde(rename = "s")]
    pub(super) sites: BTreeMap<String, Site>,
}

impl Tally {
    pub(super) fn of(record: &Record) -> Self {
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let mut tally = Self::default();
        let counts = &mut tally.counts;
        counts.messages = 1;
        counts.failed = record.stats.failed_count.into();
        counts.duplicates = record.stats.dedup_count.into();
        counts.dangling_markers = count(record.stats.dangling_markers.len());
        for citation in &record.citations {
            match (citation.status, citation.origin) {
                (Status::Filtered, _) => counts.filtered += 1,
                (Status::Failed, _) => {}
                (Status::Ok, Origin::Supplemental) => counts.supplemental += 1,
                (Status::Ok, Origin::Upstream) => {
                    let cited = i64::from(citation.cited);
                    counts.citations += 1;
                    counts.cited += cited;
                    if let Some(domain) = citation.hostname.as_deref().and_then(site_of) {
                        let site = tally.sites.entry(domain).or_default();
                        site.messages = 1;
                        site.citations += 1;
                        site.cited += cited;
                    }
                }
            }
        }
        counts.with_sources = i64::from(counts.citations > 0);
        tally
    }

    /// Of a record whose value cannot be read.
    pub(super) fn unreadable() -> Self {
        Self { counts: Counts { messages: 1, ..Counts::default() }, sites: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, other: &Self, times: i64) {
        self.counts.add(&other.counts, times);
        for (domain, site) in &other.sites {
            // Looked up first: most sites of a batch are there already, and their names need no copy.
            match self.sites.get_mut(domain) {
                Some(sum) => sum.add(site, times),
                None => {
                    let mut sum = Site::default();
                    sum.add(site, times);
                    self.sites.insert(domain.clone(), sum);
                }
            }
        }
    }
}

/// The site that a host belongs to. A "hostname" that is none belongs to no site.
pub(super) fn site_of(hostname: &str) -> Option<String> {
    let hostname = terms::hostname(hostname)?;
    Some(registrable(&hostname).to_owned())
}

/// The site that a filter asks for.
pub(super) fn asked_site(domain: &str) -> String {
    let domain = terms::asked_domain(domain.trim());
    registrable(&domain).to_owned()
}

/// The days that a filter means.
pub(super) fn days(filter: &StatsFilter) -> Range<i64> {
    filter.days.start..filter.days.end.min(filter.days.start.saturating_add(STATS_DAYS_MAX))
}

/// Adds the records of the period up, page by page: for an engine that keeps no sums.
pub(super) async fn of_records(
    store: &(impl RecordStore + ?Sized),
    tenant: &str,
    filter: &StatsFilter,
) -> Result<StatsReport> {
    let days = days(filter);
    let mut wanted = Filter {
        provider: filter.provider.clone(),
        since_ms: Some(days.start.saturating_mul(DAY_MS)),
        until_ms: Some(days.end.saturating_mul(DAY_MS)),
        limit: PAGE_MAX,
        ..Filter::default()
    };
    let mut sums = Sums::default();
    loop {
        let page = store.list(tenant, &wanted).await?;
        for entry in &page.entries {
            sums.add(tenant, entry.created_ms, &entry.record.provider, &Tally::of(&entry.record), 1);
        }
        wanted.cursor = page.next;
        if wanted.cursor.is_none() {
            return Ok(sums.report(filter));
        }
    }
}

/// Where a record counts: tenant, day, provider.
pub(super) type Slot = (String, i64, String);

/// Sums by where they count.
#[derive(Debug, Default)]
pub(super) struct Sums(pub(super) BTreeMap<Slot, Tally>);

impl Sums {
    /// `times` is 1, or -1 to take away again.
    pub(super) fn add(&mut self, tenant: &str, created_ms: i64, provider: &str, tally: &Tally, times: i64) {
        let slot = (tenant.to_owned(), day_of(created_ms), provider.to_owned());
        self.0.entry(slot).or_default().add(tally, times);
    }

    /// One tenant's sums as a report.
    pub(super) fn report(self, filter: &StatsFilter) -> StatsReport {
        let mut totals: BTreeMap<&str, Site> = BTreeMap::new();
        let asked = filter.domain.as_deref().map(asked_site);
        let wanted = |domain: &str| asked.as_deref().is_none_or(|asked| asked == domain);
        for (domain, site) in self.0.values().flat_map(|tally| &tally.sites).filter(|(domain, _)| wanted(domain)) {
            totals.entry(domain).or_default().add(site, 1);
        }
        let all = totals.into_iter().map(|(domain, site)| SiteStats { domain: domain.to_owned(), site });
        let mut sites = ranked(all.collect());
        sites.truncate(filter.top.min(STATS_TOP_MAX));
        let listed: BTreeSet<&str> = sites.iter().map(|one| one.domain.as_str()).collect();
        let days = self.0.iter().map(|((_, day, provider), tally)| {
            let listed = tally.sites.iter().filter(|(domain, _)| filter.by_day && listed.contains(domain.as_str()));
            DayStats {
                day: *day,
                provider: provider.clone(),
                counts: tally.counts,
                sites: ranked(listed.map(|(domain, site)| SiteStats { domain: domain.clone(), site: *site }).collect()),
            }
        });
        StatsReport { days: days.collect(), sites }
    }
}

/// The most citations first; of equal ones by name.
pub(super) fn ranked(mut sites: Vec<SiteStats>) -> Vec<SiteStats> {
    sites.sort_by(|a, b| (Reverse(a.site.citations), &a.domain).cmp(&(Reverse(b.site.citations), &b.domain)));
    sites
}

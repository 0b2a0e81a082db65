//! Statistics by day, provider and site.
//!
//! A record counts on the UTC day on which its stream began, for as long as it is stored.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use serde::{Deserialize, Serialize};

use super::{Filter, PAGE_MAX, RecordStore, Result, terms};
use crate::citation::{
    corroborate::registrable_domain,
    record::{CitationOrigin, CitationStatus, Record},
};

/// Longest period of one stats call, in days (bounds the answer: it has a row per day and provider).
pub const STATS_DAYS_MAX: i64 = 366;
/// Most sites that one stats call lists.
pub const STATS_TOP_MAX: usize = 10_000;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// UTC day of a timestamp in milliseconds, counted from 1970-01-01.
pub fn day_of(ms: i64) -> i64 {
    ms.div_euclid(DAY_MS)
}

/// Selects the statistics of a stats call.
#[derive(Debug, Clone, Default)]
pub struct StatsFilter {
    /// Days as counted by [`day_of`]; those beyond [`STATS_DAYS_MAX`] are ignored.
    pub days: Range<i64>,
    pub provider: Option<String>,
    /// Lists this site only; a hostname selects its registrable domain. Does not affect the message counts.
    pub domain: Option<String>,
    /// Number of sites to list.
    pub top: usize,
    /// Also report each listed site per day.
    pub by_day: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatsReport {
    /// One row per day and provider that has records.
    pub days: Vec<DayStats>,
    /// Sites of the whole period, most citations first.
    pub sites: Vec<SiteStats>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DayStats {
    pub day: i64,
    pub provider: String,
    pub counts: Counts,
    /// The day's share of the sites listed for the period.
    pub sites: Vec<SiteStats>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteStats {
    /// A registrable domain, or the host itself if it has none, as an IP address.
    pub domain: String,
    pub site: SiteCounts,
}

/// Totals over a set of records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "[i64; Counts::LEN]", from = "[i64; Counts::LEN]")]
pub struct Counts {
    pub messages: i64,
    /// Messages with at least one citation.
    pub with_sources: i64,
    /// Citations from the upstream, without filtered ones.
    pub citations: i64,
    /// Those of `citations` that the answer refers to.
    pub cited: i64,
    /// Results of our own search; the answer is not based on them.
    pub supplemental: i64,
    pub filtered: i64,
    pub failed: i64,
    pub duplicates: i64,
    pub dangling_markers: i64,
}

/// Totals of one site over a set of records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "[i64; SiteCounts::LEN]", from = "[i64; SiteCounts::LEN]")]
pub struct SiteCounts {
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

impl SiteCounts {
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

impl From<SiteCounts> for [i64; SiteCounts::LEN] {
    fn from(SiteCounts { messages, citations, cited }: SiteCounts) -> Self {
        [messages, citations, cited]
    }
}

impl From<[i64; SiteCounts::LEN]> for SiteCounts {
    fn from([messages, citations, cited]: [i64; SiteCounts::LEN]) -> Self {
        Self { messages, citations, cited }
    }
}

/// Totals of one record, or the sum over several records of one day.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Aggregate {
    #[serde(rename = "c")]
    pub(super) counts: Counts,
    #[serde(rename = "s")]
    pub(super) sites: BTreeMap<String, SiteCounts>,
}

impl Aggregate {
    pub(super) fn of(record: &Record) -> Self {
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let mut aggregate = Self::default();
        let counts = &mut aggregate.counts;
        counts.messages = 1;
        counts.failed = record.stats.failed_count.into();
        counts.duplicates = record.stats.dedup_count.into();
        counts.dangling_markers = count(record.stats.dangling_markers.len());
        for citation in &record.citations {
            match (citation.status, citation.origin) {
                (CitationStatus::Filtered, _) => counts.filtered += 1,
                (CitationStatus::Failed, _) => {}
                (CitationStatus::Ok, CitationOrigin::Supplemental) => counts.supplemental += 1,
                (CitationStatus::Ok, CitationOrigin::Upstream) => {
                    let cited = i64::from(citation.cited);
                    counts.citations += 1;
                    counts.cited += cited;
                    if let Some(domain) = citation.hostname.as_deref().and_then(registrable_site) {
                        let site = aggregate.sites.entry(domain).or_default();
                        site.messages = 1;
                        site.citations += 1;
                        site.cited += cited;
                    }
                }
            }
        }
        counts.with_sources = i64::from(counts.citations > 0);
        aggregate
    }

    /// Stands for a record whose stored value cannot be read: one message.
    pub(super) fn unreadable() -> Self {
        Self { counts: Counts { messages: 1, ..Counts::default() }, sites: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, other: &Self, times: i64) {
        self.counts.add(&other.counts, times);
        for (domain, site) in &other.sites {
            // Look up before inserting: most sites of a batch exist already, which saves cloning the name.
            match self.sites.get_mut(domain) {
                Some(sum) => sum.add(site, times),
                None => {
                    let mut sum = SiteCounts::default();
                    sum.add(site, times);
                    self.sites.insert(domain.clone(), sum);
                }
            }
        }
    }
}

/// Site (registrable domain) of a hostname; `None` for text that is not a hostname.
pub(super) fn registrable_site(hostname: &str) -> Option<String> {
    let hostname = terms::hostname(hostname)?;
    Some(registrable_domain(&hostname).to_owned())
}

/// Site that a filter's domain selects.
pub(super) fn query_site(domain: &str) -> String {
    let domain = terms::query_domain(domain.trim());
    registrable_domain(&domain).to_owned()
}

/// The filter's days, limited to [`STATS_DAYS_MAX`].
pub(super) fn capped_days(filter: &StatsFilter) -> Range<i64> {
    filter.days.start..filter.days.end.min(filter.days.start.saturating_add(STATS_DAYS_MAX))
}

/// Computes the report from the records themselves, page by page, for engines without daily aggregates.
pub(super) async fn from_records(
    store: &(impl RecordStore + ?Sized),
    tenant: &str,
    filter: &StatsFilter,
) -> Result<StatsReport> {
    let days = capped_days(filter);
    let mut list_filter = Filter {
        provider: filter.provider.clone(),
        since_ms: Some(days.start.saturating_mul(DAY_MS)),
        until_ms: Some(days.end.saturating_mul(DAY_MS)),
        limit: PAGE_MAX,
        ..Filter::default()
    };
    let mut aggregates = DailyAggregates::default();
    loop {
        let page = store.list(tenant, &list_filter).await?;
        for entry in &page.entries {
            aggregates.add(tenant, entry.created_ms, &entry.record.provider, &Aggregate::of(&entry.record), 1);
        }
        list_filter.cursor = page.next;
        if list_filter.cursor.is_none() {
            return Ok(aggregates.report(filter));
        }
    }
}

/// (tenant, day, provider)
pub(super) type DailyKey = (String, i64, String);

/// Aggregates per tenant, day and provider.
#[derive(Debug, Default)]
pub(super) struct DailyAggregates(pub(super) BTreeMap<DailyKey, Aggregate>);

impl DailyAggregates {
    /// Adds `aggregate` times `times`; -1 subtracts it.
    pub(super) fn add(&mut self, tenant: &str, created_ms: i64, provider: &str, aggregate: &Aggregate, times: i64) {
        let key = (tenant.to_owned(), day_of(created_ms), provider.to_owned());
        self.0.entry(key).or_default().add(aggregate, times);
    }

    /// Builds the report of one tenant; the aggregates must be that tenant's.
    pub(super) fn report(self, filter: &StatsFilter) -> StatsReport {
        let mut totals: BTreeMap<&str, SiteCounts> = BTreeMap::new();
        let only = filter.domain.as_deref().map(query_site);
        let is_selected = |domain: &str| only.as_deref().is_none_or(|only| only == domain);
        for (domain, site) in
            self.0.values().flat_map(|aggregate| &aggregate.sites).filter(|(domain, _)| is_selected(domain))
        {
            totals.entry(domain).or_default().add(site, 1);
        }
        let all = totals.into_iter().map(|(domain, site)| SiteStats { domain: domain.to_owned(), site });
        let mut sites = rank_sites(all.collect());
        sites.truncate(filter.top.min(STATS_TOP_MAX));
        let listed: BTreeSet<&str> = sites.iter().map(|one| one.domain.as_str()).collect();
        let days = self.0.iter().map(|((_, day, provider), aggregate)| {
            let listed = aggregate.sites.iter().filter(|(domain, _)| filter.by_day && listed.contains(domain.as_str()));
            DayStats {
                day: *day,
                provider: provider.clone(),
                counts: aggregate.counts,
                sites: rank_sites(
                    listed.map(|(domain, site)| SiteStats { domain: domain.clone(), site: *site }).collect(),
                ),
            }
        });
        StatsReport { days: days.collect(), sites }
    }
}

/// Sorts by citations, descending, then by name.
pub(super) fn rank_sites(mut sites: Vec<SiteStats>) -> Vec<SiteStats> {
    sites.sort_by(|a, b| (Reverse(a.site.citations), &a.domain).cmp(&(Reverse(b.site.citations), &b.domain)));
    sites
}

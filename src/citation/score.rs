//! Scores sources from 0 to 1 and decides which the operator's rules filter out. Called by the ledger and by `bundle`.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::record::{Citation, CitationStatus, CitationType};

/// Freshness without a date and authority without an entry: neither good nor bad.
pub const UNKNOWN: f64 = 0.5;

/// Each from 0 to 1, in four decimals, so that a record is the same wherever it is computed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Scores {
    /// The upstream's own, else by rank: 1/log2(rank + 1).
    pub relevance: f64,
    /// Halves with every half-life since `publishedAt`.
    pub freshness: f64,
    /// What the table of domains says of the host.
    pub authority: f64,
    /// The weighted sum of the three as they stand here.
    #[serde(rename = "final")]
    pub overall: f64,
}

/// Settings for scoring and filtering. Domains are lower-case ASCII and cover their subdomains.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    pub weights: Weights,
    /// Age at which freshness is 0.5.
    pub half_life: Duration,
    /// Sources with a lower final score are filtered.
    pub minimum: f64,
    /// Unless empty, sources of all other domains are filtered.
    pub allow: HashSet<String>,
    /// Sources of these domains are filtered, even if `allow` lists them.
    pub deny: HashSet<String>,
    /// Authority by domain, from 0 to 1.
    pub authority: HashMap<String, f64>,
}

/// Weights of the final score. They sum to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weights {
    relevance: f64,
    freshness: f64,
    authority: f64,
}

/// The rule that filtered a source, written to `metadata.filteredBy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterReason {
    Deny,
    Allow,
    Minimum,
}

/// The fields of a source that scores and filters depend on.
#[derive(Debug, Clone, Copy)]
pub struct ScoreInput<'a> {
    pub rank: u32,
    pub published_at: Option<&'a str>,
    pub hostname: Option<&'a str>,
    pub kind: CitationType,
}

impl<'a> From<&'a Citation> for ScoreInput<'a> {
    fn from(citation: &'a Citation) -> Self {
        Self {
            rank: citation.rank,
            published_at: citation.published_at.as_deref(),
            hostname: citation.hostname.as_deref(),
            kind: citation.kind,
        }
    }
}

impl Weights {
    pub const ALL_RELEVANCE: Self = Self { relevance: 1.0, freshness: 0.0, authority: 0.0 };

    /// `None` unless each weight is from 0 to 1 and they sum to 1 within 1e-9, the tolerance for binary rounding.
    pub fn new(relevance: f64, freshness: f64, authority: f64) -> Option<Self> {
        let valid = [relevance, freshness, authority].iter().all(|weight| (0.0..=1.0).contains(weight));
        let sum = relevance + freshness + authority;
        (valid && (sum - 1.0).abs() < 1e-9).then_some(Self { relevance, freshness, authority })
    }
}

impl FilterReason {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Allow => "allow",
            Self::Minimum => "minimum",
        }
    }
}

impl Rules {
    /// Scores a source as of `now`. `relevance` is the upstream's score; without it, the rank decides.
    pub fn score<'a>(&self, source: impl Into<ScoreInput<'a>>, relevance: Option<f64>, now: Timestamp) -> Scores {
        let source = source.into();
        let relevance =
            relevance.filter(|score| score.is_finite()).map_or_else(|| relevance_of_rank(source.rank), fraction);
        let freshness = source.published_at.and_then(parse_time).map_or(UNKNOWN, |time| self.freshness(time, now));
        let authority = source.hostname.map_or(UNKNOWN, |host| self.authority_of(host));
        let weights = &self.weights;
        let overall = weights.relevance * relevance + weights.freshness * freshness + weights.authority * authority;
        Scores { relevance, freshness, authority, overall: fraction(overall) }
    }

    /// Sets the citation's scores, and its status and reason if a rule filters it.
    pub fn score_and_filter(&self, citation: &mut Citation, relevance: Option<f64>, now: Timestamp) {
        let scores = self.score(&*citation, relevance, now);
        citation.scores = Some(scores);
        if let Some(reason) = self.filter_reason(&*citation, &scores) {
            citation.status = CitationStatus::Filtered;
            citation.metadata.insert("filteredBy".to_owned(), reason.as_str().into());
        }
    }

    /// The rule that filters the source, if any does.
    pub fn filter_reason<'a>(&self, source: impl Into<ScoreInput<'a>>, scores: &Scores) -> Option<FilterReason> {
        let ScoreInput { hostname: host, kind, .. } = source.into();
        let listed =
            |list: &HashSet<String>| host.is_some_and(|host| domain_suffixes(host).any(|domain| list.contains(domain)));
        // Documents of the upstream itself have no domain, so an allow list does not apply to them.
        let is_on_web = host.is_some() || kind == CitationType::Websearch;
        if listed(&self.deny) {
            Some(FilterReason::Deny)
        } else if !self.allow.is_empty() && is_on_web && !listed(&self.allow) {
            Some(FilterReason::Allow)
        } else {
            (scores.overall < self.minimum).then_some(FilterReason::Minimum)
        }
    }

    /// True if any rule can filter a source.
    pub fn has_filters(&self) -> bool {
        self.minimum > 0.0 || !self.allow.is_empty() || !self.deny.is_empty()
    }

    /// Authority of the longest domain in the table that is the host or a parent domain of it.
    fn authority_of(&self, host: &str) -> f64 {
        domain_suffixes(host).find_map(|domain| self.authority.get(domain)).map_or(UNKNOWN, |value| fraction(*value))
    }

    fn freshness(&self, published: Timestamp, now: Timestamp) -> f64 {
        // A future time is an embargo or a wrong clock: it counts as now.
        let age = now.duration_since(published).as_secs_f64().max(0.0);
        fraction((-age / self.half_life.as_secs_f64()).exp2())
    }
}

/// The host and its parent domains, longest first: `a.b.c`, `b.c`, `c`.
fn domain_suffixes(host: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(host.trim_end_matches('.')), |rest| rest.split_once('.').map(|(_, parent)| parent))
}

/// Relevance of a source without a score from the upstream: 1/log2(rank + 1).
fn relevance_of_rank(rank: u32) -> f64 {
    fraction(1.0 / (f64::from(rank.max(1)) + 1.0).log2())
}

/// Parses a publication time. A time without an offset is read as UTC: an error of hours is negligible against the half-life.
fn parse_time(published: &str) -> Option<Timestamp> {
    published.parse::<Timestamp>().ok().or_else(|| {
        let local = published.parse::<jiff::civil::DateTime>().ok()?;
        Some(local.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
    })
}

/// Clamps to 0..=1 and rounds to four decimals. NaN becomes 0.
pub(super) fn fraction(value: f64) -> f64 {
    if value.is_nan() { 0.0 } else { (value.clamp(0.0, 1.0) * 10_000.0).round() / 10_000.0 }
}

#[cfg(test)]
#[path = "score_tests.rs"]
mod tests;

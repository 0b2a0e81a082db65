//! How far to trust a source, as numbers from 0 to 1, and which sources an operator does not want.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::record::{Citation, CitationStatus, CitationType};

/// What is said of a source of which nothing is known: neither fresh nor old, neither good nor bad.
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

/// By what sources are scored and filtered. Domains are lower-case ASCII and cover what is below them.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    pub weights: Weights,
    pub half_life: Duration,
    /// Sources whose final score is below it are filtered.
    pub minimum: f64,
    /// Unless empty, sources elsewhere are filtered.
    pub allow: HashSet<String>,
    /// Sources here are filtered, also where `allow` has them.
    pub deny: HashSet<String>,
    pub authority: HashMap<String, f64>,
}

/// Shares of the final score; they sum to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weights {
    relevance: f64,
    freshness: f64,
    authority: f64,
}

/// Why a source is filtered; `metadata.filteredBy` of the citation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    Deny,
    Allow,
    Minimum,
}

/// What a source is judged by.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    pub rank: u32,
    pub published_at: Option<&'a str>,
    pub hostname: Option<&'a str>,
    pub kind: CitationType,
}

impl<'a> From<&'a Citation> for Facts<'a> {
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

    /// `None` unless each is from 0 to 1 and they sum to 1 (within what decimal fractions lose in binary).
    pub fn new(relevance: f64, freshness: f64, authority: f64) -> Option<Self> {
        let valid = [relevance, freshness, authority].iter().all(|weight| (0.0..=1.0).contains(weight));
        let sum = relevance + freshness + authority;
        (valid && (sum - 1.0).abs() < 1e-9).then_some(Self { relevance, freshness, authority })
    }
}

impl Refusal {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Allow => "allow",
            Self::Minimum => "minimum",
        }
    }
}

impl Rules {
    /// `relevance` is the upstream's own, where it says one.
    pub fn score<'a>(&self, of: impl Into<Facts<'a>>, relevance: Option<f64>, now: Timestamp) -> Scores {
        let of = of.into();
        let relevance = relevance.filter(|score| score.is_finite()).map_or_else(|| by_rank(of.rank), fraction);
        let freshness = of.published_at.and_then(instant).map_or(UNKNOWN, |at| self.fresh(at, now));
        let authority = of.hostname.map_or(UNKNOWN, |host| self.authority_of(host));
        let weights = &self.weights;
        let overall = weights.relevance * relevance + weights.freshness * freshness + weights.authority * authority;
        Scores { relevance, freshness, authority, overall: fraction(overall) }
    }

    /// Scores a citation and marks it where it is filtered.
    pub fn judge(&self, citation: &mut Citation, relevance: Option<f64>, now: Timestamp) {
        let scores = self.score(&*citation, relevance, now);
        citation.scores = Some(scores);
        if let Some(refusal) = self.refuses(&*citation, &scores) {
            citation.status = CitationStatus::Filtered;
            citation.metadata.insert("filteredBy".to_owned(), refusal.as_str().into());
        }
    }

    pub fn refuses<'a>(&self, source: impl Into<Facts<'a>>, scores: &Scores) -> Option<Refusal> {
        let Facts { hostname: host, kind, .. } = source.into();
        let listed = |list: &HashSet<String>| host.is_some_and(|host| suffixes(host).any(|part| list.contains(part)));
        // The upstream's own documents have no domain that a list could name.
        let placed = host.is_some() || kind == CitationType::Websearch;
        if listed(&self.deny) {
            Some(Refusal::Deny)
        } else if !self.allow.is_empty() && placed && !listed(&self.allow) {
            Some(Refusal::Allow)
        } else {
            (scores.overall < self.minimum).then_some(Refusal::Minimum)
        }
    }

    /// Could anything be filtered at all?
    pub fn has_filters(&self) -> bool {
        self.minimum > 0.0 || !self.allow.is_empty() || !self.deny.is_empty()
    }

    /// The longest suffix that the table has, at the boundary of a label.
    fn authority_of(&self, host: &str) -> f64 {
        suffixes(host).find_map(|part| self.authority.get(part)).map_or(UNKNOWN, |value| fraction(*value))
    }

    fn fresh(&self, published: Timestamp, now: Timestamp) -> f64 {
        // A time to come is an embargo or a wrong clock: as fresh as can be, not more.
        let age = now.duration_since(published).as_secs_f64().max(0.0);
        fraction((-age / self.half_life.as_secs_f64()).exp2())
    }
}

/// `a.b.c`, `b.c`, `c`.
fn suffixes(host: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(host.trim_end_matches('.')), |rest| rest.split_once('.').map(|(_, parent)| parent))
}

fn by_rank(rank: u32) -> f64 {
    fraction(1.0 / (f64::from(rank.max(1)) + 1.0).log2())
}

/// Without an offset it is read as UTC: half a day is nothing beside a half-life.
fn instant(published: &str) -> Option<Timestamp> {
    published.parse::<Timestamp>().ok().or_else(|| {
        let local = published.parse::<jiff::civil::DateTime>().ok()?;
        Some(local.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
    })
}

/// Within 0 and 1, to four decimals. What is not a number is 0.
pub(super) fn fraction(value: f64) -> f64 {
    if value.is_nan() { 0.0 } else { (value.clamp(0.0, 1.0) * 10_000.0).round() / 10_000.0 }
}

#[cfg(test)]
#[path = "score_tests.rs"]
mod tests;

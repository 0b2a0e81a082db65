//! Do several sources say it? One verdict over the sources that a message keeps.

use std::{collections::HashSet, net::IpAddr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    record::{Citation, CitationStatus},
    score::fraction,
    text::{self, WordLists},
};

/// An average from which agreement counts as a signal.
const TRIGGER: f64 = 0.6;
const MANY_RESULTS: usize = 5;
/// Characters of a title and of an excerpt that are read for words: what an event shows of an excerpt.
const EXCERPT: usize = 200;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Corroboration {
    /// Sources kept.
    pub source_count: u32,
    /// Registrable domains among them: `a.example.co.uk` and `b.example.co.uk` are one.
    pub unique_domains: u32,
    pub multi_source: bool,
    /// A source words it as an official statement. A hint, not a proof.
    pub official_confirmed: bool,
    pub sentiment: Sentiment,
    /// Of the final scores.
    pub average_score: f64,
    /// From 0 to 1, two decimals.
    pub confidence: f64,
    /// Several domains, and an average of 0.6 or more.
    pub triggered: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Sentiment {
    Positive,
    Negative,
    Neutral,
}

/// By what agreement is told.
#[derive(Debug, Clone)]
pub struct Rules {
    /// So many registrable domains are several sources.
    pub min_domains: usize,
    /// Official, positive and negative ones.
    pub words: WordLists<3>,
}

impl PartialEq for Rules {
    fn eq(&self, other: &Self) -> bool {
        (self.min_domains, self.words.lists()) == (other.min_domains, other.words.lists())
    }
}

impl Rules {
    /// `None` when nothing is kept: there is nothing to agree.
    pub fn corroborate(&self, citations: &[Citation]) -> Option<Corroboration> {
        let kept: Vec<&Citation> = citations.iter().filter(|citation| citation.status == CitationStatus::Ok).collect();
        if kept.is_empty() {
            return None;
        }
        let domains: HashSet<&str> =
            kept.iter().filter_map(|c| c.hostname.as_deref()).map(registrable_domain).collect();
        let (mut official, mut positive, mut negative) = (false, 0_u32, 0_u32);
        for citation in &kept {
            let [says_official, says_positive, says_negative] = self.words.matches(&read(citation));
            official |= says_official;
            positive += u32::from(says_positive);
            negative += u32::from(says_negative);
        }
        let scores = kept.iter().map(|citation| citation.scores.map_or(0.0, |scores| scores.overall));
        let average = fraction(scores.sum::<f64>() / kept.len() as f64);
        let multi_source = domains.len() >= self.min_domains;
        let bonus = |holds: bool, value: f64| if holds { value } else { 0.0 };
        let confidence =
            average + bonus(multi_source, 0.15) + bonus(official, 0.10) + bonus(kept.len() >= MANY_RESULTS, 0.05);
        Some(Corroboration {
            source_count: count(kept.len()),
            unique_domains: count(domains.len()),
            multi_source,
            official_confirmed: official,
            sentiment: match positive.cmp(&negative) {
                std::cmp::Ordering::Greater => Sentiment::Positive,
                std::cmp::Ordering::Less => Sentiment::Negative,
                std::cmp::Ordering::Equal => Sentiment::Neutral,
            },
            average_score: average,
            confidence: (fraction(confidence) * 100.0).round() / 100.0,
            triggered: multi_source && average >= TRIGGER,
        })
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Title and excerpt, lower-cased.
fn read(citation: &Citation) -> String {
    let start =
        |text: &Option<String>| text::lowercase(text::first_chars(text.as_deref().unwrap_or_default(), EXCERPT));
    start(&citation.title) + "\n" + &start(&citation.content)
}

/// The part of a host that somebody registered; the host itself where there is none, as with an address.
pub fn registrable_domain(host: &str) -> &str {
    let host = host.trim_end_matches('.');
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if bare.parse::<IpAddr>().is_ok() {
        return host;
    }
    psl::domain_str(host).unwrap_or(host)
}

#[cfg(test)]
#[path = "corroborate_tests.rs"]
mod tests;

//! Computes how far the kept sources of a message agree: domains, official statements, sentiment and a confidence.

use std::{collections::HashSet, net::IpAddr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    record::{Citation, CitationStatus},
    score::fraction,
    text::{self, WordLists},
};

/// Average score from which several domains set `triggered`.
const TRIGGER_AVERAGE: f64 = 0.6;
/// Sources from which the confidence gets a bonus.
const MANY_SOURCES: usize = 5;
/// Characters of a title and of a snippet that are searched for words: as many as an event shows of a snippet.
const SEARCHED_CHARS: usize = 200;

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

/// Settings of the verdict.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Registrable domains needed for `multi_source`.
    pub min_domains: usize,
    /// Words of official statements, of positive and of negative sentiment.
    pub words: WordLists<3>,
}

impl PartialEq for Rules {
    fn eq(&self, other: &Self) -> bool {
        (self.min_domains, self.words.lists()) == (other.min_domains, other.words.lists())
    }
}

impl Rules {
    /// The verdict on the citations that no filter removed; `None` if there are none.
    pub fn corroborate(&self, citations: &[Citation]) -> Option<Corroboration> {
        let kept: Vec<&Citation> = citations.iter().filter(|citation| citation.status == CitationStatus::Ok).collect();
        if kept.is_empty() {
            return None;
        }
        let domains: HashSet<&str> =
            kept.iter().filter_map(|c| c.hostname.as_deref()).map(registrable_domain).collect();
        let (mut official, mut positive, mut negative) = (false, 0_u32, 0_u32);
        for citation in &kept {
            let [is_official, is_positive, is_negative] = self.words.matches(&searched_text(citation));
            official |= is_official;
            positive += u32::from(is_positive);
            negative += u32::from(is_negative);
        }
        let scores = kept.iter().map(|citation| citation.scores.map_or(0.0, |scores| scores.overall));
        let average = fraction(scores.sum::<f64>() / kept.len() as f64);
        let multi_source = domains.len() >= self.min_domains;
        let bonus = |is_given: bool, value: f64| if is_given { value } else { 0.0 };
        let confidence =
            average + bonus(multi_source, 0.15) + bonus(official, 0.10) + bonus(kept.len() >= MANY_SOURCES, 0.05);
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
            triggered: multi_source && average >= TRIGGER_AVERAGE,
        })
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// The beginnings of title and snippet in lower case.
fn searched_text(citation: &Citation) -> String {
    let start =
        |text: &Option<String>| text::lowercase(text::first_chars(text.as_deref().unwrap_or_default(), SEARCHED_CHARS));
    start(&citation.title) + "\n" + &start(&citation.content)
}

/// The registrable domain of a host by the public suffix list; the host itself if it has none, such as an IP address.
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

//! Sources of a search of our own beside those that the upstream named. They join a record as supplemental, numbered
//! after the upstream's own: the model has not seen them, so they are never its citations.

use std::{collections::HashSet, sync::Arc};

use super::{
    Citation, Record, corroborate,
    ledger::MAX_CITATIONS,
    record::{CitationOrigin, CitationStatus, SearchRound, SupplementStatus},
    url::{self as links, source_id},
};

/// Sources that join one record; further ones only set `truncated`. The service gives no more when it is asked as we do.
pub const MAX_JOINED: usize = 20;
/// What stands for the query of a supplemental round: the query is the user's own text, and no record holds that.
const SUMMARY: &str = "supplemental search";

/// What became of a message's search.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum SearchOutcome {
    /// Nothing was searched.
    #[default]
    None,
    /// It is still on its way.
    Pending,
    Failed,
    /// The search's own record.
    Found(Arc<Record>),
}

/// Adds what was found to a record that holds the upstream's own sources, and says so in its stats. Nothing of the
/// search's query is taken over.
pub fn merge(record: &mut Record, supply: &SearchOutcome, rules: &corroborate::Rules) {
    record.stats.supplement = match supply {
        SearchOutcome::None => None,
        SearchOutcome::Pending => Some(SupplementStatus::Pending),
        SearchOutcome::Failed => Some(SupplementStatus::Failed),
        SearchOutcome::Found(found) if add(record, found) => {
            record.corroboration = rules.corroborate(&record.citations);
            Some(SupplementStatus::Joined)
        }
        SearchOutcome::Found(_) => Some(SupplementStatus::Empty),
    };
}

/// Says whether a source joined.
fn add(record: &mut Record, found: &Record) -> bool {
    // A document that got its URL later kept its first id, so both count.
    let canonical = |citation: &Citation| Some(source_id(&links::link(citation.url.as_deref()?, None)?.canonical));
    let known: HashSet<String> = record
        .citations
        .iter()
        .flat_map(|citation| [Some(citation.source_id.clone()), canonical(citation)])
        .flatten()
        .collect();
    let mut number =
        record.citations.iter().flat_map(|c| c.aliases.iter().chain([&c.number])).max().copied().unwrap_or(0);
    let mut round = SearchRound {
        round: record.rounds.iter().map(|round| round.round).max().unwrap_or(0) + 1,
        summary: Some(SUMMARY.to_owned()),
        failed_count: found.stats.failed_count,
        dedup_count: found.stats.dedup_count,
        provider: Some(found.provider.clone()),
        failures: found.rounds.iter().flat_map(|round| &round.failures).cloned().collect(),
        ..SearchRound::default()
    };
    let mut joined = 0;
    for citation in &found.citations {
        if known.contains(&citation.source_id) {
            round.dedup_count += 1;
            continue;
        }
        if joined >= MAX_JOINED || record.citations.len() >= MAX_CITATIONS {
            record.truncated = true;
            break;
        }
        // A number that the text names is not given away: the model did not mean this source.
        number += 1;
        while record.stats.dangling_markers.contains(&number) {
            number += 1;
        }
        let mut citation = Citation {
            number,
            aliases: Vec::new(),
            origin: CitationOrigin::Supplemental,
            cited: false,
            ..citation.clone()
        };
        citation.metadata.insert("round".to_owned(), round.round.into());
        match citation.status {
            CitationStatus::Filtered => record.stats.filtered_count += 1,
            _ => record.stats.kept_after_filter += 1,
        }
        record.citations.push(citation);
        joined += 1;
    }
    let stats = &mut record.stats;
    stats.failed_count += round.failed_count;
    stats.dedup_count += round.dedup_count;
    stats.total_returned = stats.kept_after_filter + stats.filtered_count + stats.failed_count + stats.dedup_count;
    if joined > 0 || round.failed_count + round.dedup_count > 0 {
        record.rounds.push(round);
    }
    joined > 0
}

#[cfg(test)]
#[path = "supplement_tests.rs"]
mod tests;

//! Merges the results of citetap's own search into a record, for `pipeline`. They are marked as supplemental and numbered after
//! the upstream's sources. The model has not seen them, so they are never cited.

use std::{collections::HashSet, sync::Arc};

use super::{
    Citation, Record, corroborate,
    ledger::MAX_CITATIONS,
    record::{CitationOrigin, CitationStatus, SearchRound, SupplementStatus},
    url::{self as links, source_id},
};

/// Supplemental sources per record; further ones only set `truncated`. Equals the upper limit of `search.max_results`.
pub const MAX_JOINED: usize = 20;
/// Replaces the query of a supplemental round, because the query is the user's text, which no record may contain.
const SUMMARY: &str = "supplemental search";

/// Outcome of the supplemental search of one message.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum SearchOutcome {
    /// No search was made.
    #[default]
    None,
    /// The search service has not responded yet.
    Pending,
    Failed,
    /// The record of the search results.
    Found(Arc<Record>),
}

/// Adds the search results to a record with the upstream's sources, and sets `stats.supplement`. The query is not copied.
pub fn merge(record: &mut Record, outcome: &SearchOutcome, rules: &corroborate::Rules) {
    record.stats.supplement = match outcome {
        SearchOutcome::None => None,
        SearchOutcome::Pending => Some(SupplementStatus::Pending),
        SearchOutcome::Failed => Some(SupplementStatus::Failed),
        SearchOutcome::Found(found) if join(record, found) => {
            record.corroboration = rules.corroborate(&record.citations);
            Some(SupplementStatus::Joined)
        }
        SearchOutcome::Found(_) => Some(SupplementStatus::Empty),
    };
}

/// Appends the sources that the record lacks, as a round of their own. Returns true if it appended any.
fn join(record: &mut Record, found: &Record) -> bool {
    // A document whose URL came later keeps the id without URL, so compare with both ids.
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
        // Skip numbers that the answer's text names: the model meant another source.
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

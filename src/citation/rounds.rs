//! The search rounds of one message in the ledger: queries, failed results and duplicates of each.

use super::{
    ledger::{MAX_ROUNDS, MAX_TITLE},
    ledger_entry::push_tight,
    record::{SearchFailure, SearchRound},
    text,
};

/// Queries kept over all rounds; the same query in two rounds counts twice.
pub const MAX_ROUND_QUERIES: usize = 256;
/// Failures kept over all rounds; further ones are only counted.
pub const MAX_FAILURES: usize = 1000;
/// Bytes kept of the upstream's id of a failed result.
const MAX_FAILURE_ID: usize = 128;

/// Search rounds in the order in which the upstream announced them.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// Round 0: results that came before the first announced search.
    unannounced: SearchRound,
    /// Rounds with the upstream's key of their search block.
    announced: Vec<(String, SearchRound)>,
    /// Number of the round that results belong to; 0 before the first announced one.
    current: usize,
    query_count: usize,
    failure_count: usize,
}

impl Rounds {
    /// Makes the round with this key current. Creates it if it is new; else adds the queries that it lacks.
    pub fn enter(&mut self, key: &str, summary: Option<&str>, queries: &[String]) {
        let known = self.announced.iter().position(|(known, _)| known == key);
        let index = known.unwrap_or_else(|| {
            if self.announced.len() < MAX_ROUNDS {
                let round = u32::try_from(self.announced.len()).unwrap_or_default() + 1;
                push_tight(&mut self.announced, (key.to_owned(), SearchRound { round, ..SearchRound::default() }), 1);
            }
            self.announced.len().saturating_sub(1)
        });
        self.current = index + 1;
        let Some((_, round)) = self.announced.get_mut(index) else { return };
        if let Some(summary) = summary {
            round.summary = Some(text::single_line(summary, MAX_TITLE));
        }
        for query in queries {
            if self.query_count < MAX_ROUND_QUERIES && !round.queries.contains(query) {
                push_tight(&mut round.queries, query.clone(), 1);
                self.query_count += 1;
            }
        }
    }

    /// Number of the current round, from 1; 0 before the first announced one.
    pub fn current_number(&self) -> u32 {
        u32::try_from(self.current).unwrap_or_default()
    }

    /// Counts a failed result in the current round, and keeps its details up to [`MAX_FAILURES`].
    pub fn add_failure(&mut self, id: Option<&str>, position: u32, code: &str) {
        let keep = self.failure_count < MAX_FAILURES;
        self.failure_count += usize::from(keep);
        let round = self.current_round();
        round.failed_count += 1;
        if keep {
            let id = id.map(|id| text::single_line(id, MAX_FAILURE_ID));
            round.failures.push(SearchFailure { position, id, error_code: code.to_owned() });
        }
    }

    pub fn add_duplicate(&mut self) {
        self.current_round().dedup_count += 1;
    }

    /// All rounds in order. Round 0 is listed only if it has sources or counts.
    pub fn list(&self, has_unannounced_sources: bool) -> Vec<SearchRound> {
        let has_unannounced = has_unannounced_sources || self.unannounced != SearchRound::default();
        let announced = self.announced.iter().map(|(_, round)| round);
        has_unannounced.then_some(&self.unannounced).into_iter().chain(announced).cloned().collect()
    }

    fn current_round(&mut self) -> &mut SearchRound {
        match self.current.checked_sub(1).and_then(|index| self.announced.get_mut(index)) {
            Some((_, round)) => round,
            None => &mut self.unannounced,
        }
    }
}

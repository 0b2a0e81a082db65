//! The searches of a message: what each asked for, and what of its results was unusable or known.

use super::{
    ledger::{MAX_ROUNDS, MAX_TITLE},
    ledger_entry::push_tight,
    record::{SearchFailure, SearchRound},
    text,
};

/// Queries kept over all rounds, where a query that is asked again counts again.
pub const MAX_ROUND_QUERIES: usize = 256;
/// Failures kept over all rounds; further ones are only counted.
pub const MAX_FAILURES: usize = 1000;
/// Of the upstream's id of what failed.
const MAX_FAILURE_ID: usize = 128;

#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// What came before any search was announced.
    before: SearchRound,
    /// By the upstream's key of the search block.
    named: Vec<(String, SearchRound)>,
    current: usize,
    queries: usize,
    failures: usize,
}

impl Rounds {
    /// A search block: new, or one that grew.
    pub fn enter(&mut self, key: &str, summary: Option<&str>, queries: &[String]) {
        let known = self.named.iter().position(|(name, _)| name == key);
        let index = known.unwrap_or_else(|| {
            if self.named.len() < MAX_ROUNDS {
                let round = u32::try_from(self.named.len()).unwrap_or_default() + 1;
                push_tight(&mut self.named, (key.to_owned(), SearchRound { round, ..SearchRound::default() }), 1);
            }
            self.named.len().saturating_sub(1)
        });
        self.current = index + 1;
        let Some((_, round)) = self.named.get_mut(index) else { return };
        if let Some(summary) = summary {
            round.summary = Some(text::single_line(summary, MAX_TITLE));
        }
        for query in queries {
            if self.queries < MAX_ROUND_QUERIES && !round.queries.contains(query) {
                push_tight(&mut round.queries, query.clone(), 1);
                self.queries += 1;
            }
        }
    }

    /// From 1; 0 before any search.
    pub fn number(&self) -> u32 {
        u32::try_from(self.current).unwrap_or_default()
    }

    pub fn failed(&mut self, id: Option<&str>, position: u32, code: &str) {
        let keep = self.failures < MAX_FAILURES;
        self.failures += usize::from(keep);
        let round = self.current();
        round.failed_count += 1;
        if keep {
            let id = id.map(|id| text::single_line(id, MAX_FAILURE_ID));
            round.failures.push(SearchFailure { position, id, error_code: code.to_owned() });
        }
    }

    pub fn duplicate(&mut self) {
        self.current().dedup_count += 1;
    }

    /// In order. What came before them counts as one only where there is something of it.
    pub fn list(&self, sources_before: bool) -> Vec<SearchRound> {
        let before = sources_before || self.before != SearchRound::default();
        let named = self.named.iter().map(|(_, round)| round);
        before.then_some(&self.before).into_iter().chain(named).cloned().collect()
    }

    fn current(&mut self) -> &mut SearchRound {
        match self.current.checked_sub(1).and_then(|index| self.named.get_mut(index)) {
            Some((_, round)) => round,
            None => &mut self.before,
        }
    }
}

//! Citations: the record, URLs, and the ledger that deduplicates and numbers sources while a message streams. From a list of
//! citations it computes scores, corroboration, search result bundles with their read order, and exports. Performs no I/O.

pub mod bundle;
pub mod corroborate;
pub mod export;
mod joiner;
pub mod ledger;
mod ledger_entry;
pub mod record;
mod rounds;
pub mod score;
mod source_index;
pub mod supplement;
pub mod task_reader;
pub mod text;
pub mod url;

pub use ledger::Ledger;
pub use record::{Citation, Record};

/// The operator's settings for sources.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    pub scores: score::Rules,
    pub corroboration: corroborate::Rules,
    pub intents: bundle::Intents,
}

//! Citations: their shape, their URLs, the ledger that numbers them, and what is made of a list of them: scores, a
//! verdict on how far they agree, bundles for an evidence pipeline and their read order, and the formats that they leave in.

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

pub use task_reader as reading;

pub use ledger::Ledger;
pub use record::{Citation, Record};

/// What an operator decides about sources.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    pub scores: score::Rules,
    pub corroboration: corroborate::Rules,
    pub intents: bundle::Intents,
}

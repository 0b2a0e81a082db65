//! Citations: their shape, their URLs, and the ledger that numbers them.

pub mod ledger;
pub mod record;
pub mod text;
pub mod url;

pub use ledger::Ledger;
pub use record::{Citation, Record};

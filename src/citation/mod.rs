//! Citations: their shape, their URLs, the ledger that numbers them, and the formats that they leave in.

pub mod export;
pub mod ledger;
pub mod record;
pub mod text;
pub mod url;

pub use ledger::Ledger;
pub use record::{Citation, Record};

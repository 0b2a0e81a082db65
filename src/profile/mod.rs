//! How a record is put on the wire.

pub mod native;

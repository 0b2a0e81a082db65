//! How a record is put on the wire.

pub mod native;
pub mod openai_shapes;

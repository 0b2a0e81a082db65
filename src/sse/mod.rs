//! SSE framing: splits bytes into frames, reads a frame's fields and writes our own frames. Knows no JSON.

pub mod encode;
pub mod fields;
pub mod splitter;

pub use encode::Eol;
pub use fields::Event;
pub use splitter::{Cut, Splitter};

//! Encodings and HTTP: h31 to h49.

mod bodies;
mod floods;
pub mod frames;
mod requests;
mod upstreams;

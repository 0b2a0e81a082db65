//! Doubao's web chat: its current protocol and the older "samantha" one, which share their
//! search blocks.

mod cards;
mod samantha;
mod web;

pub use samantha::Samantha;
pub use web::Web;

const PROVIDER: &str = "doubao";

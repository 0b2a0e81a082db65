//! What the fuzz targets do with an input. Each is a function of bytes that panics on a finding; `targets/` gives each
//! its own program.
//!
//! The targets of streams begin with [`input::HEAD`] bytes that choose the settings. The rest of an input is what a
//! stranger would send, as it is, so that kept inputs can be read and stay what they were when the code changes.

pub mod adapter;
pub mod input;
pub mod json;
pub mod link;
pub mod marker;
pub mod mutate;
pub mod record;
pub mod relay;
pub mod render;
pub mod splitter;
pub mod stream;

/// The strict clients of the integration tests.
#[path = "../../it/client.rs"]
pub mod client;

/// What they ask for.
mod net {
    pub use crate::stream::pieces as frames;
}

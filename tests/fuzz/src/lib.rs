//! The fuzz targets as functions of bytes that panic on a finding. `targets/` has one program for each.
//!
//! The first [`input::HEAD`] bytes of most inputs select the settings. The rest is the untrusted data itself, without an
//! encoding of our own, so that kept inputs are readable and keep their meaning when the code changes.

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

/// The module that `client` imports from the integration tests.
mod net {
    pub use crate::stream::pieces as frames;
}

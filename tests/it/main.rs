//! The integration tests, one binary.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

mod golden;
mod net;
mod promises;
mod relay;
mod sse_cases;
mod support;

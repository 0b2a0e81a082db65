//! The integration tests, one binary.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

mod golden;
mod promises;
mod sse_cases;
mod support;

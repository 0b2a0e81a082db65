//! The integration tests, one binary.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

mod api;
mod cli;
mod crash;
mod evidence;
mod facade;
mod golden;
mod net;
mod process;
mod promises;
mod relay;
mod serving;
mod sse_cases;
mod supplement;
mod support;

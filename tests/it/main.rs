//! The integration tests, one binary.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

mod api;
mod chance;
mod cli;
mod client;
mod console;
mod cors;
mod crash;
mod drain;
mod evidence;
mod facade;
mod faults;
mod golden;
mod health;
mod inputs;
mod listeners;
mod markers;
mod net;
#[cfg(feature = "otel")]
mod otel;
mod process;
mod promises;
mod promises_spoken;
mod provider;
mod relay;
mod replicas;
mod rooms;
mod secrets;
mod serving;
mod soak;
mod spoken;
mod sse_cases;
mod supplement;
mod support;
mod tenants;

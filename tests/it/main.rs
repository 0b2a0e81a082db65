//! The integration tests, one binary.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

mod api;
mod cli;
mod client;
mod console;
mod cors;
mod crash;
mod cross_site;
mod drain;
mod facade;
mod faults;
mod golden;
mod health;
mod host_check;
mod inputs;
mod listeners;
mod markers;
mod net;
#[cfg(feature = "otel")]
mod otel;
mod process;
mod promises;
mod promises_transcoded;
mod provider;
mod relay;
mod replicas;
mod rng;
mod rooms;
mod secrets;
mod serve;
mod soak;
mod sse_cases;
mod supplement;
mod support;
mod task_consumer;
mod tenants;
mod transcoded;

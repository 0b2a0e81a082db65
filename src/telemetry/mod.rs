//! Metrics, logs and traces: every metric name, span field and log setup in one place. Nothing here, nor any caller,
//! may record a user's text, a key or a URL's query.

mod metered_store;
mod metrics;
#[cfg_attr(not(feature = "otel"), path = "otel_off.rs")]
pub mod otel;
mod process;
mod prometheus_text;
mod store_metrics;

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, fmt::writer::BoxMakeWriter};

pub use metered_store::MeteredStore;
pub use metrics::*;
pub use store_metrics::{StoreCall, StoreMetrics};

use crate::config::{Log, LogFormat};

/// Where log lines go: stdout for the server, stderr for commands whose output is data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogTarget {
    Stdout,
    Stderr,
}

/// Starts logging and sets the panic hook. `RUST_LOG` overrides the configuration. Further calls have no effect.
pub fn init(log: &Log, to: LogTarget) {
    let filter = EnvFilter::try_from_default_env().or_else(|_| EnvFilter::try_new(&log.level));
    let filter = filter.unwrap_or_else(|_| EnvFilter::new("info"));
    let (writer, terminal) = match to {
        LogTarget::Stdout => (BoxMakeWriter::new(std::io::stdout), std::io::stdout().is_terminal()),
        LogTarget::Stderr => (BoxMakeWriter::new(std::io::stderr), std::io::stderr().is_terminal()),
    };
    let json = match log.format {
        LogFormat::Auto => !terminal,
        LogFormat::Json => true,
        LogFormat::Text => false,
    };
    let colour = terminal && std::env::var_os("NO_COLOR").is_none();
    let base = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_ansi(colour)
        .with_target(false)
        // On a failed write tracing would report to stderr, and panic if that fails too.
        .log_internal_errors(false);
    let started = if json { base.json().flatten_event(true).try_init() } else { base.try_init() };
    if started.is_ok() {
        // Log only the location: a panic message may contain untrusted input.
        std::panic::set_hook(Box::new(|panic| {
            let place = panic.location().map(|at| format!("{}:{}", at.file(), at.line()));
            tracing::error!(place, "panicked");
        }));
    }
}

//! Every metric, span field and log message name, once. Nothing here, nor anything that calls it,
//! names a user's text, a key or a URL's query.

mod classic;
mod measured;
mod metrics;
#[cfg_attr(not(feature = "otel"), path = "otel_off.rs")]
pub mod otel;
mod process;
mod store;

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, fmt::writer::BoxMakeWriter};

pub use measured::Measured;
pub use metrics::*;
pub use store::{Call, Operations};

use crate::config::{Log, LogFormat};

/// Where log lines go. A server's log is its output; other commands keep standard output for data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogTo {
    Stdout,
    Stderr,
}

/// Starts logging. `RUST_LOG` wins over the configuration. A second call changes nothing.
pub fn init(log: &Log, to: LogTo) {
    let filter = EnvFilter::try_from_default_env().or_else(|_| EnvFilter::try_new(&log.level));
    let filter = filter.unwrap_or_else(|_| EnvFilter::new("info"));
    let (writer, terminal) = match to {
        LogTo::Stdout => (BoxMakeWriter::new(std::io::stdout), std::io::stdout().is_terminal()),
        LogTo::Stderr => (BoxMakeWriter::new(std::io::stderr), std::io::stderr().is_terminal()),
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
        // It would say on standard error that a line was lost, and panic where nobody reads that either.
        .log_internal_errors(false);
    let started = if json { base.json().flatten_event(true).try_init() } else { base.try_init() };
    if started.is_ok() {
        // The message of a panic may hold what a stranger sent: only its place is logged.
        std::panic::set_hook(Box::new(|panic| {
            let place = panic.location().map(|at| format!("{}:{}", at.file(), at.line()));
            tracing::error!(place, "panicked");
        }));
    }
}

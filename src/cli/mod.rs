//! The command line: one module per command.
//!
//! Called by `main`. Commands write data to standard output and everything else to standard error (the log of `serve` is
//! its data). Exit codes: 0 success, 1 failure, 2 wrong usage.

mod check;
mod demo;
mod export;
mod health;
mod inherited;
mod notify;
mod providers;
mod replay;
mod search;
mod serve;
mod table;

use std::{
    fmt,
    io::{self, Write},
    process::ExitCode,
};

use clap::{CommandFactory, Parser, Subcommand};

use crate::config::ConfigErrors;

const VERSION: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (", env!("CITETAP_COMMIT"), ", stores: sqlite postgres redis memory)");

/// A proxy that taps the citations of AI chat streams, and stores what each answer is based on.
#[derive(Parser)]
#[command(name = "citetap", version = VERSION, propagate_version = true, arg_required_else_help = true)]
#[command(
    after_help = "Examples:\n  citetap demo\n  citetap serve --upstream https://chat.example.com --provider doubao"
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the proxy
    Serve(serve::Args),
    /// Run the proxy in front of a scripted upstream: no key, no network, no configuration
    Demo(demo::Args),
    /// Run a saved stream through the tap and show its citations
    Replay(replay::Args),
    /// Search the web through the configured service and show what was found
    Search(search::Args),
    /// Print a message's sources as Markdown, BibTeX, CSV or another format
    Export(export::Args),
    /// Check the configuration and show where each value came from
    Check(check::Args),
    /// Check whether a running citetap is up; for container health checks
    Health(health::Args),
    /// List the providers: name, what it is, what it reads, and where it is described
    #[command(after_help = "Examples:\n  citetap providers")]
    Providers,
    /// Print the OpenAPI document of the HTTP API, as /openapi.json has it
    #[command(after_help = "Examples:\n  citetap openapi > openapi.json\n  citetap openapi | jq '.paths | keys'")]
    Openapi,
    /// Print a completion script for a shell
    #[command(
        after_help = "Examples:\n  citetap completions bash > /etc/bash_completion.d/citetap\n  citetap completions zsh > ~/.zfunc/_citetap"
    )]
    Completions { shell: clap_complete::Shell },
}

/// Parses the arguments and runs the command.
pub fn main() -> ExitCode {
    match run(Args::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Pipe) => ExitCode::SUCCESS,
        Err(failure) => {
            let _ = writeln!(io::stderr(), "citetap: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(args) => current_thread_runtime()?.block_on(serve::run(args)),
        Command::Demo(args) => runtime()?.block_on(demo::run(args)),
        Command::Replay(args) => replay::run(&args),
        Command::Search(args) => runtime()?.block_on(search::run(args)),
        Command::Export(args) => runtime()?.block_on(export::run(args)),
        Command::Check(args) => runtime()?.block_on(check::run(args)),
        Command::Health(args) => runtime()?.block_on(health::run(args)),
        Command::Providers => providers::run(),
        Command::Openapi => print(crate::api::openapi::DOCUMENT.as_bytes()),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "citetap", &mut script);
            print(&script)
        }
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| Failure::Other(format!("could not start: {error}")))
}

/// Runtime of `serve` for everything but connections, which the workers serve on their own threads.
fn current_thread_runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::Other(format!("could not start: {error}")))
}

/// Writes `data` to standard output.
fn print(data: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(data).and_then(|()| out.flush()).map_err(Failure::from)
}

/// Why a command failed.
#[derive(Debug)]
enum Failure {
    Config(ConfigErrors),
    /// The reader closed standard output, as `head` does. Not an error.
    Pipe,
    Other(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(errors) => write!(f, "the configuration is not valid\n{errors}"),
            Self::Pipe => f.write_str("broken pipe"),
            Self::Other(what) => f.write_str(what),
        }
    }
}

impl From<ConfigErrors> for Failure {
    fn from(errors: ConfigErrors) -> Self {
        Self::Config(errors)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Self::Pipe } else { Self::Other(error.to_string()) }
    }
}

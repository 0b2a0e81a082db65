//! `citetap check`: validates the configuration and prints the effective settings.
//!
//! Called by `cli`. Changes nothing, and never prints a secret.

use std::{
    collections::BTreeSet,
    io::{self, Write},
    time::Duration,
};

use serde_json::json;
use tokio::net::TcpStream;

use super::{Failure, print, serve, table};
use crate::{
    config::{Config, Flags, Loaded},
    store,
    transport::{fd_limit, tls::Tls},
};

/// Maximum width of a list value in the table, in terminal cells.
const LIST_CELLS: usize = 32;

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  citetap check\n  citetap check --config citetap.toml --reach")]
pub struct Args {
    #[command(flatten)]
    flags: Flags,

    /// Also open the store and connect to each upstream, and to the search service if there is a key
    #[arg(long)]
    reach: bool,

    /// How to print the effective configuration
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Table,
    Json,
}

pub async fn run(args: Args) -> Result<(), Failure> {
    let Loaded { config, effective } = serve::load(&args.flags, &std::env::current_dir()?)?;
    let text = match args.output {
        Output::Table => {
            let rows: Vec<Vec<String>> = effective
                .iter()
                .map(|setting| vec![setting.key.clone(), truncate_list(&setting.value), setting.origin.to_string()])
                .collect();
            table::align(&rows)
        }
        Output::Json => {
            let settings: Vec<_> = effective
                .iter()
                .map(|s| json!({ "key": s.key, "value": s.value, "origin": s.origin.to_string() }))
                .collect();
            format!("{:#}\n", serde_json::Value::Array(settings))
        }
    };
    print(text.as_bytes())?;
    let streams = config.limits.streams;
    if let Some((needed, available)) = fd_limit::shortfall(streams) {
        log(&format!(
            "limits.streams = {streams} needs about {needed} open files, and there may be {available}: raise ulimit -Hn, or \
             lower it; beyond that new requests get 503"
        ));
    }
    if let Some(files) = &config.tls {
        let (_, validity) = Tls::load(files).map_err(|error| Failure::Other(error.to_string()))?;
        let now = jiff::Timestamp::now();
        match validity.trouble(now) {
            Some(trouble) if validity.is_over(now) => {
                return Err(Failure::Other(format!("{}: {trouble}", files.cert.display())));
            }
            Some(trouble) => log(&trouble),
            None => {}
        }
    }
    if args.reach {
        return reach(&config).await;
    }
    log("the configuration is valid");
    Ok(())
}

/// Truncates a long list, which would push the origin off the screen. The JSON output is complete.
fn truncate_list(value: &str) -> String {
    if value.starts_with('[') { table::fit(value, LIST_CELLS) } else { value.to_owned() }
}

/// Writes a line to standard error.
fn log(message: &str) {
    let _ = writeln!(io::stderr(), "{message}");
}

/// Connects to the store, the upstreams and the search service. Reports each result and fails if any of them failed.
async fn reach(config: &Config) -> Result<(), Failure> {
    let mut failed = 0;
    let mut report = |what: &str, result: Result<(), String>| match result {
        Ok(()) => log(&format!("ok      {what}")),
        Err(why) => {
            failed += 1;
            log(&format!("failed  {what}: {why}"));
        }
    };
    report("store", try_store(config).await);
    let mut seen = BTreeSet::new();
    let search = config.search.authorization.is_some().then_some(("search", &config.search.base_url));
    let upstreams = config.routes.iter().map(|route| ("upstream", &route.upstream));
    for (what, url) in upstreams.chain(search) {
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = url.port_or_known_default().unwrap_or(443);
        if seen.insert((host.clone(), port)) {
            let result = try_connect(&host, port, config.timeouts.connect).await;
            report(&format!("{what} {host}:{port}"), result);
        }
    }
    if failed == 0 { Ok(()) } else { Err(Failure::Other(format!("{failed} of {} checks failed", seen.len() + 1))) }
}

async fn try_store(config: &Config) -> Result<(), String> {
    let store = store::open(&config.store, config.records.ttl).await.map_err(|error| error.to_string())?;
    let result = store.ping().await.map_err(|error| error.to_string());
    if let Some(setup_warning) = store.setup_warning() {
        log(&format!("note    store: {setup_warning}"));
    }
    store.close().await;
    result
}

async fn try_connect(host: &str, port: u16, limit: Duration) -> Result<(), String> {
    match tokio::time::timeout(limit, TcpStream::connect((host, port))).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no connection within {} s", limit.as_secs_f64())),
    }
}

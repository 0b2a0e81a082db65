//! `citetap serve`.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
};

use super::Failure;
use crate::{
    config::{self, Config, Flags, Loaded},
    files,
    server::{self, App, Signals},
    telemetry::{self, LogTo},
};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    citetap serve --config citetap.toml\n  \
    CITETAP_UPSTREAM=https://lxapi.lexiangla.com CITETAP_PROVIDER=tencent citetap serve\n\n\
    Signals: SIGTERM and SIGINT drain, a second one stops at once; SIGHUP reads the routes again.\n\
    Telemetry: OTEL_EXPORTER_OTLP_ENDPOINT and the other OTEL_* variables; /metrics is always there.")]
pub struct Args {
    #[command(flatten)]
    flags: Flags,
}

pub async fn run(args: Args) -> Result<(), Failure> {
    let cwd = std::env::current_dir()?;
    let Loaded { config, .. } = load(&args.flags, &cwd)?;
    telemetry::init(&config.log, LogTo::Stdout);
    if let Some((needed, there)) = files::lacking(config.limits.streams) {
        tracing::warn!(
            streams = config.limits.streams,
            needed,
            there,
            "limits.streams needs more open files (ulimit -Hn)"
        );
    }
    let (listener, app) = start(config).await?;
    for route in &app.config.routes {
        tracing::info!(route = route.name, prefix = route.prefix, upstream = %route.upstream, provider = route.provider.as_str(), "route");
    }
    // Whoever reads that we listen may send a signal; one that is not heard yet would end us.
    let (signals, hangup) = (signals()?, signal(SignalKind::hangup())?);
    tracing::info!(listen = %listener.local_addr()?, version = crate::VERSION, "listening");
    tokio::spawn(reload(hangup, Arc::clone(&app), args.flags, cwd));
    server::run(listener, app, signals).await;
    Ok(())
}

pub fn load(flags: &Flags, cwd: &std::path::Path) -> Result<Loaded, Failure> {
    Ok(config::load(flags, std::env::vars_os(), cwd)?)
}

/// Opens the store and the port.
pub async fn start(config: Config) -> Result<(TcpListener, Arc<App>), Failure> {
    let files = files::raise();
    tracing::debug!(files, "open files that there may be");
    let listen: SocketAddr = config.listen;
    let listener = TcpListener::bind(listen).await.map_err(|error| {
        let hint = if error.kind() == std::io::ErrorKind::AddrInUse { "; choose another with --listen" } else { "" };
        Failure::Other(format!("could not listen on {listen}: {error}{hint}"))
    })?;
    let app = App::open(config).await.map_err(|error| Failure::Other(error.to_string()))?;
    Ok((listener, app))
}

/// The first SIGTERM or SIGINT drains, the second stops.
pub fn signals() -> Result<Signals, Failure> {
    let signals = Signals::default();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let heard = signals.clone();
    tokio::spawn(async move {
        for token in [heard.drain, heard.stop] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            token.cancel();
        }
    });
    Ok(signals)
}

/// SIGHUP: routes that load are taken, others leave everything as it is.
async fn reload(mut hangup: Signal, app: Arc<App>, flags: Flags, cwd: PathBuf) {
    while hangup.recv().await.is_some() {
        match config::load(&flags, std::env::vars_os(), &cwd) {
            Ok(loaded) => {
                let routes = loaded.config.routes.len();
                app.set_routes(loaded.config.routes);
                tracing::info!(routes, "routes reloaded; other settings take a restart");
            }
            Err(errors) => {
                for error in errors.iter() {
                    tracing::error!(%error, "routes not reloaded");
                }
            }
        }
    }
}

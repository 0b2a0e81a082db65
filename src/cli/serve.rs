//! `citetap serve`: opens the store and the listeners, runs the server, and handles signals.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{Failure, inherited::InheritedSockets, notify};
use crate::{
    config::{self, Config, Flags, Listen, Loaded, TlsFiles},
    server::{self, App, Signals},
    telemetry::{self, LogTarget},
    transport::{
        fd_limit,
        listener::{Listener, ListenerSet, Socket, Surface},
        tls::{Tls, Validity},
    },
};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    citetap serve --config citetap.toml\n  \
    CITETAP_UPSTREAM=https://lxapi.lexiangla.com CITETAP_PROVIDER=tencent citetap serve\n\n\
    Signals: SIGTERM and SIGINT drain, a second one stops at once; SIGHUP reads the routes and the certificate again.\n\
    Telemetry: OTEL_EXPORTER_OTLP_ENDPOINT and the other OTEL_* variables; /metrics is always there.")]
pub struct Args {
    #[command(flatten)]
    flags: Flags,
}

pub async fn run(args: Args) -> Result<(), Failure> {
    let cwd = std::env::current_dir()?;
    let Loaded { config, .. } = load(&args.flags, &cwd)?;
    telemetry::init(&config.log, LogTarget::Stdout);
    if let Some((needed, available)) = fd_limit::shortfall(config.limits.streams) {
        tracing::warn!(
            streams = config.limits.streams,
            needed,
            there = available,
            "limits.streams needs more open files (ulimit -Hn)"
        );
    }
    let inherited = InheritedSockets::from_env(&config)?;
    let Started { listeners, app, tls } = start(config, inherited).await?;
    for route in &app.config.routes {
        tracing::info!(route = route.name, prefix = route.prefix, upstream = %route.upstream, provider = route.provider.as_str(), "route");
    }
    // Install the signal handlers before logging "listening": a supervisor may send a signal right after that line, and
    // an unhandled one would kill the process.
    let (signals, hangup) = (signals()?, signal(SignalKind::hangup())?);
    let (chats, all) = (listeners.addresses(Surface::Chats)?, listeners.addresses(Surface::All)?);
    let (listen, admin) = if chats.is_empty() { (all, None) } else { (chats, Some(all)) };
    tracing::info!(listen, admin, tls = tls.is_some(), version = crate::VERSION, "listening");
    notify::ready();
    let draining = signals.drain.clone();
    tokio::spawn(async move {
        draining.cancelled().await;
        notify::stopping();
    });
    tokio::spawn(reload(hangup, Arc::clone(&app), tls, args.flags, cwd));
    serve(listeners, app, signals).await
}

/// Serves connections until the server has drained or was stopped.
pub async fn serve(listeners: ListenerSet, app: Arc<App>, signals: Signals) -> Result<(), Failure> {
    let served = server::run(listeners, app, signals).await;
    served.map_err(|error| Failure::Other(format!("could not start the threads that serve (workers): {error}")))
}

pub fn load(flags: &Flags, cwd: &Path) -> Result<Loaded, Failure> {
    Ok(config::load(flags, std::env::vars_os(), cwd)?)
}

/// An opened store and bound listeners.
pub struct Started {
    pub listeners: ListenerSet,
    pub app: Arc<App>,
    tls: Option<ReloadableTls>,
}

/// A certificate and the files from which SIGHUP reloads it.
struct ReloadableTls {
    tls: Arc<Tls>,
    files: TlsFiles,
}

/// Opens the store and binds the listeners.
pub async fn start(config: Config, inherited: InheritedSockets) -> Result<Started, Failure> {
    let files = fd_limit::raise();
    tracing::debug!(files, "open files that there may be");
    let tls = match &config.tls {
        Some(files) => {
            let (tls, validity) = Tls::load(files).map_err(|error| Failure::Other(error.to_string()))?;
            warn_expiry(validity);
            Some(ReloadableTls { tls: Arc::new(tls), files: files.clone() })
        }
        None => None,
    };
    let main = sockets(inherited.main, Some(&config.listen), "listen", config.socket_mode).await?;
    let admin = sockets(inherited.admin, config.admin_listen.as_ref(), "admin_listen", config.socket_mode).await?;
    let surface = if admin.is_empty() { Surface::All } else { Surface::Chats };
    let main_tls = tls.as_ref().map(|tls| Arc::clone(&tls.tls));
    let admin_tls = tls.as_ref().filter(|tls| tls.files.admin).map(|tls| Arc::clone(&tls.tls));
    let main = main.into_iter().map(|socket| Listener::new(socket, surface, main_tls.clone()));
    let admin = admin.into_iter().map(|socket| Listener::new(socket, Surface::All, admin_tls.clone()));
    let listeners = ListenerSet::new(main.chain(admin).collect());
    let app = App::open(config).await.map_err(|error| Failure::Other(error.to_string()))?;
    Ok(Started { listeners, app, tls })
}

/// Returns the inherited sockets, or binds the configured address if there are none.
async fn sockets(
    inherited: Vec<Socket>,
    listen: Option<&Listen>,
    key: &str,
    mode: u32,
) -> Result<Vec<Socket>, Failure> {
    let Some(listen) = listen.filter(|_| inherited.is_empty()) else { return Ok(inherited) };
    let failed = |error: std::io::Error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AddrInUse if key == "listen" => "; choose another with --listen",
            std::io::ErrorKind::AddrInUse => "; choose another",
            _ => "",
        };
        Failure::Other(format!("could not listen on {listen}: {error}{hint}"))
    };
    let socket = match listen {
        Listen::Tcp(address) => Socket::tcp(address).await.map_err(failed)?,
        Listen::Unix(path) => Socket::unix(path, mode).map_err(failed)?,
        Listen::Systemd => {
            let name = if key == "listen" { "" } else { " with FileDescriptorName=admin" };
            return Err(Failure::Other(format!(
                "{key} = \"systemd\", and no socket was handed over: start citetap by a .socket unit{name}, or name an address"
            )));
        }
    };
    Ok(vec![socket])
}

/// Logs a warning if the certificate has expired or expires soon.
fn warn_expiry(validity: Validity) {
    if let Some(trouble) = validity.trouble(jiff::Timestamp::now()) {
        tracing::warn!("{trouble}");
    }
}

/// Installs handlers for SIGTERM and SIGINT. The first signal drains the server, the second stops it.
pub fn signals() -> Result<Signals, Failure> {
    let signals = Signals::default();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let tokens = signals.clone();
    tokio::spawn(async move {
        for token in [tokens.drain, tokens.stop] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            token.cancel();
        }
    });
    Ok(signals)
}

/// Reloads routes and the certificate on SIGHUP. Each keeps its current value if the new one is invalid.
async fn reload(mut hangup: Signal, app: Arc<App>, mut tls: Option<ReloadableTls>, flags: Flags, cwd: PathBuf) {
    while hangup.recv().await.is_some() {
        notify::reloading();
        let configured = reload_routes(&app, &flags, &cwd);
        if let Some(ReloadableTls { tls, files }) = &mut tls {
            let new_files = configured.unwrap_or_else(|| files.clone());
            match tls.reload(&new_files) {
                Ok(validity) => {
                    tracing::info!(until = validity.until.map(tracing::field::display), "certificate reloaded");
                    warn_expiry(validity);
                    *files = new_files;
                }
                Err(error) => tracing::error!(%error, "certificate not reloaded"),
            }
        }
        notify::ready();
    }
}

/// Reloads the configuration and applies its routes. Returns its certificate files, or `None` if it is invalid.
fn reload_routes(app: &App, flags: &Flags, cwd: &Path) -> Option<TlsFiles> {
    match config::load(flags, std::env::vars_os(), cwd) {
        Ok(Loaded { config, .. }) => {
            let routes = config.routes.len();
            app.set_routes(config.routes);
            tracing::info!(routes, "routes reloaded; other settings take a restart");
            config.tls
        }
        Err(errors) => {
            for error in errors.iter() {
                tracing::error!(%error, "routes not reloaded");
            }
            None
        }
    }
}

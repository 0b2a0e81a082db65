//! `citetap serve`.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{Failure, handed::Handed, notify};
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
    if let Some((needed, there)) = fd_limit::shortfall(config.limits.streams) {
        tracing::warn!(
            streams = config.limits.streams,
            needed,
            there,
            "limits.streams needs more open files (ulimit -Hn)"
        );
    }
    let handed = Handed::take(&config)?;
    let Started { listeners, app, tls } = start(config, handed).await?;
    for route in &app.config.routes {
        tracing::info!(route = route.name, prefix = route.prefix, upstream = %route.upstream, provider = route.provider.as_str(), "route");
    }
    // Whoever reads that we listen may send a signal; one that is not heard yet would end us.
    let (signals, hangup) = (signals()?, signal(SignalKind::hangup())?);
    let (chats, whole) = (listeners.addresses(Surface::Chats)?, listeners.addresses(Surface::All)?);
    let (listen, admin) = if chats.is_empty() { (whole, None) } else { (chats, Some(whole)) };
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

/// To the end.
pub async fn serve(listeners: ListenerSet, app: Arc<App>, signals: Signals) -> Result<(), Failure> {
    let served = server::run(listeners, app, signals).await;
    served.map_err(|error| Failure::Other(format!("could not start the threads that serve (workers): {error}")))
}

pub fn load(flags: &Flags, cwd: &Path) -> Result<Loaded, Failure> {
    Ok(config::load(flags, std::env::vars_os(), cwd)?)
}

/// What is ready to serve.
pub struct Started {
    pub listeners: ListenerSet,
    pub app: Arc<App>,
    tls: Option<Reloads>,
}

/// A certificate, and where it is read again.
struct Reloads {
    tls: Arc<Tls>,
    files: TlsFiles,
}

/// Opens the store and the ports.
pub async fn start(config: Config, handed: Handed) -> Result<Started, Failure> {
    let files = fd_limit::raise();
    tracing::debug!(files, "open files that there may be");
    let tls = match &config.tls {
        Some(files) => {
            let (tls, validity) = Tls::load(files).map_err(|error| Failure::Other(error.to_string()))?;
            warn_of(validity);
            Some(Reloads { tls: Arc::new(tls), files: files.clone() })
        }
        None => None,
    };
    let main = sockets(handed.main, Some(&config.listen), "listen", config.socket_mode).await?;
    let admin = sockets(handed.admin, config.admin_listen.as_ref(), "admin_listen", config.socket_mode).await?;
    let surface = if admin.is_empty() { Surface::All } else { Surface::Chats };
    let of_main = tls.as_ref().map(|tls| Arc::clone(&tls.tls));
    let of_admin = tls.as_ref().filter(|tls| tls.files.admin).map(|tls| Arc::clone(&tls.tls));
    let main = main.into_iter().map(|socket| Listener::new(socket, surface, of_main.clone()));
    let admin = admin.into_iter().map(|socket| Listener::new(socket, Surface::All, of_admin.clone()));
    let listeners = ListenerSet::new(main.chain(admin).collect());
    let app = App::open(config).await.map_err(|error| Failure::Other(error.to_string()))?;
    Ok(Started { listeners, app, tls })
}

/// What was handed over, else what the configuration names.
async fn sockets(handed: Vec<Socket>, listen: Option<&Listen>, key: &str, mode: u32) -> Result<Vec<Socket>, Failure> {
    let Some(listen) = listen.filter(|_| handed.is_empty()) else { return Ok(handed) };
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

fn warn_of(validity: Validity) {
    if let Some(trouble) = validity.trouble(jiff::Timestamp::now()) {
        tracing::warn!("{trouble}");
    }
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

/// SIGHUP: routes that load are taken, others leave everything as it is; and so the certificate.
async fn reload(mut hangup: Signal, app: Arc<App>, mut tls: Option<Reloads>, flags: Flags, cwd: PathBuf) {
    while hangup.recv().await.is_some() {
        notify::reloading();
        let named = reload_routes(&app, &flags, &cwd);
        if let Some(Reloads { tls, files }) = &mut tls {
            let newer = named.unwrap_or_else(|| files.clone());
            match tls.reload(&newer) {
                Ok(validity) => {
                    tracing::info!(until = validity.until.map(tracing::field::display), "certificate reloaded");
                    warn_of(validity);
                    *files = newer;
                }
                Err(error) => tracing::error!(%error, "certificate not reloaded"),
            }
        }
        notify::ready();
    }
}

/// The certificate that the configuration names now, where it can be understood.
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

//! Connections: accepting, serving h1 and h2, draining.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use hyper_util::server::graceful::GracefulShutdown;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{
    App,
    carry::Way,
    connection::{Connection, Host, Protocols},
    door::{Doors, Peer, Visitor},
    porter::{Came, Porter},
};
use crate::{
    files::{Files, Room},
    workers::{Worker, Workers},
};

/// For a client that is told to come later to say what it wants.
const HASTE: Duration = Duration::from_millis(500);
/// For cut streams to get their last bytes out.
const LAST_BYTES: Duration = Duration::from_millis(500);
/// The same for those whose commit came with the flush.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// For the writer to flush when all streams are over.
const FLUSH: Duration = Duration::from_secs(5);

/// For a collector to take what is left.
const LAST_TELEMETRY: Duration = Duration::from_secs(2);

/// What the outside says to a running server.
#[derive(Clone, Default)]
pub struct Signals {
    /// Finish what is open, take nothing new.
    pub drain: CancellationToken,
    /// Stop now.
    pub stop: CancellationToken,
}

/// Serves until told to drain, then as `timeouts.drain` allows. Everything stored is flushed on return. An error: it could
/// not begin, or nobody can come in any more.
pub async fn run(doors: impl Into<Doors>, app: Arc<App>, signals: Signals) -> io::Result<()> {
    let graceful = Arc::new(GracefulShutdown::new());
    let files = Files::of_process();
    let (headers, closed) = (app.config.timeouts.request_headers, CancellationToken::new());
    let protocols = Protocols::new(&app, headers, app.config.timeouts.client_stall, &closed);
    let hasty = Protocols::brief(&app, HASTE.min(headers), &closed);
    let workers = Workers::start(app.config.workers)?;
    // They end with this function, whichever way.
    let mut chores = JoinSet::new();
    chores.spawn(sweep(Arc::clone(&app)));
    let watched = Arc::clone(&app);
    chores.spawn(async move { watched.stalls.watch(watched.config.timeouts.client_stall).await });
    let swept = Arc::clone(&app);
    chores.spawn(async move { swept.client.sweep().await });
    if let Some(peers) = &app.peers {
        chores.spawn(Arc::clone(peers).run());
    }
    let admitted = (Arc::clone(&app), Arc::clone(&graceful));
    let mut porter = Porter::start(&doors.into(), &workers, move |worker, came| {
        let (app, graceful) = &admitted;
        let Came { visitor, side, tls } = came;
        let room = files.room(&visitor);
        let protocols = match room {
            Room::Enough => &protocols,
            Room::Little => &hasty,
            Room::None => return,
        };
        let (protocols, watcher, is_full) = (Arc::clone(protocols), graceful.watcher(), room == Room::Little);
        let host = Host { app: Arc::clone(app), peer: Peer { ip: visitor.ip(), side }, is_full };
        match (visitor, tls) {
            (Visitor::Tcp(stream, _), None) => serve(worker, Connection::tcp(protocols, host, watcher, stream)),
            (Visitor::Tcp(stream, _), Some(tls)) => {
                serve(worker, Connection::tls(protocols, host, watcher, stream, tls));
            }
            (Visitor::Unix(stream), _) => serve(worker, Connection::unix(protocols, host, watcher, stream)),
        }
    })?;
    let closing = async {
        signals.drain.cancelled().await;
        app.draining.store(true, Ordering::Relaxed);
        tracing::info!("draining");
        // Load balancers hear of it from /readyz before the door closes.
        tokio::time::sleep(app.config.timeouts.drain_delay).await;
    };
    tokio::select! {
        () = closing => {}
        () = porter.ended() => return Err(io::Error::other("nobody is let in any more")),
        () = signals.stop.cancelled() => {}
    }
    tokio::select! {
        () = porter.close() => {}
        () = async {
            signals.stop.cancelled().await;
            tokio::time::sleep(LAST_WORDS).await;
        } => return Ok(()),
    }
    if signals.stop.is_cancelled() {
        return Ok(());
    }
    closed.cancel();
    let drained = async {
        tokio::select! {
            () = async {
                // The porter had another one.
                if let Some(graceful) = Arc::into_inner(graceful) {
                    graceful.shutdown().await;
                }
            } => {}
            () = async {
                tokio::time::sleep(app.config.timeouts.drain).await;
                tracing::info!(streams = app.streams.load(Ordering::Relaxed), "cutting the streams that are left");
                app.cut.cancel();
                tokio::time::sleep(LAST_BYTES).await;
            } => {}
        }
        if let Some(peers) = &app.peers {
            peers.leave().await;
        }
        chores.abort_all();
        // A client that takes nothing never asks its stream for the end; what the stream saw is stored all the same.
        app.stalls.look(Duration::ZERO);
        let writer = app.writer.clone();
        if tokio::time::timeout(FLUSH, writer.shutdown()).await.is_err() {
            tracing::warn!("the store did not flush in time");
        }
        let _ = tokio::time::timeout(LAST_WORDS, app.streams_over()).await;
        if let Some(otel) = &app.otel {
            otel.shutdown(LAST_TELEMETRY).await;
        }
        tracing::info!("stopped");
    };
    tokio::select! {
        () = drained => {}
        () = signals.stop.cancelled() => {}
    }
    Ok(())
}

impl App {
    async fn streams_over(&self) {
        while self.streams.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn serve<T: Way + Send + 'static>(worker: &Worker, connection: Connection<T>) {
    if connection.is_brief() {
        worker.serve(Box::pin(connection.briefly()));
    } else {
        worker.serve(connection);
    }
}

/// Removes what is past its time, now and then.
async fn sweep(app: Arc<App>) {
    let Some(ttl) = app.config.records.ttl else { return };
    let ttl_ms = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
    loop {
        let before = jiff::Timestamp::now().as_millisecond().saturating_sub(ttl_ms);
        match app.store.sweep(before).await {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "expired records removed"),
            Err(_) => tracing::warn!("sweep failed"),
        }
        tokio::time::sleep(app.config.records.sweep).await;
    }
}

//! The running server: every request finds its room here (operators, API, facade, relay), and the process its periodic work,
//! its drain and its end. `run` takes listeners, so tests need no flags.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use axum::{Router, body::Body};
use http::{Method, Request, Response};
use hyper::body::Incoming;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

pub use crate::app::App;
use crate::{
    api::{citations, console, cors, cross_site, facade, host_check, is_api, openapi},
    app::{
        faults,
        problem::{self, Problem},
    },
    ops, relay,
    transport::{
        listener::{ListenerSet, Peer, Surface},
        server::{Handler, Server},
    },
};

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
pub async fn run(listeners: impl Into<ListenerSet>, app: Arc<App>, signals: Signals) -> io::Result<()> {
    let listeners = listeners.into();
    // They end with this function, whichever way.
    let mut chores = JoinSet::new();
    chores.spawn(sweep(Arc::clone(&app)));
    let watched = Arc::clone(&app);
    chores.spawn(async move { watched.abandoned.watch(watched.config.timeouts.client_stall).await });
    if let Some(peers) = &app.peers {
        chores.spawn(Arc::clone(peers).run());
    }
    let mut server = Server::start(&listeners, &app.config, Requests::new(&app))?;
    drop(listeners);
    let closing = async {
        signals.drain.cancelled().await;
        app.draining.store(true, Ordering::Relaxed);
        tracing::info!("draining");
        // Load balancers see it at /readyz before the listeners close.
        tokio::time::sleep(app.config.timeouts.drain_delay).await;
    };
    tokio::select! {
        () = closing => {}
        () = server.accept_ended() => return Err(io::Error::other("no connection is accepted any more")),
        () = signals.stop.cancelled() => {}
    }
    tokio::select! {
        () = server.stop_accepting() => {}
        () = async {
            signals.stop.cancelled().await;
            tokio::time::sleep(LAST_WORDS).await;
        } => return Ok(()),
    }
    if signals.stop.is_cancelled() {
        return Ok(());
    }
    let drained = async {
        tokio::select! {
            () = server.finish_connections() => {}
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
        app.abandoned.drop_abandoned(Duration::ZERO);
        let writer = app.writer.clone();
        if tokio::time::timeout(FLUSH, writer.shutdown()).await.is_err() {
            tracing::warn!("the store did not flush in time");
        }
        let _ = tokio::time::timeout(LAST_WORDS, streams_over(&app)).await;
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

async fn streams_over(app: &App) {
    while app.streams.load(Ordering::Relaxed) > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Answers every request of the server.
#[derive(Clone)]
struct Requests {
    app: Arc<App>,
    api: Router,
}

impl Requests {
    fn new(app: &Arc<App>) -> Self {
        Self { app: Arc::clone(app), api: openapi::router().with_state(Arc::clone(app)).split_for_parts().0 }
    }

    async fn answer(self, request: Request<Incoming>, peer: Peer) -> Response<Body> {
        let Self { app, api } = self;
        let path = request.uri().path();
        if let Some(response) = ops::respond(&app, peer.surface, path, request.method(), request.headers()) {
            return response;
        }
        if peer.surface == Surface::All {
            if let Some(response) = openapi::answer(&request) {
                return response;
            }
            if is_api(path) || console::is_asked(&app, path) {
                return Box::pin(answer_api(&app, api, request)).await;
            }
            if let Some(response) = console::answer(&app, &request) {
                return response;
            }
        }
        if *request.method() == Method::TRACE {
            return Problem::refused(Method::TRACE.as_str()).response();
        }
        let routes = app.routes();
        if facade::answers(&routes, path) {
            return Box::pin(facade::answer(app, &routes, request, peer)).await;
        }
        relay::relay(app, request, peer).await
    }
}

impl Handler for Requests {
    type Body = Body;

    async fn handle(self, mut request: Request<Incoming>, peer: Peer) -> Response<Body> {
        let config = &self.app.config;
        if *request.method() == Method::CONNECT {
            return Problem::refused(Method::CONNECT.as_str()).response();
        }
        if let Err(problem) = host_check::check(config, &request, peer) {
            return problem.response();
        }
        let grant = cors::Grant::of(&config.cors, request.headers());
        if let Some(response) = grant.preflight(&request) {
            return response;
        }
        if let Err(problem) = cross_site::check(config, &grant, &mut request, peer) {
            return problem.response();
        }
        let mut response = self.answer(request, peer).await;
        grant.add_to(response.headers_mut());
        response
    }

    /// Operators' endpoints and nothing else.
    fn refuse(self, request: &Request<Incoming>, peer: Peer) -> Response<Body> {
        ops::respond(&self.app, peer.surface, request.uri().path(), request.method(), request.headers())
            .unwrap_or_else(|| Problem::crowded().closing().response())
    }
}

async fn answer_api(app: &App, api: Router, mut request: Request<Incoming>) -> Response<Body> {
    if let Err(problem) = relay::check(request.uri(), request.version(), request.headers()) {
        return problem.response();
    }
    let tenant = match app.tenant_of(request.headers_mut()) {
        Ok(tenant) => tenant,
        Err(problem) => return problem.response(),
    };
    request.extensions_mut().insert(citations::Asker(tenant.clone()));
    let response = match api.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    if response.status().is_server_error()
        && let Some(problem::ProblemType(kind)) = response.extensions().get().copied()
    {
        let of = faults::Of { tenant: &tenant, route: None, provider: None, request: None };
        app.faults.note(of, kind, response.status().as_u16());
    }
    response
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

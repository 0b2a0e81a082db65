//! The running server: dispatches each request to `ops`, `api` or `relay`, and runs periodic work, drain and shutdown.
//! `cli` calls [`run`] with open listeners, so that tests need no flags.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use axum::{Router, body::Body};
use http::{Method, Request, Response};
use hyper::body::Incoming;
use tokio::{runtime::Handle, task::JoinSet};
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

/// Time for streams that were cut to send their last bytes.
const CUT_GRACE: Duration = Duration::from_millis(500);
/// Time for streams to send their final event after the flush committed their records, and for listeners to close after
/// a stop.
const CLOSE_GRACE: Duration = Duration::from_millis(200);
/// Time limit of the writer's flush after all streams have ended.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit to export the remaining traces.
const OTEL_TIMEOUT: Duration = Duration::from_secs(2);

/// Signals to a running server.
#[derive(Clone, Default)]
pub struct Signals {
    /// Finish open requests and accept no new ones.
    pub drain: CancellationToken,
    /// Stop now.
    pub stop: CancellationToken,
}

/// Serves until `drain` is signaled, then for at most `timeouts.drain`. All records are flushed on return, except after
/// `stop`. Fails if the server cannot start, or if no listener accepts connections any more.
pub async fn run(listeners: impl Into<ListenerSet>, app: Arc<App>, signals: Signals) -> io::Result<()> {
    let listeners = listeners.into();
    // Dropping the set aborts its tasks when this function returns.
    let mut background = JoinSet::new();
    background.spawn(sweep(Arc::clone(&app)));
    let watched = Arc::clone(&app);
    background.spawn(async move { watched.abandoned.watch(watched.config.timeouts.client_stall).await });
    if let Some(peers) = &app.peers {
        background.spawn(Arc::clone(peers).run());
    }
    let mut server = Server::start(&listeners, &app.config, Dispatcher::new(&app))?;
    app.metrics.runtimes.set([&[Handle::current()], server.runtimes()].concat());
    drop(listeners);
    let drain_started = async {
        signals.drain.cancelled().await;
        app.draining.store(true, Ordering::Relaxed);
        tracing::info!("draining");
        // Load balancers must see /readyz fail before the listeners close.
        tokio::time::sleep(app.config.timeouts.drain_delay).await;
    };
    tokio::select! {
        () = drain_started => {}
        () = server.accept_ended() => return Err(io::Error::other("no connection is accepted any more")),
        () = signals.stop.cancelled() => {}
    }
    tokio::select! {
        () = server.stop_accepting() => {}
        () = async {
            signals.stop.cancelled().await;
            tokio::time::sleep(CLOSE_GRACE).await;
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
                tokio::time::sleep(CUT_GRACE).await;
            } => {}
        }
        if let Some(peers) = &app.peers {
            peers.leave().await;
        }
        background.abort_all();
        // A client that does not read never polls its stream to the end; dropping the stream stores its record.
        app.abandoned.drop_abandoned(Duration::ZERO);
        let writer = app.writer.clone();
        if tokio::time::timeout(FLUSH_TIMEOUT, writer.shutdown()).await.is_err() {
            tracing::warn!("the store did not flush in time");
        }
        let _ = tokio::time::timeout(CLOSE_GRACE, wait_for_streams(&app)).await;
        if let Some(otel) = &app.otel {
            otel.shutdown(OTEL_TIMEOUT).await;
        }
        tracing::info!("stopped");
    };
    tokio::select! {
        () = drained => {}
        () = signals.stop.cancelled() => {}
    }
    Ok(())
}

async fn wait_for_streams(app: &App) {
    while app.streams.load(Ordering::Relaxed) > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Dispatches every request of the server.
#[derive(Clone)]
struct Dispatcher {
    app: Arc<App>,
    api: Router,
}

impl Dispatcher {
    fn new(app: &Arc<App>) -> Self {
        Self { app: Arc::clone(app), api: openapi::router().with_state(Arc::clone(app)).split_for_parts().0 }
    }

    async fn dispatch(self, request: Request<Incoming>, peer: Peer) -> Response<Body> {
        let Self { app, api } = self;
        let path = request.uri().path();
        if let Some(response) = ops::respond(&app, peer.surface, path, request.method(), request.headers()) {
            return response;
        }
        if peer.surface == Surface::All {
            if let Some(response) = openapi::respond(&request) {
                return response;
            }
            if is_api(path) || console::is_status_api(&app, path) {
                return Box::pin(call_api(&app, api, request)).await;
            }
            if let Some(response) = console::respond(&app, &request) {
                return response;
            }
        }
        if *request.method() == Method::TRACE {
            return Problem::refused(Method::TRACE.as_str()).response();
        }
        let routes = app.routes();
        if facade::is_facade(&routes, path) {
            return Box::pin(facade::respond(app, &routes, request, peer)).await;
        }
        relay::relay(app, request, peer).await
    }
}

impl Handler for Dispatcher {
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
        let mut response = self.dispatch(request, peer).await;
        grant.add_to(response.headers_mut());
        response
    }

    /// Serves only the operator endpoints, because open files are short.
    fn refuse(self, request: &Request<Incoming>, peer: Peer) -> Response<Body> {
        ops::respond(&self.app, peer.surface, request.uri().path(), request.method(), request.headers())
            .unwrap_or_else(|| Problem::crowded().closing().response())
    }
}

async fn call_api(app: &App, api: Router, mut request: Request<Incoming>) -> Response<Body> {
    if let Err(problem) = relay::check(request.uri(), request.version(), request.headers()) {
        return problem.response();
    }
    let tenant = match app.tenant_of(request.headers_mut()) {
        Ok(tenant) => tenant,
        Err(problem) => return problem.response(),
    };
    request.extensions_mut().insert(citations::TenantName(tenant.clone()));
    let response = match api.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    if response.status().is_server_error()
        && let Some(problem::ProblemType(kind)) = response.extensions().get().copied()
    {
        let context = faults::FaultContext { tenant: &tenant, route: None, provider: None, request: None };
        app.faults.note(context, kind, response.status().as_u16());
    }
    response
}

/// Deletes expired records periodically.
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

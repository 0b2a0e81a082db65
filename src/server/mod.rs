//! The server: connections in, the relay and the API behind them. `run` takes a listener, so tests
//! need no ports or flags.

pub mod auth;
mod body;
mod carry;
mod citations;
mod connection;
mod console;
mod cors;
mod door;
mod facade;
mod faults;
mod foreign;
mod formats;
mod heads;
mod keeper;
mod listen;
mod live;
mod model;
mod negotiate;
mod normalize;
pub mod openapi;
mod ops;
mod outgoing;
mod peers;
mod plain;
mod porter;
pub mod problem;
mod rate;
mod records;
mod relay;
mod render;
mod request;
mod search;
mod stall;
mod stalled;
mod stats;
mod supplement;
mod tasks;
pub mod tls;
mod wants;

use std::sync::{
    Arc, PoisonError, RwLock,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use http::{HeaderMap, Method, Request, Response};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

pub use body::AnyBody;
use door::Peer;
pub use door::{Door, Doors, Listener, Side};
pub use listen::{Signals, run};
use live::Live;
use outgoing::Outgoing;
use peers::Peers;
use problem::Problem;
use request::Received;

use crate::{
    config::{Config, Route},
    pipeline::Budget,
    store::{self, Measured, Store, StoreError, writer::Writer},
    supplement::Tavily,
    telemetry::{Metrics, Operations, otel::Otel},
    upstream::Client,
};

/// Everything that requests share.
pub struct App {
    pub config: Config,
    routes: RwLock<Arc<Vec<Route>>>,
    pub store: Arc<dyn Store>,
    pub writer: Writer,
    pub metrics: Metrics,
    /// `None` unless the environment asks for it.
    otel: Option<Arc<Otel>>,
    client: Client<Outgoing>,
    live: Live,
    faults: faults::Faults,
    budget: Arc<Budget>,
    stalls: stalled::Stalls,
    rates: rate::Rates,
    /// Relayed requests that are open.
    streams: AtomicUsize,
    draining: AtomicBool,
    /// Cancelled when the streams that are left must end.
    cut: CancellationToken,
    /// Turns at `/normalize`.
    normalizing: Semaphore,
    /// Turns at `/tasks`.
    reading: Semaphore,
    /// In seconds since the epoch.
    started: i64,
    /// `None` without a key.
    search: Option<Tavily>,
    searching: Semaphore,
    /// Copies of requests whose query is searched for.
    copies: Arc<Budget>,
    supplementing: Semaphore,
    /// `None` where nobody shares the store.
    peers: Option<Arc<Peers>>,
    api: axum::Router,
}

impl App {
    /// Opens the store and starts its writer.
    pub async fn open(config: Config) -> Result<Arc<Self>, StoreError> {
        let store = store::open(&config.store, config.records.ttl).await?;
        let client = Client::new(config.timeouts.connect);
        Ok(Self::with(config, store, client, Otel::from_env()))
    }

    pub fn new(config: Config, store: Arc<dyn Store>, client: Client<Outgoing>) -> Arc<Self> {
        Self::with(config, store, client, None)
    }

    fn with(config: Config, store: Arc<dyn Store>, client: Client<Outgoing>, otel: Option<Arc<Otel>>) -> Arc<Self> {
        let operations = Operations::new(store.name());
        let store: Arc<dyn Store> = Measured::new(store, operations.clone());
        let writer = Writer::spawn(Arc::clone(&store), config.records.queue);
        let metrics = Metrics::new(writer.clone(), &operations, config.limits.streams);
        let live = Live::default();
        let peers = store.bus().map(|bus| Peers::new(bus, live.clone(), writer.clone()));
        Arc::new_cyclic(|app| Self {
            routes: RwLock::new(Arc::new(config.routes.clone())),
            budget: Budget::new(config.limits.held_total),
            client: client.for_workers(config.workers),
            live,
            peers,
            faults: faults::Faults::new(metrics.faults.clone()),
            stalls: stalled::Stalls::default(),
            rates: rate::Rates::new(&config),
            streams: AtomicUsize::new(0),
            draining: AtomicBool::new(false),
            cut: CancellationToken::new(),
            started: jiff::Timestamp::now().as_second(),
            normalizing: Semaphore::new(normalize::MAX_AT_ONCE),
            api: openapi::router(app).split_for_parts().0,
            reading: Semaphore::new(tasks::MAX_AT_ONCE),
            search: Tavily::new(&config.search, config.timeouts.connect),
            searching: Semaphore::new(search::MAX_AT_ONCE),
            copies: Budget::new(supplement::MAX_COPIES),
            supplementing: Semaphore::new(supplement::MAX_AT_ONCE),
            store,
            writer,
            metrics,
            otel,
            config,
        })
    }

    /// Requests from now on go by these; streams that are open keep theirs.
    pub fn set_routes(&self, routes: Vec<Route>) {
        *self.routes.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(routes);
    }

    fn routes(&self) -> Arc<Vec<Route>> {
        Arc::clone(&self.routes.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// One request, whatever it asks for, and whoever's page asks it.
    async fn handle(self: Arc<Self>, request: Request<Received>, peer: Peer) -> Response<AnyBody> {
        let grant = cors::Grant::of(&self.config.cors, request.headers());
        if let Some(response) = grant.preflight(&request) {
            return response;
        }
        let mut response = self.answer(request, peer).await;
        grant.put_on(response.headers_mut());
        response
    }

    async fn answer(self: Arc<Self>, request: Request<Received>, peer: Peer) -> Response<AnyBody> {
        let path = request.uri().path();
        if let Some(response) = ops::answer(&self, peer.side, path, request.method(), request.headers()) {
            return response;
        }
        if peer.side == Side::Whole {
            if let Some(response) = openapi::answer(&request) {
                return response;
            }
            if is_api(path) || console::is_asked(&self, path) {
                return Box::pin(self.api(request)).await;
            }
            if let Some(response) = console::answer(&self, &request) {
                return response;
            }
        }
        if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
            return Problem::refused(request.method().as_str()).response();
        }
        let routes = self.routes();
        if facade::answers(&routes, path) {
            return Box::pin(facade::answer(self, &routes, request, peer)).await;
        }
        relay::relay(self, request, peer).await
    }

    /// Whose request it is, and that it may be one more of theirs. Only whoever has shown a key can use an allowance up.
    fn asker(&self, headers: &mut HeaderMap) -> Result<String, Problem> {
        let tenant = auth::tenant(self.config.auth, &self.config.tenants, headers)?;
        match self.rates.take(&tenant) {
            Ok(()) => Ok(tenant),
            Err(problem) => {
                self.metrics.rate_limited.inc();
                tracing::debug!("a tenant asks too much");
                Err(problem)
            }
        }
    }

    /// One request when there is little room: what operators ask, and nothing else.
    fn turn_away(&self, request: &Request<Received>, side: Side) -> Response<AnyBody> {
        ops::answer(self, side, request.uri().path(), request.method(), request.headers())
            .unwrap_or_else(|| Problem::crowded().closing().response())
    }

    async fn api(&self, mut request: Request<Received>) -> Response<AnyBody> {
        if let Err(problem) = relay::check(request.version(), request.headers()) {
            return problem.response();
        }
        match self.asker(request.headers_mut()) {
            Ok(tenant) => {
                request.extensions_mut().insert(citations::Asker(tenant.clone()));
                let response = match self.api.clone().oneshot(request).await {
                    Ok(response) => response.map(AnyBody::Api),
                    Err(never) => match never {},
                };
                if response.status().is_server_error()
                    && let Some(problem::Kind(kind)) = response.extensions().get().copied()
                {
                    let of = faults::Of { tenant: &tenant, route: None, provider: None, request: None };
                    self.faults.note(of, kind, response.status().as_u16());
                }
                response
            }
            Err(problem) => problem.response(),
        }
    }
}

/// Paths that a tenant asks; they win over a route with prefix `/`.
fn is_api(path: &str) -> bool {
    matches!(path, "/citations" | "/normalize" | "/render" | "/search" | "/stats" | "/tasks")
        || path.starts_with("/citations/")
        || path.starts_with("/tasks/")
}

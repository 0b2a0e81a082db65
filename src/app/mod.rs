//! What all requests share: the configuration, the store, the upstream client, tenants' limits, messages in flight, and the
//! counts that bound them. `relay`, `api` and `ops` answer requests with it; it knows none of them.

pub mod abandoned;
pub mod auth;
pub mod faults;
pub mod in_flight;
pub mod negotiate;
pub mod peers;
pub mod problem;
pub mod rate;

use std::sync::{
    Arc, PoisonError, RwLock,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use axum::body::Body;
use http::HeaderMap;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{
    citation::Record,
    config::{Config, Route},
    pipeline::Budget,
    search::{self, Query, SearchError, Tavily},
    store::{self, Store, StoreError, writer::Writer},
    telemetry::{MeteredStore, Metrics, ResultLabel, StoreMetrics, otel::Otel},
    transport::client::Client,
};
use abandoned::AbandonedBodies;
use in_flight::Live;
use peers::Peers;
use problem::Problem;

/// Bodies that `/normalize` works through at one time: each takes a processor and some copies of itself.
pub const NORMALIZING: usize = 4;
/// Tasks that are read at one time, each with some messages in memory; others wait.
pub const READING: usize = 8;
/// Calls of `/search` at one time; further ones are refused, as each may hold an answer of 4 MiB.
pub const SEARCHING: usize = 32;
/// Searches beside chats at one time; beyond it requests are not searched for.
pub const SUPPLEMENTING: usize = 64;
/// Bytes of request bodies that are copied for their query, all together; beyond it requests are not searched for.
pub const COPIES: usize = 64 * 1024 * 1024;

pub struct App {
    pub config: Config,
    routes: RwLock<Arc<Vec<Route>>>,
    pub store: Arc<dyn Store>,
    pub writer: Writer,
    pub metrics: Metrics,
    /// `None` unless the environment asks for it.
    pub otel: Option<Arc<Otel>>,
    pub client: Client<Body>,
    pub live: Live,
    pub faults: faults::Faults,
    pub budget: Arc<Budget>,
    pub abandoned: AbandonedBodies,
    rates: rate::Rates,
    /// Relayed requests that are open.
    pub streams: AtomicUsize,
    pub draining: AtomicBool,
    /// Cancelled when the streams that are left must end.
    pub cut: CancellationToken,
    pub normalizing: Semaphore,
    pub reading: Semaphore,
    /// In seconds since the epoch.
    pub started: i64,
    /// `None` without a key.
    pub search: Option<Tavily>,
    pub searching: Semaphore,
    /// Copies of requests whose query is searched for.
    pub copies: Arc<Budget>,
    pub supplementing: Semaphore,
    /// `None` where nobody shares the store.
    pub peers: Option<Arc<Peers>>,
}

impl App {
    /// Opens the store and starts its writer.
    pub async fn open(config: Config) -> Result<Arc<Self>, StoreError> {
        let store = store::open(&config.store, config.records.ttl).await?;
        let client = Client::new(config.timeouts.connect);
        Ok(Self::with(config, store, client, Otel::from_env()))
    }

    pub fn new(config: Config, store: Arc<dyn Store>, client: Client<Body>) -> Arc<Self> {
        Self::with(config, store, client, None)
    }

    fn with(config: Config, store: Arc<dyn Store>, client: Client<Body>, otel: Option<Arc<Otel>>) -> Arc<Self> {
        let store_metrics = StoreMetrics::new(store.name());
        let store: Arc<dyn Store> = MeteredStore::new(store, store_metrics.clone());
        let writer = Writer::spawn(Arc::clone(&store), config.records.queue);
        let metrics = Metrics::new(writer.clone(), &store_metrics, config.limits.streams);
        let live = Live::default();
        let peers = store.bus().map(|bus| Peers::new(bus, live.clone(), writer.clone()));
        Arc::new(Self {
            routes: RwLock::new(Arc::new(config.routes.clone())),
            budget: Budget::new(config.limits.held_total),
            client: client.for_workers(config.workers),
            live,
            peers,
            faults: faults::Faults::new(metrics.faults.clone()),
            abandoned: AbandonedBodies::default(),
            rates: rate::Rates::new(&config),
            streams: AtomicUsize::new(0),
            draining: AtomicBool::new(false),
            cut: CancellationToken::new(),
            started: jiff::Timestamp::now().as_second(),
            normalizing: Semaphore::new(NORMALIZING),
            reading: Semaphore::new(READING),
            search: Tavily::new(&config.search, config.timeouts.connect),
            searching: Semaphore::new(SEARCHING),
            copies: Budget::new(COPIES),
            supplementing: Semaphore::new(SUPPLEMENTING),
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

    pub fn routes(&self) -> Arc<Vec<Route>> {
        Arc::clone(&self.routes.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// The tenant that sends a request, if it may send one more. Without a valid key nobody's allowance is used.
    pub fn tenant_of(&self, headers: &mut HeaderMap) -> Result<String, Problem> {
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

    /// One search through the search service, with its metrics.
    pub async fn search(&self, service: &Tavily, query: &Query) -> Result<Box<Record>, SearchError> {
        let context = search::context(Arc::clone(&self.config.rules));
        let answer = service.search(query).await;
        let found = answer.and_then(|answer| search::record(context, query, answer));
        let result = found.as_ref().map_or_else(SearchError::kind, |_| "ok");
        self.metrics.searches.get_or_create(&ResultLabel { result }).inc();
        if let Err(error) = &found {
            tracing::warn!(why = error.kind(), "search failed");
        }
        let (record, dropped) = found?;
        self.metrics.search_dropped.inc_by(dropped.into());
        Ok(record)
    }
}

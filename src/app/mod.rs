//! The state that all requests share: configuration, store, upstream client, rate limits, messages in flight, and the
//! semaphores that bound them. `relay`, `api` and `ops` use it; it must not import them.

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
use in_flight::LiveMessages;
use peers::Peers;
use problem::Problem;

/// Concurrent bodies in `/normalize` and `/render`. Each uses a core and several times its size in memory; others wait.
pub const NORMALIZE_PERMITS: usize = 4;
/// Concurrent reads of a task. Each holds some messages in memory; others wait.
pub const TASK_READ_PERMITS: usize = 8;
/// Concurrent calls of `/search`. Each may hold a response of 4 MiB; further ones are refused.
pub const SEARCH_PERMITS: usize = 32;
/// Concurrent supplementary searches. Further chats get none.
pub const SUPPLEMENT_PERMITS: usize = 64;
/// Bytes of all request bodies that are copied to extract a search query. Above it chats get no supplementary search.
pub const QUERY_COPY_BYTES: usize = 64 * 1024 * 1024;

/// The shared state of the process.
pub struct App {
    pub config: Config,
    routes: RwLock<Arc<Vec<Route>>>,
    pub store: Arc<dyn Store>,
    pub writer: Writer,
    pub metrics: Metrics,
    /// Exports traces; `None` unless the `OTEL_*` environment variables enable it.
    pub otel: Option<Arc<Otel>>,
    pub client: Client<Body>,
    pub live: LiveMessages,
    pub faults: faults::Faults,
    pub budget: Arc<Budget>,
    pub abandoned: AbandonedBodies,
    rates: rate::Rates,
    /// Number of open relayed requests.
    pub streams: AtomicUsize,
    pub draining: AtomicBool,
    /// Cancelled when the drain time is over: open streams end.
    pub cut: CancellationToken,
    pub normalizing: Semaphore,
    pub reading: Semaphore,
    /// Start of the process in seconds since the Unix epoch.
    pub started: i64,
    /// The search service; `None` if it has no key.
    pub search: Option<Tavily>,
    pub searching: Semaphore,
    /// Bounds the copies of request bodies that search queries are extracted from.
    pub copies: Arc<Budget>,
    pub supplementing: Semaphore,
    /// `None` if the store is not shared with other replicas.
    pub peers: Option<Arc<Peers>>,
}

impl App {
    /// Opens the store and starts its writer.
    pub async fn open(config: Config) -> Result<Arc<Self>, StoreError> {
        let store = store::open(&config.store, config.records.ttl).await?;
        let client = Client::new(config.timeouts.connect);
        Ok(Self::with(config, store, client, Otel::from_env()))
    }

    /// Uses the given store and client, and exports no traces.
    pub fn new(config: Config, store: Arc<dyn Store>, client: Client<Body>) -> Arc<Self> {
        Self::with(config, store, client, None)
    }

    fn with(config: Config, store: Arc<dyn Store>, client: Client<Body>, otel: Option<Arc<Otel>>) -> Arc<Self> {
        let store_metrics = StoreMetrics::new(store.name());
        let store: Arc<dyn Store> = MeteredStore::new(store, store_metrics.clone());
        let writer = Writer::spawn(Arc::clone(&store), config.records.queue);
        let metrics = Metrics::new(writer.clone(), &store_metrics, config.limits.streams);
        let live = LiveMessages::default();
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
            normalizing: Semaphore::new(NORMALIZE_PERMITS),
            reading: Semaphore::new(TASK_READ_PERMITS),
            search: Tavily::new(&config.search, config.timeouts.connect),
            searching: Semaphore::new(SEARCH_PERMITS),
            copies: Budget::new(QUERY_COPY_BYTES),
            supplementing: Semaphore::new(SUPPLEMENT_PERMITS),
            store,
            writer,
            metrics,
            otel,
            config,
        })
    }

    /// Replaces the routes for new requests; open streams keep theirs.
    pub fn set_routes(&self, routes: Vec<Route>) {
        *self.routes.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(routes);
    }

    pub fn routes(&self) -> Arc<Vec<Route>> {
        Arc::clone(&self.routes.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Returns the tenant of a request and counts the request against its rate limit. Without a valid key no limit counts
    /// it.
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

    /// Runs one search through the search service and counts it in the metrics.
    pub async fn search(&self, service: &Tavily, query: &Query) -> Result<Box<Record>, SearchError> {
        let context = search::context(Arc::clone(&self.config.rules));
        let response = service.search(query).await;
        let found = response.and_then(|response| search::record(context, query, response));
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

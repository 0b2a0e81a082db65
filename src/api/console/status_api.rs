//! The console's own API: the routes, and the state of the process and of the tenant's recent requests.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use axum::{Extension, extract::State, response::Response};
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    api::{
        citations::{TenantName, plain_json},
        openapi::only,
    },
    app::{App, faults::Fault, problem::Problem},
    config::{Auth, Route},
    provider::REGISTRY,
};

/// Maximum faults in a status.
const MAX_STATUS_FAULTS: usize = 50;

pub fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(only(routes!(routes))).routes(only(routes!(status)))
}

#[derive(Serialize, ToSchema)]
#[schema(as = ConsoleRoutes)]
struct ConsoleRoutes<'a> {
    tenant: &'a str,
    /// Is a key needed?
    keys: bool,
    routes: Vec<ConsoleRoute<'a>>,
    /// Providers that messages can be of.
    providers: Vec<&'static str>,
}

/// A route as its users may know it: where it leads to is the operator's.
#[derive(Serialize, ToSchema)]
#[schema(as = ConsoleRoute)]
struct ConsoleRoute<'a> {
    name: &'a str,
    prefix: &'a str,
    provider: &'static str,
    profile: &'static str,
    markers: &'static str,
    inject: &'static str,
    models: &'a [String],
    questions: &'a [String],
}

impl<'a> ConsoleRoute<'a> {
    fn of(route: &'a Route) -> Self {
        Self {
            name: &route.name,
            prefix: &route.prefix,
            provider: route.provider.as_str(),
            profile: route.output_format.profile.as_str(),
            markers: route.output_format.markers.as_str(),
            inject: route.inject.as_str(),
            models: route.mapping.as_ref().map_or(&[], |mapping| &mapping.models),
            questions: &route.questions,
        }
    }
}

/// The routes, as the console offers them
#[utoipa::path(
    get, path = "/console/routes", tag = "console",
    responses((status = 200, description = "The routes", body = ConsoleRoutes)),
)]
async fn routes(
    State(app): State<Arc<App>>,
    Extension(TenantName(tenant)): Extension<TenantName>,
) -> Result<Response, Problem> {
    let routes = app.routes();
    let body = ConsoleRoutes {
        tenant: &tenant,
        keys: app.config.auth == Auth::Keys,
        routes: routes.iter().map(ConsoleRoute::of).collect(),
        providers: REGISTRY.stream_providers().map(|provider| provider.name).collect(),
    };
    Ok(plain_json(StatusCode::OK, serde_json::to_vec(&body).unwrap_or_default()))
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ConsoleStatus)]
struct ConsoleStatus {
    version: &'static str,
    commit: &'static str,
    started_at: Option<String>,
    now: Option<String>,
    draining: bool,
    /// Relayed requests that are open, of all tenants.
    streams: usize,
    /// Is there a search service?
    search: bool,
    store: StoreStatus,
    /// The asker's own, newest first.
    faults: Vec<ConsoleFault>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct StoreStatus {
    kind: &'static str,
    healthy: bool,
    queued: usize,
    retrying: u64,
    /// `None` before the first.
    last_commit_ms: Option<f64>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ConsoleFault)]
struct ConsoleFault {
    at: Option<String>,
    route: Option<String>,
    provider: Option<&'static str>,
    what: &'static str,
    status: u16,
    request_id: Option<String>,
}

impl From<Fault> for ConsoleFault {
    fn from(fault: Fault) -> Self {
        let Fault { at_ms, route, provider, what, status, request, tenant: _ } = fault;
        Self { at: time(at_ms), route, provider, what, status, request_id: request.map(|id| id.to_string()) }
    }
}

/// Formats as RFC 3339.
fn time(ms: i64) -> Option<String> {
    jiff::Timestamp::from_millisecond(ms).ok().map(|time| time.to_string())
}

/// How it goes, as the console shows it
#[utoipa::path(
    get, path = "/console/status", tag = "console",
    responses((status = 200, description = "The state", body = ConsoleStatus)),
)]
async fn status(
    State(app): State<Arc<App>>,
    Extension(TenantName(tenant)): Extension<TenantName>,
) -> Result<Response, Problem> {
    let stats = app.writer.stats();
    let committed = stats.commits.load(Relaxed) > 0;
    let status = ConsoleStatus {
        version: crate::VERSION,
        commit: crate::COMMIT,
        started_at: time(app.started.saturating_mul(1000)),
        now: time(jiff::Timestamp::now().as_millisecond()),
        draining: app.is_draining(),
        streams: app.streams.load(Relaxed),
        search: app.search.is_some(),
        store: StoreStatus {
            kind: app.store.name(),
            healthy: app.writer.is_healthy(),
            queued: app.writer.queue_depth(),
            retrying: stats.waiting.load(Relaxed),
            last_commit_ms: committed.then(|| stats.last_commit().as_secs_f64() * 1000.0),
        },
        faults: app.faults.newest(&tenant, MAX_STATUS_FAULTS).into_iter().map(ConsoleFault::from).collect(),
    };
    Ok(plain_json(StatusCode::OK, serde_json::to_vec(&status).unwrap_or_default()))
}

//! Operator endpoints: `/healthz`, `/readyz`, `/metrics` and `/version`. Called by `server` for every request before
//! routing. Must never wait for the store.

use axum::body::Body;
use http::{HeaderMap, HeaderValue, Method, Response, header};
use serde::Serialize;
use utoipa::{OpenApi, ToSchema};

use crate::{
    app::{
        App,
        negotiate::weighed,
        problem::{Problem, ProblemJson},
    },
    transport::listener::Surface,
};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers an operator endpoint; `None` for any other path. Health and readiness are served on every listener, because
/// load balancers probe the listener they use; the rest only where the API is served.
pub fn respond(
    app: &App,
    surface: Surface,
    path: &str,
    method: &Method,
    headers: &HeaderMap,
) -> Option<Response<Body>> {
    match path {
        "/healthz" | "/readyz" => {}
        "/metrics" | "/version" if surface == Surface::All => {}
        _ => return None,
    }
    if !matches!(*method, Method::GET | Method::HEAD) {
        let mut refused: Response<Body> = Problem::method_not_allowed().response();
        refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET,HEAD"));
        return Some(refused);
    }
    Some(match path {
        "/healthz" => healthz(),
        "/readyz" => readyz(app),
        "/metrics" => metrics(app, headers),
        _ => version(),
    })
}

/// OpenAPI description of these endpoints.
pub fn openapi() -> utoipa::openapi::OpenApi {
    #[derive(OpenApi)]
    #[openapi(paths(healthz, readyz, metrics, version))]
    struct Ops;
    Ops::openapi()
}

/// Is it up?
#[utoipa::path(
    get, path = "/healthz", tag = "operators",
    responses((status = 200, description = "It is", body = String, content_type = "text/plain")),
)]
fn healthz() -> Response<Body> {
    text("text/plain; charset=utf-8", "ok\n".to_owned())
}

/// Is it ready: not draining, and able to store?
#[utoipa::path(
    get, path = "/readyz", tag = "operators",
    responses(
        (status = 200, description = "It is", body = String, content_type = "text/plain"),
        (status = 503, description = "It is not", body = ProblemJson, content_type = "application/problem+json"),
    ),
)]
fn readyz(app: &App) -> Response<Body> {
    ready(app).map_or_else(Problem::response, |()| text("text/plain; charset=utf-8", "ready\n".to_owned()))
}

/// Metrics: Prometheus' text format, or OpenMetrics for who asks for it
#[utoipa::path(
    get, path = "/metrics", tag = "operators",
    responses((
        status = 200,
        description = "The metrics",
        content((String = "text/plain"), (String = "application/openmetrics-text")),
    )),
)]
fn metrics(app: &App, headers: &HeaderMap) -> Response<Body> {
    app.metrics.ready.set(i64::from(ready(app).is_ok()));
    if accepts_open_metrics(headers) {
        text(OPEN_METRICS, app.metrics.open_metrics())
    } else {
        text(PROMETHEUS_TEXT, app.metrics.prometheus_text())
    }
}

#[derive(Serialize, ToSchema)]
struct Version {
    name: &'static str,
    version: &'static str,
    commit: &'static str,
}

/// Which version is it?
#[utoipa::path(
    get, path = "/version", tag = "operators",
    responses((status = 200, description = "This one", body = Version)),
)]
fn version() -> Response<Body> {
    let version = Version { name: "citetap", version: crate::VERSION, commit: crate::COMMIT };
    text("application/json", serde_json::to_string(&version).unwrap_or_default())
}

/// OpenMetrics only if the client names it and does not prefer plain text, which every scraper reads.
fn accepts_open_metrics(headers: &HeaderMap) -> bool {
    let weight = |names: &[&str]| {
        let weights = weighed(headers, header::ACCEPT).filter(|(name, _)| names.contains(name));
        weights.map(|(_, weight)| weight).max().unwrap_or_default()
    };
    let open = weight(&["application/openmetrics-text"]);
    open > 0 && open >= weight(&["text/plain"])
}

fn ready(app: &App) -> Result<(), Problem> {
    if app.is_draining() {
        return Err(Problem::draining());
    }
    if let Some(why) = app.writer.unhealthy_reason() {
        return Err(Problem::store(format!("{why}; chats go on, their records are kept for a later try")));
    }
    Ok(())
}

fn text(kind: &'static str, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

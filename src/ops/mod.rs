//! What operators ask: is it up, is it ready, what is it, how is it doing.

use axum::body::Body;
use http::{HeaderMap, HeaderValue, Method, Response, header};
use serde::Serialize;
use utoipa::{OpenApi, ToSchema};

use crate::{
    app::{
        App,
        negotiate::weighed,
        problem::{Json, Problem},
    },
    transport::listener::Surface,
};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers an operator's path; `None` for any other. Whoever balances the load of a door asks at that door whether it is
/// open; the rest is nobody's who chats.
pub fn answer(app: &App, surface: Surface, path: &str, method: &Method, headers: &HeaderMap) -> Option<Response<Body>> {
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

/// All of them, for the document of the API.
pub fn described() -> utoipa::openapi::OpenApi {
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
        (status = 503, description = "It is not", body = Json, content_type = "application/problem+json"),
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
    if wants_open_metrics(headers) {
        text(OPEN_METRICS, app.metrics.open_metrics())
    } else {
        text(CLASSIC, app.metrics.classic())
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

/// Only who names it gets it: everybody reads the older format.
fn wants_open_metrics(headers: &HeaderMap) -> bool {
    let weight = |names: &[&str]| {
        let asked = weighed(headers, header::ACCEPT).filter(|(name, _)| names.contains(name));
        asked.map(|(_, weight)| weight).max().unwrap_or_default()
    };
    let open = weight(&["application/openmetrics-text"]);
    open > 0 && open >= weight(&["text/plain"])
}

fn ready(app: &App) -> Result<(), Problem> {
    if app.is_draining() {
        return Err(Problem::draining());
    }
    if let Some(why) = app.writer.trouble() {
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

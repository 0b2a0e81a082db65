//! `POST /search`: runs a search and returns a bundle, a verdict and a record. Stores nothing.

use std::{sync::Arc, time::Duration};

use axum::{body::Body, extract::State, response::Response};
use http::StatusCode;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{citations::plain_json, normalize::read_body, openapi::only};
use crate::{
    app::{
        self, App,
        problem::{Problem, ProblemJson, unquoted},
    },
    search::{Ask, Found, Query, SearchError},
};

/// Maximum bytes of a request: a query and some lists of domains.
const MAX_BODY: u64 = 64 * 1024;

pub fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(only(routes!(search)))
}

/// A search through the configured service
///
/// As a bundle, a verdict on how far the sources agree, and a record. Nothing is kept.
#[utoipa::path(
    post, path = "/search", tag = "tools", request_body = Ask,
    responses(
        (status = 200, description = "What was found", body = Found),
        (status = 413, description = "The body is too large", body = ProblemJson, content_type = "application/problem+json"),
        (status = 502, description = "The service failed, refused its key or could not be reached", body = ProblemJson, content_type = "application/problem+json"),
        (status = 503, description = "No service is configured, it is busy, or its quota is used up", body = ProblemJson, content_type = "application/problem+json"),
        (status = 504, description = "The service did not answer in time", body = ProblemJson, content_type = "application/problem+json"),
    ),
)]
async fn search(State(app): State<Arc<App>>, body: Body) -> Result<Response, Problem> {
    let service = app.search.as_ref().ok_or_else(Problem::search_not_configured)?;
    let body = read_body(&app, body, MAX_BODY).await?.take();
    let ask: Ask = serde_json::from_slice(&body).map_err(|error| {
        Problem::bad_request(format!("expected JSON such as {{\"query\":\"…\"}}: {}", unquoted(&error)))
    })?;
    let query = Query::new(ask, &app.config.search).map_err(Problem::bad_request)?;
    let _permit = app
        .searching
        .try_acquire()
        .map_err(|_| Problem::busy(format!("{} searches are under way already", app::SEARCH_PERMITS)))?;
    let record = app.search(service, &query).await.map_err(problem)?;
    let unreadable = || problem(SearchError::Unreadable("it is no search response"));
    let found = Found::new(record, &app.config.rules).ok_or_else(unreadable)?;
    Ok(plain_json(StatusCode::OK, serde_json::to_vec(&found).unwrap_or_default()))
}

/// Maps a search error to a status: 400 for a query that the service refuses, 5xx for faults of the service or its key.
fn problem(error: SearchError) -> Problem {
    let detail = error.to_string();
    match error {
        SearchError::KeyRefused => Problem::search(StatusCode::BAD_GATEWAY, "search-key-refused", detail),
        SearchError::RateLimited(retry_after) => {
            let problem = Problem::search(StatusCode::SERVICE_UNAVAILABLE, "search-rate-limited", detail);
            problem.retry_after(retry_after.map_or(1, whole_seconds))
        }
        SearchError::QuotaUsedUp => Problem::search(StatusCode::SERVICE_UNAVAILABLE, "search-quota", detail),
        SearchError::Refused(_) => Problem::search(StatusCode::BAD_REQUEST, "search-refused", detail),
        SearchError::Timeout(_) => Problem::search(StatusCode::GATEWAY_TIMEOUT, "search-timeout", detail),
        SearchError::Unreachable(_) => Problem::search(StatusCode::BAD_GATEWAY, "search-unreachable", detail),
        SearchError::Status(_, retry_after) => {
            let problem = Problem::search(StatusCode::BAD_GATEWAY, "search-failed", detail);
            match retry_after {
                Some(delay) => problem.retry_after(whole_seconds(delay)),
                None => problem,
            }
        }
        SearchError::Unreadable(_) => Problem::search(StatusCode::BAD_GATEWAY, "search-unreadable", detail),
    }
}

/// Whole seconds, at least 1.
fn whole_seconds(delay: Duration) -> u32 {
    u32::try_from(delay.as_secs()).unwrap_or(u32::MAX).max(1)
}

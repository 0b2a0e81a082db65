//! `/citations`: records of messages, stored or in flight. A record is visible to its tenant only.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Extension,
    body::Body,
    extract::{
        Path, Query, State,
        rejection::{PathRejection, QueryRejection},
    },
    response::{IntoResponse, Response},
    routing::any,
};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{formats, openapi::only};
use crate::{
    app::{
        App,
        in_flight::Watched,
        problem::{Problem, ProblemJson},
    },
    citation::{Record, record::is_plain_id},
    profile::native::EVENT,
    sse::{Eol, encode},
    store::{Cursor, Filter, PAGE_DEFAULT, PAGE_MAX, StoreError},
};

/// Maximum of `?wait=`.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Interval of heartbeat comments on `/events`.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);
/// Time to wait, beyond `timeouts.commit`, for the record of a message that is on its way to the store.
const STORE_WAIT: Duration = Duration::from_millis(250);
/// Time limit of a delete, including the writes queued before it.
const DELETE_TIMEOUT: Duration = Duration::from_secs(5);

/// Name of the tenant that sent the request; a request extension that `server` sets.
#[derive(Clone)]
pub struct TenantName(pub String);

type Shared = State<Arc<App>>;
type IdPath = Result<Path<String>, PathRejection>;

pub fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(only(routes!(list)))
        .route("/citations/", any(|| async { Problem::bad_id() }))
        .routes(only(routes!(one, forget)))
        .routes(only(routes!(events)))
        .fallback(|| async { Problem::no_such_endpoint() })
}

pub fn store_problem(_: StoreError) -> Problem {
    tracing::warn!("store read failed");
    Problem::store("the store did not answer")
}

/// Refuses ids that citetap would not issue, so that no path, pattern or query is ever built from one.
fn message_id(id: IdPath) -> Result<String, Problem> {
    let Ok(Path(id)) = id else { return Err(Problem::bad_id()) };
    if is_plain_id(&id) { Ok(id) } else { Err(Problem::bad_id()) }
}

/// Parses the query string. The problem has axum's text without its prefix.
pub fn parse_query<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, Problem> {
    query.map(|Query(query)| query).map_err(|rejection| {
        let text = rejection.body_text();
        Problem::bad_request(text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text))
    })
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct RecordParams {
    /// Where two providers have the same id; else the newest.
    provider: Option<String>,
    /// Seconds to wait for a message in flight, 60 at most.
    #[param(minimum = 0)]
    wait: Option<f64>,
    /// Else `Accept` decides, else json.
    #[param(pattern = "^(json|bundle|markdown|footnotes|html|csv|bibtex|ris|csl|prompt)$")]
    format: Option<String>,
    /// In an export, only the sources that the answer cites.
    cited: Option<bool>,
    /// The language of an export's own words; else that of the sources.
    #[param(pattern = "^(zh|en)$")]
    lang: Option<String>,
}

/// What one message rests on
#[utoipa::path(
    get, path = "/citations/{messageId}", tag = "citations",
    params(
        ("messageId" = String, Path, description = "The message", pattern = "^[A-Za-z0-9._:-]{1,128}$"),
        RecordParams,
        ("if-none-match" = Option<String>, Header, description = "An etag of an earlier answer"),
    ),
    responses(
        (status = 200, description = "The record, or an export of it", headers(("etag" = String)), content(
            (formats::RecordOrBundles = "application/json"), (String = "text/html"), (String = "text/markdown"), (String = "text/csv"),
            (String = "application/x-bibtex"), (String = "application/x-research-info-systems"),
            (Vec<Object> = "application/vnd.citationstyles.csl+json"), (String = "text/plain"),
        )),
        (status = 202, description = "The message is in flight: the list so far, in the same formats", headers(("retry-after" = u32)), content(
            (formats::RecordOrBundles = "application/json"), (String = "text/html"), (String = "text/markdown"), (String = "text/csv"),
            (String = "application/x-bibtex"), (String = "application/x-research-info-systems"),
            (Vec<Object> = "application/vnd.citationstyles.csl+json"), (String = "text/plain"),
        )),
        (status = 304, description = "As the etag says"),
        (status = 404, description = "There is no record of this message", body = ProblemJson, content_type = "application/problem+json"),
    ),
)]
async fn one(
    State(app): Shared,
    Extension(TenantName(tenant)): Extension<TenantName>,
    id: IdPath,
    query: Result<Query<RecordParams>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id = message_id(id)?;
    let query = parse_query(query)?;
    let format = formats::requested_format(query.format.as_deref(), query.cited, query.lang.as_deref(), &headers)?;
    let wait = match query.wait {
        Some(seconds) => Duration::try_from_secs_f64(seconds)
            .map_err(|_| Problem::bad_request("wait is a number of seconds"))?
            .min(MAX_WAIT),
        None => Duration::ZERO,
    };
    let mut watched = match find(&app, &tenant, &id, query.provider.as_deref(), !wait.is_zero()).await? {
        Found::Stored(record) => return Ok(formats::respond(&record, format, &app.config.rules, &headers)),
        Found::InFlight(watched) => watched,
    };
    let is_done = tokio::time::timeout(wait, watched.done()).await.is_ok();
    let (last, _) = watched.now();
    // A stored record is read from the store, even if a supplementary search may still add to it.
    if !is_done && !last.stored {
        return Ok(formats::in_flight(&last, format, &app.config.rules));
    }
    let stored = app.store.get(&tenant, &id, Some(&last.provider)).await.map_err(store_problem)?;
    // A record with another nonce is of an earlier stream. If the store failed and has none of this stream, return the
    // last snapshot, which has `stored: false`.
    let stored = stored.map(|entry| entry.record).filter(|record| record.nonce == last.nonce);
    Ok(formats::respond(&stored.unwrap_or_else(|| (*last).clone()), format, &app.config.rules, &headers))
}

/// Where a message is found.
enum Found {
    InFlight(Watched),
    Stored(Box<Record>),
}

/// Finds a message: in flight before stored, because a stored record may be of an earlier stream with the same id. Other
/// replicas are asked before the store if the client waits or watches (`follows`), else only if the store has no record,
/// because that takes a message to all of them.
async fn find(app: &App, tenant: &str, id: &str, provider: Option<&str>, follows: bool) -> Result<Found, Problem> {
    let stored = async || {
        let entry = app.store.get(tenant, id, provider).await.map_err(store_problem)?;
        Ok(entry.map(|entry| Found::Stored(Box::new(entry.record))))
    };
    if let Some(watched) = in_flight_of(app, tenant, id, provider).await {
        return Ok(Found::InFlight(watched));
    }
    if !follows && let Some(found) = stored().await? {
        return Ok(found);
    }
    let is_mirrored = match &app.peers {
        Some(peers) => peers.find(tenant, id).await,
        None => false,
    };
    if is_mirrored && let Some(watched) = in_flight_of(app, tenant, id, provider).await {
        return Ok(Found::InFlight(watched));
    }
    // The message may have ended since the first look.
    let found = if follows || is_mirrored { stored().await? } else { None };
    found.ok_or_else(Problem::not_found)
}

/// The message if it is in flight and, if a provider is given, of this provider.
async fn in_flight_of(app: &App, tenant: &str, id: &str, provider: Option<&str>) -> Option<Watched> {
    let mut watched = app.live.watch(tenant, id, app.config.timeouts.commit + STORE_WAIT).await?;
    let is_match = provider.is_none_or(|provider| provider == watched.now().0.provider);
    is_match.then_some(watched)
}

/// The current record of a message, in flight or stored.
pub async fn current_record(app: &App, tenant: &str, id: &str, provider: Option<&str>) -> Result<Record, Problem> {
    if !is_plain_id(id) {
        return Err(Problem::bad_id());
    }
    Ok(match find(app, tenant, id, provider, false).await? {
        Found::InFlight(mut watched) => (*watched.now().0).clone(),
        Found::Stored(record) => *record,
    })
}

pub fn plain_json(status: StatusCode, body: Vec<u8>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (status, headers, body).into_response()
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ListParams {
    conversation: Option<String>,
    provider: Option<String>,
    /// A source's host, or a domain above it.
    domain: Option<String>,
    /// Words in titles, excerpts and queries.
    q: Option<String>,
    /// A time such as 2026-01-13T09:18:07Z, a date, or milliseconds since the epoch. This one counts, `until` does not.
    since: Option<String>,
    until: Option<String>,
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// `next` of the page before.
    cursor: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = CitationList)]
struct CitationList {
    items: Vec<Record>,
    /// `cursor` of the next page; null on the last one.
    next: Option<String>,
}

/// Records, newest first
#[utoipa::path(
    get, path = "/citations", tag = "citations", params(ListParams),
    responses((status = 200, description = "A page", body = CitationList)),
)]
async fn list(
    State(app): Shared,
    Extension(TenantName(tenant)): Extension<TenantName>,
    query: Result<Query<ListParams>, QueryRejection>,
) -> Result<Response, Problem> {
    let query = parse_query(query)?;
    let limit = query.limit.unwrap_or(PAGE_DEFAULT);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(Problem::bad_request(format!("limit is a number from 1 to {PAGE_MAX}")));
    }
    let cursor = match query.cursor {
        Some(text) => Some(Cursor::decode(&text).ok_or_else(|| Problem::bad_request("cursor is not one of ours"))?),
        None => None,
    };
    let filter = Filter {
        task: None,
        conversation: query.conversation,
        provider: query.provider,
        domain: query.domain.map(|domain| domain.trim().to_ascii_lowercase()),
        q: query.q,
        since_ms: query.since.as_deref().map(|text| parse_time("since", text)).transpose()?,
        until_ms: query.until.as_deref().map(|text| parse_time("until", text)).transpose()?,
        limit,
        cursor,
    };
    let page = app.store.list(&tenant, &filter).await.map_err(store_problem)?;
    let list = CitationList {
        items: page.entries.into_iter().map(|entry| entry.record).collect(),
        next: page.next.map(|cursor| cursor.encode()),
    };
    Ok(plain_json(StatusCode::OK, serde_json::to_vec(&list).unwrap_or_default()))
}

/// Parses `2026-01-13T09:18:07Z`, `2026-01-13` (its first instant in UTC), or milliseconds since the Unix epoch.
pub fn parse_time(name: &str, text: &str) -> Result<i64, Problem> {
    if let Ok(ms) = text.parse::<i64>() {
        return Ok(ms);
    }
    let instant = text.parse::<jiff::Timestamp>().ok();
    let day =
        || text.parse::<jiff::civil::Date>().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|day| day.timestamp());
    let time = instant.or_else(day);
    time.map(jiff::Timestamp::as_millisecond)
        .ok_or_else(|| Problem::bad_request(format!("{name} is a time such as 2026-01-13T09:18:07Z, or a date")))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ProviderParam {
    /// Where two providers have the same id.
    provider: Option<String>,
}

/// Forget a message
#[utoipa::path(
    delete, path = "/citations/{messageId}", tag = "citations",
    params(
        ("messageId" = String, Path, description = "The message", pattern = "^[A-Za-z0-9._:-]{1,128}$"),
        ProviderParam,
    ),
    responses(
        (status = 204, description = "It is gone"),
        (status = 404, description = "There is no record of this message", body = ProblemJson, content_type = "application/problem+json"),
    ),
)]
async fn forget(
    State(app): Shared,
    Extension(TenantName(tenant)): Extension<TenantName>,
    id: IdPath,
    query: Result<Query<ProviderParam>, QueryRejection>,
) -> Result<StatusCode, Problem> {
    let id = message_id(id)?;
    let provider = parse_query(query)?.provider;
    let deleted = tokio::time::timeout(DELETE_TIMEOUT, app.writer.delete(&tenant, &id, provider.as_deref())).await;
    match deleted {
        Ok(Ok(0)) => Err(Problem::not_found()),
        Ok(Ok(_)) => {
            app.live.forget(&tenant, &id, provider.as_deref());
            if let Some(peers) = &app.peers {
                peers.forget(&tenant, &id, provider.as_deref()).await;
            }
            Ok(StatusCode::NO_CONTENT)
        }
        _ => Err(Problem::store("the store did not confirm that the record is gone")),
    }
}

/// The record as it grows, as server-sent events
///
/// Each is named `citations`, and its data is the record; the last one is final. A stored record is one event.
#[utoipa::path(
    get, path = "/citations/{messageId}/events", tag = "citations",
    params(
        ("messageId" = String, Path, description = "The message", pattern = "^[A-Za-z0-9._:-]{1,128}$"),
        ProviderParam,
    ),
    responses(
        (status = 200, description = "The events", body = String, content_type = "text/event-stream"),
        (status = 404, description = "There is no record of this message", body = ProblemJson, content_type = "application/problem+json"),
    ),
)]
async fn events(
    State(app): Shared,
    Extension(TenantName(tenant)): Extension<TenantName>,
    id: IdPath,
    query: Result<Query<ProviderParam>, QueryRejection>,
) -> Result<Response, Problem> {
    let id = message_id(id)?;
    let provider = parse_query(query)?.provider;
    let body = match find(&app, &tenant, &id, provider.as_deref(), true).await? {
        Found::InFlight(watched) => Body::from_stream(watch_events(watched)),
        Found::Stored(record) => Body::from(event(&record)),
    };
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache, no-transform"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    Ok((headers, body).into_response())
}

fn event(record: &Record) -> Bytes {
    encode::event(EVENT, &serde_json::to_string(record).unwrap_or_default(), Eol::Lf)
}

/// One event for each change of the record until it is final.
fn watch_events(mut watched: Watched) -> impl futures_util::Stream<Item = Result<Bytes, Infallible>> {
    async_stream::stream! {
        loop {
            let (record, done) = watched.now();
            yield Ok(event(&record));
            if done {
                return;
            }
            loop {
                match tokio::time::timeout(HEARTBEAT_INTERVAL, watched.changed()).await {
                    Ok(true) => break,
                    // The sender was dropped: the final record was already sent.
                    Ok(false) => return,
                    Err(_) => yield Ok(encode::heartbeat(Eol::Lf)),
                }
            }
        }
    }
}

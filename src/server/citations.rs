//! `/citations`: what messages rest on. A record belongs to a tenant; to others it is unknown.

use std::{
    convert::Infallible,
    sync::{Arc, Weak},
    time::Duration,
};

use axum::{
    Extension, Router,
    body::Body,
    extract::{
        Path, Query, State,
        rejection::{PathRejection, QueryRejection},
    },
    response::{IntoResponse, Response},
    routing::{any, get},
};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use serde::{Deserialize, Serialize};

use super::{App, formats, live::Watched, problem::Problem};
use crate::{
    citation::{Record, record::is_plain_id},
    profile::native::EVENT,
    sse::{Eol, encode},
    store::{Cursor, Filter, PAGE_DEFAULT, PAGE_MAX, StoreError},
};

/// The longest `?wait=`.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Between comments on a silent `/events`.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// For a record on its way to the store to be known, beyond the time of its commit.
const STORE_WAIT: Duration = Duration::from_millis(250);
/// For a delete to get its turn behind the writes that wait.
const DELETE_WAIT: Duration = Duration::from_secs(5);

/// The tenant that asks; put there by the server.
#[derive(Clone)]
pub struct Asker(pub String);

type Shared = State<Weak<App>>;
type Id = Result<Path<String>, PathRejection>;

pub fn router(app: Weak<App>) -> Router {
    Router::new()
        .route("/citations", get(list).fallback(|| async { Problem::method_not_allowed() }))
        .route("/citations/", any(|| async { Problem::bad_id() }))
        .route("/citations/{id}", get(one).delete(forget).fallback(|| async { Problem::method_not_allowed() }))
        .route("/citations/{id}/events", get(events).fallback(|| async { Problem::method_not_allowed() }))
        .fallback(|| async { Problem::no_such_endpoint() })
        .with_state(app)
}

pub(super) fn app(state: &Weak<App>) -> Result<Arc<App>, Problem> {
    state.upgrade().ok_or_else(Problem::draining)
}

pub(super) fn store_problem(_: StoreError) -> Problem {
    tracing::warn!("store read failed");
    Problem::store("the store did not answer")
}

/// Exact match only, and only of ids that we would give: no path, pattern or query is ever made of one.
fn checked(id: Id) -> Result<String, Problem> {
    let Ok(Path(id)) = id else { return Err(Problem::bad_id()) };
    if is_plain_id(&id) { Ok(id) } else { Err(Problem::bad_id()) }
}

pub(super) fn read<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, Problem> {
    query.map(|Query(query)| query).map_err(|rejection| {
        let text = rejection.body_text();
        Problem::bad_request(text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text))
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct One {
    provider: Option<String>,
    /// Seconds.
    wait: Option<f64>,
    /// See [`formats`], as the next two.
    format: Option<String>,
    cited: Option<bool>,
    lang: Option<String>,
}

async fn one(
    State(state): Shared,
    Extension(Asker(tenant)): Extension<Asker>,
    id: Id,
    query: Result<Query<One>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let app = app(&state)?;
    let id = checked(id)?;
    let query = read(query)?;
    let wanted = formats::wanted(query.format.as_deref(), query.cited, query.lang.as_deref(), &headers)?;
    let wait = match query.wait {
        Some(seconds) => Duration::try_from_secs_f64(seconds)
            .map_err(|_| Problem::bad_request("wait is a number of seconds"))?
            .min(MAX_WAIT),
        None => Duration::ZERO,
    };
    let mut watched = match find(&app, &tenant, &id, query.provider.as_deref(), !wait.is_zero()).await? {
        Found::Stored(record) => return Ok(formats::answer(&record, wanted, &app.config.rules, &headers)),
        Found::InFlight(watched) => watched,
    };
    let in_time = tokio::time::timeout(wait, watched.done()).await.is_ok();
    let (last, _) = watched.now();
    // What is stored is asked for there, though a search may still add to it.
    if !in_time && !last.stored {
        return Ok(formats::in_flight(&last, wanted, &app.config.rules));
    }
    let stored = app.store.get(&tenant, &id, Some(&last.provider)).await.map_err(store_problem)?;
    // A store that failed leaves what was seen, which says itself that it is not stored; a record of an
    // earlier stream is not what was waited for.
    let stored = stored.map(|entry| entry.record).filter(|record| record.nonce == last.nonce);
    Ok(formats::answer(&stored.unwrap_or_else(|| (*last).clone()), wanted, &app.config.rules, &headers))
}

/// Where a message is found.
enum Found {
    InFlight(Watched),
    Stored(Box<Record>),
}

/// In flight comes first: a record of an earlier stream of the same id is not what is asked for. Other replicas come
/// before the store only for those who wait or watch, as that takes a word to all of them.
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
    let elsewhere = match &app.peers {
        Some(peers) => peers.find(tenant, id).await,
        None => false,
    };
    if elsewhere && let Some(watched) = in_flight_of(app, tenant, id, provider).await {
        return Ok(Found::InFlight(watched));
    }
    // It may have ended while it was looked for.
    let found = if follows || elsewhere { stored().await? } else { None };
    found.ok_or_else(Problem::not_found)
}

/// The message, if it is in flight, and of this provider where one is asked for.
async fn in_flight_of(app: &App, tenant: &str, id: &str, provider: Option<&str>) -> Option<Watched> {
    let mut watched = app.live.watch(tenant, id, app.config.timeouts.commit + STORE_WAIT).await?;
    let fits = provider.is_none_or(|provider| provider == watched.now().0.provider);
    fits.then_some(watched)
}

/// The record of a message as it is now, in flight or stored.
pub(super) async fn known(app: &App, tenant: &str, id: &str, provider: Option<&str>) -> Result<Record, Problem> {
    if !is_plain_id(id) {
        return Err(Problem::bad_id());
    }
    Ok(match find(app, tenant, id, provider, false).await? {
        Found::InFlight(mut watched) => (*watched.now().0).clone(),
        Found::Stored(record) => *record,
    })
}

pub(super) fn plain_json(status: StatusCode, body: Vec<u8>) -> Response {
    let kind = [
        (header::CONTENT_TYPE, "application/json"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (status, kind, body).into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    conversation: Option<String>,
    provider: Option<String>,
    domain: Option<String>,
    q: Option<String>,
    since: Option<String>,
    until: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

#[derive(Serialize)]
struct Listed {
    items: Vec<Record>,
    next: Option<String>,
}

async fn list(
    State(state): Shared,
    Extension(Asker(tenant)): Extension<Asker>,
    query: Result<Query<List>, QueryRejection>,
) -> Result<Response, Problem> {
    let app = app(&state)?;
    let query = read(query)?;
    let limit = query.limit.unwrap_or(PAGE_DEFAULT);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(Problem::bad_request(format!("limit is a number from 1 to {PAGE_MAX}")));
    }
    let cursor = match query.cursor {
        Some(text) => Some(Cursor::decode(&text).ok_or_else(|| Problem::bad_request("cursor is not one of ours"))?),
        None => None,
    };
    let filter = Filter {
        conversation: query.conversation,
        provider: query.provider,
        domain: query.domain.map(|domain| domain.trim().to_ascii_lowercase()),
        q: query.q,
        since_ms: query.since.as_deref().map(|text| time("since", text)).transpose()?,
        until_ms: query.until.as_deref().map(|text| time("until", text)).transpose()?,
        limit,
        cursor,
    };
    let page = app.store.list(&tenant, &filter).await.map_err(store_problem)?;
    let listed = Listed {
        items: page.entries.into_iter().map(|entry| entry.record).collect(),
        next: page.next.map(|cursor| cursor.encode()),
    };
    Ok(plain_json(StatusCode::OK, serde_json::to_vec(&listed).unwrap_or_default()))
}

/// `2026-01-13T09:18:07Z`, `2026-01-13` (its first instant in UTC), or milliseconds since the epoch.
pub(super) fn time(name: &str, text: &str) -> Result<i64, Problem> {
    if let Ok(ms) = text.parse::<i64>() {
        return Ok(ms);
    }
    let whole = text.parse::<jiff::Timestamp>().ok();
    let day =
        || text.parse::<jiff::civil::Date>().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|day| day.timestamp());
    let time = whole.or_else(day);
    time.map(jiff::Timestamp::as_millisecond)
        .ok_or_else(|| Problem::bad_request(format!("{name} is a time such as 2026-01-13T09:18:07Z, or a date")))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    provider: Option<String>,
}

async fn forget(
    State(state): Shared,
    Extension(Asker(tenant)): Extension<Asker>,
    id: Id,
    query: Result<Query<Which>, QueryRejection>,
) -> Result<StatusCode, Problem> {
    let app = app(&state)?;
    let id = checked(id)?;
    let provider = read(query)?.provider;
    let deleted = tokio::time::timeout(DELETE_WAIT, app.writer.delete(&tenant, &id, provider.as_deref())).await;
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

/// The record as it grows, as events; the last one is final. A stored record is one event.
async fn events(
    State(state): Shared,
    Extension(Asker(tenant)): Extension<Asker>,
    id: Id,
    query: Result<Query<Which>, QueryRejection>,
) -> Result<Response, Problem> {
    let app = app(&state)?;
    let id = checked(id)?;
    let provider = read(query)?.provider;
    let body = match find(&app, &tenant, &id, provider.as_deref(), true).await? {
        Found::InFlight(watched) => Body::from_stream(follow(watched)),
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

fn follow(mut watched: Watched) -> impl futures_util::Stream<Item = Result<Bytes, Infallible>> {
    async_stream::stream! {
        loop {
            let (record, done) = watched.now();
            yield Ok(event(&record));
            if done {
                return;
            }
            loop {
                match tokio::time::timeout(HEARTBEAT, watched.changed()).await {
                    Ok(true) => break,
                    // The sender went: its last word was heard.
                    Ok(false) => return,
                    Err(_) => yield Ok(encode::heartbeat(Eol::Lf)),
                }
            }
        }
    }
}

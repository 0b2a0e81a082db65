//! `POST /normalize`: a capture, or one JSON body, as a record. Nothing is kept.

use std::sync::{Arc, Weak};

use axum::{
    Router,
    body::Body,
    extract::{Query, State, rejection::QueryRejection},
    response::Response,
    routing::post,
};
use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use serde::Deserialize;

use super::{
    App,
    citations::{app, plain_json, read},
    problem::Problem,
};
use crate::{
    citation::{Record, Rules},
    pipeline::{Budget, Context, End, Inject, Settings, Supplement, hold::Hold, whole},
    profile::Manner,
    provider::{self, Kind, json},
    replay::{self, MAX_CAPTURE},
};

/// Bodies that are worked through at one time: each takes a processor and some copies of itself.
pub const MAX_AT_ONCE: usize = 4;
/// How many keys of an unknown document an error names, and how much of each.
const SHOWN_KEYS: usize = 8;
const SHOWN_KEY: usize = 32;

const ACCEPTED: &str = "accepted are a capture of a stream (raw SSE, `curl -N` output, one JSON payload per line, HAR) \
                        or one JSON body: a Doubao frame or message (patch_op, content_block), a Tencent Lexiang \
                        frame or answer, an OpenAI-like chunk or completion (choices), a Tavily response (query, results), an MCP tool response \
                        (response.webSearchResult.results, response.results)";

pub fn router(app: Weak<App>) -> Router {
    Router::new()
        .route("/normalize", post(normalize).fallback(|| async { Problem::method_not_allowed() }))
        .with_state(app)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    provider: Option<String>,
}

async fn normalize(
    State(state): State<Weak<App>>,
    query: Result<Query<Asked>, QueryRejection>,
    body: Body,
) -> Result<Response, Problem> {
    let app = app(&state)?;
    let kind = match read(query)?.provider.as_deref() {
        None => Kind::Auto,
        Some(name) => Kind::read_as(name)
            .ok_or_else(|| Problem::bad_request(format!("provider is one of {}", Kind::READ_NAMES.join(", "))))?,
    };
    let mut held = collect(&app, body, MAX_CAPTURE as u64).await?;
    // What waits for its turn stays within the budget of held bytes.
    let turn = app.normalizing.acquire().await.map_err(|_| Problem::draining())?;
    let bytes = held.take();
    let rules = Arc::clone(&app.config.rules);
    let worked = tokio::task::spawn_blocking(move || record(&bytes, kind, rules)).await;
    drop(turn);
    let record = worked.unwrap_or_else(|_| Err("something that could not be read".to_owned()));
    let record = record.map_err(|seen| Problem::unreadable(format!("seen: {seen}; {ACCEPTED}")))?;
    Ok(plain_json(StatusCode::OK, serde_json::to_vec(&record).unwrap_or_default()))
}

/// The body, up to `limit` and the limit of all bodies, and within the bytes that citetap holds altogether.
pub(super) async fn collect<B>(app: &App, mut body: B, limit: u64) -> Result<Hold, Problem>
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let cap = usize::try_from(app.config.limits.request_body.min(limit)).unwrap_or(MAX_CAPTURE);
    let too_large = || Problem::body_too_large(cap as u64);
    if body.size_hint().lower() > cap as u64 {
        return Err(too_large());
    }
    let mut held = Hold::new(Arc::clone(&app.budget), cap);
    loop {
        let piece = tokio::time::timeout(app.config.timeouts.client_stall, body.frame()).await;
        let piece = piece.map_err(|_| Problem::bad_request("the body did not come"))?;
        let Some(piece) = piece else { return Ok(held) };
        let piece = piece.map_err(|_| Problem::bad_request("the body broke off"))?;
        let Some(data) = piece.data_ref() else { continue };
        if held.len() + data.len() > cap {
            return Err(too_large());
        }
        if !held.add(data) {
            return Err(Problem::busy("too many bytes are held already (limits.held_total)"));
        }
    }
}

/// The record, or what was seen in its place.
fn record(bytes: &Bytes, kind: Kind, rules: Arc<Rules>) -> Result<Box<Record>, String> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_start_matches('\u{feff}').trim();
    let is_json = text.starts_with(['{', '[']);
    // A HAR file is one document too, and a capture.
    let keys = if is_json { json::with_parsed(text, keys).filter(|keys| !is_har(keys)) } else { None };
    match keys {
        Some(keys) => document(text, &keys, kind, rules),
        None => capture(bytes, kind, rules),
    }
}

fn keys(node: &json::Node<'_>) -> Vec<String> {
    match node {
        json::Node::Map(pairs) => pairs.iter().map(|(key, _)| key.chars().take(SHOWN_KEY).collect()).collect(),
        _ => Vec::new(),
    }
}

fn is_har(keys: &[String]) -> bool {
    keys.iter().any(|key| key == "log")
}

fn document(text: &str, keys: &[String], kind: Kind, rules: Arc<Rules>) -> Result<Box<Record>, String> {
    let shown = || match keys {
        [] => "one JSON document without keys".to_owned(),
        keys => {
            let more = if keys.len() > SHOWN_KEYS { ", …" } else { "" };
            let shown = keys.get(..SHOWN_KEYS.min(keys.len())).unwrap_or_default();
            format!("one JSON document with the keys {}{more}", shown.join(", "))
        }
    };
    let kind = match kind {
        Kind::Auto => provider::of_document(text).ok_or_else(shown)?,
        named => named,
    };
    let record = whole::document(context(kind, rules), Bytes::copy_from_slice(text.as_bytes()));
    record.ok_or_else(|| format!("{}, and nothing of {} in it", shown(), kind.as_str()))
}

fn capture(bytes: &Bytes, kind: Kind, rules: Arc<Rules>) -> Result<Box<Record>, String> {
    let capture = replay::read(bytes).map_err(|error| error.seen())?;
    let len = capture.sse.len();
    let settings = Settings {
        inject: Inject::Off,
        emit_empty: false,
        manner: Manner::default(),
        supplement: Supplement::Off,
        whole: false,
        frame_cap: len,
        budget: Budget::new(len),
    };
    let passed = whole::pass(context(kind, rules), settings, [capture.sse], End::Clean, false);
    match passed.record {
        Some(record) => Ok(Box::new(Record { stored: false, ..*record })),
        None => Err(format!(
            "a capture of {} frames, and no message of {} in it",
            passed.tally.frames,
            match kind {
                Kind::Auto => "a known provider",
                named => named.as_str(),
            }
        )),
    }
}

fn context(provider: Kind, rules: Arc<Rules>) -> Context {
    Context {
        route: "normalize".to_owned(),
        provider,
        link_base: None,
        nonce: uuid::Uuid::new_v4().simple().to_string(),
        created: jiff::Timestamp::now(),
        fallback_id: uuid::Uuid::now_v7().to_string(),
        task: None,
        rules,
    }
}

//! `POST /normalize`: turns a capture or a JSON body into a record, or a HAR file into its records. Stores nothing.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Query, State, rejection::QueryRejection},
    response::Response,
};
use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    citations::{parse_query, plain_json},
    openapi::only,
};
use crate::{
    app::{
        App,
        problem::{Problem, ProblemJson},
    },
    citation::Record,
    config,
    pipeline::{Inject, budget::HeldBytes},
    profile::OutputFormat,
    provider::{Provider, REGISTRY},
    replay::{self, CaptureReader, HarRecords, MAX_CAPTURE},
};

const ACCEPTED: &str = "accepted are a capture of a stream (raw SSE, `curl -N` output, one JSON payload per line, HAR) \
                        or one JSON body: a Doubao frame or message (patch_op, content_block), a Tencent Lexiang \
                        frame or answer, an OpenAI-like chunk or completion (choices), an event or response of the \
                        Responses API (type, object), an Anthropic event or message (type), a Gemini chunk or response (candidates), a Tavily response (query, results), an MCP tool response \
                        (response.webSearchResult.results, response.results)";

pub fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(only(routes!(normalize)))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct NormalizeParams {
    /// Whose it is; told by what it holds otherwise.
    provider: Option<String>,
    /// What relative links are relative to.
    link_base: Option<String>,
    /// Of a HAR file only this stream, from 1.
    entry: Option<usize>,
}

/// A record, or of a HAR file all of its records
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it describes what is written one by one")]
enum Normalized {
    Record(Box<Record>),
    Records {
        records: Vec<Record>,
        /// Event streams in which there is no message.
        skipped: usize,
    },
}

/// A capture, or one JSON body, as a record
///
/// Raw SSE, `curl -N` output, one JSON payload per line, HAR, or one JSON body of a service that is known. Nothing is kept.
#[utoipa::path(
    post, path = "/normalize", tag = "tools", params(NormalizeParams),
    request_body(content((Object = "application/json"), (String = "text/event-stream"), (String = "text/plain"), (Vec<u8> = "application/octet-stream"))),
    responses(
        (status = 200, description = "What it rests on", body = Normalized),
        (status = 413, description = "The body is too large", body = ProblemJson, content_type = "application/problem+json"),
        (status = 422, description = "Nothing in it is a message", body = ProblemJson, content_type = "application/problem+json"),
    ),
)]
async fn normalize(
    State(app): State<Arc<App>>,
    query: Result<Query<NormalizeParams>, QueryRejection>,
    body: Body,
) -> Result<Response, Problem> {
    let query = parse_query(query)?;
    let provider = match query.provider.as_deref() {
        None => Provider::AUTO,
        Some(name) => REGISTRY.for_capture(name).ok_or_else(|| {
            Problem::bad_request(format!("provider is one of {}", REGISTRY.capture_names().join(", ")))
        })?,
    };
    let link_base = query.link_base.as_deref().map(config::plain_url).transpose();
    let link_base = link_base.map_err(|why| Problem::bad_request(format!("link_base: {why}")))?;
    let mut held = read_body(&app, body, MAX_CAPTURE as u64).await?;
    // Bodies that wait for a permit stay within the budget of held bytes.
    let permit = app.normalizing.acquire().await.map_err(|_| Problem::draining())?;
    let bytes = held.take();
    let reader = CaptureReader {
        route: "normalize",
        provider,
        link_base,
        inject: Inject::Off,
        output_format: OutputFormat::default(),
        frame_cap: bytes.len(),
        rules: Arc::clone(&app.config.rules),
    };
    let result = tokio::task::spawn_blocking(move || records_json(&bytes, &reader, query.entry)).await;
    drop(permit);
    let body = result.unwrap_or_else(|_| Err(unreadable("something that could not be read")))?;
    Ok(plain_json(StatusCode::OK, body))
}

fn unreadable(found: impl std::fmt::Display) -> Problem {
    Problem::unreadable(format!("seen: {found}; {ACCEPTED}"))
}

/// JSON of the record; of a list of records for a HAR file, unless `entry` selects one of its streams.
fn records_json(bytes: &[u8], reader: &CaptureReader, entry: Option<usize>) -> Result<Vec<u8>, Problem> {
    let mut captured = replay::read(bytes).map_err(|error| unreadable(error.found()))?;
    if let Some(entry) = entry {
        captured = captured.only(entry).map_err(|which| Problem::bad_request(format!("entry is {which}")))?;
    }
    let is_list = captured.is_har() && entry.is_none();
    let passed = reader.read(captured).map_err(unreadable)?;
    let found = HarRecords::of(&passed);
    let Some(first) = found.records.first() else { return Err(unreadable(reader.no_message(&passed))) };
    let json = if is_list { serde_json::to_vec(&found) } else { serde_json::to_vec(first) };
    Ok(json.unwrap_or_default())
}

/// Reads a body of at most `limit` and `limits.request_body` bytes, counted in the budget of held bytes. Each frame must
/// come within `timeouts.client_stall`, and the whole body within `timeouts.first_byte`.
pub async fn read_body<B>(app: &App, mut body: B, limit: u64) -> Result<HeldBytes, Problem>
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let cap = usize::try_from(app.config.limits.request_body.min(limit)).unwrap_or(MAX_CAPTURE);
    let too_large = || Problem::body_too_large(cap as u64);
    if body.size_hint().lower() > cap as u64 {
        return Err(too_large());
    }
    let deadline = Instant::now() + app.config.timeouts.first_byte;
    let mut held = HeldBytes::new(Arc::clone(&app.budget), cap);
    loop {
        let until = deadline.min(Instant::now() + app.config.timeouts.client_stall);
        let frame = tokio::time::timeout_at(until, body.frame()).await;
        let frame = frame.map_err(|_| Problem::bad_request("the body did not come"))?;
        let Some(frame) = frame else { return Ok(held) };
        let frame = frame.map_err(|_| Problem::bad_request("the body broke off"))?;
        let Some(data) = frame.data_ref() else { continue };
        if held.len() + data.len() > cap {
            return Err(too_large());
        }
        if !held.add(data) {
            return Err(Problem::busy("too many bytes are held already (limits.held_total)"));
        }
    }
}

//! OpenAI's API in front of routes with models: `POST /v1/chat/completions` and `GET /v1/models`. Called by `server`.
//!
//! Maps a request to the upstream's dialect, sends it through `relay`, and transcodes the answer to chat completions.
//! The guarantees of `relay` (limits, timeouts, drain, records, cancellation) hold here as well.

use std::{borrow::Cow, sync::Arc, time::Instant};

use axum::body::Body;
use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{self, HeaderName},
};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use serde_json::json;

use super::normalize;
use crate::{
    app::{App, faults::FaultContext, problem::Problem},
    config::{Mapping, OutputFormat, Profile, Route},
    mapping::{ChatRequest, RequestContext, UpstreamFormat},
    pipeline::{Outcome, budget::BudgetShare},
    profile::{Form, openai},
    relay::{
        self, Readable, UpstreamResponse,
        abandoned_bodies::guard,
        error_translation,
        observer::{RelayObserver, StreamPermit},
        request_body::{BodyStatus, OwnBody},
        request_options::RequestOptions,
        supplement,
        tap_body::TapBody,
    },
    transport::{
        client::{self, ResponseBody},
        headers::request_headers,
        incoming::IncomingBody,
        listener::Peer,
    },
};

const CHAT: &str = "/v1/chat/completions";
const MODELS: &str = "/v1/models";
/// Request header with the conversation id, for upstreams that keep conversations.
const SESSION: HeaderName = HeaderName::from_static("x-citetap-session");
/// Maximum models that an error lists.
const MAX_LISTED_MODELS: usize = 20;
/// Maximum characters of an unknown model's name that an error repeats.
const MAX_MODEL_CHARS: usize = 64;

/// True if the facade serves the path: its own endpoints if a route has models, and any other path below `/v1` that no
/// route has, so that clients get an OpenAI error.
pub fn is_facade(routes: &[Route], path: &str) -> bool {
    let is_endpoint = path == CHAT || path == MODELS || model_id(path).is_some();
    let is_below_v1 = path == "/v1" || path.starts_with("/v1/");
    (is_endpoint && mappings(routes).next().is_some()) || (is_below_v1 && relay::find(routes, path).is_none())
}

/// Responds to a request for which [`is_facade`] is true.
pub async fn respond(app: Arc<App>, routes: &[Route], request: Request<Incoming>, peer: Peer) -> Response<Body> {
    let path = request.uri().path();
    let result = match path {
        _ if mappings(routes).next().is_none() => authenticated_problem(&app, request, Problem::no_models),
        CHAT if request.method() == Method::POST => chat(&app, routes, request, peer).await,
        CHAT => return with_allow(authenticated_problem(&app, request, Problem::method_not_allowed), "POST"),
        _ if path == MODELS || model_id(path).is_some() => match *request.method() {
            Method::GET | Method::HEAD => models(&app, routes, request),
            _ => return with_allow(authenticated_problem(&app, request, Problem::method_not_allowed), "GET,HEAD"),
        },
        _ => authenticated_problem(&app, request, Problem::not_of_the_facade),
    };
    result.unwrap_or_else(Problem::openai)
}

fn mappings(routes: &[Route]) -> impl Iterator<Item = (&Route, &Mapping)> {
    routes.iter().filter_map(|route| Some((route, route.mapping.as_ref()?)))
}

/// The model in `/v1/models/{model}`. Names may contain slashes.
fn model_id(path: &str) -> Option<&str> {
    path.strip_prefix(MODELS)?.strip_prefix('/').filter(|name| !name.is_empty())
}

/// Returns the problem, or 401 to a client without a valid key.
fn authenticated_problem(
    app: &App,
    mut request: Request<Incoming>,
    problem: impl FnOnce() -> Problem,
) -> Result<Response<Body>, Problem> {
    app.tenant_of(request.headers_mut())?;
    Err(problem())
}

fn with_allow(result: Result<Response<Body>, Problem>, methods: &'static str) -> Response<Body> {
    let mut response = result.unwrap_or_else(Problem::openai);
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(methods));
    }
    response
}

fn models(app: &App, routes: &[Route], mut request: Request<Incoming>) -> Result<Response<Body>, Problem> {
    app.tenant_of(request.headers_mut())?;
    let all = mappings(routes).flat_map(|(route, mapping)| mapping.models.iter().map(move |model| (model, route)));
    let mut all: Vec<(&String, &Route)> = all.collect();
    all.sort_unstable_by_key(|(model, _)| *model);
    let to_json = |(model, route): (&String, &Route)| json!({ "id": model, "object": "model", "created": app.started, "owned_by": route.name });
    let body = match model_id(request.uri().path()) {
        None => json!({ "object": "list", "data": all.into_iter().map(to_json).collect::<Vec<_>>() }),
        Some(id) => {
            let id = percent_decode_str(id).decode_utf8_lossy();
            let found = all.into_iter().find(|(model, _)| **model == id);
            to_json(found.ok_or_else(|| unknown_model(routes, &id))?)
        }
    };
    let mut response = Response::new(Body::from(Bytes::from(body.to_string())));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

fn unknown_model(routes: &[Route], model: &str) -> Problem {
    let mut known: Vec<&str> = mappings(routes).flat_map(|(_, mapping)| &mapping.models).map(String::as_str).collect();
    known.sort_unstable();
    if known.len() > MAX_LISTED_MODELS {
        known.truncate(MAX_LISTED_MODELS);
        known.push("…");
    }
    Problem::unknown_model(&model.chars().take(MAX_MODEL_CHARS).collect::<String>(), &known.join(", "))
}

async fn chat(
    app: &Arc<App>,
    routes: &[Route],
    request: Request<Incoming>,
    peer: Peer,
) -> Result<Response<Body>, Problem> {
    let began = Instant::now();
    let (mut head, body) = request.into_parts();
    let tenant = app.tenant_of(&mut head.headers)?;
    relay::check(&head.uri, head.version, &head.headers)?;
    if head.headers.get(header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        return Err(Problem::encoded());
    }
    let permit = StreamPermit::take(app).ok_or_else(|| {
        let context = FaultContext { tenant: &tenant, route: None, provider: None, request: None };
        app.faults.noted(context, Problem::overloaded(app.config.limits.streams))
    })?;
    let body = IncomingBody::new(body, head.version);
    let (bytes, share) = normalize::read_body(app, body, app.config.limits.request_body).await?.freeze();
    let chat_request = ChatRequest::read(&bytes).map_err(Problem::invalid_chat_request)?;
    let (route, mapping) = mappings(routes)
        .find(|(_, mapping)| mapping.models.contains(&chat_request.model))
        .ok_or_else(|| unknown_model(routes, &chat_request.model))?;
    relay::check_other_site(route, &head.extensions)?;
    let options = RequestOptions::of(&head.headers, route)?;
    let (copy, search) = supplement::prepare(app, route).unzip();
    let mut observer = relay::new_observer(app, permit, tenant, route, search, began);
    let (model, stream) = (chat_request.model.clone(), chat_request.stream);
    let mapped_body = map_body(mapping, &chat_request, &head.headers, &observer)?;
    if let Some(mut copy) = copy {
        // A configured path to the query refers to the body that the upstream gets.
        copy.add(if route.supplement.query.is_some() { &mapped_body } else { &bytes });
        copy.end();
    }
    let body = match mapped_body {
        Cow::Borrowed(_) => OwnBody::new(bytes.clone(), share),
        Cow::Owned(mapped_body) => {
            let share = BudgetShare::reserve(&app.budget, mapped_body.len());
            let share = share.ok_or_else(|| Problem::busy("too many bytes are held already (limits.held_total)"))?;
            OwnBody::new(mapped_body.into(), share)
        }
    };
    drop(bytes);

    let query =
        head.uri.query().filter(|_| matches!(mapping.to, UpstreamFormat::OpenAi) && !mapping.path.contains('?'));
    let target = client::target(&route.upstream, &mapping.path, query)
        .map_err(|_| Problem::bad_request("the query is no query"))?;
    let task = relay::task_of(&mut head.headers);
    set_body_headers(&mut head.headers, &mapping.to);
    observer.chat = relay::start_span(app, route, &Method::POST, &mut head.headers);
    if let Some(chat) = &observer.chat {
        let _ = chat.model().set(model.clone());
    }
    request_headers(&mut head.headers, relay::is_trusted(app, peer.ip), &route.request_headers);
    let mut outgoing = Request::new(Body::new(body));
    *outgoing.method_mut() = Method::POST;
    *outgoing.uri_mut() = target;
    *outgoing.headers_mut() = head.headers;

    let mut upstream_response = relay::send(app, route, outgoing, &BodyStatus::default(), &mut observer, task).await?;
    let failed = upstream_response.head.status.as_u16() >= 400;
    let is_native = stream && options.native;
    if failed {
        let response = upstream_response.into_tapped(app, route, observer, options);
        let response = response.map(|body| guard(&app.abandoned, body));
        return Ok(if is_native { response } else { error_translation::error(response).await });
    }
    upstream_response.detect_format(app, route, true);
    let host = route.upstream.host_str().unwrap_or_default();
    let output_format = output_format(&mapping.to, options.output_format, stream, is_native, &upstream_response)
        .map_err(|what| app.faults.noted(observer.fault_context(), Problem::upstream_answer(host, &what)))?;
    let is_document =
        !is_native && (output_format.form == Form::Document || upstream_response.readable == Some(Readable::Document));
    let mut response = upstream_response.into_tapped(app, route, observer, RequestOptions { output_format, ..options });
    response.body_mut().pipeline_mut().set_default_model(&model);
    if is_document {
        return document_response(app, host, output_format, response).await;
    }
    Ok(response.map(|body| guard(&app.abandoned, body)))
}

/// The request body for the upstream; borrowed if it is the client's.
fn map_body<'b>(
    mapping: &Mapping,
    chat_request: &ChatRequest<'b>,
    headers: &HeaderMap,
    observer: &RelayObserver,
) -> Result<Cow<'b, [u8]>, Problem> {
    let session = headers.get(SESSION).and_then(|session| session.to_str().ok()).map(str::trim);
    let request = observer.request.to_string();
    let context = RequestContext { session: session.filter(|session| !session.is_empty()), request_id: &request };
    mapping.body(chat_request, context).map_err(Problem::invalid_chat_request)
}

/// Replaces the headers that describe the client's body by those of the mapped body.
fn set_body_headers(headers: &mut HeaderMap, to: &UpstreamFormat) {
    for name in ["content-length", "content-encoding", "content-md5", "digest", "content-digest", "repr-digest"] {
        headers.remove(name);
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if !matches!(to, UpstreamFormat::OpenAi) {
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
    }
}

/// The format of the response. An OpenAI answer is not transcoded for an OpenAI client, because fields that citetap
/// does not know (tools, log probabilities, several choices) would be lost. Nor is any stream if the client asks for the
/// native one (`is_native`). The error names what the upstream sent instead of an answer.
fn output_format(
    to: &UpstreamFormat,
    requested: OutputFormat,
    stream: bool,
    is_native: bool,
    upstream_response: &UpstreamResponse,
) -> Result<OutputFormat, String> {
    let profile = if requested.profile == Profile::Native { Profile::OpenAi } else { requested.profile };
    let is_same_dialect = matches!(to, UpstreamFormat::OpenAi) && profile == Profile::OpenAi;
    let native = |form| Ok(OutputFormat { profile: Profile::Native, form, ..requested });
    match upstream_response.readable {
        Some(_) if is_native => native(Form::Stream),
        Some(Readable::Stream) if is_same_dialect && stream => native(Form::Stream),
        Some(Readable::Document) if is_same_dialect => native(Form::Document),
        Some(_) => {
            Ok(OutputFormat { profile, form: if stream { Form::Stream } else { profile.document_form() }, ..requested })
        }
        None if upstream_response.head.status != StatusCode::OK => {
            Err(format!("status {}", upstream_response.head.status.as_u16()))
        }
        None if is_same_dialect || is_native => native(Form::Stream),
        None => Err("something that is neither an event stream nor JSON".to_owned()),
    }
}

/// Responds with an answer that is sent in one piece. Waits for that piece first: until then a failure can still become
/// the status.
async fn document_response(
    app: &Arc<App>,
    host: &str,
    output_format: OutputFormat,
    response: Response<TapBody<ResponseBody, RelayObserver>>,
) -> Result<Response<Body>, Problem> {
    let (head, mut body) = response.into_parts();
    let first = body.frame().await;
    let cut = match (&first, body.outcome()) {
        (_, Some(outcome)) if outcome != Outcome::Complete => Some(outcome),
        (Some(Err(_)), _) => Some(Outcome::UpstreamCut),
        _ => None,
    };
    let failure = body.pipeline().failure().cloned();
    let is_no_answer = output_format.profile != Profile::Native && !body.pipeline().is_transcoding();
    if cut.is_some() || failure.is_some() || is_no_answer {
        // Read the body to its end, so that its outcome is logged.
        while let Some(Ok(_)) = body.frame().await {}
    }
    let mut failed: Response<Body> = match (cut, failure) {
        (None, None) if is_no_answer => {
            let context = body.observer().fault_context();
            app.faults.noted(context, Problem::upstream_answer(host, "JSON that is no answer")).openai()
        }
        (None, None) => {
            let first = first.and_then(Result::ok).and_then(|frame| frame.into_data().ok());
            return Ok(Response::from_parts(
                head,
                error_translation::prefixed(first.unwrap_or_default(), guard(&app.abandoned, body)),
            ));
        }
        (Some(outcome), _) => Problem::upstream_ended(host, outcome).openai(),
        (None, Some(failure)) => {
            let json = openai::upstream_error(failure.code.as_deref(), &failure.message);
            let mut response = Response::new(Body::from(Bytes::from(serde_json::to_vec(&json).unwrap_or_default())));
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
    };
    // A message without an id of its own is stored under this id.
    if let Some(id) = head.headers.get(relay::REQUEST) {
        failed.headers_mut().insert(relay::REQUEST, id.clone());
    }
    Ok(failed)
}

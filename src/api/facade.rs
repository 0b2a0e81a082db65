//! OpenAI's API in front of any route that names models: `POST /v1/chat/completions`, `GET /v1/models`.
//!
//! A request is mapped, goes the relay's way, and its answer comes back in chat completions. What the relay promises
//! (limits, timeouts, drain, records, cancellation) holds here as well.

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
    app::{App, faults::Of, problem::Problem},
    config::{Mapping, OutputFormat, Profile, Route},
    mapping::{Ask, Beside, To},
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
/// The conversation, for upstreams that keep one.
const SESSION: HeaderName = HeaderName::from_static("x-citetap-session");
/// Models that an error names.
const SHOWN_MODELS: usize = 20;
/// Characters of an unknown model's name that an error repeats.
const SHOWN_MODEL: usize = 64;

/// Is the path ours? Only once some route names a model; until then, and below `/v1` otherwise, it goes to the
/// routes, and comes back for a word that such clients understand when none takes it.
pub fn answers(routes: &[Route], path: &str) -> bool {
    let known = path == CHAT || path == MODELS || model_in(path).is_some();
    let below = path == "/v1" || path.starts_with("/v1/");
    (known && mappings(routes).next().is_some()) || (below && relay::find(routes, path).is_none())
}

pub async fn answer(app: Arc<App>, routes: &[Route], request: Request<Incoming>, peer: Peer) -> Response<Body> {
    let path = request.uri().path();
    let answered = match path {
        _ if mappings(routes).next().is_none() => unasked(&app, request, Problem::no_models),
        CHAT if request.method() == Method::POST => chat(&app, routes, request, peer).await,
        CHAT => return with_allow(unasked(&app, request, Problem::method_not_allowed), "POST"),
        _ if path == MODELS || model_in(path).is_some() => match *request.method() {
            Method::GET | Method::HEAD => models(&app, routes, request),
            _ => return with_allow(unasked(&app, request, Problem::method_not_allowed), "GET,HEAD"),
        },
        _ => unasked(&app, request, Problem::not_of_the_facade),
    };
    answered.unwrap_or_else(Problem::openai)
}

fn mappings(routes: &[Route]) -> impl Iterator<Item = (&Route, &Mapping)> {
    routes.iter().filter_map(|route| Some((route, route.mapping.as_ref()?)))
}

/// Names may have slashes.
fn model_in(path: &str) -> Option<&str> {
    path.strip_prefix(MODELS)?.strip_prefix('/').filter(|name| !name.is_empty())
}

/// Whoever has no key is told that, and nothing else.
fn unasked(
    app: &App,
    mut request: Request<Incoming>,
    problem: impl FnOnce() -> Problem,
) -> Result<Response<Body>, Problem> {
    app.tenant_of(request.headers_mut())?;
    Err(problem())
}

fn with_allow(answered: Result<Response<Body>, Problem>, methods: &'static str) -> Response<Body> {
    let mut response = answered.unwrap_or_else(Problem::openai);
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
    let shown = |(model, route): (&String, &Route)| json!({ "id": model, "object": "model", "created": app.started, "owned_by": route.name });
    let body = match model_in(request.uri().path()) {
        None => json!({ "object": "list", "data": all.into_iter().map(shown).collect::<Vec<_>>() }),
        Some(asked) => {
            let asked = percent_decode_str(asked).decode_utf8_lossy();
            let found = all.into_iter().find(|(model, _)| **model == asked);
            shown(found.ok_or_else(|| unknown_model(routes, &asked))?)
        }
    };
    let mut response = Response::new(Body::from(Bytes::from(body.to_string())));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

fn unknown_model(routes: &[Route], asked: &str) -> Problem {
    let mut known: Vec<&str> = mappings(routes).flat_map(|(_, mapping)| &mapping.models).map(String::as_str).collect();
    known.sort_unstable();
    if known.len() > SHOWN_MODELS {
        known.truncate(SHOWN_MODELS);
        known.push("…");
    }
    Problem::unknown_model(&asked.chars().take(SHOWN_MODEL).collect::<String>(), &known.join(", "))
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
    let place = StreamPermit::take(app).ok_or_else(|| {
        let of = Of { tenant: &tenant, route: None, provider: None, request: None };
        app.faults.noted(of, Problem::overloaded(app.config.limits.streams))
    })?;
    let body = IncomingBody::new(body, head.version);
    let (bytes, share) = normalize::collect(app, body, app.config.limits.request_body).await?.freeze();
    let ask = Ask::read(&bytes).map_err(Problem::bad_ask)?;
    let (route, mapping) = mappings(routes)
        .find(|(_, mapping)| mapping.models.contains(&ask.model))
        .ok_or_else(|| unknown_model(routes, &ask.model))?;
    relay::check_other_site(route, &head.extensions)?;
    let options = RequestOptions::of(&head.headers, route)?;
    let (copy, search) = supplement::begin(app, route).unzip();
    let mut watch = relay::watch(app, place, tenant, route, search, began);
    let (model, stream) = (ask.model.clone(), ask.stream);
    let mapped = mapped(mapping, &ask, &head.headers, &watch)?;
    if let Some(mut copy) = copy {
        // Where the query is said to be somewhere, that is a place in what the upstream gets.
        copy.add(if route.supplement.query.is_some() { &mapped } else { &bytes });
        copy.end();
    }
    let body = match mapped {
        Cow::Borrowed(_) => OwnBody::new(bytes.clone(), share),
        Cow::Owned(mapped) => {
            let share = BudgetShare::reserve(&app.budget, mapped.len());
            let share = share.ok_or_else(|| Problem::busy("too many bytes are held already (limits.held_total)"))?;
            OwnBody::new(mapped.into(), share)
        }
    };
    drop(bytes);

    let query = head.uri.query().filter(|_| matches!(mapping.to, To::OpenAi) && !mapping.path.contains('?'));
    let target = client::target(&route.upstream, &mapping.path, query)
        .map_err(|_| Problem::bad_request("the query is no query"))?;
    let task = relay::task_of(&mut head.headers);
    of_the_body(&mut head.headers, &mapping.to);
    watch.chat = relay::begin(app, route, &Method::POST, &mut head.headers);
    if let Some(chat) = &watch.chat {
        let _ = chat.model().set(model.clone());
    }
    request_headers(&mut head.headers, relay::is_trusted(app, peer.ip), &route.request_headers);
    let mut outgoing = Request::new(Body::new(body));
    *outgoing.method_mut() = Method::POST;
    *outgoing.uri_mut() = target;
    *outgoing.headers_mut() = head.headers;

    let mut answer = relay::send(app, route, outgoing, &BodyStatus::default(), &mut watch, task).await?;
    let failed = answer.head.status.as_u16() >= 400;
    let own = stream && options.native;
    if failed {
        let response = answer.tapped(app, route, watch, options);
        let response = response.map(|body| guard(&app.abandoned, body));
        return Ok(if own { response } else { error_translation::error(response).await });
    }
    answer.look(app, route, true);
    let host = route.upstream.host_str().unwrap_or_default();
    let output_format = output_format(&mapping.to, options.output_format, stream, own, &answer)
        .map_err(|what| app.faults.noted(watch.of(), Problem::upstream_answer(host, &what)))?;
    let settles = !own && (output_format.form == Form::Document || answer.readable == Some(Readable::Whole));
    let mut response = answer.tapped(app, route, watch, RequestOptions { output_format, ..options });
    response.body_mut().pipeline_mut().set_default_model(&model);
    if settles {
        return settled(app, host, output_format, response).await;
    }
    Ok(response.map(|body| guard(&app.abandoned, body)))
}

/// The upstream's body; borrowed where it is the client's own.
fn mapped<'b>(
    mapping: &Mapping,
    ask: &Ask<'b>,
    headers: &HeaderMap,
    watch: &RelayObserver,
) -> Result<Cow<'b, [u8]>, Problem> {
    let session = headers.get(SESSION).and_then(|session| session.to_str().ok()).map(str::trim);
    let request = watch.request.to_string();
    let beside = Beside { session: session.filter(|session| !session.is_empty()), request: &request };
    mapping.body(ask, beside).map_err(Problem::bad_ask)
}

/// What the client said of its body is not true of ours.
fn of_the_body(headers: &mut HeaderMap, to: &To) {
    for name in ["content-length", "content-encoding", "content-md5", "digest", "content-digest", "repr-digest"] {
        headers.remove(name);
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if !matches!(to, To::OpenAi) {
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
    }
}

/// How the client is spoken to. An upstream that speaks OpenAI's dialect is not told again in other words: what it
/// says beyond ours (tools, log probabilities, several choices) would be lost; nor is any other (`own`) to a client that
/// asks for its own words. An error says what came instead.
fn output_format(
    to: &To,
    asked: OutputFormat,
    stream: bool,
    own: bool,
    answer: &UpstreamResponse,
) -> Result<OutputFormat, String> {
    let profile = if asked.profile == Profile::Native { Profile::OpenAi } else { asked.profile };
    let same = matches!(to, To::OpenAi) && profile == Profile::OpenAi;
    let native = |form| Ok(OutputFormat { profile: Profile::Native, form, ..asked });
    match answer.readable {
        Some(_) if own => native(Form::Stream),
        Some(Readable::Stream) if same && stream => native(Form::Stream),
        Some(Readable::Whole) if same => native(Form::Document),
        Some(_) => {
            Ok(OutputFormat { profile, form: if stream { Form::Stream } else { profile.document_form() }, ..asked })
        }
        None if answer.head.status != StatusCode::OK => Err(format!("status {}", answer.head.status.as_u16())),
        None if same || own => native(Form::Stream),
        None => Err("something that is neither an event stream nor JSON".to_owned()),
    }
}

/// Waits for the first piece of an answer that comes out in one: until then, its end can still be a status.
async fn settled(
    app: &Arc<App>,
    host: &str,
    output_format: OutputFormat,
    response: Response<TapBody<ResponseBody, RelayObserver>>,
) -> Result<Response<Body>, Problem> {
    let (head, mut body) = response.into_parts();
    let first = body.frame().await;
    let broken = match (&first, body.outcome()) {
        (_, Some(outcome)) if outcome != Outcome::Complete => Some(outcome),
        (Some(Err(_)), _) => Some(Outcome::UpstreamCut),
        _ => None,
    };
    let failure = body.pipeline().failure().cloned();
    let stray = output_format.profile != Profile::Native && !body.pipeline().is_transcoding();
    if broken.is_some() || failure.is_some() || stray {
        // To its end, so that it is logged as what it was.
        while let Some(Ok(_)) = body.frame().await {}
    }
    let mut failed: Response<Body> = match (broken, failure) {
        (None, None) if stray => {
            app.faults.noted(body.observer().of(), Problem::upstream_answer(host, "JSON that is no answer")).openai()
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
    // What was seen of the message is kept under this id where it named none.
    if let Some(id) = head.headers.get(relay::REQUEST) {
        failed.headers_mut().insert(relay::REQUEST, id.clone());
    }
    Ok(failed)
}

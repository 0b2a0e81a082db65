//! The proxy handler: a request to its upstream, the answer through the tap to the client.

pub mod abandoned_bodies;
pub mod error_translation;
mod model;
pub mod observer;
mod records;
pub mod request_body;
mod request_check;
pub mod request_options;
mod request_path;
pub mod supplement;
pub mod tap_body;

use std::{
    future::{Future, poll_fn},
    net::IpAddr,
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Instant,
};

use axum::body::Body;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version,
    header::{self, HeaderName},
};
use http_body::Body as _;
use hyper::body::Incoming;

pub use self::request_check::{OtherSite, check, check_other_site};
use self::{
    abandoned_bodies::guard,
    model::Seeker,
    observer::{RelayObserver, StreamPermit},
    records::{RecordContext, Records},
    request_body::{BodyFailure, BodyStatus, RequestBody},
    request_options::RequestOptions,
    request_path::has_parent_segments,
    supplement::Search,
    tap_body::{Clocks, TapBody},
};
use crate::{
    app::{App, faults::Of, problem::Problem},
    config::{Form, Inject, OutputFormat, Profile, Provider, Route},
    pipeline::{Context, Pipeline, Settings, Supplement, tap::Tap},
    telemetry::{
        ReasonLabel, RequestLabels, RouteLabel,
        otel::{ChatSpan, UpstreamRequest},
    },
    transport::{
        client::{self, Fault, ResponseBody},
        headers::{drop_headers, request_headers, response_headers},
        incoming::IncomingBody,
        listener::Peer,
    },
};

/// The task that the message belongs to, for `/tasks`. Ours to read, not the upstream's.
const TASK: HeaderName = HeaderName::from_static("x-task-id");
const NONCE: HeaderName = HeaderName::from_static("x-citetap-nonce");
/// Also the id of a message that names none.
pub const REQUEST: HeaderName = HeaderName::from_static("x-citetap-request");
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

pub async fn relay(app: Arc<App>, request: Request<Incoming>, peer: Peer) -> Response<Body> {
    match try_relay(app, request, peer).await {
        Ok(response) => response,
        Err(problem) => problem.response(),
    }
}

async fn try_relay(app: Arc<App>, request: Request<Incoming>, peer: Peer) -> Result<Response<Body>, Problem> {
    let began = Instant::now();
    let (mut head, body) = request.into_parts();
    let tenant = app.tenant_of(&mut head.headers)?;
    check(&head.uri, head.version, &head.headers)?;
    let routes = app.routes();
    let path = head.uri.path();
    let (route, rest) = find(&routes, path).ok_or_else(|| Problem::no_route(&prefixes(&routes)))?;
    if has_parent_segments(rest) {
        return Err(Problem::bad_request("the path has .. segments, plain or encoded"));
    }
    check_other_site(route, &head.extensions)?;
    let options = RequestOptions::of(&head.headers, route)?;
    let place = StreamPermit::take(&app).ok_or_else(|| {
        let (name, provider) = (Some(route.name.as_str()), Some(route.provider.as_str()));
        let of = Of { tenant: &tenant, route: name, provider, request: None };
        app.faults.noted(of, Problem::overloaded(app.config.limits.streams))
    })?;
    let limit = app.config.limits.request_body;
    if body.size_hint().lower() > limit {
        return Err(Problem::body_too_large(limit));
    }
    let target = client::target(&route.upstream, rest, head.uri.query())
        .map_err(|_| Problem::bad_request("the path is no path"))?;

    let task = task_of(&mut head.headers);
    let trusted = is_trusted(&app, peer.ip);
    let chat = begin(&app, route, &head.method, &mut head.headers);
    request_headers(&mut head.headers, trusted, &route.request_headers);
    let status = BodyStatus::default();
    let (copy, search) = supplement::begin(&app, route).unzip();
    let model = chat.as_ref().map(|chat| Seeker::new(chat.model()));
    let body =
        RequestBody { inner: IncomingBody::new(body, head.version), left: limit, status: status.clone(), copy, model };
    let mut outgoing = Request::new(Body::new(body));
    let head_only = head.method == Method::HEAD;
    *outgoing.method_mut() = head.method;
    *outgoing.uri_mut() = target;
    *outgoing.headers_mut() = head.headers;

    let mut watch = watch(&app, place, tenant, route, search, began);
    watch.chat = chat;
    let answer = send(&app, route, outgoing, &status, &mut watch, task).await?;
    let foreign = options.output_format.profile != Profile::Native && !head_only;
    let failed = answer.head.status.as_u16() >= 400;
    let (response, form) = respond(&app, route, answer, watch, options, head_only);
    Ok(match form {
        None if foreign && failed => Box::pin(error_translation::error(response)).await,
        Some(Form::Document) if foreign => Box::pin(error_translation::document(response)).await,
        _ => response,
    })
}

pub fn watch(
    app: &Arc<App>,
    place: StreamPermit,
    tenant: String,
    route: &Route,
    search: Option<Search>,
    began: Instant,
) -> RelayObserver {
    let created_ms = jiff::Timestamp::now().as_millisecond();
    let (route, provider) = (route.name.clone(), route.provider);
    let owner = RecordContext { app: Arc::clone(app), route, provider, tenant, created_ms };
    RelayObserver::new(place, Records::new(owner, search), uuid::Uuid::now_v7(), began)
}

/// Where telemetry is exported. Before the route's own rules for headers, which may forbid what it adds.
pub fn begin(app: &App, route: &Route, method: &Method, headers: &mut HeaderMap) -> Option<Box<ChatSpan>> {
    let asked = || UpstreamRequest {
        route: route.name.clone(),
        provider: route.provider,
        method: method.clone(),
        host: route.upstream.host_str().unwrap_or_default().to_owned(),
        port: route.upstream.port_or_known_default(),
    };
    app.otel.as_ref().map(|otel| otel.start_span(asked(), headers))
}

/// Sends the request and waits for the head of its answer. `status` tells whether the client's body failed meanwhile.
pub async fn send(
    app: &App,
    route: &Route,
    outgoing: Request<Body>,
    status: &BodyStatus,
    watch: &mut RelayObserver,
    task: Option<String>,
) -> Result<UpstreamResponse, Problem> {
    let host = route.upstream.host_str().unwrap_or_default();
    let first_byte = app.config.timeouts.first_byte;
    let mut sent = pin!(tokio::time::timeout(first_byte, app.client.send(outgoing)));
    // Asked once, it has left, or waits for a connection.
    let early = poll_fn(|task| Poll::Ready(sent.as_mut().poll(task))).await;
    let ready = Ready::new(app, route, watch.request, task);
    let answer = match early {
        Poll::Ready(answer) => answer,
        Poll::Pending => tokio::select! {
            answer = sent => answer,
            () = app.cut.cancelled() => {
                let problem = Problem::draining();
                watch.failed(&problem);
                return Err(app.faults.noted(watch.of(), problem));
            }
        },
    };
    let answer = match answer {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(fault)) => Err(match (status.failure(), fault) {
            (Some(BodyFailure::TooLarge), _) => Problem::body_too_large(app.config.limits.request_body).closing(),
            (Some(BodyFailure::Broken), _) => Problem::bad_request("the request body is broken").closing(),
            (None, Fault::TooManyOpenFiles) => Problem::crowded(),
            (None, fault) => Problem::upstream_unreachable(host, fault),
        }),
        Err(_) => Err(Problem::upstream_timeout(host, first_byte)),
    };
    let answer = answer.inspect_err(|problem| {
        let status = problem.status.as_u16();
        count(app, route, status);
        app.faults.problem(watch.of(), problem);
        watch.failed(problem);
        tracing::warn!(request = %watch.request, route = route.name, status, why = problem.detail(), "upstream failed");
    })?;
    watch.first_byte = watch.began.elapsed();
    watch.status = answer.status().as_u16();
    if let Some(chat) = &mut watch.chat {
        chat.response_status(watch.status);
    }
    app.metrics
        .first_byte
        .get_or_create(&RouteLabel { route: route.name.clone() })
        .observe(watch.first_byte.as_secs_f64());
    count(app, route, watch.status);
    Ok(UpstreamResponse::new(route, answer, ready))
}

/// What an answer needs that can be made while it is awaited: nobody waits for that then.
struct Ready {
    nonce: String,
    request: String,
    /// `None`: the route has none.
    tap: Option<Box<Tap>>,
}

impl Ready {
    fn new(app: &App, route: &Route, request: uuid::Uuid, task: Option<String>) -> Self {
        let (nonce, request) = (uuid::Uuid::new_v4().simple().to_string(), request.to_string());
        let context = || Context {
            route: route.name.clone(),
            provider: route.provider,
            link_base: route.link_base.clone(),
            nonce: nonce.clone(),
            created: jiff::Timestamp::now(),
            fallback_id: request.clone(),
            task,
            rules: Arc::clone(&app.config.rules),
        };
        let tap = route.tap.then(|| Box::new(Tap::new(context())));
        Self { nonce, request, tap }
    }
}

/// The upstream's answer, through the tap where it is a stream, and the form in which it is told in another dialect.
fn respond(
    app: &Arc<App>,
    route: &Route,
    mut answer: UpstreamResponse,
    watch: RelayObserver,
    mut options: RequestOptions,
    head_only: bool,
) -> (Response<Body>, Option<Form>) {
    let foreign = options.output_format.profile != Profile::Native;
    // The head of an answer in another dialect is that dialect's, also where nothing follows it.
    if !head_only || foreign {
        answer.look(app, route, foreign);
    }
    answer.head_only = head_only;
    if answer.readable == Some(Readable::Whole) && foreign {
        options.output_format.form = options.output_format.profile.document_form();
    }
    let form = answer.readable.filter(|_| foreign).map(|_| options.output_format.form);
    let response = answer.tapped(app, route, watch, options);
    (response.map(|body| guard(&app.abandoned, body)), form)
}

/// An upstream's answer whose body has not been read yet.
pub struct UpstreamResponse {
    pub head: http::response::Parts,
    pub readable: Option<Readable>,
    /// Nothing follows its head.
    head_only: bool,
    body: ResponseBody,
    ready: Ready,
}

impl UpstreamResponse {
    fn new(route: &Route, answer: Response<ResponseBody>, ready: Ready) -> Self {
        let (mut head, body) = answer.into_parts();
        if !route.relay_cors {
            drop_headers(&mut head.headers, |name| name.starts_with("access-control-"));
        }
        response_headers(&mut head.headers, &route.response_headers);
        Self { head, readable: None, head_only: false, body, ready }
    }

    /// Can it be tapped? `documents`: one JSON document also where the route names no provider.
    pub fn look(&mut self, app: &App, route: &Route, documents: bool) {
        self.readable = readable(app, route, documents, self.head.status, &self.head.headers);
    }

    /// As the client gets it.
    pub fn tapped(
        self,
        app: &Arc<App>,
        route: &Route,
        mut watch: RelayObserver,
        options: RequestOptions,
    ) -> Response<TapBody<ResponseBody, RelayObserver>> {
        let Self { mut head, readable, head_only, body, ready } = self;
        if readable.is_none() || head_only {
            // There will be no record for it.
            watch.records.search = None;
        }
        let RequestOptions { inject, output_format, .. } = options;
        let Ready { nonce, request, tap } = ready;
        let tap = tap.filter(|_| readable.is_some() && !head_only);
        if readable == Some(Readable::Stream)
            && let Some(chat) = &mut watch.chat
        {
            chat.mark_streamed();
        }
        if let Some(readable) = readable {
            let changed =
                output_format != OutputFormat::default() || (readable == Readable::Stream && inject != Inject::Off);
            if changed {
                drop_headers(&mut head.headers, |name| error_translation::OF_THE_BYTES.contains(&name));
            }
            for (name, value) in output_format.profile.headers(output_format.form) {
                head.headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
            }
            let foreign = output_format.profile != Profile::Native;
            if (readable == Readable::Stream || foreign || output_format.changes_documents())
                && let Ok(nonce) = HeaderValue::try_from(nonce)
            {
                head.headers.insert(NONCE, nonce);
            }
            if readable == Readable::Stream || (foreign && output_format.form == Form::Stream) {
                stream_headers(&mut head.headers);
            }
        }
        if let Ok(id) = HeaderValue::try_from(request) {
            head.headers.insert(REQUEST, id);
        }
        let settings = Settings {
            inject,
            emit_empty: route.emit_empty,
            output_format,
            supplement: if watch.records.search.is_some() { route.supplement.when } else { Supplement::Off },
            single_document: readable == Some(Readable::Whole),
            frame_cap: app.config.limits.frame,
            budget: Arc::clone(&app.budget),
        };
        let timeouts = &app.config.timeouts;
        let clocks = Clocks {
            idle: timeouts.upstream_idle,
            heartbeat: timeouts.heartbeat,
            deadline: timeouts.total.map(|total| tokio::time::Instant::from_std(watch.began) + total),
        };
        let cut = app.cut.clone().cancelled_owned();
        head.version = Version::default();
        head.extensions.clear();
        Response::from_parts(head, TapBody::new(body, Pipeline::with_tap(tap, settings), watch, clocks, cut))
    }
}

fn stream_headers(headers: &mut HeaderMap) {
    headers.entry(BUFFERING).or_insert(HeaderValue::from_static("no"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, no-transform"));
}

/// What the tap can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readable {
    Stream,
    /// One JSON document: an answer that was not streamed, or an error. Looked at, never added to.
    Whole,
}

/// Only a 200 is a stream, only identity-coded bytes can be read, and only an event stream has events.
/// Where the route names its provider, an answer without a type is taken for one.
fn readable(app: &App, route: &Route, documents: bool, status: StatusCode, headers: &HeaderMap) -> Option<Readable> {
    let skip = |reason| {
        app.metrics.tap_skipped.get_or_create(&ReasonLabel { reason }).inc();
        None
    };
    if !route.tap {
        return skip("off");
    }
    if status != StatusCode::OK {
        return skip("status");
    }
    let mut encodings = headers.get_all(header::CONTENT_ENCODING).iter();
    if encodings.any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return skip("encoded");
    }
    let Some(kind) = headers.get(header::CONTENT_TYPE) else {
        return if route.provider == Provider::AUTO { skip("not_a_stream") } else { Some(Readable::Stream) };
    };
    let essence = kind.as_bytes().split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
    if essence.eq_ignore_ascii_case(b"text/event-stream") {
        Some(Readable::Stream)
    } else if essence.eq_ignore_ascii_case(b"application/json") && (route.provider != Provider::AUTO || documents) {
        Some(Readable::Whole)
    } else {
        skip("not_a_stream")
    }
}

fn count(app: &App, route: &Route, status: u16) {
    let labels = RequestLabels { route: route.name.clone(), provider: route.provider.as_str().to_owned(), status };
    app.metrics.requests.get_or_create(&labels).inc();
}

/// Takes the header out: the upstream never sees it. Of several the first counts, and an empty one says nothing.
pub fn task_of(headers: &mut HeaderMap) -> Option<String> {
    let task = headers.remove(TASK)?;
    let task = String::from_utf8_lossy(task.as_bytes()).trim().to_owned();
    (!task.is_empty()).then_some(task)
}

/// The route with the longest prefix, which ends at a slash or at the path's end, and what follows it.
pub fn find<'r, 'p>(routes: &'r [Route], path: &'p str) -> Option<(&'r Route, &'p str)> {
    routes.iter().find_map(|route| {
        if route.prefix == "/" {
            return Some((route, path));
        }
        let rest = path.strip_prefix(route.prefix.as_str())?;
        (rest.is_empty() || rest.starts_with('/')).then_some((route, rest))
    })
}

fn prefixes(routes: &[Route]) -> String {
    routes.iter().map(|route| route.prefix.as_str()).collect::<Vec<_>>().join(", ")
}

pub fn is_trusted(app: &App, peer: IpAddr) -> bool {
    app.config.trusted_proxies.iter().any(|net| net.contains(&peer.to_canonical()))
}

//! The proxy handler: sends a request to its route's upstream and relays the response through the tap. `server` calls
//! [`relay`] for every path that no other part of citetap answers; `api::facade` uses the same steps for mapped requests.
//!
//! Only [`tap_body`] polls an upstream's body. Nothing here may write to a store or parse a frame.

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
    model::ModelScanner,
    observer::{RelayObserver, StreamPermit},
    records::{RecordContext, Records},
    request_body::{BodyFailure, BodyStatus, RequestBody},
    request_options::RequestOptions,
    request_path::has_parent_segments,
    supplement::SearchHandle,
    tap_body::{StreamTimeouts, TapBody},
};
use crate::{
    app::{App, auth::query_without_keys, faults::FaultContext, problem::Problem},
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

/// The task that a message belongs to, for `/tasks`. Not relayed.
const TASK: HeaderName = HeaderName::from_static("x-task-id");
const NONCE: HeaderName = HeaderName::from_static("x-citetap-nonce");
/// The request id, which is also the message id if the upstream sends none.
pub const REQUEST: HeaderName = HeaderName::from_static("x-citetap-request");
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Relays a request, or answers with a problem.
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
    let permit = StreamPermit::take(&app).ok_or_else(|| {
        let (name, provider) = (Some(route.name.as_str()), Some(route.provider.as_str()));
        let context = FaultContext { tenant: &tenant, route: name, provider, request: None };
        app.faults.noted(context, Problem::overloaded(app.config.limits.streams))
    })?;
    let limit = app.config.limits.request_body;
    if body.size_hint().lower() > limit {
        return Err(Problem::body_too_large(limit));
    }
    let query = head.uri.query().map(|query| query_without_keys(&app.config.tenants, query));
    let target = client::target(&route.upstream, rest, query.as_deref())
        .map_err(|_| Problem::bad_request("the path is no path"))?;

    let task = task_of(&mut head.headers);
    let trusted = is_trusted(&app, peer.ip);
    let chat = start_span(&app, route, &head.method, &mut head.headers);
    request_headers(&mut head.headers, trusted, &route.request_headers);
    let body_status = BodyStatus::default();
    let (copy, search) = supplement::prepare(&app, route).unzip();
    let body = RequestBody {
        inner: IncomingBody::new(body, head.version),
        remaining: limit,
        status: body_status.clone(),
        copy,
        model: chat.as_ref().map(|chat| ModelScanner::new(chat.model())),
    };
    let mut outgoing = Request::new(Body::new(body));
    let is_head_request = head.method == Method::HEAD;
    *outgoing.method_mut() = head.method;
    *outgoing.uri_mut() = target;
    *outgoing.headers_mut() = head.headers;

    let mut observer = new_observer(&app, permit, tenant, route, search, began);
    observer.chat = chat;
    let response = send(&app, route, outgoing, &body_status, &mut observer, task).await?;
    let is_transcoded = options.output_format.profile != Profile::Native;
    let is_error = response.head.status.as_u16() >= 400;
    let (response, form) = respond(&app, route, response, observer, options, is_head_request);
    // A response to HEAD has no body to translate.
    Ok(match form {
        _ if !is_transcoded || is_head_request => response,
        None if is_error => Box::pin(error_translation::error(response)).await,
        Some(Form::Document) => Box::pin(error_translation::document(response)).await,
        _ => response,
    })
}

/// Creates the observer of one relayed request, with a new request id.
pub fn new_observer(
    app: &Arc<App>,
    permit: StreamPermit,
    tenant: String,
    route: &Route,
    search: Option<SearchHandle>,
    began: Instant,
) -> RelayObserver {
    let created_ms = jiff::Timestamp::now().as_millisecond();
    let (route, provider) = (route.name.clone(), route.provider);
    let context = RecordContext { app: Arc::clone(app), route, provider, tenant, created_ms };
    RelayObserver::new(permit, Records::new(context, search), uuid::Uuid::now_v7(), began)
}

/// Starts a span if telemetry is exported, and adds the trace headers. Must run before the route's own header rules, which
/// may remove them.
pub fn start_span(app: &App, route: &Route, method: &Method, headers: &mut HeaderMap) -> Option<Box<ChatSpan>> {
    let otel = app.otel.as_ref()?;
    let request = UpstreamRequest {
        route: route.name.clone(),
        provider: route.provider,
        method: method.clone(),
        host: route.upstream.host_str().unwrap_or_default().to_owned(),
        port: route.upstream.port_or_known_default(),
    };
    Some(otel.start_span(request, headers))
}

/// Sends the request and waits for the response head. `body_status` tells whether the client's body failed meanwhile.
pub async fn send(
    app: &App,
    route: &Route,
    outgoing: Request<Body>,
    body_status: &BodyStatus,
    observer: &mut RelayObserver,
    task: Option<String>,
) -> Result<UpstreamResponse, Problem> {
    let first_byte = app.config.timeouts.first_byte;
    let mut sending = pin!(tokio::time::timeout(first_byte, app.client.send(outgoing)));
    // The first poll sends the request or starts to connect, so that the tap is built while the upstream works.
    let first_poll = poll_fn(|task| Poll::Ready(sending.as_mut().poll(task))).await;
    let prepared = Prepared::new(app, route, observer.request, task);
    let result = match first_poll {
        Poll::Ready(result) => result,
        Poll::Pending => tokio::select! {
            result = sending => result,
            () = app.cut.cancelled() => {
                let problem = Problem::draining();
                observer.failed(&problem);
                return Err(app.faults.noted(observer.fault_context(), problem));
            }
        },
    };
    let host = route.upstream.host_str().unwrap_or_default();
    let response = match result {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(fault)) => Err(send_problem(app, host, body_status, fault)),
        Err(_) => Err(Problem::upstream_timeout(host, first_byte)),
    };
    let response = response.inspect_err(|problem| {
        let (request, status) = (observer.request, problem.status.as_u16());
        count_request(app, route, status);
        app.faults.problem(observer.fault_context(), problem);
        observer.failed(problem);
        tracing::warn!(%request, route = route.name, status, why = problem.detail(), "upstream failed");
    })?;
    observer.first_byte = observer.began.elapsed();
    observer.status = response.status().as_u16();
    if let Some(chat) = &mut observer.chat {
        chat.response_status(observer.status);
    }
    app.metrics
        .first_byte
        .get_or_create(&RouteLabel { route: route.name.clone() })
        .observe(observer.first_byte.as_secs_f64());
    count_request(app, route, observer.status);
    Ok(UpstreamResponse::new(route, response, prepared))
}

/// The problem for a request that got no response. A body that failed on the client's side takes precedence.
fn send_problem(app: &App, host: &str, body_status: &BodyStatus, fault: Fault) -> Problem {
    match (body_status.failure(), fault) {
        (Some(BodyFailure::TooLarge), _) => Problem::body_too_large(app.config.limits.request_body).closing(),
        (Some(BodyFailure::Broken), _) => Problem::bad_request("the request body is broken").closing(),
        (None, Fault::TooManyOpenFiles) => Problem::crowded(),
        (None, fault) => Problem::upstream_unreachable(host, fault),
    }
}

/// What a response needs besides the upstream's head and body. Built while the upstream works, so it adds no latency.
struct Prepared {
    nonce: String,
    request_id: String,
    /// `None` if the route has no tap.
    tap: Option<Box<Tap>>,
}

impl Prepared {
    fn new(app: &App, route: &Route, request: uuid::Uuid, task: Option<String>) -> Self {
        let (nonce, request_id) = (uuid::Uuid::new_v4().simple().to_string(), request.to_string());
        let context = || Context {
            route: route.name.clone(),
            provider: route.provider,
            link_base: route.link_base.clone(),
            nonce: nonce.clone(),
            created: jiff::Timestamp::now(),
            fallback_id: request_id.clone(),
            task,
            rules: Arc::clone(&app.config.rules),
        };
        let tap = route.tap.then(|| Box::new(Tap::new(context())));
        Self { nonce, request_id, tap }
    }
}

/// The client's response, and its form if it is in another dialect than the upstream's.
fn respond(
    app: &Arc<App>,
    route: &Route,
    mut response: UpstreamResponse,
    observer: RelayObserver,
    mut options: RequestOptions,
    is_head_request: bool,
) -> (Response<Body>, Option<Form>) {
    let is_transcoded = options.output_format.profile != Profile::Native;
    // A response to HEAD has the headers of the client's dialect, so the upstream's format matters then, too.
    if !is_head_request || is_transcoded {
        response.detect_format(app, route, is_transcoded);
    }
    response.is_head_request = is_head_request;
    if response.readable == Some(Readable::Document) && is_transcoded {
        options.output_format.form = options.output_format.profile.document_form();
    }
    let form = response.readable.filter(|_| is_transcoded).map(|_| options.output_format.form);
    let response = response.into_tapped(app, route, observer, options);
    (response.map(|body| guard(&app.abandoned, body)), form)
}

/// An upstream's response whose body has not been read yet.
pub struct UpstreamResponse {
    pub head: http::response::Parts,
    /// The format that the tap reads; `None` to relay the body unread. Set by [`Self::detect_format`].
    pub readable: Option<Readable>,
    /// The request was HEAD, so no body follows.
    is_head_request: bool,
    body: ResponseBody,
    prepared: Prepared,
}

impl UpstreamResponse {
    fn new(route: &Route, response: Response<ResponseBody>, prepared: Prepared) -> Self {
        let (mut head, body) = response.into_parts();
        if !route.relay_cors {
            drop_headers(&mut head.headers, |name| name.starts_with("access-control-"));
        }
        response_headers(&mut head.headers, &route.response_headers);
        Self { head, readable: None, is_head_request: false, body, prepared }
    }

    /// Decides from the head whether the tap can read the body. `reads_json`: read a JSON document even if the route names
    /// no provider.
    pub fn detect_format(&mut self, app: &App, route: &Route, reads_json: bool) {
        self.readable = readable(app, route, reads_json, self.head.status, &self.head.headers);
    }

    /// The client's response: the head with citetap's headers, and the body behind the tap.
    pub fn into_tapped(
        self,
        app: &Arc<App>,
        route: &Route,
        mut observer: RelayObserver,
        options: RequestOptions,
    ) -> Response<TapBody<ResponseBody, RelayObserver>> {
        let Self { mut head, readable, is_head_request, body, prepared } = self;
        let is_tapped = readable.is_some() && !is_head_request;
        if !is_tapped {
            // No record will be made that could take the result.
            observer.records.search = None;
        }
        let RequestOptions { inject, output_format, .. } = options;
        let Prepared { nonce, request_id, tap } = prepared;
        if readable == Some(Readable::Stream)
            && let Some(chat) = &mut observer.chat
        {
            chat.mark_streamed();
        }
        if let Some(readable) = readable {
            set_tap_headers(&mut head.headers, readable, inject, output_format, nonce);
        }
        if let Ok(id) = HeaderValue::try_from(request_id) {
            head.headers.insert(REQUEST, id);
        }
        let settings = Settings {
            inject,
            emit_empty: route.emit_empty,
            output_format,
            supplement: if observer.records.search.is_some() { route.supplement.when } else { Supplement::Off },
            single_document: readable == Some(Readable::Document),
            frame_cap: app.config.limits.frame,
            budget: Arc::clone(&app.budget),
        };
        let timeouts = &app.config.timeouts;
        let timeouts = StreamTimeouts {
            idle: timeouts.upstream_idle,
            heartbeat: timeouts.heartbeat,
            deadline: timeouts.total.map(|total| tokio::time::Instant::from_std(observer.began) + total),
        };
        let pipeline = Pipeline::with_tap(tap.filter(|_| is_tapped), settings);
        let cut = app.cut.clone().cancelled_owned();
        head.version = Version::default();
        head.extensions.clear();
        Response::from_parts(head, TapBody::new(body, pipeline, observer, timeouts, cut))
    }
}

/// Sets the headers of a response that the tap reads, and removes those that no longer describe the body.
fn set_tap_headers(
    headers: &mut HeaderMap,
    readable: Readable,
    inject: Inject,
    output_format: OutputFormat,
    nonce: String,
) {
    let is_stream = readable == Readable::Stream;
    if output_format != OutputFormat::default() || (is_stream && inject != Inject::Off) {
        drop_headers(headers, |name| error_translation::REPRESENTATION_HEADERS.contains(&name));
    }
    for (name, value) in output_format.profile.headers(output_format.form) {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    let is_transcoded = output_format.profile != Profile::Native;
    if (is_stream || is_transcoded || output_format.changes_documents())
        && let Ok(nonce) = HeaderValue::try_from(nonce)
    {
        headers.insert(NONCE, nonce);
    }
    if is_stream || (is_transcoded && output_format.form == Form::Stream) {
        headers.entry(BUFFERING).or_insert(HeaderValue::from_static("no"));
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, no-transform"));
    }
}

/// A body format that the tap can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readable {
    Stream,
    /// One JSON document: an answer that is not streamed, or an error. In the upstream's dialect no event is added to it.
    Document,
}

/// The format of a 200 response with identity coding; `None`, with its reason counted, for any other response. Without a
/// content type it is a stream if the route names its provider.
fn readable(app: &App, route: &Route, reads_json: bool, status: StatusCode, headers: &HeaderMap) -> Option<Readable> {
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
    let Some(content_type) = headers.get(header::CONTENT_TYPE) else {
        return if route.provider == Provider::AUTO { skip("not_a_stream") } else { Some(Readable::Stream) };
    };
    let essence = content_type.as_bytes().split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
    if essence.eq_ignore_ascii_case(b"text/event-stream") {
        Some(Readable::Stream)
    } else if essence.eq_ignore_ascii_case(b"application/json") && (route.provider != Provider::AUTO || reads_json) {
        Some(Readable::Document)
    } else {
        skip("not_a_stream")
    }
}

fn count_request(app: &App, route: &Route, status: u16) {
    let labels = RequestLabels { route: route.name.clone(), provider: route.provider.as_str().to_owned(), status };
    app.metrics.requests.get_or_create(&labels).inc();
}

/// Removes and returns the task header, so that the upstream does not get it. The first value counts; empty is `None`.
pub fn task_of(headers: &mut HeaderMap) -> Option<String> {
    let task = headers.remove(TASK)?;
    let task = String::from_utf8_lossy(task.as_bytes()).trim().to_owned();
    (!task.is_empty()).then_some(task)
}

/// The route with the longest prefix of the path, and the rest of the path. A prefix ends at a slash or at the path's end;
/// `routes` is sorted by descending length.
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

/// True if the peer is one of `trusted_proxies`, whose forwarding headers are relayed.
pub fn is_trusted(app: &App, peer: IpAddr) -> bool {
    app.config.trusted_proxies.iter().any(|net| net.contains(&peer.to_canonical()))
}

//! The HTTP client towards upstreams: connections, and which headers cross over.
//!
//! Redirects are relayed, never followed; nothing is decompressed; the upstream's address comes from
//! the configuration alone.

mod chunked;
mod driven;
mod handed;
mod head;
mod io;
mod sending;
mod sparing;
mod wire;

use std::{
    error::Error,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response, Uri,
    header::{ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, TE},
};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector};
use hyper_util::{
    client::legacy::{Builder, Client as HyperClient, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use url::Url;

use self::{
    driven::{Driven, Driver, Refused},
    handed::Handed,
    sparing::{Crowded, Sparing},
};
pub use self::{
    head::write_line,
    wire::{says_close, with_scratch},
};
use crate::{config::HeaderRules, workers};

/// Read buffer of a connection, and so the largest response head.
const MAX_BUFFER: usize = 64 * 1024;
/// What an upstream may send ahead on one h2 stream: the client's pace is the upstream's.
const STREAM_WINDOW: u32 = 64 * 1024;
/// Wide enough for every stream's window, so that a slow client never stops its neighbours.
const CONNECTION_WINDOW: u32 = 1 << 30;
/// 1xx answers before the one that counts. Whoever sends more means none.
const MAX_INFORMATIONAL: u32 = 10;
/// Of one upstream and one worker.
const IDLE_CONNECTIONS: usize = 256;
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

type Connector = HttpsConnector<Sparing<HttpConnector>>;

/// A request's body.
pub trait Sendable: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static {}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static> Sendable for B {}

/// The client.
pub struct Client<B: Sendable> {
    builder: Builder,
    connector: Connector,
    /// One for each worker: a connection is read where it was opened.
    each: Vec<Connections<B>>,
}

struct Connections<B: Sendable> {
    http1: Driver,
    /// Takes over the connections on which the other one finds h2.
    http2: HyperClient<Handed, B>,
}

/// The body of an upstream's answer.
pub enum Answer<B: Sendable> {
    Http1(Driven<B>),
    Http2(Incoming),
}

impl<B: Sendable> Body for Answer<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Http1(body) => Pin::new(body).poll_frame(task),
            Self::Http2(body) => Pin::new(body).poll_frame(task).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(body) => body.is_end_stream(),
            Self::Http2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(body) => body.size_hint(),
            Self::Http2(body) => body.size_hint(),
        }
    }
}

impl<B: Sendable> Client<B> {
    /// Trusts the system's certificates (`SSL_CERT_FILE` and `SSL_CERT_DIR` are honoured), or the Mozilla
    /// set where the system has none.
    pub fn new(connect_timeout: Duration) -> Self {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider);
        let tls = match builder.clone().with_safe_default_protocol_versions() {
            Ok(builder) => match builder.clone().with_native_roots() {
                Ok(builder) => builder.with_no_client_auth(),
                Err(_) => builder.with_webpki_roots().with_no_client_auth(),
            },
            // The provider above supports the default versions; were it not so, TLS 1.3 alone is left.
            Err(_) => rustls::ClientConfig::builder().with_webpki_roots().with_no_client_auth(),
        };
        Self::with_tls(tls, connect_timeout)
    }

    pub fn with_tls(tls: rustls::ClientConfig, connect_timeout: Duration) -> Self {
        let mut http = HttpConnector::new();
        http.set_connect_timeout(Some(connect_timeout));
        http.set_nodelay(true);
        http.enforce_http(false);
        let connector =
            hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_all_versions();
        let mut builder = HyperClient::builder(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .http1_max_buf_size(MAX_BUFFER)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .http2_max_header_list_size(64 * 1024);
        let connector = connector.wrap_connector(Sparing::new(http));
        Self { each: Vec::new(), builder, connector }.for_workers(1)
    }

    /// The same, with connections of their own for so many workers.
    pub fn for_workers(self, count: usize) -> Self {
        let connections = || {
            let handed = Handed::new(self.connector.clone());
            Connections { http1: Driver::new(handed.clone()), http2: self.builder.build(handed) }
        };
        let each = (0..count.max(1)).map(|_| connections()).collect();
        Self { each, ..self }
    }

    /// Closes connections that nobody has used for long, from time to time.
    pub async fn sweep(&self) {
        loop {
            tokio::time::sleep(IDLE_TIMEOUT / 3).await;
            self.each.iter().for_each(|connections| connections.http1.sweep());
        }
    }

    pub async fn send(&self, request: Request<B>) -> Result<Response<Answer<B>>, Fault> {
        let here = &self.each[workers::here() % self.each.len()];
        match here.http1.send(request).await {
            Ok(answer) => Ok(answer.map(Answer::Http1)),
            Err(Refused::Fault(fault)) => Err(fault),
            Err(Refused::Http2(request)) => match Box::pin(here.http2.request(*request)).await {
                Ok(answer) => Ok(answer.map(Answer::Http2)),
                Err(error) => Err(Fault::of(&error)),
            },
        }
    }
}

/// Why there is no answer. Names no URL beyond the host, which the caller adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// No connection: refused, unknown host, certificate, time-out.
    Connect(String),
    /// None was tried: few files are left that may be open.
    Crowded,
    /// The connection broke or did not speak HTTP.
    Broken(String),
}

impl Fault {
    fn of(error: &hyper_util::client::legacy::Error) -> Self {
        if error.is_connect() { Self::of_connecting(error) } else { Self::Broken(cause(error).to_string()) }
    }

    fn of_connecting(error: &(dyn Error + 'static)) -> Self {
        let cause = cause(error);
        if cause.is::<Crowded>() { Self::Crowded } else { Self::Connect(cause.to_string()) }
    }
}

/// What lies at the bottom of an error.
fn cause<'e>(mut error: &'e (dyn Error + 'static)) -> &'e (dyn Error + 'static) {
    while let Some(deeper) = error.source() {
        error = deeper;
    }
    error
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(why) => write!(f, "could not connect: {why}"),
            Self::Crowded => write!(f, "could not connect: {Crowded}"),
            Self::Broken(why) => write!(f, "the connection broke: {why}"),
        }
    }
}

/// The upstream's URI for the rest of a request's path, its query as it came.
pub fn target(upstream: &Url, rest: &str, query: Option<&str>) -> Result<Uri, http::uri::InvalidUri> {
    let mut target = String::with_capacity(upstream.as_str().len() + rest.len() + query.map_or(0, str::len) + 1);
    target.push_str(&upstream[..url::Position::BeforePath]);
    target.push_str(upstream.path().trim_end_matches('/'));
    if !rest.starts_with('/') {
        target.push('/');
    }
    target.push_str(rest);
    if let Some(query) = query {
        target.push('?');
        target.push_str(query);
    }
    target.parse()
}

/// A header of one connection, which ends here (RFC 9110 7.6.1).
/// `Trailer` goes on: HTTP/1.1 carries the trailers it names, and no others.
fn is_hop_by_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "proxy-connection"
            | "transfer-encoding"
            | "upgrade"
    )
}

/// `Connection` may name headers to drop, but not those that the answer depends on.
const KEPT: &[HeaderName] = &[AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST];

/// Headers that begin like this are between citetap and its clients.
const OURS: &str = "x-citetap-";

/// Looks at every header once, as most of those that are to go are not there.
pub fn drop_headers(headers: &mut HeaderMap, is_one: impl Fn(&str) -> bool) {
    let named: Vec<HeaderName> = headers.keys().filter(|name| is_one(name.as_str())).cloned().collect();
    for name in named {
        headers.remove(name);
    }
}

/// Those of the connection, those that it names, and those that are asked for.
fn drop_hop_by_hop(headers: &mut HeaderMap, is_one: impl Fn(&str) -> bool) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .filter(|name| !KEPT.contains(name))
        .collect();
    for name in named {
        headers.remove(name);
    }
    drop_headers(headers, |name| is_hop_by_hop(name) || is_one(name));
}

/// Makes a client's headers the upstream's: ours and the connection's dropped, identity encoding asked
/// for, so that the answer can be tapped.
pub fn request_headers(headers: &mut HeaderMap, trusted_peer: bool, rules: &HeaderRules) {
    let trailers = headers.get_all(TE).iter().any(|te| te.as_bytes().eq_ignore_ascii_case(b"trailers"));
    let forwarded = |name: &str| matches!(name, "forwarded" | "x-real-ip") || name.starts_with("x-forwarded-");
    drop_hop_by_hop(headers, |name| {
        matches!(name, "te" | "host" | "expect") || name.starts_with(OURS) || (!trusted_peer && forwarded(name))
    });
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    apply(headers, rules);
}

/// Makes an upstream's headers the client's. Ours are ours to say: an upstream that named a nonce could make its own
/// events pass for our own.
pub fn response_headers(headers: &mut HeaderMap, rules: &HeaderRules) {
    drop_hop_by_hop(headers, |name| name.starts_with(OURS));
    apply(headers, rules);
}

fn apply(headers: &mut HeaderMap, rules: &HeaderRules) {
    for name in &rules.remove {
        headers.remove(name);
    }
    for (name, value) in &rules.set {
        headers.insert(name, value.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(base: &str, rest: &str, query: Option<&str>) -> String {
        target(&Url::parse(base).unwrap(), rest, query).unwrap().to_string()
    }

    #[test]
    fn the_base_path_comes_first_and_the_query_stays() {
        assert_eq!(uri("https://a.example.com", "/chat", Some("x=%20y")), "https://a.example.com/chat?x=%20y");
        assert_eq!(uri("https://a.example.com/api/v3/", "/chat", None), "https://a.example.com/api/v3/chat");
        assert_eq!(uri("http://a.example.com:8080/x", "", None), "http://a.example.com:8080/x/");
    }

    #[test]
    fn headers_of_the_connection_and_ours_end_here() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, x-secret-hop, authorization"),
            ("keep-alive", "timeout=5"),
            ("x-secret-hop", "1"),
            ("authorization", "Bearer upstreams-own"),
            ("te", "trailers"),
            ("upgrade", "websocket"),
            ("x-citetap-inject", "off"),
            ("x-forwarded-for", "203.0.113.9"),
            ("forwarded", "for=203.0.113.9"),
            ("accept-encoding", "gzip, br"),
            ("host", "proxy.example.com"),
            ("x-own", "stays"),
        ] {
            headers.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_static(value));
        }
        let mut trusted = headers.clone();
        request_headers(&mut headers, false, &HeaderRules::default());
        let mut left: Vec<String> = headers.iter().map(|(k, v)| format!("{k}: {}", v.to_str().unwrap())).collect();
        left.sort();
        assert_eq!(
            left,
            ["accept-encoding: identity", "authorization: Bearer upstreams-own", "te: trailers", "x-own: stays"]
        );
        request_headers(&mut trusted, true, &HeaderRules::default());
        assert!(trusted.contains_key("x-forwarded-for") && trusted.contains_key("forwarded"));
    }

    #[test]
    fn rules_remove_then_set() {
        let mut headers = HeaderMap::new();
        headers.insert("x-a", HeaderValue::from_static("1"));
        let rules = HeaderRules {
            remove: vec![HeaderName::from_static("x-a")],
            set: vec![(HeaderName::from_static("x-b"), HeaderValue::from_static("2"))],
        };
        response_headers(&mut headers, &rules);
        assert_eq!(headers.len(), 1);
        assert_eq!(headers["x-b"], "2");
    }
}

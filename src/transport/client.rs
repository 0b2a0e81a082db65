//! The HTTP client for upstreams: hyper-util's pooled client, one per worker.
//!
//! It follows no redirect and decompresses nothing. A request is sent again only if its pooled connection was closed before
//! anything was written. A connection whose response ended before its request is closed.

use std::{
    convert::Infallible,
    error::Error,
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, Uri, Version, header::TRANSFER_ENCODING};
use http_body::{Body, Frame, SizeHint};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector};
use hyper_util::{
    client::legacy::{Builder, Client as PooledClient, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use tokio::sync::{Notify, oneshot};
use url::Url;

use super::{
    BoxError,
    fd_guard::{FdGuard, TooManyOpenFiles},
    incoming::IncomingBody,
    response_check, workers,
};

/// Read buffer of a connection, and so the largest response head.
const MAX_BUFFER: usize = 64 * 1024;
/// h2 flow-control window of a stream: bytes that an upstream may send ahead of the client.
const STREAM_WINDOW: u32 = 64 * 1024;
/// h2 flow-control window of a connection. Wide enough for every stream's window, so that a slow client never stops the
/// other streams.
const CONNECTION_WINDOW: u32 = 1 << 30;
/// 1xx responses before the final one. An upstream that sends more is treated as broken.
const MAX_INFORMATIONAL: u32 = 10;
/// Idle connections per upstream and worker.
const IDLE_CONNECTIONS: usize = 256;
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

type Connector = HttpsConnector<FdGuard<HttpConnector>>;

/// A request body that the client can send; implemented by every suitable type.
pub trait RequestBody: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static {}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static> RequestBody for B {}

/// The pooled upstream client.
pub struct Client<B: RequestBody> {
    builder: Builder,
    connector: Connector,
    /// One per worker: the task of a connection runs on the worker that opened it.
    per_worker: Vec<PooledClient<Connector, SendingBody<B>>>,
}

impl<B: RequestBody> Client<B> {
    pub fn new(connect_timeout: Duration) -> Self {
        Self::with_tls(trust(), connect_timeout)
    }

    pub fn with_tls(tls: rustls::ClientConfig, connect_timeout: Duration) -> Self {
        let mut http = HttpConnector::new();
        http.set_connect_timeout(Some(connect_timeout));
        http.set_nodelay(true);
        http.enforce_http(false);
        let connector =
            hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_all_versions();
        let mut builder = PooledClient::builder(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .http1_max_buf_size(MAX_BUFFER)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .http2_max_header_list_size(64 * 1024);
        let connector = connector.wrap_connector(FdGuard::new(http));
        Self { per_worker: Vec::new(), builder, connector }.for_workers(1)
    }

    /// The same client with one pool per worker.
    pub fn for_workers(self, count: usize) -> Self {
        let per_worker = (0..count.max(1)).map(|_| self.builder.build(self.connector.clone())).collect();
        Self { per_worker, ..self }
    }

    /// Sends a request whose URI is absolute, and waits for the head of its final response.
    pub async fn send(&self, request: Request<B>) -> Result<Response<ResponseBody>, Fault> {
        let (response_open, response_ended) = oneshot::channel();
        let progress = Arc::<Progress>::default();
        let has_body = !request.body().is_end_stream();
        let body_progress = Arc::clone(&progress);
        let mut request = request.map(|body| SendingBody { body, response_ended, progress: body_progress });
        declare_body(&mut request);
        // Lets the runtime deliver socket events first, so that hyper discards a pooled connection that was closed, or on
        // which an upstream has sent bytes without a request.
        tokio::task::yield_now().await;
        let flooded = Arc::new(Notify::new());
        let (count, tell) = (Arc::clone(&progress), Arc::clone(&flooded));
        hyper::ext::on_informational(&mut request, move |_| {
            if count.informational.fetch_add(1, Ordering::Relaxed) >= MAX_INFORMATIONAL {
                tell.notify_one();
            }
        });
        let client = &self.per_worker[workers::current() % self.per_worker.len()];
        let response = tokio::select! {
            biased;
            () = flooded.notified() => None,
            response = client.request(request) => Some(response),
        };
        // One read can return more than the limit and the final response.
        let is_flooded = progress.informational.load(Ordering::Relaxed) > MAX_INFORMATIONAL;
        match response.filter(|_| !is_flooded) {
            Some(Ok(mut response)) => {
                let (status, version) = (response.status(), response.version());
                // hyper sends no body of unknown length over a connection that has carried an HTTP/1.0 response.
                let is_unsent = has_body && !progress.is_body_polled.load(Ordering::Relaxed);
                let checked = if is_unsent && version == Version::HTTP_10 {
                    Err("it speaks HTTP/1.0, which has no request bodies of unknown length")
                } else {
                    response_check::check(status, response.headers_mut())
                };
                checked.map_err(|why| Fault::Broken(why.to_owned()))?;
                Ok(response.map(|body| ResponseBody { body: IncomingBody::new(body, version), _open: response_open }))
            }
            Some(Err(error)) => Err(Fault::of(&error)),
            None => Err(Fault::Broken("it sends informational answers without end".to_owned())),
        }
    }
}

/// What hyper has done with a request so far.
#[derive(Default)]
struct Progress {
    /// Number of 1xx responses.
    informational: AtomicU32,
    is_body_polled: AtomicBool,
}

/// hyper sends no body of unknown length with these methods, unless a header says that there is one.
fn declare_body<B: Body>(request: &mut Request<B>) {
    let is_of_unknown_length = !request.body().is_end_stream() && request.body().size_hint().exact().is_none();
    if is_of_unknown_length && matches!(*request.method(), Method::GET | Method::HEAD) {
        // Over h2, hyper removes it again.
        request.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}

/// An upstream's response body.
pub struct ResponseBody {
    body: IncomingBody,
    /// Dropped with the body, which ends [`SendingBody`].
    _open: oneshot::Sender<Infallible>,
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(task)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of a request that is being sent. It fails when the response ends first: the connection, with half a request on
/// it, is then closed, and the body is dropped.
pub struct SendingBody<B> {
    body: B,
    response_ended: oneshot::Receiver<Infallible>,
    progress: Arc<Progress>,
}

impl<B: RequestBody> Body for SendingBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        this.progress.is_body_polled.store(true, Ordering::Relaxed);
        match Pin::new(&mut this.body).poll_frame(task) {
            Poll::Ready(frame) => Poll::Ready(frame.map(|frame| frame.map_err(Into::into))),
            Poll::Pending => {
                let _ = ready!(Pin::new(&mut this.response_ended).poll(task));
                Poll::Ready(Some(Err("the answer ended before the request".into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Trusts the system's certificates (`SSL_CERT_FILE` and `SSL_CERT_DIR` are honoured), or Mozilla's where the system has
/// none.
pub(super) fn trust() -> rustls::ClientConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider);
    match builder.clone().with_safe_default_protocol_versions() {
        Ok(builder) => match builder.clone().with_native_roots() {
            Ok(builder) => builder.with_no_client_auth(),
            Err(_) => builder.with_webpki_roots().with_no_client_auth(),
        },
        // Cannot happen with this provider, which supports the default versions.
        Err(_) => rustls::ClientConfig::builder().with_webpki_roots().with_no_client_auth(),
    }
}

/// Why there is no response. Its text has no URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// No connection: refused, unknown host, certificate, timeout.
    Connect(String),
    /// No connection was tried, as few file descriptors are left.
    TooManyOpenFiles,
    /// The connection broke or did not speak HTTP.
    Broken(String),
}

impl Fault {
    fn of(error: &hyper_util::client::legacy::Error) -> Self {
        let cause = cause(error);
        if !error.is_connect() {
            return Self::Broken(cause.to_string());
        }
        if cause.is::<TooManyOpenFiles>() { Self::TooManyOpenFiles } else { Self::Connect(cause.to_string()) }
    }
}

/// The error that started a chain of errors.
pub(super) fn cause<'e>(mut error: &'e (dyn Error + 'static)) -> &'e (dyn Error + 'static) {
    while let Some(deeper) = error.source() {
        error = deeper;
    }
    error
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(why) => write!(f, "could not connect: {why}"),
            Self::TooManyOpenFiles => write!(f, "could not connect: {TooManyOpenFiles}"),
            Self::Broken(why) => write!(f, "the connection broke: {why}"),
        }
    }
}

/// The upstream's URI for the rest of a request's path; the query stays as it is.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(base: &str, rest: &str, query: Option<&str>) -> String {
        target(&Url::parse(base).unwrap(), rest, query).unwrap().to_string()
    }

    #[test]
    fn target_joins_base_path_rest_and_query() {
        assert_eq!(uri("https://a.example.com", "/chat", Some("x=%20y")), "https://a.example.com/chat?x=%20y");
        assert_eq!(uri("https://a.example.com/api/v3/", "/chat", None), "https://a.example.com/api/v3/chat");
        assert_eq!(uri("http://a.example.com:8080/x", "", None), "http://a.example.com:8080/x/");
    }
}

//! An HTTP server (HTTP/1.1, and HTTP/2 without TLS) that answers by script and records its requests.

use std::{
    convert::Infallible,
    future::pending,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, atomic::Ordering::Relaxed},
    time::Duration,
};

use bytes::BytesMut;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::{body::Incoming, rt::Executor, service::service_fn};
use hyper_util::{rt::TokioIo, server::conn::auto};
use serde_json::{Map, Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
    time::{Instant, sleep},
};

use super::{
    body::ScriptBody,
    request_log::{MAX_RECORDED_BODY, RecordedRequest, RequestLog, ResponseHandle, lock},
    script::{Reply, Script, Scripted, Step},
};

/// Write buffer per connection; small, so that backpressure from a client shows soon.
const WRITE_BUFFER: usize = 64 * 1024;

/// Concurrent HTTP/2 streams per connection; a pooling proxy uses one connection for all.
const MAX_H2_STREAMS: u32 = 10_000;

/// Delay after a failed accept (mostly out of file descriptors).
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// A running upstream. Dropping it stops it and closes open connections.
pub struct Upstream {
    addr: SocketAddr,
    log: Arc<RequestLog>,
    tasks: ConnectionTasks,
    accepting: JoinHandle<()>,
}

impl Upstream {
    /// Serves on `listener` from within a tokio runtime. Paths without a script get 404.
    pub fn start(listener: TcpListener, routes: Vec<Scripted>) -> Self {
        let addr = listener.local_addr().unwrap_or_else(|_| (Ipv4Addr::UNSPECIFIED, 0).into());
        let log = Arc::<RequestLog>::default();
        let tasks = ConnectionTasks::default();
        let accepting = tokio::spawn(accept(listener, routes.into(), Arc::clone(&log), tasks.clone()));
        Self { addr, log, tasks, accepting }
    }

    /// [`start`](Self::start) on a free port of the loopback address.
    pub async fn bind(routes: Vec<Scripted>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        Ok(Self::start(listener, routes))
    }

    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://127.0.0.1:1234`, without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The recorded requests, oldest first; see [`RecordedRequest`].
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.log.snapshot()
    }

    /// Number of requests so far, including those no longer recorded.
    pub fn request_count(&self) -> usize {
        self.log.requests.load(Relaxed)
    }

    pub fn connections_open(&self) -> usize {
        self.log.connections.load(Relaxed)
    }

    pub fn connections_accepted(&self) -> usize {
        self.log.accepted.load(Relaxed)
    }

    /// Number of responses that the client left before their end or before their headers.
    pub fn cancelled(&self) -> usize {
        self.log.cancelled.load(Relaxed)
    }

    /// Waits up to `limit` for `done` to hold, and returns whether it did.
    pub async fn until(&self, limit: Duration, mut done: impl FnMut(&Self) -> bool) -> bool {
        let end = Instant::now() + limit;
        loop {
            if done(self) {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Stops listening, closes open connections, and returns when every task has ended.
    pub async fn shutdown(mut self) {
        let mut tasks = self.stop();
        tasks.shutdown().await;
        // An aborted task returns a cancellation error.
        let _aborted = (&mut self.accepting).await;
    }

    fn stop(&self) -> JoinSet<()> {
        self.log.stopping.store(true, Relaxed);
        self.accepting.abort();
        self.tasks.close()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        drop(self.stop());
    }
}

/// The tasks of all connections and HTTP/2 streams, so that none outlives the upstream.
#[derive(Clone, Default)]
struct ConnectionTasks(Arc<Mutex<TaskSet>>);

#[derive(Default)]
struct TaskSet {
    running: JoinSet<()>,
    closed: bool,
}

impl ConnectionTasks {
    fn close(&self) -> JoinSet<()> {
        let mut set = lock(&self.0);
        set.closed = true;
        std::mem::take(&mut set.running)
    }
}

impl<F> Executor<F> for ConnectionTasks
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, task: F) {
        let mut set = lock(&self.0);
        while set.running.try_join_next().is_some() {}
        if !set.closed {
            set.running.spawn(async move {
                task.await;
            });
        }
    }
}

async fn accept(listener: TcpListener, routes: Arc<[Scripted]>, log: Arc<RequestLog>, tasks: ConnectionTasks) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let connection = serve(stream, Arc::clone(&routes), Arc::clone(&log), tasks.clone());
                tasks.execute(connection);
            }
            Err(_) => sleep(ACCEPT_RETRY_DELAY).await,
        }
    }
}

async fn serve(stream: TcpStream, routes: Arc<[Scripted]>, log: Arc<RequestLog>, tasks: ConnectionTasks) {
    let _connected = log.connected();
    // Disable Nagle's algorithm: every chunk must leave when its step says so.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: Request<Incoming>| {
        let (parts, body) = request.into_parts();
        let script = pick(&routes, parts.uri.path()).map(Script::next_script);
        let head = parts.method == Method::HEAD;
        let handle = log.record(&parts);
        async move {
            let body_read = read_body(body, &handle).await;
            Ok::<_, Infallible>(respond(script, head, handle, body_read).await)
        }
    });
    let mut server = auto::Builder::new(tasks);
    server.http1().max_buf_size(WRITE_BUFFER);
    server.http2().max_send_buf_size(WRITE_BUFFER).max_concurrent_streams(MAX_H2_STREAMS);
    // A client that resets or leaves is not an error; the handle has recorded it.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

fn pick<'a>(routes: &'a [Scripted], path: &str) -> Option<&'a Script> {
    let matching = routes.iter().filter(|route| path.starts_with(&route.path));
    // `rev`: of equally long prefixes max_by_key returns the last, and the first should win.
    matching.rev().max_by_key(|route| route.path.len()).map(|route| &route.script)
}

/// Reads the request body to its end. After an error the recorded body stays short.
async fn read_body(mut body: Incoming, handle: &ResponseHandle) -> bytes::Bytes {
    let mut kept = BytesMut::new();
    let mut len = 0;
    while let Some(Ok(frame)) = body.frame().await {
        if let Ok(data) = frame.into_data() {
            len += data.len() as u64;
            let room = MAX_RECORDED_BODY - kept.len();
            kept.extend_from_slice(&data[..data.len().min(room)]);
        }
    }
    handle.body(&mut kept, len)
}

async fn respond(
    script: Option<Script>,
    head: bool,
    handle: ResponseHandle,
    body: bytes::Bytes,
) -> Response<ScriptBody> {
    let script = script
        .map(|script| script.for_request(&body))
        .unwrap_or_else(|| Script::json(&br#"{"error":"no script for this path"}"#[..]).status(StatusCode::NOT_FOUND));
    if !script.delay.is_zero() {
        sleep(script.delay).await;
    }
    let mut headers = script.headers.clone();
    let steps: Arc<[Step]> = match script.reply() {
        Reply::Steps(steps) => {
            announce_trailers(&steps, &mut headers);
            steps
        }
        Reply::Echo => {
            let text = echo(&handle.snapshot(), &body).to_string();
            headers.entry(header::CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
            headers.insert(header::CONTENT_LENGTH, text.len().into());
            Arc::new([Step::Send(text.into())])
        }
        Reply::Hang => {
            // Holds the handle, which counts the client as cancelled when it leaves.
            pending::<()>().await;
            Arc::new([])
        }
    };
    let bodiless = head || matches!(script.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let body = if bodiless { ScriptBody::empty(handle) } else { ScriptBody::new(steps, script.cut, handle) };
    let mut response = Response::new(body);
    *response.status_mut() = script.status;
    *response.headers_mut() = headers;
    response
}

/// Adds the `trailer` header (RFC 9110 section 6.6.2). Without it hyper sends no trailers over HTTP/1.1.
fn announce_trailers(steps: &[Step], headers: &mut HeaderMap) {
    for step in steps {
        if let Step::Trailers(trailers) = step {
            for name in trailers.keys() {
                headers.append(header::TRAILER, HeaderValue::from(name.clone()));
            }
        }
    }
}

fn echo(seen: &RecordedRequest, body: &[u8]) -> Value {
    let mut headers = Map::new();
    for name in seen.headers.keys() {
        let values = seen.headers.get_all(name).iter();
        let values: Vec<_> = values.map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        headers.insert(name.to_string(), json!(values));
    }
    json!({
        "method": seen.method.as_str(),
        "path": seen.path,
        "version": format!("{:?}", seen.version),
        "headers": headers,
        "body": String::from_utf8_lossy(body),
        "bodyLength": seen.body_len,
    })
}

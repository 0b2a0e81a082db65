//! An HTTP server (HTTP/1.1, and HTTP/2 without TLS) that answers by script and remembers what it was asked.

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
    observe::{MAX_SEEN_BODY, Observed, Seen, Ticket, lock},
    script::{Reply, Script, Scripted, Step},
};

/// What a connection may hold unwritten: little, so that a client that does not read is felt soon.
const WRITE_BUFFER: usize = 64 * 1024;

/// A proxy that pools HTTP/2 puts all its streams on one connection.
const MAX_H2_STREAMS: u32 = 10_000;

/// How long to rest when no connection can be accepted (out of file descriptors, mostly).
const ACCEPT_REST: Duration = Duration::from_millis(50);

/// A running upstream. Dropping it stops it and cuts what is open.
pub struct Upstream {
    addr: SocketAddr,
    observed: Arc<Observed>,
    tasks: Tasks,
    accepting: JoinHandle<()>,
}

impl Upstream {
    /// Serves on `listener`, from within a tokio runtime. A path that no script has is a 404.
    pub fn start(listener: TcpListener, routes: Vec<Scripted>) -> Self {
        let addr = listener.local_addr().unwrap_or_else(|_| (Ipv4Addr::UNSPECIFIED, 0).into());
        let observed = Arc::<Observed>::default();
        let tasks = Tasks::default();
        let accepting = tokio::spawn(accept(listener, routes.into(), Arc::clone(&observed), tasks.clone()));
        Self { addr, observed, tasks, accepting }
    }

    /// [`start`](Self::start) on a free port of the loopback address.
    pub async fn bind(routes: Vec<Scripted>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        Ok(Self::start(listener, routes))
    }

    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://127.0.0.1:1234`, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The newest requests in the order they came; see [`Seen`] for what is known of each.
    pub fn requests(&self) -> Vec<Seen> {
        self.observed.seen()
    }

    /// All requests so far.
    pub fn request_count(&self) -> usize {
        self.observed.requests.load(Relaxed)
    }

    pub fn connections_open(&self) -> usize {
        self.observed.connections.load(Relaxed)
    }

    pub fn connections_accepted(&self) -> usize {
        self.observed.accepted.load(Relaxed)
    }

    /// Answers that the client left before their end, or before their headers.
    pub fn cancelled(&self) -> usize {
        self.observed.cancelled.load(Relaxed)
    }

    /// Waits until `done` holds, for at most `limit`; says whether it did.
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

    /// Stops listening, cuts what is open, and returns when every task is gone.
    pub async fn shutdown(mut self) {
        let mut tasks = self.stop();
        tasks.shutdown().await;
        // An aborted task ends with an error that says so.
        let _aborted = (&mut self.accepting).await;
    }

    fn stop(&self) -> JoinSet<()> {
        self.observed.stopping.store(true, Relaxed);
        self.accepting.abort();
        self.tasks.close()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        drop(self.stop());
    }
}

/// Every connection's and every HTTP/2 stream's task, so that none outlives the upstream.
#[derive(Clone, Default)]
struct Tasks(Arc<Mutex<TaskSet>>);

#[derive(Default)]
struct TaskSet {
    running: JoinSet<()>,
    closed: bool,
}

impl Tasks {
    fn close(&self) -> JoinSet<()> {
        let mut set = lock(&self.0);
        set.closed = true;
        std::mem::take(&mut set.running)
    }
}

impl<F> Executor<F> for Tasks
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

async fn accept(listener: TcpListener, routes: Arc<[Scripted]>, observed: Arc<Observed>, tasks: Tasks) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let connection = serve(stream, Arc::clone(&routes), Arc::clone(&observed), tasks.clone());
                tasks.execute(connection);
            }
            Err(_) => sleep(ACCEPT_REST).await,
        }
    }
}

async fn serve(stream: TcpStream, routes: Arc<[Scripted]>, observed: Arc<Observed>, tasks: Tasks) {
    let _connected = observed.connected();
    // A piece is to leave when its step says so, not when the next one comes; without it the pauses are only blurred.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: Request<Incoming>| {
        let (parts, body) = request.into_parts();
        let script = pick(&routes, parts.uri.path()).map(Script::turn);
        let head = parts.method == Method::HEAD;
        let ticket = observed.admit(&parts);
        async move {
            let body_read = read_body(body, &ticket).await;
            Ok::<_, Infallible>(answer(script, head, ticket, body_read).await)
        }
    });
    let mut server = auto::Builder::new(tasks);
    server.http1().max_buf_size(WRITE_BUFFER);
    server.http2().max_send_buf_size(WRITE_BUFFER).max_concurrent_streams(MAX_H2_STREAMS);
    // A client that resets or leaves is no failure here: the ticket has recorded it.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

fn pick<'a>(routes: &'a [Scripted], path: &str) -> Option<&'a Script> {
    let matching = routes.iter().filter(|route| path.starts_with(&route.path));
    // The first of equals: max_by_key would take the last.
    matching.rev().max_by_key(|route| route.path.len()).map(|route| &route.script)
}

/// Reads the request's body to its end, however long; an error shows as a body that stays short.
async fn read_body(mut body: Incoming, ticket: &Ticket) -> bytes::Bytes {
    let mut kept = BytesMut::new();
    let mut len = 0;
    while let Some(Ok(frame)) = body.frame().await {
        if let Ok(data) = frame.into_data() {
            len += data.len() as u64;
            let room = MAX_SEEN_BODY - kept.len();
            kept.extend_from_slice(&data[..data.len().min(room)]);
        }
    }
    ticket.body(&mut kept, len)
}

async fn answer(script: Option<Script>, head: bool, ticket: Ticket, body: bytes::Bytes) -> Response<ScriptBody> {
    let script = script
        .map(|script| script.asked(&body))
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
            let text = echo(&ticket.seen(), &body).to_string();
            headers.entry(header::CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
            headers.insert(header::CONTENT_LENGTH, text.len().into());
            Arc::new([Step::Send(text.into())])
        }
        Reply::Hang => {
            // Holds the ticket, which counts the client that gives up.
            pending::<()>().await;
            Arc::new([])
        }
    };
    let bodiless = head || matches!(script.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let body = if bodiless { ScriptBody::none(ticket) } else { ScriptBody::new(steps, script.cut, ticket) };
    let mut response = Response::new(body);
    *response.status_mut() = script.status;
    *response.headers_mut() = headers;
    response
}

/// RFC 9110 section 6.6.2: a sender should name its trailers beforehand. hyper sends none over HTTP/1.1 otherwise.
fn announce_trailers(steps: &[Step], headers: &mut HeaderMap) {
    for step in steps {
        if let Step::Trailers(trailers) = step {
            for name in trailers.keys() {
                headers.append(header::TRAILER, HeaderValue::from(name.clone()));
            }
        }
    }
}

fn echo(seen: &Seen, body: &[u8]) -> Value {
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

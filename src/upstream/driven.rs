//! HTTP/1.1 connections that are driven by whoever reads their answers: between the upstream's socket and the client's
//! there is no other task, and nobody is woken but by the socket itself.
//!
//! *Cancel safety.* An answer that is dropped before its end takes its connection with it: the upstream hears at once.

use std::{
    collections::HashMap,
    future::poll_fn,
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Instant,
};

use bytes::Bytes;
use http::{
    HeaderValue, Request, Response, Uri,
    header::HOST,
    uri::{Authority, PathAndQuery, Scheme},
};
use http_body::{Body, Frame, SizeHint};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, Connection, SendRequest},
};
use hyper_util::client::legacy::connect::Connection as _;
use tower::Service;

use super::{
    BoxError, Fault, IDLE_CONNECTIONS, IDLE_TIMEOUT, MAX_BUFFER,
    handed::{Handed, Io},
};
use crate::bell::Bell;

type Host = (Scheme, Authority);

/// A connection, and the way to send requests on it.
struct Line<B: Body + 'static> {
    sender: SendRequest<B>,
    /// `None`: it has closed.
    wire: Option<Pin<Box<Connection<Io, B>>>>,
}

impl<B> Line<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    fn drive(&mut self, task: &mut Context<'_>) {
        if self.wire.as_mut().is_some_and(|wire| wire.as_mut().poll(task).is_ready()) {
            self.wire = None;
        }
    }

    /// Can it take a request? Looks at what came while nobody did.
    fn is_ready(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.wire.is_some() && self.sender.is_ready()
    }
}

/// Connections that wait for their next request, and which hosts have none here as they speak h2.
struct Pool<B: Body + 'static> {
    idle: HashMap<Host, Vec<(Instant, Line<B>)>>,
    http2: HashMap<Host, Instant>,
}

pub struct Driver<B: Body + 'static> {
    connector: Handed,
    pool: Arc<Mutex<Pool<B>>>,
}

/// Why there is no answer.
pub enum Refused<B> {
    Fault(Fault),
    /// The upstream speaks h2, in which streams share a connection that none of them can drive.
    Http2(Box<Request<B>>),
}

impl<B> Driver<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    pub fn new(connector: Handed) -> Self {
        let pool = Pool { idle: HashMap::new(), http2: HashMap::new() };
        Self { connector, pool: Arc::new(Mutex::new(pool)) }
    }

    /// Sends a request whose URI is absolute.
    pub async fn send(&self, mut request: Request<B>) -> Result<Response<Driven<B>>, Refused<B>> {
        let to = request.uri().clone();
        let (Some(scheme), Some(authority)) = (to.scheme().cloned(), to.authority().cloned()) else {
            return Err(Refused::Fault(Fault::Broken("the URI names no host".to_owned())));
        };
        let host = (scheme, authority);
        if lock(&self.pool).speaks_http2(&host) {
            return Err(Refused::Http2(Box::new(request)));
        }
        if !request.headers().contains_key(HOST) {
            let named = host_header(&host).map_err(Refused::Fault)?;
            request.headers_mut().insert(HOST, named);
        }
        *request.uri_mut() = to.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")).into();
        loop {
            let idle = lock(&self.pool).take(&host);
            let (mut line, reused) = match idle {
                Some(line) => (line, true),
                None => match self.connect(to.clone(), &host).await.map_err(Refused::Fault)? {
                    Some(line) => (line, false),
                    None => {
                        *request.uri_mut() = to;
                        return Err(Refused::Http2(Box::new(request)));
                    }
                },
            };
            let mut answer = pin!(line.sender.try_send_request(request));
            let answer = poll_fn(|task| {
                if let Poll::Ready(answer) = answer.as_mut().poll(task) {
                    return Poll::Ready(answer);
                }
                if line.wire.as_mut().is_some_and(|wire| wire.as_mut().poll(task).is_ready()) {
                    line.wire = None;
                }
                answer.as_mut().poll(task)
            })
            .await;
            match answer {
                Ok(answer) => {
                    let pool = Arc::clone(&self.pool);
                    return Ok(answer.map(|body| Driven {
                        body,
                        line: Some((line, host)),
                        pool,
                        bell: Bell::default(),
                    }));
                }
                Err(mut failed) => match failed.take_message().filter(|_| reused) {
                    // The upstream closed it while it waited: nothing was sent.
                    Some(unsent) => request = unsent,
                    None => return Err(Refused::Fault(Fault::of_hyper(failed.error()))),
                },
            }
        }
    }

    /// `None`: it speaks h2.
    async fn connect(&self, to: Uri, host: &Host) -> Result<Option<Line<B>>, Fault> {
        let mut connector = self.connector.clone();
        let connecting = async {
            poll_fn(|task| connector.poll_ready(task)).await?;
            connector.call(to.clone()).await
        };
        let io = connecting.await.map_err(|error| Fault::of_connecting(&*error))?;
        if io.connected().is_negotiated_h2() {
            self.connector.hand(&to, io);
            lock(&self.pool).http2.insert(host.clone(), Instant::now());
            return Ok(None);
        }
        let shaken = http1::Builder::new().max_buf_size(MAX_BUFFER).handshake(io).await;
        let (sender, wire) = shaken.map_err(|error| Fault::of_hyper(&error))?;
        Ok(Some(Line { sender, wire: Some(Box::pin(wire)) }))
    }

    /// Closes what nobody has used for long.
    pub fn sweep(&self) {
        lock(&self.pool).sweep();
        self.connector.clear();
    }
}

/// As the URI names it, without a port that goes without saying.
fn host_header((scheme, authority): &Host) -> Result<HeaderValue, Fault> {
    let plain = match (scheme.as_str(), authority.port_u16()) {
        ("http", Some(80)) | ("https", Some(443)) => authority.host(),
        _ => authority.as_str().rsplit('@').next().unwrap_or_default(),
    };
    HeaderValue::from_str(plain).map_err(|_| Fault::Broken("the host is no host".to_owned()))
}

fn lock<B: Body>(pool: &Mutex<Pool<B>>) -> MutexGuard<'_, Pool<B>> {
    pool.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<B> Pool<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    /// Known for as long as requests come; then it is found out anew.
    fn speaks_http2(&mut self, host: &Host) -> bool {
        let known = self.http2.get_mut(host).filter(|asked| asked.elapsed() < IDLE_TIMEOUT);
        known.map(|asked| *asked = Instant::now()).is_some()
    }

    /// The one that was used last, as it is the likeliest to be open still.
    fn take(&mut self, host: &Host) -> Option<Line<B>> {
        let idle = self.idle.get_mut(host)?;
        loop {
            let (since, mut line) = idle.pop()?;
            if since.elapsed() < IDLE_TIMEOUT && line.is_ready() {
                return Some(line);
            }
        }
    }

    fn put(&mut self, host: Host, line: Line<B>) {
        let idle = self.idle.entry(host).or_default();
        if idle.len() < IDLE_CONNECTIONS {
            idle.push((Instant::now(), line));
        }
    }

    fn sweep(&mut self) {
        for idle in self.idle.values_mut() {
            idle.retain_mut(|(since, line)| since.elapsed() < IDLE_TIMEOUT && line.is_ready());
        }
        self.idle.retain(|_, idle| !idle.is_empty());
        self.http2.retain(|_, since| since.elapsed() < IDLE_TIMEOUT);
    }
}

/// An answer's body, and the connection that it comes by.
pub struct Driven<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    body: Incoming,
    line: Option<(Line<B>, Host)>,
    pool: Arc<Mutex<Pool<B>>>,
    /// Rung by the socket, and by body and connection to each other.
    bell: Bell,
}

impl<B> Body for Driven<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        this.bell.hear(task);
        this.bell.hush(true);
        let waker = this.bell.waker();
        let ringing = &mut Context::from_waker(&waker);
        loop {
            let polled = Pin::new(&mut this.body).poll_frame(ringing);
            if polled.is_ready() {
                this.bell.hush(false);
                return polled;
            }
            if !this.bell.rung() {
                this.bell.hush(false);
                // It may have rung in between.
                if !this.bell.rung() {
                    return Poll::Pending;
                }
                this.bell.hush(true);
            }
            if let Some((line, _)) = &mut this.line {
                line.drive(ringing);
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

impl<B> Drop for Driven<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    /// The connection waits for its next request if this one is over.
    fn drop(&mut self) {
        let Some((mut line, host)) = self.line.take() else { return };
        if line.is_ready() {
            lock(&self.pool).put(host, line);
        }
    }
}

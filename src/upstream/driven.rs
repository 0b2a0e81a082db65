//! HTTP/1.1 connections that are driven by whoever reads their answers: between the upstream's socket and the client's
//! there is no other task, and nobody is woken but by the socket itself. The library sends the request and reads the
//! answer's head; the body is read from the socket ([`wire`]).
//!
//! *Cancel safety.* An answer that is dropped before its end takes its connection with it: the upstream hears at once.

use std::{
    collections::HashMap,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Instant,
};

use bytes::{Bytes, BytesMut};
use http::{
    HeaderValue, Request, Response, Uri,
    header::{CONNECTION, HOST},
    uri::{Authority, PathAndQuery, Scheme},
};
use http_body::{Body, Frame, SizeHint};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, Connection, SendRequest},
    rt::{Read, ReadBuf},
};
use hyper_util::client::legacy::connect::Connection as _;
use tokio::task::unconstrained;
use tower::Service;

use super::{
    BoxError, Fault, IDLE_CONNECTIONS, IDLE_TIMEOUT, MAX_BUFFER, Sendable,
    gate::{Gate, Progress, Told},
    handed::Handed,
    io::Io,
    wire::{self, Framing, Wire, says_close},
};
use crate::bell::Bell;

type Host = (Scheme, Authority);
type Requests<B> = SendRequest<Told<B>>;
type Exchange<B> = Connection<Gate<Io>, Told<B>>;

/// Connections that wait for their next request, and which hosts have none here as they speak h2.
#[derive(Default)]
struct Pool {
    idle: HashMap<Host, Vec<(Instant, Io)>>,
    http2: HashMap<Host, Instant>,
}

/// Where a connection waits for its next request.
pub struct Home {
    host: Host,
    pool: Arc<Mutex<Pool>>,
}

impl Home {
    pub fn put(self, io: Io) {
        lock(&self.pool).put(self.host, io);
    }
}

pub struct Driver {
    connector: Handed,
    pool: Arc<Mutex<Pool>>,
}

/// Why there is no answer.
pub enum Refused<B> {
    Fault(Fault),
    /// The upstream speaks h2, in which streams share a connection that none of them can drive.
    Http2(Box<Request<B>>),
}

impl Driver {
    pub fn new(connector: Handed) -> Self {
        Self { connector, pool: Arc::default() }
    }

    /// Sends a request whose URI is absolute.
    pub async fn send<B: Sendable>(&self, mut request: Request<B>) -> Result<Response<Driven<B>>, Refused<B>> {
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
            let (io, reused) = match idle {
                Some(io) => (io, true),
                // Boxed, like whatever is seldom done on the way of a request: its room would be made every time.
                None => match Box::pin(self.connect(to.clone(), &host)).await.map_err(Refused::Fault)? {
                    Some(io) => (io, false),
                    None => {
                        *request.uri_mut() = to;
                        return Err(Refused::Http2(Box::new(request)));
                    }
                },
            };
            match self.ask(io, request, &host).await {
                Ok(answer) => return Ok(answer),
                // The upstream closed it while it waited: nothing was sent.
                Err((_, Some(unsent))) if reused => request = *unsent,
                Err((fault, _)) => return Err(Refused::Fault(fault)),
            }
        }
    }

    /// Sends a request on a connection. A request that was not sent comes back.
    async fn ask<B: Sendable>(
        &self,
        io: Io,
        request: Request<B>,
        host: &Host,
    ) -> Result<Response<Driven<B>>, (Fault, Option<Box<Request<B>>>)> {
        let progress = Arc::new(Progress::default());
        let stays = !request.headers().get_all(CONNECTION).iter().any(says_close);
        let shaken = http1::Builder::new().max_buf_size(MAX_BUFFER).handshake(Gate::new(io, &progress)).await;
        let (mut sender, wire): (Requests<B>, Exchange<B>) = shaken.map_err(|error| (Fault::of_hyper(&error), None))?;
        let mut wire = Some(Box::new(wire));
        let mut drive = |task: &mut Context<'_>| {
            if wire.as_mut().is_some_and(|wire| Pin::new(&mut **wire).poll(task).is_ready()) {
                wire = None;
            }
        };
        let answer = {
            let mut answer = pin!(sender.try_send_request(request.map(|body| Told::new(body, &progress))));
            poll_fn(|task| {
                drive(task);
                let polled = answer.as_mut().poll(task);
                if polled.is_ready() || !progress.is_answered() {
                    return polled;
                }
                // The library does not take for an answer's head what we do, or has had no time for it.
                progress.open();
                drive(task);
                answer.as_mut().poll(task)
            })
            .await
        };
        let answer = answer.map_err(|mut failed| {
            let unsent = failed.take_message().map(|request| Box::new(request.map(Told::into_inner)));
            (Fault::of_hyper(failed.error()), unsent)
        })?;
        let (head, body) = answer.into_parts();
        if !progress.is_over() {
            progress.open();
            return Ok(Response::from_parts(head, Driven::Talking(Box::new(Talking::new(body, sender, wire)))));
        }
        let Some(wire) = wire else {
            return Err((Fault::Broken("the connection ended with the answer's head".to_owned()), None));
        };
        let framing = Framing::of(&body, &head.headers);
        let stays = stays && wire::stays(head.version, &head.headers);
        let home = stays.then(|| Home { host: host.clone(), pool: Arc::clone(&self.pool) });
        let parts = wire.into_parts();
        let (io, mut ahead) = parts.io.into_parts();
        if !parts.read_buf.is_empty() {
            ahead = BytesMut::from_iter(parts.read_buf.iter().chain(&ahead));
        }
        Ok(Response::from_parts(head, Driven::Wire(Box::new(Wire::new(io, framing, ahead, home)))))
    }

    /// `None`: it speaks h2.
    async fn connect(&self, to: Uri, host: &Host) -> Result<Option<Io>, Fault> {
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
        Ok(Some(io))
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

fn lock(pool: &Mutex<Pool>) -> MutexGuard<'_, Pool> {
    pool.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// Known for as long as requests come; then it is found out anew.
    fn speaks_http2(&mut self, host: &Host) -> bool {
        let known = self.http2.get_mut(host).filter(|asked| asked.elapsed() < IDLE_TIMEOUT);
        known.map(|asked| *asked = Instant::now()).is_some()
    }

    /// The one that was used last, as it is the likeliest to be open still.
    fn take(&mut self, host: &Host) -> Option<Io> {
        let idle = self.idle.get_mut(host)?;
        loop {
            let (since, mut io) = idle.pop()?;
            if since.elapsed() < IDLE_TIMEOUT && is_quiet(&mut io) {
                return Some(io);
            }
        }
    }

    fn put(&mut self, host: Host, io: Io) {
        let idle = self.idle.entry(host).or_default();
        if idle.len() < IDLE_CONNECTIONS {
            idle.push((Instant::now(), io));
        }
    }

    fn sweep(&mut self) {
        for idle in self.idle.values_mut() {
            idle.retain_mut(|(since, io)| since.elapsed() < IDLE_TIMEOUT && is_quiet(io));
        }
        self.idle.retain(|_, idle| !idle.is_empty());
        self.http2.retain(|_, since| since.elapsed() < IDLE_TIMEOUT);
    }
}

/// Nothing has come on it, and it has not ended, while nobody looked.
fn is_quiet(io: &mut Io) -> bool {
    let mut byte = [0];
    let mut buf = ReadBuf::new(&mut byte);
    // Not counted against the task that happens to look.
    let looked = pin!(unconstrained(poll_fn(|task| Pin::new(&mut *io).poll_read(task, buf.unfilled()))))
        .poll(&mut Context::from_waker(Waker::noop()));
    looked.is_pending()
}

/// The body of an answer over HTTP/1.1.
pub enum Driven<B: Sendable> {
    Wire(Box<Wire>),
    Talking(Box<Talking<B>>),
}

/// An answer to a request that is not all sent yet: the library goes on with both.
pub struct Talking<B: Sendable> {
    body: Incoming,
    /// `None`: it has closed.
    wire: Option<Box<Exchange<B>>>,
    /// Without it the connection would end with the request.
    _sender: Requests<B>,
    /// Rung by the socket, and by body and connection to each other.
    bell: Bell,
}

impl<B: Sendable> Talking<B> {
    fn new(body: Incoming, sender: Requests<B>, wire: Option<Box<Exchange<B>>>) -> Self {
        Self { body, wire, _sender: sender, bell: Bell::default() }
    }

    fn poll_frame(&mut self, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.bell.hear(task);
        self.bell.hush(true);
        let waker = self.bell.waker();
        let ringing = &mut Context::from_waker(&waker);
        loop {
            let polled = Pin::new(&mut self.body).poll_frame(ringing);
            if polled.is_ready() {
                self.bell.hush(false);
                return polled;
            }
            if !self.bell.rung() {
                self.bell.hush(false);
                // It may have rung in between.
                if !self.bell.rung() {
                    return Poll::Pending;
                }
                self.bell.hush(true);
            }
            if self.wire.as_mut().is_some_and(|wire| Pin::new(&mut **wire).poll(ringing).is_ready()) {
                self.wire = None;
            }
        }
    }
}

impl<B: Sendable> Body for Driven<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Wire(wire) => Pin::new(&mut **wire).poll_frame(task).map_err(Into::into),
            Self::Talking(talking) => talking.poll_frame(task).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Wire(wire) => wire.is_end_stream(),
            Self::Talking(talking) => talking.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Wire(wire) => wire.size_hint(),
            Self::Talking(talking) => talking.body.size_hint(),
        }
    }
}

//! HTTP/1.1 connections that are driven by whoever reads their answers: between the upstream's socket and the client's
//! there is no other task, and nobody is woken but by the socket itself.
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
    HeaderValue, Method, Request, Response, Uri,
    header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING},
    response,
    uri::{Authority, Scheme},
};
use http_body::{Body, Frame, SizeHint};
use hyper::rt::{Read, ReadBuf};
use hyper_util::client::legacy::connect::Connection as _;
use tokio::task::unconstrained;
use tower::Service;

use super::{
    BoxError, Fault, IDLE_CONNECTIONS, IDLE_TIMEOUT, Sendable, cause,
    handed::Handed,
    head::Reading,
    io::Io,
    sending::{Failed, Sending},
    wire::{self, Framing, Wire, says_close},
};

type Host = (Scheme, Authority);

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
        let Some((mut io, mut reused)) = self.open(&to, &host).await.map_err(Refused::Fault)? else {
            return Err(Refused::Http2(Box::new(request)));
        };
        if !request.headers().contains_key(HOST) {
            let named = host_header(&host).map_err(Refused::Fault)?;
            request.headers_mut().insert(HOST, named);
        }
        let (method, stays) = (request.method().clone(), !request.headers().get_all(CONNECTION).iter().any(says_close));
        let mut sending = Sending::new(request);
        loop {
            let fault = match exchange(&mut io, &mut sending).await {
                Ok(answer) => return self.answered(answer, &method, io, sending, host, stays).map_err(Refused::Fault),
                Err(fault) => fault,
            };
            // The upstream closed it while it waited.
            if !reused || sending.has_begun() {
                return Err(Refused::Fault(fault));
            }
            let Some(next) = self.open(&to, &host).await.map_err(Refused::Fault)? else {
                return Err(Refused::Fault(fault));
            };
            (io, reused) = next;
        }
    }

    /// A connection, and whether it was used before. `None`: the upstream speaks h2.
    async fn open(&self, to: &Uri, host: &Host) -> Result<Option<(Io, bool)>, Fault> {
        let idle = lock(&self.pool).take(host);
        match idle {
            Some(io) => Ok(Some((io, true))),
            // Boxed, like whatever is seldom done on the way of a request: its room would be made every time.
            None => Ok(Box::pin(self.connect(to.clone(), host)).await?.map(|io| (io, false))),
        }
    }

    fn answered<B: Sendable>(
        &self,
        answer: Heard,
        method: &Method,
        io: Io,
        sending: Sending<B>,
        host: Host,
        stays: bool,
    ) -> Result<Response<Driven<B>>, Fault> {
        let Heard { mut head, rest, sent } = answer;
        let framing = Framing::of(method, &head).map_err(|why| Fault::Broken(why.to_owned()))?;
        // RFC 9112 6.3: of a length and chunks the chunks count, and the length is not passed on.
        if head.headers.contains_key(TRANSFER_ENCODING) {
            head.headers.remove(CONTENT_LENGTH);
        }
        let stays = sent && stays && wire::stays(&head);
        let home = stays.then(|| Box::new(Home { host, pool: Arc::clone(&self.pool) }));
        let wire = Wire::new(io, framing, rest, home);
        let body =
            if sent { Driven::Wire(wire) } else { Driven::Talking(Box::new(Talking { wire, sending: Some(sending) })) };
        Ok(Response::from_parts(head, body))
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

/// An answer, as far as it is known.
struct Heard {
    head: response::Parts,
    /// What came behind its head.
    rest: BytesMut,
    /// The request was all sent.
    sent: bool,
}

/// Sends a request and reads the head of its answer, which may come before all is sent.
async fn exchange<B: Sendable>(io: &mut Io, sending: &mut Sending<B>) -> Result<Heard, Fault> {
    let (mut reading, mut sends, mut sent) = (Reading::default(), true, false);
    let head = poll_fn(|task| {
        if sends {
            match sending.poll(io, task) {
                Poll::Ready(Ok(())) => (sends, sent) = (false, true),
                Poll::Ready(Err(Failed::Body(error))) => {
                    return Poll::Ready(Err(Fault::Broken(cause(&*error).to_string())));
                }
                Poll::Ready(Err(Failed::Upstream(error))) if !sending.has_begun() => {
                    return Poll::Ready(Err(Fault::Broken(error.to_string())));
                }
                // It may have answered before it closed.
                Poll::Ready(Err(Failed::Upstream(_))) => sends = false,
                Poll::Pending => {}
            }
        }
        reading.poll(io, task)
    })
    .await?;
    Ok(Heard { head, rest: reading.into_rest(), sent })
}

/// The body of an answer over HTTP/1.1.
pub enum Driven<B: Sendable> {
    Wire(Wire),
    Talking(Box<Talking<B>>),
}

/// An answer to a request that is not all sent yet: both go on.
pub struct Talking<B: Sendable> {
    wire: Wire,
    /// `None`: it is sent, or the upstream takes no more of it.
    sending: Option<Sending<B>>,
}

impl<B: Sendable> Talking<B> {
    fn poll_frame(&mut self, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let (Some(sending), Some(io)) = (&mut self.sending, self.wire.io()) {
            match sending.poll(io, task) {
                // An answer to half a request is none.
                Poll::Ready(Err(Failed::Body(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(_) => self.sending = None,
                Poll::Pending => {}
            }
        }
        Pin::new(&mut self.wire).poll_frame(task).map_err(Into::into)
    }
}

impl<B: Sendable> Body for Driven<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Wire(wire) => Pin::new(wire).poll_frame(task).map_err(Into::into),
            Self::Talking(talking) => talking.poll_frame(task),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Wire(wire) => wire.is_end_stream(),
            Self::Talking(talking) => talking.wire.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Wire(wire) => wire.size_hint(),
            Self::Talking(talking) => talking.wire.size_hint(),
        }
    }
}

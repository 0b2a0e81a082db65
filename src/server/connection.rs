//! One client's connection, and the task that serves it. That is small: streams are open for long, and all that waits with
//! one is looked at for every event. What is needed for a while only lies in boxes.
//!
//! *Cancel safety.* Dropped, it takes the connection with it, and the streams on it.

use std::{
    cell::Cell,
    convert::Infallible,
    future::{Future, ready},
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use hyper::{
    Request, Response,
    body::Incoming,
    server::conn::{http1, http2},
    service::Service,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::graceful::Watcher,
};
use rustls::ServerConfig;
use tokio::{
    io::AsyncWrite,
    net::{TcpStream, UnixStream},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::{
    AnyBody, App,
    carry::{self, Ahead, Asked, Carry, Channel, Offer, Offered, Way},
    door::Peer,
    is_api, plain,
    request::Received,
    stall::{self, Opening, StallGuard},
    tls::H2,
};
use crate::workers;

/// What hyper holds of one stream towards the client.
const SEND_BUFFER: usize = 64 * 1024;
/// h2 streams of one connection at once.
const CONCURRENT_STREAMS: u32 = 1000;
/// For a client that is told to come later to hear the answer.
const BRIEF: Duration = Duration::from_secs(5);

type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// How clients are served, whichever protocol they speak.
pub struct Protocols {
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
    /// Of requests that need no library.
    plain: plain::Limits,
    /// For a client to say which, and for the head of a request.
    headers: Duration,
    /// For a client to take something.
    stall: Duration,
    /// The door closes: who has not said anything yet need not begin.
    closing: CancellationToken,
}

impl Protocols {
    pub fn new(app: &App, headers: Duration, stall: Duration, closing: &CancellationToken) -> Arc<Self> {
        let limits = &app.config.limits;
        let mut http1 = http1::Builder::new();
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(headers)
            .max_headers(limits.request_headers)
            .max_buf_size(limits.request_header_bytes);
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .max_header_list_size(u32::try_from(limits.request_header_bytes).unwrap_or(u32::MAX))
            .max_concurrent_streams(CONCURRENT_STREAMS)
            .max_send_buf_size(SEND_BUFFER)
            .keep_alive_interval(Some(app.config.timeouts.client_stall))
            .keep_alive_timeout(Duration::from_secs(20));
        let plain = plain::Limits { headers: limits.request_headers, bytes: limits.request_header_bytes };
        Arc::new(Self { http1, http2, plain, headers, stall, closing: closing.clone() })
    }

    /// The same for those who are told to come later.
    pub fn brief(app: &App, headers: Duration, closing: &CancellationToken) -> Arc<Self> {
        Self::new(app, headers, BRIEF, closing)
    }

    /// What a client says before a request, or first of one, within its time. `None`: it has said nothing, or need not begin.
    async fn first<T>(&self, said: impl Future<Output = Option<T>>) -> Option<T> {
        tokio::select! {
            // Mostly it is there, and nothing else is asked.
            biased;
            said = tokio::time::timeout(self.headers, said) => said.ok().flatten(),
            () = self.closing.cancelled() => None,
        }
    }
}

/// Who answers the requests of a connection.
#[derive(Clone)]
pub struct Host {
    pub app: Arc<App>,
    pub peer: Peer,
    /// There is no room for more than a word.
    pub is_full: bool,
}

impl Host {
    /// Is the client on this machine?
    fn is_near(&self) -> bool {
        self.peer.ip.to_canonical().is_loopback()
    }

    fn answer(&self, request: Request<Received>) -> Later<Response<AnyBody>> {
        if self.is_full {
            Box::pin(ready(self.app.turn_away(&request, self.peer.side)))
        } else {
            Box::pin(Arc::clone(&self.app).handle(request, self.peer))
        }
    }
}

/// The library's view of it. `offer`: where the connection finds the streams that it can carry itself.
struct Answerer {
    host: Host,
    offer: Option<Arc<Offer>>,
    /// To the first request, where that has been answered.
    ready: Cell<Option<Box<Response<AnyBody>>>>,
}

impl Service<Request<Incoming>> for Answerer {
    type Response = Response<AnyBody>;
    type Error = Infallible;
    type Future = Answer;

    fn call(&self, mut request: Request<Incoming>) -> Answer {
        let asked = self.offer.as_ref().map(|offer| Asked::new(offer, &mut request));
        let answering = match self.ready.take() {
            Some(response) => Box::pin(ready(*response)),
            None => self.host.answer(request.map(Received::Streamed)),
        };
        Answer { answering, asked }
    }
}

struct Answer {
    answering: Later<Response<AnyBody>>,
    asked: Option<Asked>,
}

impl Future for Answer {
    type Output = Result<Response<AnyBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        let response = ready!(self.answering.as_mut().poll(task));
        Poll::Ready(Ok(match self.asked.take() {
            Some(asked) => asked.answered(response),
            None => response,
        }))
    }
}

/// A connection, to its end.
pub struct Connection<T: Way> {
    stage: Stage<T>,
    protocols: Arc<Protocols>,
    host: Host,
    /// Until it goes, there is something to wait for. Over h2 the library has it.
    watcher: Option<Watcher>,
}

#[expect(clippy::large_enum_variant, reason = "the largest is what a connection is in for as long as a stream lasts")]
enum Stage<T: Way> {
    /// The client is to say what it speaks. `None`: it has not.
    Opening(Later<Option<(T, Opening)>>),
    Http2(Later<()>),
    /// The client is to ask for something. `None`: it does not.
    Waiting(Later<Option<(StallGuard<T>, Bytes)>>),
    Asked(Box<PlainlyAsked<T>>),
    Answering(Box<Answering<T>>),
    Carrying(Carrying<T>),
    Closing(Box<StallGuard<T>>),
    Over,
}

/// A plain request is answered.
struct PlainlyAsked<T: Way> {
    answering: Later<Response<AnyBody>>,
    io: StallGuard<T>,
    /// It is the last one.
    last: bool,
    /// As it came: where the answer is none that we write, the library reads it.
    request: Bytes,
    ahead: Ahead,
}

impl<T: Way> PlainlyAsked<T> {
    /// `None`: the client has gone.
    fn poll(&mut self, task: &mut Context<'_>) -> Poll<Option<Response<AnyBody>>> {
        match self.answering.as_mut().poll(task) {
            Poll::Ready(response) => Poll::Ready(Some(response)),
            Poll::Pending => self.ahead.poll(&mut self.io, task).map(|_| None),
        }
    }
}

/// One request after the other is read and answered by the library, until an answer is a stream that can be carried.
struct Answering<T: Way> {
    connection: http1::Connection<TokioIo<StallGuard<T>>, Answerer>,
    offer: Arc<Offer>,
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
    closes: bool,
}

impl<T: Way> Answering<T> {
    fn new(io: StallGuard<T>, protocols: &Protocols, host: Host, ready: Option<Box<Response<AnyBody>>>) -> Self {
        let offer = io.offer();
        let answerer = Answerer { host, offer: Some(Arc::clone(&offer)), ready: Cell::new(ready) };
        Self {
            connection: protocols.http1.serve_connection(TokioIo::new(io), answerer),
            offer,
            closing: Box::pin(protocols.closing.clone().cancelled_owned()),
            closes: false,
        }
    }

    /// `None`: it is over.
    fn poll(&mut self, task: &mut Context<'_>) -> Poll<Option<Offered>> {
        loop {
            // Before it is told to close: a request that is there is answered.
            if Pin::new(&mut self.connection).poll(task).is_ready() {
                return Poll::Ready(None);
            }
            if let Some(stream) = self.offer.take() {
                return Poll::Ready(Some(stream));
            }
            if self.closes || self.closing.as_mut().poll(task).is_pending() {
                return Poll::Pending;
            }
            self.closes = true;
            Pin::new(&mut self.connection).graceful_shutdown();
        }
    }
}

struct Carrying<T: Way> {
    carry: Carry,
    io: StallGuard<T>,
    /// The connection may be used after it.
    stays: bool,
}

impl Connection<TcpStream> {
    pub fn tcp(protocols: Arc<Protocols>, host: Host, watcher: Watcher, mut stream: TcpStream) -> Self {
        Self::opening(protocols, host, watcher, move |protocols| async move {
            let opening = protocols.first(Opening::read(&mut stream)).await?;
            Some((stream, opening))
        })
    }
}

impl Connection<Box<dyn Channel>> {
    pub fn unix(protocols: Arc<Protocols>, host: Host, watcher: Watcher, mut stream: UnixStream) -> Self {
        Self::opening(protocols, host, watcher, move |protocols| async move {
            let opening = protocols.first(Opening::read(&mut stream)).await?;
            Some((Box::new(stream) as Box<dyn Channel>, opening))
        })
    }

    pub fn tls(
        protocols: Arc<Protocols>,
        host: Host,
        watcher: Watcher,
        stream: TcpStream,
        tls: Arc<ServerConfig>,
    ) -> Self {
        Self::opening(protocols, host, watcher, move |protocols| async move {
            let shaken = async {
                match TlsAcceptor::from(tls).accept(stream).await {
                    Ok(stream) => Some(Box::new(stream)),
                    Err(_) => {
                        tracing::debug!("a TLS handshake failed");
                        None
                    }
                }
            };
            let stream = protocols.first(shaken).await?;
            // RFC 9113 3.2: over TLS, h2 is chosen in the handshake. Who chose nothing speaks HTTP/1.1.
            let speaks_http2 = stream.get_ref().1.alpn_protocol() == Some(H2);
            Some((stream as Box<dyn Channel>, Opening::unread(speaks_http2)))
        })
    }
}

impl<T: Way + Send + 'static> Connection<T> {
    fn opening<F>(
        protocols: Arc<Protocols>,
        host: Host,
        watcher: Watcher,
        open: impl FnOnce(Arc<Protocols>) -> F,
    ) -> Self
    where
        F: Future<Output = Option<(T, Opening)>> + Send + 'static,
    {
        let stage = Stage::Opening(Box::pin(open(Arc::clone(&protocols))));
        Self { stage, protocols, host, watcher: Some(watcher) }
    }

    /// Is there room for no more than a word?
    pub fn is_brief(&self) -> bool {
        self.host.is_full
    }

    /// The same, which ends soon.
    pub async fn briefly(self) {
        let _ = tokio::time::timeout(BRIEF, self).await;
    }

    fn opened(&mut self, stream: T, opening: Opening) -> Stage<T> {
        let Protocols { http2, stall, headers, .. } = &*self.protocols;
        let io = StallGuard::new(stream, *stall, *headers).after_opening(&opening);
        if !opening.speaks_http2 {
            return self.heard(io, opening.said);
        }
        let answerer = Answerer { host: self.host.clone(), offer: None, ready: Cell::default() };
        let connection = http2.serve_connection(TokioIo::new(io.after(opening.said)), answerer);
        let Some(watcher) = self.watcher.take() else { return Stage::Over };
        Stage::Http2(Box::pin(async move {
            let _ = watcher.watch(connection).await;
        }))
    }

    /// The client has said this of what it asks for.
    fn heard(&self, mut io: StallGuard<T>, said: Bytes) -> Stage<T> {
        if said.is_empty() {
            let protocols = Arc::clone(&self.protocols);
            return Stage::Waiting(Box::pin(async move {
                let said = protocols.first(stall::heard(&mut io)).await?;
                Some((io, said))
            }));
        }
        let plain = plain::read(&said, &self.protocols.plain).filter(|(request, _)| !is_api(request.uri().path()));
        match plain.filter(|_| !self.host.is_full) {
            Some((request, length)) => Stage::Asked(Box::new(PlainlyAsked {
                last: carry::is_last(request.headers()),
                answering: self.host.answer(request),
                io,
                request: said.slice(..length),
                ahead: Ahead::from(&said[length..]),
            })),
            None => self.answering(io.after(said), None),
        }
    }

    fn answered(&self, response: Response<AnyBody>, asked: PlainlyAsked<T>) -> Stage<T> {
        let PlainlyAsked { io, last, request, ahead, .. } = asked;
        match carry::stream_of(response) {
            Ok((head, first, stream)) => {
                let stays = !last && !carry::is_last(&head.headers) && !self.protocols.closing.is_cancelled();
                let carry = Carry::new(stream, plain::head(&head, stays), first, ahead, self.host.is_near());
                Stage::Carrying(Carrying { carry, io, stays })
            }
            Err(response) => {
                let said = [request, ahead.into()].concat();
                self.answering(io.after(said.into()), Some(response))
            }
        }
    }

    /// By the library. `ready`: what the first request is answered.
    fn answering(&self, io: StallGuard<T>, ready: Option<Box<Response<AnyBody>>>) -> Stage<T> {
        Stage::Answering(Box::new(Answering::new(io, &self.protocols, self.host.clone(), ready)))
    }

    /// The stream that it had is over, or cannot go on.
    fn carried(&self, result: io::Result<()>, Carrying { carry, io, stays }: Carrying<T>) -> Stage<T> {
        let ahead = carry.into_ahead();
        workers::settle();
        match result {
            Err(_) => Stage::Over,
            Ok(()) if !stays || self.protocols.closing.is_cancelled() => Stage::Closing(Box::new(io)),
            Ok(()) => self.heard(io, ahead),
        }
    }
}

impl<T: Way + Send + 'static> Future for Connection<T> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        loop {
            this.stage = match &mut this.stage {
                Stage::Carrying(Carrying { carry, io, .. }) => {
                    let result = ready!(carry.poll(io, task));
                    match std::mem::replace(&mut this.stage, Stage::Over) {
                        Stage::Carrying(carrying) => this.carried(result, carrying),
                        other => other,
                    }
                }
                Stage::Opening(opening) => match ready!(opening.as_mut().poll(task)) {
                    Some((stream, opening)) => this.opened(stream, opening),
                    None => Stage::Over,
                },
                Stage::Asked(asked) => {
                    let answer = ready!(asked.poll(task));
                    match (answer, std::mem::replace(&mut this.stage, Stage::Over)) {
                        (Some(response), Stage::Asked(asked)) => this.answered(response, *asked),
                        _ => Stage::Over,
                    }
                }
                Stage::Waiting(waiting) => match ready!(waiting.as_mut().poll(task)) {
                    Some((io, said)) => this.heard(io, said),
                    None => Stage::Over,
                },
                Stage::Answering(answering) => {
                    let offered = ready!(answering.poll(task));
                    match (offered, std::mem::replace(&mut this.stage, Stage::Over)) {
                        (Some(offered), Stage::Answering(answering)) => {
                            let (stays, parts) = (offered.stays, answering.connection.into_parts());
                            let carry = Carry::offered(offered, Ahead::from(&*parts.read_buf), this.host.is_near());
                            Stage::Carrying(Carrying { carry, io: parts.io.into_inner(), stays })
                        }
                        _ => Stage::Over,
                    }
                }
                Stage::Http2(serving) => {
                    ready!(serving.as_mut().poll(task));
                    Stage::Over
                }
                Stage::Closing(io) => {
                    let _ = ready!(Pin::new(&mut **io).poll_shutdown(task));
                    Stage::Over
                }
                Stage::Over => return Poll::Ready(()),
            };
        }
    }
}

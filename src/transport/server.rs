//! The HTTP server: accepts connections on every worker and has hyper serve them as HTTP/1.1 or h2.
//!
//! *Cancel safety.* A connection that is dropped takes its socket, its requests and their upstream requests with it.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    io,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http_body::Body;
use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{
        conn::auto,
        graceful::{GracefulShutdown, Watcher},
    },
};
use tokio::{runtime::Handle, sync::mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_util::{either::Either, sync::CancellationToken};

use super::{
    BoxError,
    client_io::{ClientIo, ClientSocket},
    fd_limit::{FdHeadroom, FdLimit},
    listener::{Accepted, ListenerSet, Peer, Surface},
    tls::{H2, Tls},
    workers::Workers,
};
use crate::config::Config;

/// Bytes of one h2 stream that hyper holds for the client.
const SEND_BUFFER: usize = 64 * 1024;
/// h2 streams of one connection.
const CONCURRENT_STREAMS: u32 = 1000;
/// How long a client may take to acknowledge an h2 ping.
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// Pause after an error of `accept` that concerns the process, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// For a client that will be refused, as few descriptors are left: to send its request, and for the whole exchange.
const REFUSAL_HEADERS: Duration = Duration::from_millis(500);
const REFUSAL: Duration = Duration::from_secs(5);

/// Answers the server's requests.
pub trait Handler: Clone + Send + Sync + 'static {
    type Body: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static;

    fn handle(
        self,
        request: Request<Incoming>,
        peer: Peer,
    ) -> impl Future<Output = Response<Self::Body>> + Send + 'static;

    /// The response when few file descriptors are left.
    fn refuse(self, request: &Request<Incoming>, peer: Peer) -> Response<Self::Body>;
}

/// A running server. Dropped, it stops at once.
pub struct Server {
    stop_accepting: CancellationToken,
    /// Closed when the last accept loop has ended.
    accepting: mpsc::Receiver<Infallible>,
    graceful: Option<Arc<GracefulShutdown>>,
    workers: Workers,
}

impl Server {
    /// Starts the workers, each with its own accept loop.
    pub fn start<H: Handler>(listeners: &ListenerSet, config: &Config, handler: H) -> io::Result<Self> {
        let workers = Workers::start(config.workers)?;
        let (stop_accepting, graceful) = (CancellationToken::new(), Arc::new(GracefulShutdown::new()));
        let (alive, accepting) = mpsc::channel(1);
        let timeouts = &config.timeouts;
        let protocols = Arc::new(Protocols::new(config, timeouts.request_headers, timeouts.client_stall));
        let refusing = Arc::new(Protocols::new(config, REFUSAL_HEADERS.min(timeouts.request_headers), REFUSAL));
        let fd_limit = FdLimit::of_process();
        for (worker, runtime) in workers.runtimes().iter().enumerate() {
            let listeners = {
                let _context = runtime.enter();
                listeners.for_worker(worker)?
            };
            let acceptor = Acceptor {
                listeners,
                stop: stop_accepting.clone(),
                fd_limit: Arc::clone(&fd_limit),
                protocols: Arc::clone(&protocols),
                refusing: Arc::clone(&refusing),
                graceful: Arc::clone(&graceful),
                handler: handler.clone(),
                _alive: alive.clone(),
            };
            runtime.spawn(acceptor.run());
        }
        Ok(Self { stop_accepting, accepting, graceful: Some(graceful), workers })
    }

    /// The runtimes of the workers.
    pub fn runtimes(&self) -> &[Handle] {
        self.workers.runtimes()
    }

    /// Resolves when no connection is accepted any more.
    pub async fn accept_ended(&mut self) {
        self.accepting.recv().await;
    }

    /// Closes the listeners. Connections that wait in their queues are refused.
    pub async fn stop_accepting(&mut self) {
        self.stop_accepting.cancel();
        self.accept_ended().await;
    }

    /// Lets open connections finish their requests, and waits for that. Accepting must have ended.
    pub async fn finish_connections(&mut self) {
        if let Some(graceful) = self.graceful.take().and_then(Arc::into_inner) {
            graceful.shutdown().await;
        }
    }
}

/// The accept loop of one worker.
struct Acceptor<H> {
    listeners: ListenerSet,
    stop: CancellationToken,
    fd_limit: Arc<FdLimit>,
    protocols: Arc<Protocols>,
    refusing: Arc<Protocols>,
    graceful: Arc<GracefulShutdown>,
    handler: H,
    _alive: mpsc::Sender<Infallible>,
}

impl<H: Handler> Acceptor<H> {
    async fn run(mut self) {
        loop {
            let accepted = poll_fn(|task| {
                let accepted = self.listeners.poll_accept(task);
                accepted.map(|(accepted, listener)| (accepted, listener.surface, listener.tls.clone()))
            });
            let (accepted, surface, tls) = tokio::select! {
                accepted = accepted => accepted,
                () = self.stop.cancelled() => return,
            };
            match accepted {
                Ok(accepted) => self.serve(accepted, surface, tls),
                Err(error) if is_of_one_connection(&error) => {}
                Err(_) => {
                    tracing::warn!("accept failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn serve(&self, accepted: Accepted, surface: Surface, tls: Option<Arc<Tls>>) {
        let connection = Connection {
            peer: Peer { ip: accepted.ip(), is_unix: matches!(accepted, Accepted::Unix(_)), surface },
            handler: self.handler.clone(),
            watcher: self.graceful.watcher(),
            closing: self.stop.clone(),
        };
        match self.fd_limit.headroom(&accepted) {
            FdHeadroom::Enough => {
                let protocols = Arc::clone(&self.protocols);
                tokio::spawn(connection.serve(protocols, accepted, tls, H::handle));
            }
            FdHeadroom::Low => {
                let protocols = Arc::clone(&self.refusing);
                let refused = connection.serve(protocols, accepted, tls, |handler: H, request, peer| {
                    std::future::ready(handler.refuse(&request, peer))
                });
                tokio::spawn(tokio::time::timeout(REFUSAL, refused));
            }
            FdHeadroom::None => {}
        }
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// hyper's settings for connections.
struct Protocols {
    /// Decided by the first bytes.
    any: auto::Builder<TokioExecutor>,
    http1: auto::Builder<TokioExecutor>,
    http2: auto::Builder<TokioExecutor>,
    header_timeout: Duration,
    write_timeout: Duration,
}

impl Protocols {
    fn new(config: &Config, header_timeout: Duration, write_timeout: Duration) -> Self {
        let limits = &config.limits;
        let mut any = auto::Builder::new(TokioExecutor::new());
        any.http1()
            .timer(TokioTimer::new())
            .header_read_timeout(header_timeout)
            .max_headers(limits.request_headers)
            .max_buf_size(limits.request_header_bytes);
        any.http2()
            .timer(TokioTimer::new())
            .max_header_list_size(u32::try_from(limits.request_header_bytes).unwrap_or(u32::MAX))
            .max_concurrent_streams(CONCURRENT_STREAMS)
            .max_send_buf_size(SEND_BUFFER)
            .keep_alive_interval(Some(config.timeouts.client_stall))
            .keep_alive_timeout(PING_TIMEOUT);
        let (http1, http2) = (any.clone().http1_only(), any.clone().http2_only());
        Self { any, http1, http2, header_timeout, write_timeout }
    }
}

/// One client connection.
struct Connection<H> {
    peer: Peer,
    handler: H,
    watcher: Watcher,
    closing: CancellationToken,
}

impl<H: Handler> Connection<H> {
    async fn serve<F>(
        self,
        protocols: Arc<Protocols>,
        accepted: Accepted,
        tls: Option<Arc<Tls>>,
        respond: fn(H, Request<Incoming>, Peer) -> F,
    ) where
        F: Future<Output = Response<H::Body>> + Send + 'static,
    {
        let Self { peer, handler, watcher, closing } = self;
        let (socket, builder) = match (accepted, tls) {
            (Accepted::Tcp(stream, _), None) => (Either::Left(stream), &protocols.any),
            (Accepted::Unix(stream), _) => (Either::Right(Either::Left(stream)), &protocols.any),
            (Accepted::Tcp(stream, _), Some(tls)) => {
                let handshake = TlsAcceptor::from(tls.now()).accept(stream);
                let shaken = tokio::select! {
                    shaken = tokio::time::timeout(protocols.header_timeout, handshake) => shaken,
                    () = closing.cancelled() => return,
                };
                let Ok(Ok(stream)) = shaken else { return tracing::debug!("a TLS handshake failed") };
                // RFC 9113 3.2: over TLS, h2 is negotiated in the handshake. A client that negotiated nothing speaks h1.
                let is_http2 = stream.get_ref().1.alpn_protocol() == Some(H2);
                let builder = if is_http2 { &protocols.http2 } else { &protocols.http1 };
                (Either::Right(Either::Right(Box::new(stream))) as ClientSocket, builder)
            }
        };
        let io = ClientIo::new(socket, protocols.write_timeout, protocols.header_timeout);
        let service = service_fn(move |request| {
            // Boxed because it is large, and the connection's task would keep its space for as long as it is open.
            let response = Box::pin(respond(handler.clone(), request, peer));
            async move { Ok::<_, Infallible>(response.await) }
        });
        let _ = watcher.watch(builder.serve_connection(TokioIo::new(io), service)).await;
    }
}

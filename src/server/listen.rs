//! Connections: accepting, serving h1 and h2, draining.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering},
    task::Poll,
    time::Duration,
};

use futures_util::FutureExt;
use hyper::{
    Request, Response,
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::graceful::{GracefulShutdown, Watcher},
};
use rustls::ServerConfig;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpStream, UnixStream},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{
    AnyBody, App,
    carry::{Asked, Carry, Channel, Way},
    door::{Doors, Peer, Visitor},
    porter::{Came, Porter},
    stall::{Opening, StallGuard},
    tls::H2,
};
use crate::{
    files::{Files, Room},
    workers::Workers,
};

/// What hyper holds of one stream towards the client.
const SEND_BUFFER: usize = 64 * 1024;
/// h2 streams of one connection at once.
const CONCURRENT_STREAMS: u32 = 1000;
/// For a client that is told to come later to say what it wants.
const HASTE: Duration = Duration::from_millis(500);
/// For it to hear the answer.
const BRIEF: Duration = Duration::from_secs(5);
/// For cut streams to get their last bytes out.
const LAST_BYTES: Duration = Duration::from_millis(500);
/// The same for those whose commit came with the flush.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// For the writer to flush when all streams are over.
const FLUSH: Duration = Duration::from_secs(5);

/// For a collector to take what is left.
const LAST_TELEMETRY: Duration = Duration::from_secs(2);

/// What the outside says to a running server.
#[derive(Clone, Default)]
pub struct Signals {
    /// Finish what is open, take nothing new.
    pub drain: CancellationToken,
    /// Stop now.
    pub stop: CancellationToken,
}

/// Serves until told to drain, then as `timeouts.drain` allows. Everything stored is flushed on return. An error: it could
/// not begin, or nobody can come in any more.
pub async fn run(doors: impl Into<Doors>, app: Arc<App>, signals: Signals) -> io::Result<()> {
    let graceful = Arc::new(GracefulShutdown::new());
    let files = Files::of_process();
    let (headers, closed) = (app.config.timeouts.request_headers, CancellationToken::new());
    let protocols = Protocols::new(&app, headers, &closed);
    let hasty = Protocols::new(&app, HASTE.min(headers), &closed);
    let workers = Workers::start(app.config.workers)?;
    // They end with this function, whichever way.
    let mut chores = JoinSet::new();
    chores.spawn(sweep(Arc::clone(&app)));
    let watched = Arc::clone(&app);
    chores.spawn(async move { watched.stalls.watch(watched.config.timeouts.client_stall).await });
    let swept = Arc::clone(&app);
    chores.spawn(async move { swept.client.sweep().await });
    if let Some(peers) = &app.peers {
        chores.spawn(Arc::clone(peers).run());
    }
    let admitted = (Arc::clone(&app), Arc::clone(&graceful));
    let mut porter = Porter::start(&doors.into(), &workers, move |worker, came| {
        let (app, graceful) = &admitted;
        let Came { visitor, side, tls } = came;
        let room = files.room(&visitor);
        let protocols = match room {
            Room::Enough => &protocols,
            Room::Little => &hasty,
            Room::None => return,
        };
        let (app, protocols, watcher) = (Arc::clone(app), Arc::clone(protocols), graceful.watcher());
        let peer = Peer { ip: visitor.ip(), side };
        match (visitor, tls) {
            (Visitor::Tcp(stream, _), None) if room == Room::Enough => {
                worker.serve(serve(app, protocols, watcher, stream, peer));
            }
            (Visitor::Tcp(stream, _), None) => {
                worker.serve(turn_away(app, protocols, watcher, stream, peer));
            }
            (Visitor::Tcp(stream, _), Some(tls)) => {
                worker.serve(Hall { app, protocols, watcher, peer, room }.serve_tls(stream, tls));
            }
            (Visitor::Unix(stream), _) => {
                worker.serve(Hall { app, protocols, watcher, peer, room }.serve_unix(stream));
            }
        }
    })?;
    let closing = async {
        signals.drain.cancelled().await;
        app.draining.store(true, Ordering::Relaxed);
        tracing::info!("draining");
        // Load balancers hear of it from /readyz before the door closes.
        tokio::time::sleep(app.config.timeouts.drain_delay).await;
    };
    tokio::select! {
        () = closing => {}
        () = porter.ended() => return Err(io::Error::other("nobody is let in any more")),
        () = signals.stop.cancelled() => {}
    }
    tokio::select! {
        () = porter.close() => {}
        () = async {
            signals.stop.cancelled().await;
            tokio::time::sleep(LAST_WORDS).await;
        } => return Ok(()),
    }
    if signals.stop.is_cancelled() {
        return Ok(());
    }
    closed.cancel();
    let drained = async {
        tokio::select! {
            () = async {
                // The porter had another one.
                if let Some(graceful) = Arc::into_inner(graceful) {
                    graceful.shutdown().await;
                }
            } => {}
            () = async {
                tokio::time::sleep(app.config.timeouts.drain).await;
                tracing::info!(streams = app.streams.load(Ordering::Relaxed), "cutting the streams that are left");
                app.cut.cancel();
                tokio::time::sleep(LAST_BYTES).await;
            } => {}
        }
        if let Some(peers) = &app.peers {
            peers.leave().await;
        }
        chores.abort_all();
        // A client that takes nothing never asks its stream for the end; what the stream saw is stored all the same.
        app.stalls.look(Duration::ZERO);
        let writer = app.writer.clone();
        if tokio::time::timeout(FLUSH, writer.shutdown()).await.is_err() {
            tracing::warn!("the store did not flush in time");
        }
        let _ = tokio::time::timeout(LAST_WORDS, app.streams_over()).await;
        if let Some(otel) = &app.otel {
            otel.shutdown(LAST_TELEMETRY).await;
        }
        tracing::info!("stopped");
    };
    tokio::select! {
        () = drained => {}
        () = signals.stop.cancelled() => {}
    }
    Ok(())
}

impl App {
    async fn streams_over(&self) {
        while self.streams.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// How clients are served, whichever protocol they speak.
struct Protocols {
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
    /// For a client to say which, and for the head of a request.
    headers: Duration,
    /// The door closes: who has not said anything yet need not begin.
    closing: CancellationToken,
}

impl Protocols {
    fn new(app: &App, headers: Duration, closing: &CancellationToken) -> Arc<Self> {
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
        Arc::new(Self { http1, http2, headers, closing: closing.clone() })
    }

    /// What a client says before its first request, within its time. `None`: it has said nothing, or need not begin.
    async fn first<T>(&self, said: impl Future<Output = Option<T>>) -> Option<T> {
        tokio::select! {
            said = tokio::time::timeout(self.headers, said) => said.ok().flatten(),
            () = self.closing.cancelled() => None,
        }
    }

    /// Serves a connection to its end, which is told by its streams.
    async fn serve<T, S, F>(&self, graceful: Watcher, stream: T, opening: Opening, stall: Duration, service: S)
    where
        T: Way + Send + 'static,
        S: Fn(Request<Incoming>) -> F + Send + 'static,
        F: Future<Output = Response<AnyBody>> + Send + 'static,
    {
        let speaks_http2 = opening.speaks_http2;
        let io = StallGuard::new(stream, stall, self.headers).after_opening(opening);
        if speaks_http2 {
            // Boxed, as the connection keeps room for it as long as it is open, and it is large.
            let service = service_fn(|request| Box::pin(service(request)).map(Ok::<_, Infallible>));
            let _ = graceful.watch(self.http2.serve_connection(TokioIo::new(io), service)).await;
        } else {
            self.serve_http1(io, service).await;
            // Until now there was something to wait for.
            drop(graceful);
        }
    }

    /// Answers one request after the other, and carries the streams among the answers.
    async fn serve_http1<T, S, F>(&self, mut io: StallGuard<T>, service: S)
    where
        T: Way + Send + 'static,
        S: Fn(Request<Incoming>) -> F + Send + 'static,
        F: Future<Output = Response<AnyBody>> + Send + 'static,
    {
        let offer = io.offer();
        loop {
            let answering = service_fn(|mut request: Request<Incoming>| {
                let asked = Asked::new(&offer, &mut request);
                Box::pin(service(request)).map(move |response| Ok::<_, Infallible>(asked.answered(response)))
            });
            // Boxed: it goes when a stream begins.
            let mut connection = Box::new(self.http1.serve_connection(TokioIo::new(io), answering));
            let mut closing = pin!(self.closing.cancelled());
            let mut closes = false;
            let served = poll_fn(|task| {
                if !closes && closing.as_mut().poll(task).is_ready() {
                    closes = true;
                    Pin::new(&mut *connection).graceful_shutdown();
                }
                if Pin::new(&mut *connection).poll(task).is_ready() {
                    return Poll::Ready(None);
                }
                offer.take().map_or(Poll::Pending, |stream| Poll::Ready(Some(stream)))
            });
            let Some(offered) = served.await else { return };
            let stays = offered.stays;
            let parts = connection.into_parts();
            io = parts.io.into_inner();
            let mut carry = Carry::new(offered, &parts.read_buf);
            if poll_fn(|task| carry.poll(&mut io, task)).await.is_err() {
                return;
            }
            if !stays || self.closing.is_cancelled() {
                let _ = io.shutdown().await;
                return;
            }
            io = io.after(carry.into_ahead());
        }
    }
}

async fn serve(app: Arc<App>, protocols: Arc<Protocols>, graceful: Watcher, mut stream: TcpStream, peer: Peer) {
    // Events are small: one that waits for the next is late.
    let _ = stream.set_nodelay(true);
    let Some(opening) = protocols.first(Opening::read(&mut stream)).await else { return };
    let stall = app.config.timeouts.client_stall;
    let service = move |request| Arc::clone(&app).handle(request, peer);
    protocols.serve(graceful, stream, opening, stall, service).await;
}

/// Serves a connection that there is no room for: briefly.
async fn turn_away(app: Arc<App>, hasty: Arc<Protocols>, graceful: Watcher, mut stream: TcpStream, peer: Peer) {
    let Some(opening) = hasty.first(Opening::read(&mut stream)).await else { return };
    let service = move |request| std::future::ready(app.turn_away(&request, peer.side));
    let _ = tokio::time::timeout(BRIEF, hasty.serve(graceful, stream, opening, BRIEF, service)).await;
}

/// What a connection of another kind is served with.
struct Hall {
    app: Arc<App>,
    protocols: Arc<Protocols>,
    watcher: Watcher,
    peer: Peer,
    room: Room,
}

impl Hall {
    async fn serve_unix(self, mut stream: UnixStream) {
        let Some(opening) = self.protocols.first(Opening::read(&mut stream)).await else { return };
        self.serve(Box::new(stream), opening).await;
    }

    async fn serve_tls(self, stream: TcpStream, tls: Arc<ServerConfig>) {
        let _ = stream.set_nodelay(true);
        let shaken = self.protocols.first(async {
            match TlsAcceptor::from(tls).accept(stream).await {
                Ok(stream) => Some(Box::new(stream)),
                Err(_) => {
                    tracing::debug!("a TLS handshake failed");
                    None
                }
            }
        });
        // Boxed, as a handshake is large and soon over.
        let Some(stream) = Box::pin(shaken).await else { return };
        // RFC 9113 3.2: over TLS, h2 is chosen in the handshake. Who chose nothing speaks HTTP/1.1.
        let speaks_http2 = stream.get_ref().1.alpn_protocol() == Some(H2);
        self.serve(stream, Opening::unread(speaks_http2)).await;
    }

    async fn serve(self, stream: Box<dyn Channel>, opening: Opening) {
        let Self { app, protocols, watcher, peer, room } = self;
        if room == Room::Enough {
            let stall = app.config.timeouts.client_stall;
            let service = move |request| Arc::clone(&app).handle(request, peer);
            protocols.serve(watcher, stream, opening, stall, service).await;
        } else {
            let service = move |request| std::future::ready(app.turn_away(&request, peer.side));
            let served = protocols.serve(watcher, stream, opening, BRIEF, service);
            let _ = tokio::time::timeout(BRIEF, served).await;
        }
    }
}

/// Removes what is past its time, now and then.
async fn sweep(app: Arc<App>) {
    let Some(ttl) = app.config.records.ttl else { return };
    let ttl_ms = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
    loop {
        let before = jiff::Timestamp::now().as_millisecond().saturating_sub(ttl_ms);
        match app.store.sweep(before).await {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "expired records removed"),
            Err(_) => tracing::warn!("sweep failed"),
        }
        tokio::time::sleep(app.config.records.sweep).await;
    }
}

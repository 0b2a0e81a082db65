//! Connections: accepting, serving h1 and h2, draining.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use hyper::{Request, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use super::{
    App,
    crowd::{self, Crowd, Room},
    stall::StallGuard,
};

/// What hyper holds of one stream towards the client.
const SEND_BUFFER: usize = 64 * 1024;
/// h2 streams of one connection at once.
const CONCURRENT_STREAMS: u32 = 1000;
/// After an error of `accept` such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// For cut streams to get their last bytes out.
const LAST_BYTES: Duration = Duration::from_millis(750);
/// For the writer to flush when all streams are over.
const FLUSH: Duration = Duration::from_secs(5);

/// What the outside says to a running server.
#[derive(Clone, Default)]
pub struct Signals {
    /// Finish what is open, take nothing new.
    pub drain: CancellationToken,
    /// Stop now.
    pub stop: CancellationToken,
}

/// Serves until told to drain, then as `timeouts.drain` allows. Everything stored is flushed on return.
pub async fn run(listener: TcpListener, app: Arc<App>, signals: Signals) {
    let graceful = GracefulShutdown::new();
    let crowd = Crowd::of_process();
    let server = builder(&app, app.config.timeouts.request_headers);
    let hasty = builder(&app, crowd::HEADERS.min(app.config.timeouts.request_headers));
    // They end with this function, whichever way.
    let mut chores = JoinSet::new();
    chores.spawn(sweep(Arc::clone(&app)));
    let watched = Arc::clone(&app);
    chores.spawn(async move { watched.stalls.watch(watched.config.timeouts.client_stall).await });
    let delay = app.config.timeouts.drain_delay;
    let closing = async {
        signals.drain.cancelled().await;
        app.draining.store(true, Ordering::Relaxed);
        tracing::info!("draining");
        // Load balancers hear of it from /readyz before the door closes.
        tokio::time::sleep(delay).await;
    };
    tokio::pin!(closing);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => match crowd.room(&stream) {
                    Room::Enough => serve(&app, &server, &graceful, stream, peer),
                    Room::Little => turn_away(&app, &hasty, &graceful, stream),
                    Room::None => drop(stream),
                },
                Err(error) if is_of_one_connection(&error) => {}
                Err(_) => {
                    tracing::warn!("accept failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            () = &mut closing => break,
            () = signals.stop.cancelled() => return,
        }
    }
    drop(listener);
    let drained = async {
        tokio::select! {
            () = graceful.shutdown() => {}
            () = async {
                tokio::time::sleep(app.config.timeouts.drain).await;
                tracing::info!(streams = app.streams.load(Ordering::Relaxed), "cutting the streams that are left");
                app.cut.cancel();
                tokio::time::sleep(LAST_BYTES).await;
            } => {}
        }
        chores.abort_all();
        let writer = app.writer.clone();
        if tokio::time::timeout(FLUSH, writer.shutdown()).await.is_err() {
            tracing::warn!("the store did not flush in time");
        }
        tracing::info!("stopped");
    };
    tokio::select! {
        () = drained => {}
        () = signals.stop.cancelled() => {}
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

fn builder(app: &App, headers: Duration) -> auto::Builder<TokioExecutor> {
    let limits = &app.config.limits;
    let mut server = auto::Builder::new(TokioExecutor::new());
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(headers)
        .max_headers(limits.request_headers)
        .max_buf_size(limits.request_header_bytes);
    server
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(limits.request_header_bytes).unwrap_or(u32::MAX))
        .max_concurrent_streams(CONCURRENT_STREAMS)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(Some(app.config.timeouts.client_stall))
        .keep_alive_timeout(Duration::from_secs(20));
    server
}

fn serve(
    app: &Arc<App>,
    server: &auto::Builder<TokioExecutor>,
    graceful: &GracefulShutdown,
    stream: TcpStream,
    peer: SocketAddr,
) {
    // Events are small: one that waits for the next is late.
    let _ = stream.set_nodelay(true);
    let io =
        TokioIo::new(StallGuard::new(stream, app.config.timeouts.client_stall, app.config.timeouts.request_headers));
    let requests = Arc::clone(app);
    let service = service_fn(move |request: Request<Incoming>| {
        let app = Arc::clone(&requests);
        async move { Ok::<_, std::convert::Infallible>(app.handle(request, peer).await) }
    });
    let connection = server.serve_connection(io, service).into_owned();
    let connection = graceful.watch(connection);
    // How a connection ends is told by its streams.
    tokio::spawn(async move {
        let _ = connection.await;
    });
}

/// Serves a connection that there is no room for: briefly.
fn turn_away(app: &Arc<App>, server: &auto::Builder<TokioExecutor>, graceful: &GracefulShutdown, stream: TcpStream) {
    let io = TokioIo::new(StallGuard::new(stream, crowd::LIFE, crowd::HEADERS));
    let requests = Arc::clone(app);
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = requests.turn_away(&request);
        async move { Ok::<_, std::convert::Infallible>(answer) }
    });
    let connection = graceful.watch(server.serve_connection(io, service).into_owned());
    tokio::spawn(async move {
        let _ = tokio::time::timeout(crowd::LIFE, connection).await;
    });
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

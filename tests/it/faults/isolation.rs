//! One stalled client among a hundred: the others receive all their bytes, as fast as without it.

use std::{
    collections::HashMap,
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::{Duration, Instant},
};

use base64::Engine as _;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
    time::sleep,
};
use tokio_rustls::TlsAcceptor;

use crate::{
    net::{Client, ClientResponse, LIMIT, post, route, split, tencent, within},
    process::{Running, citetap},
};

const CLIENTS: usize = 100;
/// Pieces of each stream and their interval.
const TICKS: usize = 8;
const EVERY: Duration = Duration::from_millis(50);
/// Maximum number of runs of either kind. The best counts, because other load only adds latency; two that agree are
/// enough.
const ROUNDS: usize = 6;
/// Bytes that the stalled client does not read: small pieces, which over h2 are many DATA frames.
const DROP: &[u8] = b": drop by drop, and none is taken\n\n";
/// Bytes at once, in tests that do not depend on frames.
const DROPS: usize = 64;
/// The window of an h2 client for a stream and its connection. (A client with a much larger stream window closes its
/// own connection when small frames fill it, as RFC 9113 10.5 allows.)
const WINDOWS: (u32, u32) = (64 << 10, 4 << 20);

/// An upstream whose pieces contain their send time, and which records what it sent.
struct Ticking {
    addr: SocketAddr,
    began: Instant,
    accepted: AtomicUsize,
    /// Bytes of drops that the proxy has read.
    dropped: AtomicU64,
    sent: Mutex<HashMap<String, Vec<u8>>>,
}

type AnyBody = UnsyncBoxBody<Bytes, Infallible>;

impl Ticking {
    async fn start(tls: Option<TlsAcceptor>) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ticking = Arc::new(Self {
            addr: listener.local_addr().unwrap(),
            began: Instant::now(),
            accepted: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
            sent: Mutex::default(),
        });
        let serving = Arc::clone(&ticking);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                serving.accepted.fetch_add(1, SeqCst);
                let (serving, tls) = (Arc::clone(&serving), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        Some(tls) => serving.serve(tls.accept(stream).await.unwrap()).await,
                        None => serving.serve(stream).await,
                    }
                });
            }
        });
        ticking
    }

    async fn serve(self: Arc<Self>, io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        let service = service_fn(move |request: Request<Incoming>| {
            let ticking = Arc::clone(&self);
            async move { Ok::<_, Infallible>(ticking.answer(request.uri().path())) }
        });
        let mut server = auto::Builder::new(TokioExecutor::new());
        server.http2().max_concurrent_streams(1000);
        let _ = server.serve_connection(TokioIo::new(io), service).await;
    }

    fn answer(self: Arc<Self>, path: &str) -> Response<AnyBody> {
        let id = path.trim_start_matches('/').to_owned();
        let body: AnyBody = if id.starts_with("drop") {
            let drop = if id == "drop" { Bytes::from_static(DROP) } else { Bytes::from(DROP.repeat(DROPS)) };
            let drops = async_stream::stream! {
                loop {
                    self.dropped.fetch_add(drop.len() as u64, Relaxed);
                    yield Ok(Frame::data(drop.clone()));
                }
            };
            StreamBody::new(drops).boxed_unsync()
        } else {
            let ticks = async_stream::stream! {
                yield self.sends(&id, tencent::references(&id, &[1, 2]));
                for _ in 0..TICKS {
                    sleep(EVERY).await;
                    let now = self.began.elapsed().as_micros();
                    yield self.sends(&id, tencent::text(&id, &format!("@{now};")));
                }
                yield self.sends(&id, tencent::finish(&id));
            };
            StreamBody::new(ticks).boxed_unsync()
        };
        Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
    }

    fn sends(&self, id: &str, frame: String) -> Result<Frame<Bytes>, Infallible> {
        self.sent.lock().unwrap().entry(id.to_owned()).or_default().extend_from_slice(frame.as_bytes());
        Ok(Frame::data(frame.into()))
    }

    /// Waits until the proxy reads no more drops.
    async fn wait_until_stalled(&self) -> u64 {
        let began = Instant::now();
        let mut before = 0;
        loop {
            sleep(Duration::from_millis(300)).await;
            let now = self.dropped.load(Relaxed);
            if now == before && now > 0 {
                return now;
            }
            assert!(began.elapsed() < LIMIT, "the upstream still sends after {now} bytes");
            before = now;
        }
    }
}

/// citetap in front of it, over one h2 connection or many h1 connections.
struct Rig {
    upstream: Arc<Ticking>,
    citetap: Running,
    round: usize,
    _dir: tempfile::TempDir,
}

impl Rig {
    async fn new(h2_upstream: bool) -> Self {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let pem = base64::engine::general_purpose::STANDARD.encode(cert.der());
        let pem = format!("-----BEGIN CERTIFICATE-----\n{pem}\n-----END CERTIFICATE-----\n");
        std::fs::write(dir.path().join("cert.pem"), pem).unwrap();
        let tls = h2_upstream.then(|| {
            let key = rustls::pki_types::PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let server = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
            let mut server = server.with_no_client_auth().with_single_cert(vec![cert.der().clone()], key).unwrap();
            server.alpn_protocols = vec![b"h2".to_vec()];
            TlsAcceptor::from(Arc::new(server))
        });
        let upstream = Ticking::start(tls).await;
        let scheme = if h2_upstream { "https" } else { "http" };
        let url = format!("{scheme}://localhost:{}", upstream.addr.port());
        // One worker, because each has its own upstream connections.
        let toml = format!("workers = 1\nstore = \"memory:\"\n{}provider = \"tencent\"\n", route("chat", &url));
        std::fs::write(dir.path().join("citetap.toml"), toml).unwrap();
        let mut command = citetap(dir.path(), &["serve", "--listen", "127.0.0.1:0"]);
        command.env("SSL_CERT_FILE", "cert.pem");
        let citetap = Running::start(command).await;
        let mut rig = Self { upstream, citetap, round: 0, _dir: dir };
        // The pool has its connection, and the code is warm.
        rig.round(None).await;
        rig
    }

    /// Runs a hundred parallel streams. `shared` is their shared connection, if any. Returns the 99th percentile of the
    /// pieces' lag.
    async fn round(&mut self, mut shared: Option<&mut Client>) -> Duration {
        self.round += 1;
        let mut reading = Vec::new();
        for n in 0..CLIENTS {
            let id = format!("m-{}-{n}", self.round);
            let request = post(&format!("/chat/{id}"), "{}");
            let response = match &mut shared {
                Some(shared) => shared.send(request).await,
                None => Client::h1(self.citetap.addr).await.send(request).await,
            };
            let upstream = Arc::clone(&self.upstream);
            reading.push(tokio::spawn(async move { upstream.read(&id, response).await }));
        }
        let mut lags = Vec::new();
        for read in reading {
            lags.extend(read.await.unwrap());
        }
        assert_eq!(lags.len(), CLIENTS * TICKS);
        lags.sort();
        lags[lags.len() * 99 / 100]
    }
}

impl Ticking {
    /// Reads a complete stream. Returns the lag of each piece.
    async fn read(&self, id: &str, mut response: ClientResponse) -> Vec<Duration> {
        let (mut bytes, mut lags) = (Vec::new(), Vec::new());
        while let Some(piece) = response.piece().await {
            let now = self.began.elapsed();
            let piece = piece.unwrap();
            let text = String::from_utf8_lossy(&piece);
            let sent = text.split('@').skip(1).filter_map(|rest| rest.split_once(';')?.0.parse().ok());
            lags.extend(sent.map(|sent| now.saturating_sub(Duration::from_micros(sent))));
            bytes.extend_from_slice(&piece);
        }
        let (theirs, ours) = split(&bytes);
        assert!(theirs == self.sent.lock().unwrap()[id], "{id}: {}", String::from_utf8_lossy(&bytes));
        assert!(matches!(&ours[..], [one] if one.complete), "{id}");
        lags
    }
}

/// A client that requests drops and reads none.
enum Stalled {
    H1(TcpStream),
    H2(ClientResponse),
}

impl Stalled {
    async fn h1(rig: &Rig) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        // Little is in flight.
        socket.set_recv_buffer_size(4096).unwrap();
        let mut stream = socket.connect(rig.citetap.addr).await.unwrap();
        stream.write_all(b"GET /chat/drops HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        Self::H1(stream)
    }

    async fn h2(client: &mut Client) -> Self {
        Self::H2(client.send(post("/chat/drop", "{}")).await)
    }

    /// Reads some data after all, to show that it was never cut.
    async fn resumes(self, rig: &Rig) {
        let before = rig.upstream.dropped.load(Relaxed);
        let mut some = vec![0; 64 << 10];
        let began = Instant::now();
        let mut stream = self;
        while rig.upstream.dropped.load(Relaxed) <= before {
            assert!(began.elapsed() < LIMIT, "the upstream did not continue");
            match &mut stream {
                Self::H1(stream) => assert!(within("the buffered bytes", stream.read(&mut some)).await.unwrap() > 0),
                Self::H2(response) => drop(response.piece().await.expect("no end").expect("no abort")),
            }
        }
    }
}

/// Clients with their own connections, or on a single one.
async fn one_stalls(shared: bool, h2_upstream: bool) {
    let mut rig = Rig::new(h2_upstream).await;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        let mut client = Client::h2_with(rig.citetap.addr, WINDOWS.0, WINDOWS.1).await;
        without.push(rig.round(shared.then_some(&mut client)).await);
        let stalled = if h2_upstream { Stalled::h2(&mut client).await } else { Stalled::h1(&rig).await };
        let taken = rig.upstream.wait_until_stalled().await;
        with.push(rig.round(shared.then_some(&mut client)).await);
        // A socket's buffer may still grow a little.
        let more = rig.upstream.dropped.load(Relaxed) - taken;
        assert!(more < 1 << 20, "it was stalled all the while, but for {more} bytes");
        stalled.resumes(&rig).await;
        let (best_with, best_without) = (with.iter().min().unwrap(), without.iter().min().unwrap());
        let unchanged = *best_with <= *best_without * 2 + Duration::from_millis(50);
        if unchanged && round > 1 {
            break;
        }
        assert!(round < ROUNDS, "with a stalled client {with:?}, without {without:?}");
    }
    if h2_upstream {
        assert_eq!(rig.upstream.accepted.load(SeqCst), 1, "one connection for all");
    }
}

#[tokio::test]
async fn stalled_client_does_not_delay_others_over_h1() {
    one_stalls(false, false).await;
}

#[tokio::test]
async fn stalled_client_does_not_delay_others_on_one_upstream_h2() {
    one_stalls(false, true).await;
}

#[tokio::test]
async fn stalled_stream_does_not_delay_others_on_shared_h2() {
    one_stalls(true, true).await;
}

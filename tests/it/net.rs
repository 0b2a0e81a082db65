//! A proxy on its own port, its upstream, and clients that show how bytes arrive.
//!
//! Every wait is limited by [`LIMIT`], so that a hang fails at its location.

use std::{
    future::Future,
    net::SocketAddr,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use citetap::{
    citation::Record,
    config::{self, Config},
    replay::{Script, Scripted, Upstream},
    server::{self, App, Signals},
    sse::{Cut, Event, Splitter},
};
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// Limit of every wait: far more than a loaded machine needs.
pub const LIMIT: Duration = Duration::from_secs(20);

/// Parses this configuration and adds a free loopback port and, unless it sets another, a memory store.
pub fn config(toml: &str) -> Config {
    let store = if toml.contains("store = ") { "" } else { "store = \"memory:\"\n" };
    let text = format!("listen = \"127.0.0.1:0\"\n{store}{toml}");
    config::from_toml(&text, Path::new(".")).unwrap_or_else(|errors| panic!("{errors}\n{text}")).config
}

/// A `[[routes]]` table with the prefix `/name` to `upstream`. More keys of the route may follow it.
pub fn route(name: &str, upstream: &str) -> String {
    format!("[[routes]]\nname = \"{name}\"\nprefix = \"/{name}\"\nupstream = \"{upstream}\"\n")
}

/// A running server. Dropping it stops it.
pub struct Proxy {
    pub addr: SocketAddr,
    pub app: Arc<App>,
    pub signals: Signals,
    run: JoinHandle<std::io::Result<()>>,
}

impl Proxy {
    /// Starts a server with this configuration, see [`config`]. Unless it sets a commit wait, events wait as long as a
    /// loaded machine needs.
    pub async fn start(toml: &str) -> Self {
        let mut config = config(toml);
        if !toml.contains("commit = ") {
            config.timeouts.commit = LIMIT;
        }
        Self::serve(App::open(config).await.unwrap()).await
    }

    pub async fn serve(app: Arc<App>) -> Self {
        let listener = TcpListener::bind(app.config.listen.tcp().unwrap()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let signals = Signals::default();
        let run = tokio::spawn(server::run(listener, Arc::clone(&app), signals.clone()));
        Self { addr, app, signals, run }
    }

    /// Waits until the server has ended by itself.
    pub async fn ended(&mut self) {
        within("the server's end", &mut self.run).await.unwrap().unwrap();
    }

    pub async fn get(&self, path: &str) -> ClientResponse {
        Client::h1(self.addr).await.send(get(path)).await
    }

    pub async fn post(&self, path: &str, body: impl Into<Bytes>) -> ClientResponse {
        Client::h1(self.addr).await.send(post(path, body)).await
    }

    /// Waits until the store has a record of this id.
    pub async fn stored(&self, id: &str) -> Record {
        let found = eventually(|| async { self.app.store.get("default", id, None).await.unwrap() }).await;
        found.unwrap_or_else(|| panic!("no record of {id}")).record
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.signals.stop.cancel();
    }
}

/// A proxy with the route `/chat` (Tencent's dialect) to one script. `toml` precedes the route.
pub async fn chat(script: Script, toml: &str) -> (Upstream, Proxy) {
    chat_with(script, toml, "").await
}

/// The same with additional keys of the route.
pub async fn chat_with(script: Script, toml: &str, of_route: &str) -> (Upstream, Proxy) {
    let upstream = Upstream::bind(vec![Scripted::new("/", script)]).await.unwrap();
    let toml = format!("{toml}\n{}provider = \"tencent\"\n{of_route}\n", route("chat", &upstream.url()));
    let proxy = Proxy::start(&toml).await;
    (upstream, proxy)
}

pub fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(path).body(Full::default()).unwrap()
}

pub fn post(path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post(path).header("content-type", "application/json").body(Full::new(body.into())).unwrap()
}

type AnyRequestBody = BoxBody<Bytes, std::io::Error>;

enum Sender {
    H1(hyper::client::conn::http1::SendRequest<AnyRequestBody>),
    H2(hyper::client::conn::http2::SendRequest<AnyRequestBody>),
}

/// One connection. It closes when it and its responses are dropped.
pub struct Client {
    sender: Sender,
    driver: Arc<Driver>,
    addr: SocketAddr,
}

struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Client {
    pub async fn h1(addr: SocketAddr) -> Self {
        Self::try_h1(addr).await.unwrap()
    }

    /// HTTP/2 without TLS, by prior knowledge.
    pub async fn h2(addr: SocketAddr) -> Self {
        Self::try_h2(addr).await.unwrap()
    }

    pub async fn try_h1(addr: SocketAddr) -> std::io::Result<Self> {
        let io = TokioIo::new(TcpStream::connect(addr).await?);
        let made = hyper::client::conn::http1::handshake(io).await;
        let (sender, connection) = made.map_err(std::io::Error::other)?;
        Ok(Self::new(Sender::H1(sender), connection, addr))
    }

    pub async fn try_h2(addr: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(addr).await?;
        // Headers and body are two packets, and without this the second would wait for an ACK of the first.
        stream.set_nodelay(true)?;
        let io = TokioIo::new(stream);
        let made = hyper::client::conn::http2::Builder::new(TokioExecutor::new()).handshake(io).await;
        let (sender, connection) = made.map_err(std::io::Error::other)?;
        Ok(Self::new(Sender::H2(sender), connection, addr))
    }

    /// The same with these windows for a stream and the connection.
    pub async fn h2_with(addr: SocketAddr, stream: u32, connection: u32) -> Self {
        let io = TokioIo::new(TcpStream::connect(addr).await.unwrap());
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(stream).initial_connection_window_size(connection);
        let (sender, connection) = builder.handshake(io).await.unwrap();
        Self::new(Sender::H2(sender), connection, addr)
    }

    /// A client on an open connection.
    pub async fn over(io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, http2: bool) -> Self {
        let (io, addr) = (TokioIo::new(io), ([127, 0, 0, 1], 80).into());
        if http2 {
            let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
            let (sender, connection) = builder.handshake(io).await.unwrap();
            Self::new(Sender::H2(sender), connection, addr)
        } else {
            let (sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
            Self::new(Sender::H1(sender), connection, addr)
        }
    }

    fn new<F>(sender: Sender, connection: F, addr: SocketAddr) -> Self
    where
        F: Future<Output = hyper::Result<()>> + Send + 'static,
    {
        let driver = tokio::spawn(async move {
            // Its errors show in the responses.
            let _ = connection.await;
        });
        Self { sender, driver: Arc::new(Driver(driver)), addr }
    }

    /// Sends a request over h2 in parallel with others.
    pub fn send_parallel(
        &self,
        request: Request<Full<Bytes>>,
    ) -> impl Future<Output = hyper::Result<ClientResponse>> + use<> {
        let sender = match &self.sender {
            Sender::H1(_) => panic!("over h1 one waits for the other"),
            Sender::H2(sender) => sender.clone(),
        };
        let mut client = Self { sender: Sender::H2(sender), driver: Arc::clone(&self.driver), addr: self.addr };
        async move { client.try_send(request).await }
    }

    pub async fn send<B>(&mut self, request: Request<B>) -> ClientResponse
    where
        B: http_body::Body<Data = Bytes> + Send + Sync + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.try_send(request).await.unwrap()
    }

    /// A path is enough, because the connection determines the rest of the URI.
    pub async fn try_send<B>(&mut self, request: Request<B>) -> hyper::Result<ClientResponse>
    where
        B: http_body::Body<Data = Bytes> + Send + Sync + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (mut head, body) = request.into_parts();
        let body = BoxBody::new(body.map_err(std::io::Error::other));
        let began = Instant::now();
        let sent = async {
            match &mut self.sender {
                Sender::H1(sender) => {
                    let host = self.addr.to_string().parse().unwrap();
                    head.headers.entry(header::HOST).or_insert(host);
                    sender.ready().await?;
                    sender.send_request(Request::from_parts(head, body)).await
                }
                Sender::H2(sender) => {
                    if head.uri.authority().is_none() {
                        head.uri = format!("http://{}{}", self.addr, head.uri).parse().unwrap();
                    }
                    sender.ready().await?;
                    sender.send_request(Request::from_parts(head, body)).await
                }
            }
        };
        Ok(ClientResponse::new(within("an answer", sent).await?, Arc::clone(&self.driver), began))
    }
}

/// A response whose body is read piece by piece. Dropping it resets the stream or (h1) closes the connection.
pub struct ClientResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    body: Incoming,
    began: Instant,
    _driver: Arc<Driver>,
}

/// The body received.
#[derive(Debug, Default)]
pub struct Whole {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// Each piece and its time of arrival since the request.
    pub pieces: Vec<(Duration, Bytes)>,
    pub trailers: Option<HeaderMap>,
    /// An abort. `None` is a clean end.
    pub error: Option<String>,
}

impl ClientResponse {
    fn new(response: Response<Incoming>, driver: Arc<Driver>, began: Instant) -> Self {
        let (head, body) = response.into_parts();
        Self { status: head.status, headers: head.headers, body, began, _driver: driver }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The next piece, a clean end, or an error.
    pub async fn piece(&mut self) -> Option<hyper::Result<Bytes>> {
        loop {
            match within("a piece of the body", self.body.frame()).await? {
                Ok(frame) => {
                    // An h2 stream may end with an empty piece.
                    if let Some(data) = frame.into_data().ok().filter(|data| !data.is_empty()) {
                        return Some(Ok(data));
                    }
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Reads until the text so far contains `sign`. Returns that text.
    pub async fn until(&mut self, sign: &str) -> String {
        let mut text = Vec::new();
        loop {
            match self.piece().await {
                Some(Ok(piece)) => text.extend_from_slice(&piece),
                end => panic!("{end:?} before {sign:?} in {}", String::from_utf8_lossy(&text)),
            }
            let so_far = String::from_utf8_lossy(&text);
            if so_far.contains(sign) {
                return so_far.into_owned();
            }
        }
    }

    /// Reads to any end.
    pub async fn whole(mut self) -> Whole {
        let mut whole = Whole { status: self.status, headers: self.headers.clone(), ..Whole::default() };
        while let Some(frame) = within("a piece of the body", self.body.frame()).await {
            match frame.map(hyper::body::Frame::into_data) {
                Ok(Ok(data)) => whole.pieces.push((self.began.elapsed(), data)),
                Ok(Err(frame)) => whole.trailers = frame.into_trailers().ok(),
                Err(error) => {
                    whole.error = Some(format!("{error:?}"));
                    break;
                }
            }
        }
        whole
    }

    pub async fn json(self) -> Value {
        let whole = self.whole().await;
        let bytes = whole.bytes();
        serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{error}: {}", whole.text()))
    }

    /// Checks that the response is our problem document of this kind.
    #[expect(clippy::wrong_self_convention, reason = "it reads the answer up")]
    pub async fn is_problem(self, status: u16, kind: &str) -> Value {
        assert_eq!(self.status, status);
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let problem = self.json().await;
        assert_eq!(problem["type"], format!("urn:citetap:problem:{kind}"));
        assert_eq!(problem["status"], status);
        problem
    }
}

impl Whole {
    pub fn bytes(&self) -> Vec<u8> {
        self.pieces.iter().flat_map(|(_, piece)| piece.iter().copied()).collect()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The upstream's bytes, and the records of our events.
    pub fn split(&self) -> (Vec<u8>, Vec<Record>) {
        split(&self.bytes())
    }
}

/// Removes our frames, including heartbeats, from a stream. Returns the upstream's bytes and the records of our events.
pub fn split(stream: &[u8]) -> (Vec<u8>, Vec<Record>) {
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for frame in frames(stream) {
        let event = Event::read(frame);
        // The event's name depends on the dialect.
        let may_be_ours = memchr::memmem::find(frame, b"\"type\":\"citations\"").is_some();
        if event.name == "citations" || may_be_ours {
            let data: Value = serde_json::from_str(event.data.as_deref().unwrap()).unwrap();
            let record = data.get("citetap").unwrap_or(&data["citations"]);
            ours.push(serde_json::from_value(record.clone()).unwrap());
        } else if !matches!(frame, b": citetap\n\n" | b": citetap\r\n\r\n") {
            theirs.extend_from_slice(frame);
        }
    }
    (theirs, ours)
}

/// The frames of a stream, and the bytes after the last one.
pub fn frames(stream: &[u8]) -> Vec<&[u8]> {
    let (mut splitter, mut at, mut all) = (Splitter::default(), 0, Vec::new());
    while let Some(Cut::Frame(len) | Cut::Separator(len)) = splitter.advance(&stream[at..]) {
        all.push(&stream[at..at + len]);
        at += len;
    }
    if at < stream.len() {
        all.push(&stream[at..]);
    }
    all
}

/// Sends raw bytes to a server and reads until it closes.
pub async fn raw(addr: SocketAddr, request: impl AsRef<[u8]>) -> String {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(request.as_ref()).await.unwrap();
    let mut response = Vec::new();
    // A reset after the response counts as an end.
    let _ = within("the connection's end", stream.read_to_end(&mut response)).await;
    String::from_utf8_lossy(&response).into_owned()
}

/// Fails if `what` takes longer than [`LIMIT`].
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LIMIT, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited {LIMIT:?} for {what}"),
    }
}

/// Polls until there is a value, for at most [`LIMIT`].
pub async fn eventually<T, F>(mut ask: impl FnMut() -> F) -> Option<T>
where
    F: Future<Output = Option<T>>,
{
    let end = Instant::now() + LIMIT;
    while Instant::now() < end {
        if let Some(found) = ask().await {
            return Some(found);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    None
}

/// Minimal frames of Tencent's dialect.
pub mod tencent {
    use super::{Value, json};

    /// A search stage of message `id` with these documents.
    pub fn references(id: &str, documents: &[u32]) -> String {
        let chunks: Vec<Value> = documents
            .iter()
            .map(|n| {
                json!({"target_id": format!("t{n}"), "title": format!("资料 {n}"), "content": format!("摘录 {n}"),
                       "url": format!("https://s{n}.example.com/")})
            })
            .collect();
        let json = json!({"completion_id": id, "processes": {"stage": "finished_internal_searching"},
                          "additional_content": {"reference_chunks": chunks}});
        format!("data:{json}\n\n")
    }

    pub fn text(id: &str, text: &str) -> String {
        let json = json!({"completion_id": id, "processes": {}, "delta_content": text});
        format!("data:{json}\n\n")
    }

    pub fn finish(id: &str) -> String {
        let json = json!({"completion_id": id, "delta_content": "", "is_stop": true});
        format!("event:finish\ndata:{json}\n\n")
    }

    /// A complete answer: two documents, a text that cites one, the finish.
    pub fn answer(id: &str) -> String {
        references(id, &[1, 2]) + &text(id, "第一句[1]。") + &finish(id)
    }
}

/// A request of any method with headers.
pub fn request(method: Method, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::new(body.into())).unwrap()
}

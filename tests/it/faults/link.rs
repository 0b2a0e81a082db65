//! A TCP relay that breaks at a chosen byte: what lies before it passes as it came, what follows is the fault's.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use memchr::memmem;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpSocket, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::JoinHandle,
    time::sleep,
};

/// What happens from the chosen byte on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Every piece comes later by this, give or take the second.
    Latency(Duration, Duration),
    /// The connection closes and nobody listens any more. From the first byte on means: nobody ever did.
    Down,
    /// So many bytes a second.
    Bandwidth(usize),
    /// The link ends, and both sides hear of it so much later.
    SlowClose(Duration),
    /// Nothing is read or passed any more, and the connection stays.
    Timeout,
    /// Both sides get a reset instead of an end.
    Reset,
    /// Pieces of so many bytes, with moments between them.
    Slicer(usize),
    /// So many bytes more, then both sides get an end.
    Limit(usize),
}

/// The direction that breaks. The other one passes everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Request,
    Answer,
}

/// The relay. It breaks the connections made before [`Link::heal`], each once. Dropping it ends them.
pub struct Link {
    pub addr: SocketAddr,
    inner: Arc<Inner>,
    accepting: Mutex<Option<JoinHandle<()>>>,
    /// Bound to the same port without listening: nobody else gets it while the link is down.
    spare: Mutex<Option<TcpSocket>>,
}

struct Inner {
    to: SocketAddr,
    way: Way,
    fault: Fault,
    /// The fault begins behind the first place where this was seen; if empty, before the first byte.
    after: Vec<u8>,
    healed: AtomicBool,
    struck: Mutex<Option<Instant>>,
    told: Mutex<Option<Instant>>,
    connections: Mutex<Vec<JoinHandle<()>>>,
}

/// How one direction ended.
enum End {
    /// As its sender did.
    Fin,
    /// The fault ends the connection.
    Close,
    Reset,
    Down,
}

impl Link {
    pub fn new(to: SocketAddr, way: Way, fault: Fault, after: &[u8]) -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        // Two sockets may share a port while neither listens.
        let first = reusable(any);
        let addr = first.local_addr().unwrap();
        let spare = reusable(addr);
        let inner = Arc::new(Inner {
            to,
            way,
            fault,
            after: after.to_vec(),
            healed: AtomicBool::new(false),
            struck: Mutex::default(),
            told: Mutex::default(),
            connections: Mutex::default(),
        });
        let accepting = if fault == Fault::Down && after.is_empty() {
            inner.strike();
            None
        } else {
            Some(tokio::spawn(accept(first.listen(64).unwrap(), Arc::clone(&inner))))
        };
        Self { addr, inner, accepting: Mutex::new(accepting), spare: Mutex::new(Some(spare)) }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// When the fault began, if it did.
    pub fn struck(&self) -> Option<Instant> {
        *self.inner.struck.lock().unwrap()
    }

    /// When the two sides heard of it by an end or a reset, if they did.
    pub fn told(&self) -> Option<Instant> {
        *self.inner.told.lock().unwrap()
    }

    /// From now on everything passes.
    pub async fn heal(&self) {
        self.inner.healed.store(true, Relaxed);
        let down = self.accepting.lock().unwrap().as_ref().is_none_or(JoinHandle::is_finished);
        if down {
            let spare = self.spare.lock().unwrap().take().expect("it heals once");
            let accepting = tokio::spawn(accept(spare.listen(64).unwrap(), Arc::clone(&self.inner)));
            *self.accepting.lock().unwrap() = Some(accepting);
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(accepting) = self.accepting.lock().unwrap().take() {
            accepting.abort();
        }
        for connection in self.inner.connections.lock().unwrap().drain(..) {
            connection.abort();
        }
    }
}

fn reusable(addr: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(addr).unwrap();
    socket
}

/// Until the link goes down, which takes the listener along.
async fn accept(listener: TcpListener, inner: Arc<Inner>) {
    let (down, mut fell) = tokio::sync::mpsc::channel::<()>(1);
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((from, _)) = accepted else { continue };
                let (carried, down) = (Arc::clone(&inner), down.clone());
                let connection = tokio::spawn(async move {
                    if carried.carry(from).await {
                        let _ = down.send(()).await;
                    }
                });
                inner.connections.lock().unwrap().push(connection);
            }
            _ = fell.recv() => return,
        }
    }
}

impl Inner {
    fn strike(&self) {
        self.struck.lock().unwrap().get_or_insert_with(Instant::now);
    }

    fn is_broken(&self) -> bool {
        !self.healed.load(Relaxed)
    }

    /// Carries one connection to its end; says whether the whole link went down with it.
    async fn carry(&self, from: TcpStream) -> bool {
        // A small window, so that a link that stands still is felt soon.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(16 * 1024).unwrap();
        let Ok(to) = socket.connect(self.to).await else { return false };
        from.set_nodelay(true).unwrap();
        to.set_nodelay(true).unwrap();
        let (mut from_client, mut to_client) = from.into_split();
        let (mut from_server, mut to_server) = to.into_split();
        let ending = {
            let request = self.pump(&mut from_client, &mut to_server, self.way == Way::Request);
            let answer = self.pump(&mut from_server, &mut to_client, self.way == Way::Answer);
            tokio::pin!(request, answer);
            let (mut asked, mut answered) = (false, false);
            loop {
                let ended = tokio::select! {
                    ended = &mut request, if !asked => { asked = true; ended }
                    ended = &mut answer, if !answered => { answered = true; ended }
                };
                match ended {
                    End::Fin if asked && answered => break End::Fin,
                    End::Fin => {}
                    ended => break ended,
                }
            }
        };
        // Whole again: a half that is dropped would send an end before the reset.
        let sides = [from_client.reunite(to_client).unwrap(), from_server.reunite(to_server).unwrap()];
        if matches!(ending, End::Reset) {
            sides.iter().for_each(|side| side.set_zero_linger().unwrap());
        }
        drop(sides);
        if !matches!(ending, End::Fin) {
            *self.told.lock().unwrap() = Some(Instant::now());
        }
        matches!(ending, End::Down)
    }

    async fn pump(&self, from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf, breaks: bool) -> End {
        let mut seen = Vec::new();
        let mut struck = None;
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let read = match from.read(&mut buffer).await {
                Ok(read) if read > 0 => read,
                _ => break,
            };
            let mut rest = &buffer[..read];
            if breaks && self.is_broken() && struck.is_none() {
                seen.extend_from_slice(rest);
                if let Some(at) = memmem::find(&seen, &self.after) {
                    let clear = (at + self.after.len()).saturating_sub(seen.len() - read);
                    let (before, after) = rest.split_at(clear);
                    if to.write_all(before).await.is_err() {
                        break;
                    }
                    rest = after;
                    self.strike();
                    struck = Some(Strike::new(self.fault));
                }
            }
            let passed = match &mut struck {
                Some(strike) if self.is_broken() => match strike.act(rest, to).await {
                    Ok(passed) => passed,
                    Err(end) => return end,
                },
                _ => to.write_all(rest).await.is_ok(),
            };
            if !passed {
                break;
            }
        }
        let _ = to.shutdown().await;
        End::Fin
    }
}

/// A fault at work on one connection.
struct Strike {
    fault: Fault,
    pieces: u32,
}

impl Strike {
    fn new(fault: Fault) -> Self {
        Self { fault, pieces: 0 }
    }

    /// Passes these bytes as the fault lets it; `false` when the receiver is gone.
    async fn act(&mut self, bytes: &[u8], to: &mut OwnedWriteHalf) -> Result<bool, End> {
        match self.fault {
            Fault::Latency(delay, jitter) => {
                // Sooner, later, as said: in turn, so that two runs differ in nothing but the clock.
                let late = [delay.saturating_sub(jitter), delay + jitter, delay][self.pieces as usize % 3];
                self.pieces += 1;
                sleep(late).await;
                Ok(to.write_all(bytes).await.is_ok())
            }
            Fault::Bandwidth(per_second) => {
                for piece in bytes.chunks((per_second / 20).max(1)) {
                    sleep(Duration::from_millis(50)).await;
                    if to.write_all(piece).await.is_err() {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Fault::Slicer(size) => {
                for (n, piece) in bytes.chunks(size).enumerate() {
                    if to.write_all(piece).await.is_err() {
                        return Ok(false);
                    }
                    // A busy machine makes much of many sleeps.
                    if n % 4 == 0 { sleep(Duration::from_millis(1)).await } else { tokio::task::yield_now().await }
                }
                Ok(true)
            }
            Fault::Limit(left) => {
                let last = left <= bytes.len();
                let passed = to.write_all(&bytes[..left.min(bytes.len())]).await.is_ok();
                self.fault = Fault::Limit(left - left.min(bytes.len()));
                if last { Err(End::Close) } else { Ok(passed) }
            }
            Fault::SlowClose(delay) => {
                sleep(delay).await;
                Err(End::Close)
            }
            Fault::Timeout => std::future::pending().await,
            // A moment for what came before: a reset may overtake it.
            Fault::Reset => {
                sleep(Duration::from_millis(30)).await;
                Err(End::Reset)
            }
            Fault::Down => Err(End::Down),
        }
    }
}

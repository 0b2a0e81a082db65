//! A TCP relay with a fault at a chosen byte. Bytes before it pass unchanged.

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

/// The fault that begins at the chosen byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Delays every piece by this, in turn a little more or less.
    Latency(Duration, Duration),
    /// Closes the connection and the listener. From the first byte on: nobody ever listened.
    Down,
    /// Limits the rate to this number of bytes per second.
    Bandwidth(usize),
    /// Ends the link, and both sides learn it after this delay.
    SlowClose(Duration),
    /// Stops reading and writing, but keeps the connection open.
    Timeout,
    /// Resets both sides.
    Reset,
    /// Passes pieces of this size with pauses between them.
    Slicer(usize),
    /// Passes this number of bytes, then closes both sides.
    Limit(usize),
}

/// The direction with the fault. The other one passes everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Request,
    Response,
}

/// The relay. It breaks each connection made before [`Link::heal`] once. Dropping it ends them.
pub struct Link {
    pub addr: SocketAddr,
    inner: Arc<Inner>,
    accepting: Mutex<Option<JoinHandle<()>>>,
    /// Bound to the same port without listening, so that no other process gets the port while the link is down.
    spare: Mutex<Option<TcpSocket>>,
}

struct Inner {
    to: SocketAddr,
    way: Direction,
    fault: Fault,
    /// The fault begins after the first occurrence of this text; if empty, before the first byte.
    after: Vec<u8>,
    healed: AtomicBool,
    broke_at: Mutex<Option<Instant>>,
    ended_at: Mutex<Option<Instant>>,
    connections: Mutex<Vec<JoinHandle<()>>>,
}

/// How one direction ended.
enum End {
    /// Like its sender.
    Fin,
    /// By the fault.
    Close,
    Reset,
    Down,
}

impl Link {
    pub fn new(to: SocketAddr, way: Direction, fault: Fault, after: &[u8]) -> Self {
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
            broke_at: Mutex::default(),
            ended_at: Mutex::default(),
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
    pub fn broke_at(&self) -> Option<Instant> {
        *self.inner.broke_at.lock().unwrap()
    }

    /// When both sides learned of it by an end or a reset, if they did.
    pub fn ended_at(&self) -> Option<Instant> {
        *self.inner.ended_at.lock().unwrap()
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

/// Accepts connections until the link goes down, which closes the listener.
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
        self.broke_at.lock().unwrap().get_or_insert_with(Instant::now);
    }

    fn is_broken(&self) -> bool {
        !self.healed.load(Relaxed)
    }

    /// Relays one connection to its end. Returns true if the whole link went down with it.
    async fn carry(&self, from: TcpStream) -> bool {
        // A small window, so that backpressure of a stalled link is felt soon.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(16 * 1024).unwrap();
        let Ok(to) = socket.connect(self.to).await else { return false };
        from.set_nodelay(true).unwrap();
        to.set_nodelay(true).unwrap();
        let (mut from_client, mut to_client) = from.into_split();
        let (mut from_server, mut to_server) = to.into_split();
        let ending = {
            let request = self.pump(&mut from_client, &mut to_server, self.way == Direction::Request);
            let response = self.pump(&mut from_server, &mut to_client, self.way == Direction::Response);
            tokio::pin!(request, response);
            let (mut request_ended, mut response_ended) = (false, false);
            loop {
                let ended = tokio::select! {
                    ended = &mut request, if !request_ended => { request_ended = true; ended }
                    ended = &mut response, if !response_ended => { response_ended = true; ended }
                };
                match ended {
                    End::Fin if request_ended && response_ended => break End::Fin,
                    End::Fin => {}
                    ended => break ended,
                }
            }
        };
        // Rejoin both halves: dropping one would send an end before the reset.
        let sides = [from_client.reunite(to_client).unwrap(), from_server.reunite(to_server).unwrap()];
        if matches!(ending, End::Reset) {
            sides.iter().for_each(|side| side.set_zero_linger().unwrap());
        }
        drop(sides);
        if !matches!(ending, End::Fin) {
            *self.ended_at.lock().unwrap() = Some(Instant::now());
        }
        matches!(ending, End::Down)
    }

    async fn pump(&self, from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf, breaks: bool) -> End {
        let mut seen = Vec::new();
        let mut active = None;
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let read = match from.read(&mut buffer).await {
                Ok(read) if read > 0 => read,
                _ => break,
            };
            let mut rest = &buffer[..read];
            if breaks && self.is_broken() && active.is_none() {
                seen.extend_from_slice(rest);
                if let Some(at) = memmem::find(&seen, &self.after) {
                    let clear = (at + self.after.len()).saturating_sub(seen.len() - read);
                    let (before, after) = rest.split_at(clear);
                    if to.write_all(before).await.is_err() {
                        break;
                    }
                    rest = after;
                    self.strike();
                    active = Some(ActiveFault::new(self.fault));
                }
            }
            let passed = match &mut active {
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

/// A fault on one connection.
struct ActiveFault {
    fault: Fault,
    pieces: u32,
}

impl ActiveFault {
    fn new(fault: Fault) -> Self {
        Self { fault, pieces: 0 }
    }

    /// Passes these bytes under the fault. Returns false if the receiver is gone.
    async fn act(&mut self, bytes: &[u8], to: &mut OwnedWriteHalf) -> Result<bool, End> {
        match self.fault {
            Fault::Latency(delay, jitter) => {
                // Shorter, longer, exact: in turn, so that two runs differ only in timing.
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
                    // On a busy machine many short sleeps take long.
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
            // Let earlier bytes arrive first, because a reset may overtake them.
            Fault::Reset => {
                sleep(Duration::from_millis(30)).await;
                Err(End::Reset)
            }
            Fault::Down => Err(End::Down),
        }
    }
}

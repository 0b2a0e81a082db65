//! Sends the events of paced streams when they are due, from its own thread. Timers of the runtime have a resolution of one
//! millisecond and would send twenty streams at once; here each has its own time, as with unrelated upstreams.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock::now_ns;
use crate::dialect::{Dialect, Values};
use crate::upstream::{chunk, finish};

/// A stream that the pacer sends.
pub struct Paced {
    socket: TcpStream,
    dialect: Arc<Dialect>,
    values: Values,
    every_ns: u64,
    /// Number of the last event; `u32::MAX`: the stream sends events until `end_ns`.
    last_number: u32,
    /// Delayed part of the preface: the delay in nanoseconds, and how many frames were sent already.
    rest: Option<(u64, usize)>,
    /// Earliest time of the finish.
    end_ns: u64,
    /// Bytes that the socket has not accepted yet.
    unsent: Vec<u8>,
    ended: bool,
    back: Option<oneshot::Sender<TcpStream>>,
}

impl Paced {
    pub fn new(
        socket: TcpStream,
        dialect: Arc<Dialect>,
        values: Values,
        every_ns: u64,
        last_number: u32,
        end_ns: u64,
    ) -> Self {
        Self {
            socket,
            dialect,
            values,
            every_ns,
            last_number,
            rest: None,
            end_ns,
            unsent: Vec::new(),
            ended: false,
            back: None,
        }
    }

    /// Delays the preface frames after the first `sent` by `ns`; they are sent in one write.
    pub fn delay_rest(&mut self, ns: u64, sent: usize) {
        self.rest = Some((ns, sent));
    }

    /// Sends the bytes that were due at `when`. Returns when the next are due; `None` at the end.
    fn step(&mut self, when: u64, now: u64) -> io::Result<Option<u64>> {
        let all_sent = self.values.number >= self.last_number;
        if self.unsent.is_empty() && !self.ended {
            if all_sent && now < self.end_ns {
                return Ok(Some(self.end_ns));
            }
            self.values.at_ns = now_ns();
            if let Some((_, sent)) = self.rest.take() {
                for frame in &self.dialect.preface[sent..] {
                    chunk(&mut self.unsent, frame, self.values);
                }
            } else if all_sent || self.last_number == u32::MAX && now >= self.end_ns {
                finish(&mut self.unsent, &self.dialect, self.values);
                self.ended = true;
            } else {
                let frame = &self.dialect.deltas[self.values.number as usize % self.dialect.deltas.len()];
                self.values.number += 1;
                chunk(&mut self.unsent, frame, self.values);
            }
        }
        match self.socket.write(&self.unsent) {
            Ok(written) => drop(self.unsent.drain(..written)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok((!(self.ended && self.unsent.is_empty())).then_some(when + self.every_ns))
    }
}

/// Capacity of the queue of new streams, above what one machine can hold open.
const WAITING: usize = 16384;

pub struct Pacer(SyncSender<Paced>);

impl Pacer {
    pub fn start() -> Self {
        let (to, from) = mpsc::sync_channel(WAITING);
        thread::spawn(move || pace(&from));
        Self(to)
    }

    /// Returns the socket when the stream has ended; `None` if the peer has closed it.
    pub async fn send(&self, mut paced: Paced) -> Option<TcpStream> {
        let (to, from) = oneshot::channel();
        paced.back = Some(to);
        self.0.try_send(paced).ok()?;
        from.await.ok()
    }
}

#[expect(clippy::disallowed_methods, reason = "runs in its own thread, without a runtime to block")]
fn pace(incoming: &Receiver<Paced>) {
    // Streams keep their index; the heap has (due time, index).
    let mut streams: Vec<Option<Paced>> = Vec::new();
    let mut free: Vec<usize> = Vec::new();
    let mut due: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut count: u64 = 0;
    loop {
        let idle = due.is_empty();
        loop {
            let paced = if idle && due.is_empty() {
                match incoming.recv_timeout(Duration::from_secs(1)) {
                    Ok(paced) => paced,
                    Err(RecvTimeoutError::Timeout) => continue,
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            } else {
                match incoming.try_recv() {
                    Ok(paced) => paced,
                    Err(_) => break,
                }
            };
            // Multiples of the golden ratio spread the phases evenly for any number of streams.
            count += 1;
            let phase = ((count.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) * paced.every_ns) >> 32;
            let at = free.pop().unwrap_or(streams.len());
            due.push(Reverse((now_ns() + phase + paced.rest.map_or(0, |(ns, _)| ns), at)));
            if at == streams.len() { streams.push(Some(paced)) } else { streams[at] = Some(paced) }
        }
        while let Some(&Reverse((when, at))) = due.peek() {
            let now = now_ns();
            if when > now {
                // Sleep at most 1 ms, so that new streams start in time.
                thread::sleep(Duration::from_nanos((when - now).min(1_000_000)));
                break;
            }
            due.pop();
            let Some(paced) = &mut streams[at] else { continue };
            match paced.step(when, now) {
                Ok(Some(next)) => due.push(Reverse((next, at))),
                Ok(None) => {
                    if let Some(Paced { socket, back: Some(back), .. }) = streams[at].take() {
                        back.send(socket).ok();
                    }
                    free.push(at);
                }
                Err(_) => {
                    streams[at] = None;
                    free.push(at);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;
    use crate::dialect;
    use crate::http;
    use crate::reader::Reader;

    #[test]
    fn finish_waits_for_the_common_finish_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap().0;
        let [doubao, ..] = dialect::all(dialect::REFERENCES);
        let values = Values { id: 7, number: 0, at_ns: 0 };
        let mut paced = Paced::new(server, Arc::new(doubao), values, 10, 3, 1000);
        paced.delay_rest(5, 1);
        // The rest of the preface, three events, nothing until the finish is due, the finish.
        let next = [5, 15, 25, 35, 45, 1000].map(|when| paced.step(when, when).unwrap());
        assert_eq!(next, [Some(15), Some(25), Some(35), Some(45), Some(1000), None]);
        drop(paced);
        let mut answer = http::RESPONSE.to_vec();
        client.read_to_end(&mut answer).unwrap();
        let mut reader = Reader::new();
        reader.feed(&answer, drop).unwrap();
        reader.verdict().unwrap();
        assert_eq!(reader.seen, 3);
    }
}

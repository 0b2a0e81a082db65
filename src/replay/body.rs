//! The body of a scripted answer. It is polled, never pushed: a client that does not read stops it.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::time::{Sleep, sleep};

use super::{
    observe::{Outcome, Ticket},
    script::Step,
};

/// What [`Step::Bulk`] repeats: the byte at offset `n` of a bulk is `BULK_FRAME[n % 64]`.
pub const BULK_FRAME: &[u8; 64] = b": 0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWX\n\n";

/// A larger [`Step::Bulk`] chunk is cut to this.
pub const MAX_BULK_CHUNK: usize = 1024 * 1024;

/// hyper drops what it has not written when a body fails, so the bytes before an abort get this long to leave.
const FLUSH: Duration = Duration::from_millis(20);

/// *Cancel safety*: dropping the body is how a client's leaving shows; its ticket records that.
pub struct ScriptBody {
    steps: Arc<[Step]>,
    at: usize,
    /// How far into a [`Step::Bulk`].
    bulk_sent: u64,
    bulk: Bytes,
    wait: Option<Pin<Box<Sleep>>>,
    /// Bytes until the cut.
    left: Option<u64>,
    state: State,
    ticket: Ticket,
}

#[derive(PartialEq, Eq)]
enum State {
    Playing,
    Aborting,
    Over,
}

impl ScriptBody {
    pub(super) fn new(steps: Arc<[Step]>, cut: Option<u64>, ticket: Ticket) -> Self {
        let (bulk, wait, state) = (Bytes::new(), None, State::Playing);
        Self { steps, at: 0, bulk_sent: 0, bulk, wait, left: cut, state, ticket }
    }

    /// For answers that have no body whatever the script says (to HEAD, 204, 304).
    pub(super) fn none(ticket: Ticket) -> Self {
        let mut body = Self::new(Arc::new([]), None, ticket);
        body.over(Outcome::Ended);
        body
    }

    fn over(&mut self, outcome: Outcome) {
        self.state = State::Over;
        self.ticket.set(outcome);
    }

    fn pause(&mut self, wait: Duration) {
        if !wait.is_zero() {
            self.wait = Some(Box::pin(sleep(wait)));
        }
    }

    fn abort(&mut self) {
        self.state = State::Aborting;
        self.pause(FLUSH);
    }

    fn data(&mut self, mut bytes: Bytes) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Some(left) = &mut self.left {
            bytes.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= bytes.len() as u64;
        }
        self.ticket.handed_out(bytes.len() as u64);
        // Known now rather than at the next poll, which does not come if the declared length is reached.
        if self.left != Some(0) && matches!(self.steps.get(self.at), None | Some(Step::End)) {
            self.over(Outcome::Ended);
        }
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    /// The next piece of a bulk; `None` at its end.
    fn bulk(&mut self, len: u64, chunk: usize) -> Option<Bytes> {
        let chunk = chunk.clamp(1, MAX_BULK_CHUNK);
        let period = BULK_FRAME.len();
        let len = len - self.bulk_sent;
        if len == 0 {
            return None;
        }
        if self.bulk.len() < chunk + period {
            self.bulk = BULK_FRAME.iter().copied().cycle().take(chunk + period).collect();
        }
        let phase = (self.bulk_sent % period as u64) as usize;
        let take = usize::try_from(len).map_or(chunk, |len| len.min(chunk));
        self.bulk_sent += take as u64;
        Some(self.bulk.slice(phase..phase + take))
    }
}

impl Body for ScriptBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = &mut *self;
        loop {
            if let Some(wait) = &mut this.wait {
                ready!(wait.as_mut().poll(cx));
                this.wait = None;
            }
            match this.state {
                State::Playing if this.left == Some(0) => {
                    this.abort();
                    continue;
                }
                State::Playing => {}
                State::Aborting => {
                    this.over(Outcome::Aborted);
                    let error = io::Error::new(io::ErrorKind::ConnectionReset, "the script aborts here");
                    return Poll::Ready(Some(Err(error)));
                }
                State::Over => return Poll::Ready(None),
            }
            let Some(step) = this.steps.get(this.at).cloned() else {
                this.over(Outcome::Ended);
                continue;
            };
            this.at += 1;
            match step {
                Step::Send(bytes) if bytes.is_empty() => {}
                Step::Send(bytes) => return this.data(bytes),
                Step::Pause(wait) => this.pause(wait),
                Step::Abort => this.abort(),
                Step::End => this.over(Outcome::Ended),
                Step::Trailers(trailers) => {
                    this.over(Outcome::Ended);
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
                Step::Forever(bytes, wait) => {
                    this.at -= 1;
                    if bytes.is_empty() {
                        // Nothing to hand out, so nothing but a wait keeps this loop from spinning.
                        this.pause(wait.max(Duration::from_millis(1)));
                    } else {
                        this.pause(wait);
                        return this.data(bytes);
                    }
                }
                Step::Bulk { len, chunk } => match this.bulk(len, chunk) {
                    Some(bytes) => {
                        if this.bulk_sent < len {
                            this.at -= 1;
                        } else {
                            this.bulk_sent = 0;
                        }
                        return this.data(bytes);
                    }
                    None => this.bulk_sent = 0,
                },
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.state == State::Over
    }
}

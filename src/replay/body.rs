//! The response body of a script. It produces data only when polled, so a client that does not read pauses the script.

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
    request_log::{Outcome, ResponseHandle},
    script::Step,
};

/// Content repeated by [`Step::Bulk`]: the byte at offset `n` is `BULK_FRAME[n % 64]`.
pub const BULK_FRAME: &[u8; 64] = b": 0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWX\n\n";

/// Largest chunk of [`Step::Bulk`]; larger values are reduced to this.
pub const MAX_BULK_CHUNK: usize = 1024 * 1024;

/// Delay before an abort. hyper discards unwritten data when a body fails, so the bytes before need time to be sent.
const FLUSH: Duration = Duration::from_millis(20);

/// Body that plays the steps of a script.
///
/// # Cancel safety
///
/// Dropping the body means that the client has left; its handle records that.
pub struct ScriptBody {
    steps: Arc<[Step]>,
    at: usize,
    /// Bytes sent of the current [`Step::Bulk`].
    bulk_sent: u64,
    bulk: Bytes,
    wait: Option<Pin<Box<Sleep>>>,
    /// Bytes left until [`Script::cut_after`](super::Script::cut_after) aborts.
    bytes_until_cut: Option<u64>,
    state: State,
    handle: ResponseHandle,
}

#[derive(PartialEq, Eq)]
enum State {
    Playing,
    Aborting,
    Finished,
}

impl ScriptBody {
    pub(super) fn new(steps: Arc<[Step]>, cut: Option<u64>, handle: ResponseHandle) -> Self {
        let (bulk, wait, state) = (Bytes::new(), None, State::Playing);
        Self { steps, at: 0, bulk_sent: 0, bulk, wait, bytes_until_cut: cut, state, handle }
    }

    /// For responses without a body whatever the script says: to HEAD, and with status 204 or 304.
    pub(super) fn empty(handle: ResponseHandle) -> Self {
        let mut body = Self::new(Arc::new([]), None, handle);
        body.finish(Outcome::Ended);
        body
    }

    fn finish(&mut self, outcome: Outcome) {
        self.state = State::Finished;
        self.handle.set(outcome);
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
        if let Some(left) = &mut self.bytes_until_cut {
            bytes.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= bytes.len() as u64;
        }
        self.handle.add_bytes_out(bytes.len() as u64);
        // Finish now rather than at the next poll, which does not happen once the declared length is reached.
        if self.bytes_until_cut != Some(0) && matches!(self.steps.get(self.at), None | Some(Step::End)) {
            self.finish(Outcome::Ended);
        }
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    /// The next chunk of a bulk step; `None` at its end.
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
                State::Playing if this.bytes_until_cut == Some(0) => {
                    this.abort();
                    continue;
                }
                State::Playing => {}
                State::Aborting => {
                    this.finish(Outcome::Aborted);
                    let error = io::Error::new(io::ErrorKind::ConnectionReset, "the script aborts here");
                    return Poll::Ready(Some(Err(error)));
                }
                State::Finished => return Poll::Ready(None),
            }
            let Some(step) = this.steps.get(this.at).cloned() else {
                this.finish(Outcome::Ended);
                continue;
            };
            this.at += 1;
            match step {
                Step::Send(bytes) if bytes.is_empty() => {}
                Step::Send(bytes) => return this.data(bytes),
                Step::Pause(wait) => this.pause(wait),
                Step::Abort => this.abort(),
                Step::End => this.finish(Outcome::Ended),
                Step::Trailers(trailers) => {
                    this.finish(Outcome::Ended);
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
                Step::Forever(bytes, wait) => {
                    this.at -= 1;
                    if bytes.is_empty() {
                        // Nothing to send: only the pause keeps this loop from spinning.
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
        self.state == State::Finished
    }
}

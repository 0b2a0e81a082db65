//! The response body of a relayed request. Its `poll_frame` is the only place that polls an upstream's body; hyper calls it
//! when the client can take more.
//!
//! It has no task and no channel, so backpressure and cancellation are those of the body. It waits only for the upstream
//! and, before citetap's event, for the route's own search and for the commit.
//!
//! *Cancel safety.* Dropping the body cancels the upstream request. `Drop` passes an unfinished record to the
//! [`StreamObserver`]; a commit that has begun continues in the store's writer.

use std::{
    fmt,
    future::Future,
    pin::{Pin, pin},
    task::{Context as Task, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tokio::{
    task::unconstrained,
    time::{Instant, Sleep},
};

use crate::{
    citation::{Record, supplement::SearchOutcome},
    pipeline::{End, Outcome, Output, Pipeline, tap::Tap},
    transport::{BoxError, trailers},
};

/// Pause between the last bytes and an abort. hyper drops unwritten bytes when a body fails, and the event may be among them.
const LINGER: Duration = Duration::from_millis(100);

/// Bytes up to which outputs that are ready together become one frame: the default size of an h2 DATA frame.
const MAX_COALESCED: usize = 16 * 1024;

/// A timer that fires later than this did not measure the upstream: the process was suspended, or the client did not poll.
const SUSPENDED: Duration = Duration::from_millis(500);

/// Resolves to true if the record is stored, within `timeouts.commit`.
pub type CommitFuture = Pin<Box<dyn Future<Output = bool> + Send>>;

/// Resolves to the result of the route's own search, within the route's `max_wait`.
pub type SupplementFuture = Pin<Box<dyn Future<Output = SearchOutcome> + Send>>;

/// Receives what happens in a stream. [`RelayObserver`](super::observer::RelayObserver) implements it with the store,
/// the messages in flight, metrics and the log.
pub trait StreamObserver: Send + 'static {
    /// Waits for the route's own search.
    fn supplement(&mut self) -> SupplementFuture;
    /// Stores the record; the stream waits for the result.
    fn commit(&mut self, record: Box<Record>) -> CommitFuture;
    /// Stores the record; the stream does not wait.
    fn store(&mut self, record: Box<Record>);
    /// True to have [`Self::chunk_received`] called. Read once.
    fn observes_chunks(&self) -> bool;
    /// Called for each chunk from the upstream before the tap reads it.
    fn chunk_received(&mut self, tap: Option<&Tap>);
    /// Called after the tap has read a chunk.
    fn progress(&mut self, tap: &Tap);
    /// Publishes a snapshot of the message for those who watch it.
    fn publish_snapshot(&mut self, tap: &Tap);
    /// Called once when the stream has ended, also from `Drop`.
    fn ended(&mut self, report: &Report, pipeline: &Pipeline);
}

/// How a stream ended, with its byte counts.
#[derive(Debug, Clone, Copy)]
pub struct Report {
    pub outcome: Outcome,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Longest time from a chunk's arrival to the next output. Chunks that wait for the rest of a frame, for the store or for
    /// a search are not measured.
    pub overhead: Duration,
}

/// The body error that aborts the client's response, so that a cut stream never looks complete.
#[derive(Debug)]
pub struct Aborted(pub Outcome);

impl fmt::Display for Aborted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream aborted: {}", self.0.as_str())
    }
}

impl std::error::Error for Aborted {}

#[derive(Debug, Clone, Copy)]
pub struct StreamTimeouts {
    /// Longest silence of the upstream.
    pub idle: Duration,
    /// Silence after which a comment is sent to the client.
    pub heartbeat: Option<Duration>,
    /// End of the stream, whatever the upstream sends.
    pub deadline: Option<Instant>,
}

impl StreamTimeouts {
    /// The next instant at which a silent stream has something to do.
    fn wake_at(&self, last_in: Instant, last_out: Instant) -> Instant {
        let idle = last_in + self.idle;
        let heartbeat = self.heartbeat.map_or(idle, |every| last_out.max(last_in) + every);
        self.deadline.map_or(idle.min(heartbeat), |deadline| deadline.min(idle).min(heartbeat))
    }
}

/// An upstream's body `B` behind the tap.
pub struct TapBody<B, K>
where
    B: Body<Data = Bytes> + Unpin,
    K: StreamObserver,
{
    /// `None` once the upstream has ended or is cancelled.
    upstream: Option<B>,
    /// Set while the stream waits for a search.
    supplement: Option<SupplementFuture>,
    /// Set while the stream waits for a commit.
    commit: Option<CommitFuture>,
    last_in: Instant,
    last_out: Instant,
    overhead: Duration,
    bytes_in: u64,
    bytes_out: u64,
    outcome: Option<Outcome>,
    observes_chunks: bool,
    /// True from a chunk's arrival until the next output or wait: the time until then is overhead.
    is_timing: bool,
    /// The last poll returned a frame, or there was no poll yet.
    awaits_poll: bool,
    is_reported: bool,
    pipeline: Pipeline,
    observer: K,
    timeouts: StreamTimeouts,
    /// Resolves when the server cuts its streams.
    cut: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Not reset for each chunk: when it fires, the instants above are compared. Polled only while the upstream is silent.
    timer: Pin<Box<Sleep>>,
    trailers: Option<HeaderMap>,
}

impl<B, K> TapBody<B, K>
where
    B: Body<Data = Bytes> + Unpin,
    K: StreamObserver,
{
    pub fn new(
        upstream: B,
        pipeline: Pipeline,
        observer: K,
        timeouts: StreamTimeouts,
        cut: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let now = Instant::now();
        Self {
            upstream: Some(upstream),
            observes_chunks: observer.observes_chunks(),
            pipeline,
            observer,
            timeouts,
            cut: Box::pin(cut),
            supplement: None,
            commit: None,
            timer: Box::pin(tokio::time::sleep_until(timeouts.wake_at(now, now))),
            last_in: now,
            last_out: now,
            trailers: None,
            outcome: None,
            bytes_in: 0,
            bytes_out: 0,
            overhead: Duration::ZERO,
            is_timing: false,
            awaits_poll: true,
            is_reported: false,
        }
    }

    /// The time since which the client has not polled; `None` if the last poll is pending.
    pub fn unpolled_since(&self) -> Option<Instant> {
        self.awaits_poll.then_some(self.last_out)
    }

    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    pub fn pipeline_mut(&mut self) -> &mut Pipeline {
        &mut self.pipeline
    }

    pub fn observer(&self) -> &K {
        &self.observer
    }

    pub fn observer_mut(&mut self) -> &mut K {
        &mut self.observer
    }

    /// Has the observer publish a snapshot of the message.
    pub fn publish_snapshot(&mut self) {
        if let Some(tap) = self.pipeline.tap() {
            self.observer.publish_snapshot(tap);
        }
    }

    /// True while a search or a commit is awaited.
    fn is_waiting(&self) -> bool {
        self.supplement.is_some() || self.commit.is_some()
    }

    /// How the upstream's body ended; `None` while it is open.
    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// Ends the upstream's side. Later polls return the remaining output and then the end.
    fn end(&mut self, outcome: Outcome) {
        self.upstream = None;
        self.outcome = Some(outcome);
        self.pipeline.finish(match outcome {
            Outcome::Complete => End::Clean,
            Outcome::Shutdown => End::Shutdown,
            _ => End::Cut,
        });
    }

    /// Joins bytes with the outputs that follow them. Each frame becomes an h2 DATA frame, and some clients close a
    /// connection with `ENHANCE_YOUR_CALM` if it carries too many small ones.
    fn coalesce(&mut self, first: Bytes) -> Bytes {
        let mut remaining = MAX_COALESCED.saturating_sub(first.len());
        let Some(next) = self.pipeline.take_bytes(remaining) else { return first };
        let mut all = BytesMut::from(first);
        let mut next = Some(next);
        while let Some(piece) = next {
            all.extend_from_slice(&piece);
            remaining -= piece.len();
            next = self.pipeline.take_bytes(remaining);
        }
        all.freeze()
    }

    /// Makes a frame and updates the counts and instants of the output.
    fn emit(&mut self, bytes: Bytes) -> Frame<Bytes> {
        self.awaits_poll = true;
        self.bytes_out += bytes.len() as u64;
        self.last_out = Instant::now();
        if std::mem::take(&mut self.is_timing) {
            self.overhead = self.overhead.max(self.last_out - self.last_in);
        }
        Frame::data(bytes)
    }

    /// Ends the stream if a timeout has passed, or returns a heartbeat if one is due. Called while the upstream is silent.
    fn poll_timeouts(&mut self, task: &mut Task<'_>) -> Poll<Option<Bytes>> {
        // Unconstrained: a flood of chunks uses up tokio's budget of the task, and its own timeouts must still fire.
        if pin!(unconstrained(self.cut.as_mut())).poll(task).is_ready() {
            self.end(Outcome::Shutdown);
            return Poll::Ready(None);
        }
        loop {
            ready!(pin!(unconstrained(self.timer.as_mut())).poll(task));
            let now = Instant::now();
            if now > self.timer.deadline() + SUSPENDED {
                // The upstream may have sent data meanwhile that has not been read yet.
                self.last_in = now;
            }
            if self.timeouts.deadline.is_some_and(|deadline| now >= deadline) {
                self.end(Outcome::TotalTimeout);
                return Poll::Ready(None);
            }
            if now >= self.last_in + self.timeouts.idle {
                self.end(Outcome::UpstreamIdle);
                return Poll::Ready(None);
            }
            let is_heartbeat_due =
                self.timeouts.heartbeat.is_some_and(|every| now >= self.last_out.max(self.last_in) + every);
            if is_heartbeat_due {
                self.last_out = now;
            }
            let next = self.timeouts.wake_at(self.last_in, self.last_out);
            self.timer.as_mut().reset(next);
            if is_heartbeat_due && let Some(comment) = self.pipeline.heartbeat() {
                return Poll::Ready(Some(comment));
            }
        }
    }

    /// Waits for [`LINGER`] after the last output.
    fn poll_linger(&mut self, task: &mut Task<'_>) -> Poll<()> {
        let deadline = self.last_out + LINGER;
        if self.timer.deadline() != deadline {
            self.timer.as_mut().reset(deadline);
        }
        self.timer.as_mut().poll(task)
    }

    /// Reports the end to the observer, once.
    fn report(&mut self, outcome: Outcome) {
        if !self.is_reported {
            self.is_reported = true;
            let Self { bytes_in, bytes_out, overhead, .. } = *self;
            let report = Report { outcome, bytes_in, bytes_out, overhead };
            self.observer.ended(&report, &self.pipeline);
        }
    }
}

impl<B, K> Body for TapBody<B, K>
where
    B: Body<Data = Bytes> + Unpin,
    K: StreamObserver + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        this.awaits_poll = false;
        loop {
            if let Some(supplement) = &mut this.supplement {
                let outcome = ready!(supplement.as_mut().poll(task));
                this.supplement = None;
                this.pipeline.supplemented(outcome);
            }
            if let Some(commit) = &mut this.commit {
                let stored = ready!(commit.as_mut().poll(task));
                this.commit = None;
                this.pipeline.committed(stored);
            }
            if let Some(output) = this.pipeline.take() {
                match output {
                    Output::Bytes(bytes) => {
                        let bytes = this.coalesce(bytes);
                        return Poll::Ready(Some(Ok(this.emit(bytes))));
                    }
                    // In a frame of its own: an h2 client drops a DATA frame that is cut off.
                    Output::Event(bytes) => return Poll::Ready(Some(Ok(this.emit(bytes)))),
                    Output::AwaitSearch => {
                        this.is_timing = false;
                        this.supplement = Some(this.observer.supplement());
                    }
                    Output::Commit(record) => {
                        this.is_timing = false;
                        this.commit = Some(this.observer.commit(record));
                    }
                    Output::Store(record) => this.observer.store(record),
                }
                continue;
            }
            let Some(upstream) = &mut this.upstream else {
                let outcome = this.outcome.unwrap_or(Outcome::UpstreamCut);
                if outcome != Outcome::Complete {
                    this.report(outcome);
                    ready!(this.poll_linger(task));
                    return Poll::Ready(Some(Err(Aborted(outcome).into())));
                }
                if let Some(trailers) = this.trailers.take() {
                    (this.awaits_poll, this.last_out) = (true, Instant::now());
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
                this.report(Outcome::Complete);
                return Poll::Ready(None);
            };
            match Pin::new(upstream).poll_frame(task) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        this.bytes_in += data.len() as u64;
                        this.last_in = Instant::now();
                        this.is_timing = true;
                        if this.observes_chunks {
                            this.observer.chunk_received(this.pipeline.tap());
                        }
                        // hyper does not poll again after the last bytes of a body of known length.
                        let is_last = this.upstream.as_ref().is_some_and(Body::is_end_stream);
                        this.pipeline.push(data);
                        if let Some(tap) = this.pipeline.tap() {
                            this.observer.progress(tap);
                        }
                        if is_last && !this.pipeline.may_add_bytes() {
                            this.end(Outcome::Complete);
                        }
                    }
                    Err(frame) => {
                        this.trailers = frame.into_trailers().ok().as_ref().and_then(trailers::allowed);
                    }
                },
                Poll::Ready(Some(Err(_))) => this.end(Outcome::UpstreamCut),
                Poll::Ready(None) => this.end(Outcome::Complete),
                Poll::Pending => {
                    this.is_timing = false;
                    if let Some(comment) = ready!(this.poll_timeouts(task)) {
                        return Poll::Ready(Some(Ok(this.emit(comment))));
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        // Only an empty body without a tap has ended before it is polled.
        !self.pipeline.may_add_bytes() && self.bytes_in == 0 && self.upstream.as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.upstream {
            Some(upstream) if !self.pipeline.may_add_bytes() => upstream.size_hint(),
            _ => SizeHint::default(),
        }
    }
}

impl<B, K> Drop for TapBody<B, K>
where
    B: Body<Data = Bytes> + Unpin,
    K: StreamObserver,
{
    fn drop(&mut self) {
        if self.is_reported {
            return;
        }
        // hyper does not poll for the end of a body that is empty or whose length is reached, so that is no disconnect.
        let is_empty = self.bytes_in == 0 && self.upstream.as_ref().is_some_and(Body::is_end_stream);
        let is_sent = self.outcome == Some(Outcome::Complete) && !self.pipeline.has_bytes() && !self.is_waiting();
        if let Some(record) = self.pipeline.abandon() {
            self.observer.store(record);
        }
        self.report(if is_empty || is_sent { Outcome::Complete } else { Outcome::ClientGone });
    }
}

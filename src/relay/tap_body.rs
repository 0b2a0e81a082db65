//! The one `poll_frame`: the upstream's body through the pipeline to the client.
//!
//! No task and no channel: backpressure and cancellation are the body's own. Time passes only while
//! the upstream is silent; the only other waits are those before our event: for a
//! search of our own, where there is one, and for the commit.
//!
//! *Cancel safety.* Dropping the body cancels the upstream. What was seen is handed to the
//! [`StreamObserver`] from `Drop`, and a commit that is under way goes on without us.

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

/// hyper drops what it has not written when a body fails: the bytes before an abort, our event among them, get so long.
const LINGER: Duration = Duration::from_millis(100);

/// Pieces that are ready at the same time leave as one of at most this: an h2 DATA frame as it is by default.
const JOINED: usize = 16 * 1024;

/// A timer that is later than this was not waited for: the process was stopped, or the client took its time.
pub const LATE: Duration = Duration::from_millis(500);

/// Whether the record is stored; resolves within the commit wait.
pub type Commit = Pin<Box<dyn Future<Output = bool> + Send>>;

/// What a search of our own found; resolves within the route's wait.
pub type Supplying = Pin<Box<dyn Future<Output = SearchOutcome> + Send>>;

/// What stands beside a stream: the store, those who watch it, the log.
pub trait StreamObserver: Send + 'static {
    fn supplement(&mut self) -> Supplying;
    fn commit(&mut self, record: Box<Record>) -> Commit;
    fn store(&mut self, record: Box<Record>);
    /// Is it to be told of whatever comes?
    fn listens(&self) -> bool;
    /// Bytes have come from the upstream; the tap has not seen them.
    fn came(&mut self, tap: Option<&Tap>);
    /// After bytes from the upstream went through the tap.
    fn progress(&mut self, tap: &Tap);
    /// Somebody asks for what is known so far.
    fn tell(&mut self, tap: &Tap);
    /// Once, however it ends.
    fn ended(&mut self, report: &Report, pipeline: &Pipeline);
}

/// How a stream ended, and what went through.
#[derive(Debug, Clone, Copy)]
pub struct Report {
    pub outcome: Outcome,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// The longest that a piece was here before something of it, or in its place, went on. What waited for the rest of
    /// its frame, for the store or for a search did not wait for us.
    pub overhead: Duration,
}

/// What the client's connection is aborted with: never a clean end.
#[derive(Debug)]
pub struct Aborted(pub Outcome);

impl fmt::Display for Aborted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream aborted: {}", self.0.as_str())
    }
}

impl std::error::Error for Aborted {}

#[derive(Debug, Clone, Copy)]
pub struct Clocks {
    /// Silence of the upstream that ends the stream.
    pub idle: Duration,
    pub heartbeat: Option<Duration>,
    /// When the stream must be over.
    pub deadline: Option<Instant>,
}

impl Clocks {
    /// The next thing to do when the upstream is silent.
    fn wake_at(&self, last_in: Instant, last_out: Instant) -> Instant {
        let idle = last_in + self.idle;
        let beat = self.heartbeat.map_or(idle, |every| last_out.max(last_in) + every);
        self.deadline.map_or(idle.min(beat), |deadline| deadline.min(idle).min(beat))
    }
}

pub struct TapBody<B, K>
where
    B: Body<Data = Bytes> + Unpin,
    K: StreamObserver,
{
    upstream: Option<B>,
    supplying: Option<Supplying>,
    commit: Option<Commit>,
    last_in: Instant,
    last_out: Instant,
    overhead: Duration,
    bytes_in: u64,
    bytes_out: u64,
    outcome: Option<Outcome>,
    /// The observer wants to hear of every piece.
    listens: bool,
    /// Nothing went out since the last bytes came in, nor was anything waited for.
    fresh: bool,
    /// Something was handed out, and nothing was asked for since.
    handed: bool,
    reported: bool,
    pipeline: Pipeline,
    observer: K,
    clocks: Clocks,
    /// Resolves when the server cuts its streams.
    cut: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Armed while the upstream is silent; looks at the instants above when it fires.
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
        clocks: Clocks,
        cut: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let now = Instant::now();
        Self {
            upstream: Some(upstream),
            listens: observer.listens(),
            pipeline,
            observer,
            clocks,
            cut: Box::pin(cut),
            supplying: None,
            commit: None,
            timer: Box::pin(tokio::time::sleep_until(clocks.wake_at(now, now))),
            last_in: now,
            last_out: now,
            trailers: None,
            outcome: None,
            bytes_in: 0,
            bytes_out: 0,
            overhead: Duration::ZERO,
            fresh: false,
            handed: true,
            reported: false,
        }
    }

    /// When it last handed something out, if it was not asked since.
    pub fn handed_at(&self) -> Option<Instant> {
        self.handed.then_some(self.last_out)
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

    /// Has the observer tell what is known of the message so far.
    pub fn tell(&mut self) {
        if let Some(tap) = self.pipeline.tap() {
            self.observer.tell(tap);
        }
    }

    /// Something is to be handed out, or the end is known, and nothing is waited for.
    pub fn has_more(&self) -> bool {
        let waits = self.supplying.is_some() || self.commit.is_some();
        !waits && (self.pipeline.has_bytes() || self.outcome == Some(Outcome::Complete))
    }

    /// How it ended; `None` while the upstream may still say something.
    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// The stream is over for the upstream: what is left comes out, then the end.
    fn end(&mut self, outcome: Outcome) {
        self.upstream = None;
        self.outcome = Some(outcome);
        self.pipeline.finish(match outcome {
            Outcome::Complete => End::Clean,
            Outcome::Shutdown => End::Shutdown,
            _ => End::Cut,
        });
    }

    /// With what else is ready. Each piece becomes an h2 DATA frame, and clients end a connection that floods
    /// them with small ones (`ENHANCE_YOUR_CALM`).
    fn joined(&mut self, first: Bytes) -> Bytes {
        let mut room = JOINED.saturating_sub(first.len());
        let Some(next) = self.pipeline.take_bytes(room) else { return first };
        let mut all = BytesMut::from(first);
        let mut next = Some(next);
        while let Some(piece) = next {
            all.extend_from_slice(&piece);
            room -= piece.len();
            next = self.pipeline.take_bytes(room);
        }
        all.freeze()
    }

    fn out(&mut self, bytes: Bytes) -> Frame<Bytes> {
        self.handed = true;
        self.bytes_out += bytes.len() as u64;
        self.last_out = Instant::now();
        if std::mem::take(&mut self.fresh) {
            self.overhead = self.overhead.max(self.last_out - self.last_in);
        }
        Frame::data(bytes)
    }

    /// The upstream is silent: is something due?
    fn poll_clocks(&mut self, task: &mut Task<'_>) -> Poll<Option<Bytes>> {
        // Unconstrained: a flood uses up what a task may do at once, and must not keep its own end away.
        if pin!(unconstrained(self.cut.as_mut())).poll(task).is_ready() {
            self.end(Outcome::Shutdown);
            return Poll::Ready(None);
        }
        loop {
            ready!(pin!(unconstrained(self.timer.as_mut())).poll(task));
            let now = Instant::now();
            if now > self.timer.deadline() + LATE {
                // It was not the upstream that stood still: what it sent meanwhile is still to be seen.
                self.last_in = now;
            }
            if self.clocks.deadline.is_some_and(|deadline| now >= deadline) {
                self.end(Outcome::TotalTimeout);
                return Poll::Ready(None);
            }
            if now >= self.last_in + self.clocks.idle {
                self.end(Outcome::UpstreamIdle);
                return Poll::Ready(None);
            }
            let beat = self.clocks.heartbeat.is_some_and(|every| now >= self.last_out.max(self.last_in) + every);
            if beat {
                self.last_out = now;
            }
            let next = self.clocks.wake_at(self.last_in, self.last_out);
            self.timer.as_mut().reset(next);
            if beat && let Some(comment) = self.pipeline.heartbeat() {
                return Poll::Ready(Some(comment));
            }
        }
    }

    /// Waits until what went out last had its time to leave.
    fn poll_linger(&mut self, task: &mut Task<'_>) -> Poll<()> {
        let due = self.last_out + LINGER;
        if self.timer.deadline() != due {
            self.timer.as_mut().reset(due);
        }
        self.timer.as_mut().poll(task)
    }

    fn report(&mut self, outcome: Outcome) {
        if !self.reported {
            self.reported = true;
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
        this.handed = false;
        loop {
            if let Some(supplying) = &mut this.supplying {
                let supply = ready!(supplying.as_mut().poll(task));
                this.supplying = None;
                this.pipeline.supplemented(supply);
            }
            if let Some(commit) = &mut this.commit {
                let stored = ready!(commit.as_mut().poll(task));
                this.commit = None;
                this.pipeline.committed(stored);
            }
            if let Some(out) = this.pipeline.take() {
                match out {
                    Output::Bytes(bytes) => {
                        let bytes = this.joined(bytes);
                        return Poll::Ready(Some(Ok(this.out(bytes))));
                    }
                    // Alone: of a DATA frame that is cut, an h2 client gets nothing.
                    Output::Event(bytes) => return Poll::Ready(Some(Ok(this.out(bytes)))),
                    Output::AwaitSearch => {
                        this.fresh = false;
                        this.supplying = Some(this.observer.supplement());
                    }
                    Output::Commit(record) => {
                        this.fresh = false;
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
                    (this.handed, this.last_out) = (true, Instant::now());
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
                        this.fresh = true;
                        if this.listens {
                            this.observer.came(this.pipeline.tap());
                        }
                        // Of a body whose length is known, the last bytes are known to be the last: whoever sends
                        // them on does not ask again.
                        let last = this.upstream.as_ref().is_some_and(Body::is_end_stream);
                        this.pipeline.push(data);
                        if let Some(tap) = this.pipeline.tap() {
                            this.observer.progress(tap);
                        }
                        if last && !this.pipeline.may_add_bytes() {
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
                    this.fresh = false;
                    if let Some(comment) = ready!(this.poll_clocks(task)) {
                        return Poll::Ready(Some(Ok(this.out(comment))));
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        // Only an untouched, untapped, empty body is over before it is asked.
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
        if self.reported {
            return;
        }
        // Whoever sends us on stops asking when the body is empty, or when its length is reached.
        let empty = self.bytes_in == 0 && self.upstream.as_ref().is_some_and(Body::is_end_stream);
        let waits = self.supplying.is_some() || self.commit.is_some();
        let over = self.outcome == Some(Outcome::Complete) && !self.pipeline.has_bytes() && !waits;
        if let Some(record) = self.pipeline.abandon() {
            self.observer.store(record);
        }
        self.report(if empty || over { Outcome::Complete } else { Outcome::ClientGone });
    }
}

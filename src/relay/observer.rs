//! The observer of one relayed stream: stores its records, publishes snapshots to watchers, and writes its metrics and its
//! one log line. Driven by `tap_body`; it must not wait in a callback.

use std::{
    future::{Future, ready},
    sync::{Arc, Weak, atomic::Ordering},
    time::{Duration, Instant},
};

use super::{
    records::{Put, RecordContext, Records},
    tap_body::{CommitFuture, Report, StreamObserver, SupplementFuture},
};
use crate::{
    app::{
        App,
        faults::{self, FaultContext},
        in_flight::{InFlight, NoSource, SnapshotSource},
        problem::Problem,
    },
    citation::{Record, record::CitationOrigin, supplement::SearchOutcome},
    pipeline::{Outcome, Pipeline, tap::Tap},
    telemetry::{
        FrameLabels, InjectionLabels, MessageLabels, OutcomeLabels, ProviderLabel, ReasonLabel, RouteLabel,
        StoredLabel,
        otel::{ChatEnd, ChatSpan},
    },
};

/// Shortest pause between two snapshots of a message for its watchers.
const SNAPSHOT_INTERVAL: Duration = Duration::from_millis(100);

/// A permit for one open stream (`limits.streams`), released on drop.
pub struct StreamPermit(Arc<App>);

impl StreamPermit {
    /// Takes a permit; `None` at the limit.
    pub fn take(app: &Arc<App>) -> Option<Self> {
        let before = app.streams.fetch_add(1, Ordering::Relaxed);
        // Made before the check, so that a refusal decrements the counters as well.
        let permit = Self(Arc::clone(app));
        app.metrics.streams.inc();
        (before < app.config.limits.streams).then_some(permit)
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
        self.0.metrics.streams.dec();
    }
}

/// The observer of one relayed request.
pub struct RelayObserver {
    permit: StreamPermit,
    /// The request id.
    pub request: uuid::Uuid,
    pub records: Records,
    /// Status of the upstream's response; 0 before its head.
    pub status: u16,
    pub began: Instant,
    /// Time from `began` to the response head.
    pub first_byte: Duration,
    /// `None` if no telemetry is exported.
    pub chat: Option<Box<ChatSpan>>,
    /// `None` before the message id is known, and once a record is with the writer.
    in_flight: Option<InFlight>,
    /// What watchers ask for a snapshot; `None` before the body is guarded.
    snapshot_source: Option<Weak<dyn SnapshotSource>>,
    /// Ledger revision of the last snapshot.
    published_revision: u64,
    /// Ledger revision that was last compared. It was published, or there were no watchers.
    checked_revision: u64,
    published_at: Option<Instant>,
    /// Citations in the last record.
    citations: usize,
    /// Citations that the upstream named.
    extracted: usize,
    /// The text cites one of them.
    has_cited: bool,
    /// A record is with the writer, so the message is no longer in flight.
    is_recorded: bool,
}

impl RelayObserver {
    pub fn new(permit: StreamPermit, records: Records, request: uuid::Uuid, began: Instant) -> Self {
        Self {
            permit,
            request,
            records,
            status: 0,
            began,
            first_byte: Duration::ZERO,
            chat: None,
            in_flight: None,
            snapshot_source: None,
            published_revision: 0,
            checked_revision: 0,
            published_at: None,
            citations: 0,
            extracted: 0,
            has_cited: false,
            is_recorded: false,
        }
    }

    pub fn set_snapshot_source(&mut self, snapshot_source: Weak<impl SnapshotSource + 'static>) {
        self.snapshot_source = Some(snapshot_source);
    }

    /// The request's labels for a fault.
    pub fn fault_context(&self) -> FaultContext<'_> {
        let RecordContext { tenant, route, provider, .. } = &self.records.context;
        FaultContext { tenant, route: Some(route), provider: Some(provider.as_str()), request: Some(self.request) }
    }

    /// Marks the span as failed: there is no response.
    pub fn failed(&mut self, problem: &Problem) {
        if let Some(chat) = &mut self.chat {
            chat.failed(problem.kind());
        }
    }

    fn app(&self) -> &Arc<App> {
        &self.permit.0
    }

    /// Passes the record to the writer. The future publishes it to watchers and resolves to true once it is stored.
    /// `has_event`: the client gets an event with this record.
    fn write(&mut self, record: Box<Record>, has_event: bool) -> impl Future<Output = bool> + Send + use<> {
        self.is_recorded = true;
        let limit = self.app().config.timeouts.commit;
        let in_flight = self.in_flight.take().map(Arc::new);
        let Put { record, write, published } = self.records.put(record, has_event, in_flight.as_ref());
        self.citations = record.citations.len();
        self.extracted = record.citations.iter().filter(|citation| citation.origin == CitationOrigin::Upstream).count();
        self.has_cited = record.citations.iter().any(|citation| citation.cited);
        async move {
            let stored = match write {
                Ok(write) => matches!(tokio::time::timeout(limit, write).await, Ok(Ok(Ok(())))),
                Err(_) => false,
            };
            if let Some(in_flight) = in_flight {
                in_flight.update(Record { stored, ..*record }, published.is_none());
            }
            stored
        }
    }
}

impl StreamObserver for RelayObserver {
    fn supplement(&mut self) -> SupplementFuture {
        match &self.records.search {
            Some(search) => search.outcome_in_time(self.app()),
            None => Box::pin(ready(SearchOutcome::None)),
        }
    }

    fn commit(&mut self, record: Box<Record>) -> CommitFuture {
        let app = Arc::clone(self.app());
        let writing = self.write(record, true);
        Box::pin(async move {
            let began = Instant::now();
            let stored = writing.await;
            let label = StoredLabel { stored: if stored { "true" } else { "false" } };
            app.metrics.commits.get_or_create(&label).inc();
            app.metrics.commit_wait.observe(began.elapsed().as_secs_f64());
            stored
        })
    }

    fn store(&mut self, record: Box<Record>) {
        let is_in_flight = self.in_flight.is_some();
        let writing = self.write(record, false);
        // The write needs no polling, and the writer counts what it refuses. But watchers get `stored: true` only after the
        // commit, so a task waits for it.
        if is_in_flight && let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(writing);
        }
    }

    fn observes_chunks(&self) -> bool {
        self.chat.is_some()
    }

    fn chunk_received(&mut self, tap: Option<&Tap>) {
        if let (Some(chat), Some(tap)) = (&mut self.chat, tap) {
            chat.chunk(tap);
        }
    }

    fn progress(&mut self, tap: &Tap) {
        if self.is_recorded || tap.state().finished {
            return;
        }
        if let Some(in_flight) = &self.in_flight {
            let revision = tap.state().ledger.revision();
            // Most chunks are text and do not change the ledger.
            if revision == self.checked_revision {
                return;
            }
            let is_watched = in_flight.is_watched();
            if is_watched && self.published_at.is_some_and(|at| at.elapsed() < SNAPSHOT_INTERVAL) {
                return;
            }
            // Without watchers nothing is published: the first one asks the snapshot source.
            self.checked_revision = revision;
            if is_watched {
                self.publish_snapshot(tap);
            }
        } else if let Some(id) = tap.message_id() {
            // Without a source for later snapshots, the first one is published now.
            let record = self.snapshot_source.is_none().then(|| tap.record(false));
            let snapshot_source = self.snapshot_source.clone().unwrap_or_else(|| Weak::<NoSource>::new());
            self.in_flight = Some(self.app().live.begin(&self.records.context.tenant, id, record, snapshot_source));
        }
    }

    fn publish_snapshot(&mut self, tap: &Tap) {
        let revision = tap.state().ledger.revision();
        let is_published = self.published_at.is_some() && revision == self.published_revision;
        if let Some(in_flight) = self.in_flight.as_ref().filter(|_| !is_published) {
            in_flight.update(tap.record(false), false);
            self.published_revision = revision;
            self.published_at = Some(Instant::now());
        }
    }

    fn ended(&mut self, report: &Report, pipeline: &Pipeline) {
        let stream_stats = pipeline.stream_stats();
        if stream_stats.frames > 0 {
            self.records.ended(stream_stats.finished);
        }
        let detected = pipeline.tap().and_then(Tap::provider);
        for what in
            faults::of_stream(report.outcome, self.status, &stream_stats, detected.is_some()).into_iter().flatten()
        {
            let context = self.fault_context();
            let context = FaultContext { provider: detected.or(context.provider), ..context };
            self.app().faults.note(context, what, self.status);
        }
        let route = &self.records.context.route;
        let metrics = &self.app().metrics;
        let outcome = report.outcome.as_str();
        let provider = detected.unwrap_or("none");
        metrics.outcomes.get_or_create(&OutcomeLabels { route: route.clone(), outcome }).inc();
        metrics
            .duration
            .get_or_create(&RouteLabel { route: route.clone() })
            .observe(self.began.elapsed().as_secs_f64());
        metrics.relayed.inc_by(report.bytes_out);
        let frames = |kind, count| {
            if count > 0 {
                let labels = FrameLabels { provider: provider.to_owned(), kind };
                metrics.frames.get_or_create(&labels).inc_by(count);
            }
        };
        frames("tapped", stream_stats.frames - stream_stats.unparsed);
        frames("unread", stream_stats.unparsed);
        frames("oversized", stream_stats.oversized);
        if stream_stats.frames > 0 && provider == "none" {
            metrics.tap_skipped.get_or_create(&ReasonLabel { reason: "unknown_dialect" }).inc();
        }
        if stream_stats.panicked {
            metrics.tap_skipped.get_or_create(&ReasonLabel { reason: "panic" }).inc();
        }
        if report.bytes_in > 0 && pipeline.tap().is_some() {
            let labels = ProviderLabel { provider: provider.to_owned() };
            metrics.overhead.get_or_create(&labels).observe(report.overhead.as_secs_f64());
        }
        if self.is_recorded {
            let sources = match self.citations {
                0 => "none",
                _ if self.has_cited => "cited",
                _ => "uncited",
            };
            metrics.messages.get_or_create(&MessageLabels { provider: provider.to_owned(), sources }).inc();
            let labels = ProviderLabel { provider: provider.to_owned() };
            metrics.per_message.get_or_create(&labels).observe(self.citations as f64);
        }
        if self.extracted > 0 {
            let labels = ProviderLabel { provider: provider.to_owned() };
            metrics.citations.get_or_create(&labels).inc_by(self.extracted as u64);
        }
        if stream_stats.markers > 0 {
            let labels = ProviderLabel { provider: provider.to_owned() };
            metrics.markers.get_or_create(&labels).inc_by(stream_stats.markers);
        }
        if stream_stats.frames > 0 {
            let result = match (stream_stats.injected, stream_stats.finished) {
                (true, true) => "final",
                (true, false) => "incomplete",
                _ => "none",
            };
            metrics.injections.get_or_create(&InjectionLabels { provider: provider.to_owned(), result }).inc();
        }
        if let Some(chat) = self.chat.take() {
            let failed = report.outcome != Outcome::Complete;
            let error = if failed { Some(outcome) } else { stream_stats.fault.then_some("upstream_error") };
            chat.finish(&ChatEnd { tap: pipeline.tap(), error, citations: self.citations });
        }
        tracing::info!(
            request = %self.request,
            route = self.records.context.route,
            provider,
            status = self.status,
            outcome,
            ttfb_ms = self.first_byte.as_millis() as u64,
            duration_ms = self.began.elapsed().as_millis() as u64,
            frames = stream_stats.frames,
            unread = stream_stats.unparsed,
            oversized = stream_stats.oversized,
            citations = self.citations,
            injected = stream_stats.injected,
            finished = stream_stats.finished,
            bytes_in = report.bytes_in,
            bytes_out = report.bytes_out,
            "stream ended"
        );
    }
}

//! What stands beside one relayed stream: its record's way to the store, those who watch it, its
//! metrics, and its one log line.

use std::{
    future::{Future, ready},
    sync::{Arc, Weak, atomic::Ordering},
    time::{Duration, Instant},
};

use super::{
    records::{Put, RecordContext, Records},
    tap_body::{Commit, Report, StreamObserver, Supplying},
};
use crate::{
    app::{
        App,
        faults::{self, Of},
        in_flight::{InFlight, Nobody, SnapshotSource},
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

/// How often those who watch are told of a list that grows.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// A place among the streams that may be open; given back when dropped.
pub struct StreamPermit(Arc<App>);

impl StreamPermit {
    /// `None` when all are taken.
    pub fn take(app: &Arc<App>) -> Option<Self> {
        let before = app.streams.fetch_add(1, Ordering::Relaxed);
        // Made first, so that a place that was not to be had is given back as any other.
        let place = Self(Arc::clone(app));
        app.metrics.streams.inc();
        (before < app.config.limits.streams).then_some(place)
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
        self.0.metrics.streams.dec();
    }
}

pub struct RelayObserver {
    place: StreamPermit,
    pub request: uuid::Uuid,
    pub records: Records,
    pub status: u16,
    pub began: Instant,
    pub first_byte: Duration,
    /// Where telemetry is exported.
    pub chat: Option<Box<ChatSpan>>,
    in_flight: Option<InFlight>,
    /// Whom those who watch ask; nobody before the body is with its client.
    snapshot_source: Option<Weak<dyn SnapshotSource>>,
    told_revision: u64,
    /// With this one those who watch were told, or there were none.
    known_revision: u64,
    told_at: Option<Instant>,
    citations: usize,
    /// Those of them that the upstream named.
    extracted: usize,
    /// The answer names one of them.
    cited: bool,
    /// The record has gone to the store: the message is in flight no more.
    settled: bool,
}

impl RelayObserver {
    pub fn new(place: StreamPermit, records: Records, request: uuid::Uuid, began: Instant) -> Self {
        Self {
            place,
            request,
            records,
            status: 0,
            began,
            first_byte: Duration::ZERO,
            chat: None,
            in_flight: None,
            snapshot_source: None,
            told_revision: 0,
            known_revision: 0,
            told_at: None,
            citations: 0,
            extracted: 0,
            cited: false,
            settled: false,
        }
    }

    pub fn told_by(&mut self, snapshot_source: Weak<impl SnapshotSource + 'static>) {
        self.snapshot_source = Some(snapshot_source);
    }

    /// For what goes wrong with it.
    pub fn of(&self) -> Of<'_> {
        let RecordContext { tenant, route, provider, .. } = &self.records.owner;
        Of { tenant, route: Some(route), provider: Some(provider.as_str()), request: Some(self.request) }
    }

    /// There is no answer.
    pub fn failed(&mut self, problem: &Problem) {
        if let Some(chat) = &mut self.chat {
            chat.failed(problem.kind());
        }
    }

    fn app(&self) -> &Arc<App> {
        &self.place.0
    }

    /// Hands the record to the writer; says whether it is stored, first to those who watch. `told`: an event follows.
    fn keep(&mut self, record: Box<Record>, told: bool) -> impl Future<Output = bool> + Send + use<> {
        self.settled = true;
        let limit = self.app().config.timeouts.commit;
        let watched = self.in_flight.take().map(Arc::new);
        let Put { record, stored, follows } = self.records.put(record, told, watched.as_ref());
        self.citations = record.citations.len();
        self.extracted = record.citations.iter().filter(|citation| citation.origin == CitationOrigin::Upstream).count();
        self.cited = record.citations.iter().any(|citation| citation.cited);
        async move {
            let stored = match stored {
                Ok(stored) => matches!(tokio::time::timeout(limit, stored).await, Ok(Ok(Ok(())))),
                Err(_) => false,
            };
            if let Some(watched) = watched {
                watched.update(Record { stored, ..*record }, follows.is_none());
            }
            stored
        }
    }
}

impl StreamObserver for RelayObserver {
    fn supplement(&mut self) -> Supplying {
        match &self.records.search {
            Some(search) => search.in_time(self.app()),
            None => Box::pin(ready(SearchOutcome::None)),
        }
    }

    fn commit(&mut self, record: Box<Record>) -> Commit {
        let app = Arc::clone(self.app());
        let kept = self.keep(record, true);
        Box::pin(async move {
            let began = Instant::now();
            let stored = kept.await;
            let label = StoredLabel { stored: if stored { "true" } else { "false" } };
            app.metrics.commits.get_or_create(&label).inc();
            app.metrics.commit_wait.observe(began.elapsed().as_secs_f64());
            stored
        })
    }

    fn store(&mut self, record: Box<Record>) {
        let watched = self.in_flight.is_some();
        let kept = self.keep(record, false);
        // The stream does not wait, nor need it be told: the writer counts what it cannot take. Those who
        // watch hear `stored: true` after the commit only, so their last word waits for it aside.
        if watched && let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(kept);
        }
    }

    fn listens(&self) -> bool {
        self.chat.is_some()
    }

    fn came(&mut self, tap: Option<&Tap>) {
        if let (Some(chat), Some(tap)) = (&mut self.chat, tap) {
            chat.chunk(tap);
        }
    }

    fn progress(&mut self, tap: &Tap) {
        if self.settled || tap.state().finished {
            return;
        }
        if let Some(in_flight) = &self.in_flight {
            let revision = tap.state().ledger.revision();
            // Most of what comes is text, which changes nothing.
            if revision == self.known_revision {
                return;
            }
            let watched = in_flight.is_watched();
            if watched && self.told_at.is_some_and(|at| at.elapsed() < TELL_EVERY) {
                return;
            }
            // Whoever comes to watch later asks first.
            self.known_revision = revision;
            if watched {
                self.tell(tap);
            }
        } else if let Some(id) = tap.message_id() {
            // Where nobody can be asked later, it is told now.
            let record = self.snapshot_source.is_none().then(|| tap.record(false));
            let snapshot_source = self.snapshot_source.clone().unwrap_or_else(|| Weak::<Nobody>::new());
            self.in_flight = Some(self.app().live.begin(&self.records.owner.tenant, id, record, snapshot_source));
        }
    }

    fn tell(&mut self, tap: &Tap) {
        let revision = tap.state().ledger.revision();
        let known = self.told_at.is_some() && revision == self.told_revision;
        if let Some(in_flight) = self.in_flight.as_ref().filter(|_| !known) {
            in_flight.update(tap.record(false), false);
            self.told_revision = revision;
            self.told_at = Some(Instant::now());
        }
    }

    fn ended(&mut self, report: &Report, pipeline: &Pipeline) {
        let stream_stats = pipeline.stream_stats();
        if stream_stats.frames > 0 {
            self.records.ended(stream_stats.finished);
        }
        let tapped = pipeline.tap().and_then(Tap::provider);
        for what in
            faults::of_stream(report.outcome, self.status, &stream_stats, tapped.is_some()).into_iter().flatten()
        {
            let of = Of { provider: tapped.or(self.of().provider), ..self.of() };
            self.app().faults.note(of, what, self.status);
        }
        let of_route = &self.records.owner.route;
        let metrics = &self.app().metrics;
        let route = RouteLabel { route: of_route.clone() };
        let outcome = report.outcome.as_str();
        let provider = tapped.unwrap_or("none");
        metrics.outcomes.get_or_create(&OutcomeLabels { route: of_route.clone(), outcome }).inc();
        metrics.duration.get_or_create(&route).observe(self.began.elapsed().as_secs_f64());
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
        if self.settled {
            let sources = match self.citations {
                0 => "none",
                _ if self.cited => "cited",
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
        let of_route = &self.records.owner.route;
        tracing::info!(
            request = %self.request,
            route = of_route,
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

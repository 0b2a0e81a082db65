//! A route's own search in parallel with a relayed chat. `request_body` copies the request while it is relayed; when the
//! copy is complete, its query goes to the search service. [`prepare`] makes the copy and the handle of the search.
//!
//! Dropping the last [`SearchHandle`] cancels the search. A client that leaves before the finish, a message with enough
//! sources and a failed upstream drop it. From the finish on, `records` holds it, so that the result reaches the store.
//!
//! The query is the user's text. It must not get into a log, a metric, an error or a record.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use tokio::{sync::oneshot, time::sleep};

use super::tap_body::SupplementFuture;
use crate::{
    app::App,
    citation::{Record, supplement::SearchOutcome},
    config::{Route, Supplement, Supplementing},
    pipeline::budget::HeldBytes,
    search::{Ask, Query, query},
};

/// Bytes of a request body that are copied. A larger body is relayed without a search.
pub const MAX_COPY: usize = 1024 * 1024;

/// How a search ended.
#[derive(Debug, Clone)]
pub enum SearchResult {
    Found(Arc<Record>),
    Failed,
    /// The service was not called; the label of the reason.
    Skipped(&'static str),
}

impl SearchResult {
    pub fn outcome(&self) -> SearchOutcome {
        match self {
            Self::Found(found) => SearchOutcome::Found(Arc::clone(found)),
            Self::Failed => SearchOutcome::Failed,
            Self::Skipped(_) => SearchOutcome::None,
        }
    }
}

/// Makes the request copy that starts a search and the handle that awaits it; `None` if the route has no search.
pub fn prepare(app: &Arc<App>, route: &Route) -> Option<(BodyCopy, SearchHandle)> {
    if route.supplement.when == Supplement::Off || app.search.is_none() {
        return None;
    }
    let (sender, receiver) = oneshot::channel();
    let search = Search { app: Arc::clone(app), settings: Arc::clone(&route.supplement), sender };
    let copy = BodyCopy { buffer: HeldBytes::new(Arc::clone(&app.copies), MAX_COPY), search: Some(search) };
    let state = Arc::new(Mutex::new(SearchState::Pending(receiver)));
    Some((copy, SearchHandle { state, max_wait: route.supplement.max_wait }))
}

/// The copy of a request body. Dropped before the body's end, it starts no search.
pub struct BodyCopy {
    buffer: HeldBytes,
    /// `None` once the search has started or is skipped.
    search: Option<Search>,
}

/// What a search needs besides its query.
struct Search {
    app: Arc<App>,
    settings: Arc<Supplementing>,
    sender: oneshot::Sender<SearchResult>,
}

impl BodyCopy {
    pub fn add(&mut self, data: &[u8]) {
        if self.search.is_none() || self.buffer.add(data) {
            return;
        }
        let reason = if self.buffer.len() + data.len() > MAX_COPY { "too_large" } else { "busy" };
        drop(self.buffer.take());
        if let Some(search) = self.search.take() {
            let _ = search.sender.send(SearchResult::Skipped(reason));
        }
    }

    /// Starts the search in a task of its own, as the body is complete.
    pub fn end(&mut self) {
        if let Some(mut search) = self.search.take() {
            let buffer = std::mem::replace(&mut self.buffer, HeldBytes::new(Arc::clone(&search.app.copies), 0));
            tokio::spawn(async move {
                let result = tokio::select! {
                    biased;
                    () = search.sender.closed() => return,
                    result = run_search(&search.app, &search.settings, buffer) => result,
                };
                let _ = search.sender.send(result);
            });
        }
    }
}

async fn run_search(app: &App, settings: &Arc<Supplementing>, mut body: HeldBytes) -> SearchResult {
    let blocking_settings = Arc::clone(settings);
    // Parsing 1 MiB takes too long for a worker thread.
    let query = tokio::task::spawn_blocking(move || query::find(&body.take(), blocking_settings.query.as_ref())).await;
    let Ok(Some(query)) = query else { return SearchResult::Skipped("no_query") };
    let Ok(_permit) = app.supplementing.try_acquire() else { return SearchResult::Skipped("busy") };
    let ask = Ask { query, include_domains: settings.domains.clone(), ..Ask::default() };
    let (Some(service), Ok(query)) = (&app.search, Query::new(ask, &app.config.search)) else {
        return SearchResult::Skipped("no_query");
    };
    match app.search(service, &query).await {
        Ok(record) => SearchResult::Found(Arc::from(record)),
        Err(_) => SearchResult::Failed,
    }
}

/// Access to a search and its result. The search is cancelled when its last handle is dropped.
#[derive(Clone)]
pub struct SearchHandle {
    state: Arc<Mutex<SearchState>>,
    /// How long a stream waits for the result before its event.
    pub max_wait: Duration,
}

enum SearchState {
    Pending(oneshot::Receiver<SearchResult>),
    Done(SearchResult),
}

impl SearchHandle {
    fn lock(&self) -> MutexGuard<'_, SearchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll(&self, task: &mut Context<'_>) -> Poll<SearchResult> {
        let mut state = self.lock();
        let result = match &mut *state {
            SearchState::Done(result) => result.clone(),
            SearchState::Pending(receiver) => match Pin::new(receiver).poll(task) {
                Poll::Pending => return Poll::Pending,
                // An error means that the request ended before its body did, or that it had none.
                Poll::Ready(result) => result.unwrap_or(SearchResult::Skipped("no_body")),
            },
        };
        *state = SearchState::Done(result.clone());
        Poll::Ready(result)
    }

    /// The result, if the search has ended.
    pub fn try_result(&self) -> Option<SearchResult> {
        match self.poll(&mut Context::from_waker(std::task::Waker::noop())) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }

    /// Waits for the result without a time limit.
    pub async fn result(&self) -> SearchResult {
        poll_fn(|task| self.poll(task)).await
    }

    /// Waits for the result until `max_wait` has passed or the server cuts its streams. Dropping the future does not
    /// cancel the search.
    pub fn outcome_in_time(&self, app: &App) -> SupplementFuture {
        let (search, cut) = (self.clone(), app.cut.clone());
        Box::pin(async move {
            tokio::select! {
                biased;
                result = search.result() => result.outcome(),
                () = sleep(search.max_wait) => SearchOutcome::Pending,
                () = cut.cancelled() => SearchOutcome::Pending,
            }
        })
    }
}

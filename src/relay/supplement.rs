//! A search of our own beside a relayed chat. The request's body is copied aside while it is sent on; when it is
//! complete, its query is looked for and searched, beside the upstream. Who no longer needs the answer drops it, and
//! with it the search: a client that leaves before the finish, a message that has sources enough, an upstream that
//! failed. From the finish on the search is the record's, and its answer goes into the store whoever is left to see it.
//!
//! The query is the user's text: it goes to the search service, and into no log, metric, error or record.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use tokio::{sync::oneshot, time::sleep};

use super::tap_body::Supplying;
use crate::{
    app::App,
    citation::{Record, supplement::SearchOutcome},
    config::{Route, Supplement, Supplementing},
    pipeline::budget::HeldBytes,
    search::{Ask, Query, query},
};

/// Of a request's body so much is copied; a longer one is relayed all the same, and not searched for.
pub const MAX_COPY: usize = 1024 * 1024;

/// What came of a search.
#[derive(Debug, Clone)]
pub enum Searched {
    Found(Arc<Record>),
    Failed,
    /// Nothing was asked of the service, and why.
    Skipped(&'static str),
}

impl Searched {
    pub fn supply(&self) -> SearchOutcome {
        match self {
            Self::Found(found) => SearchOutcome::Found(Arc::clone(found)),
            Self::Failed => SearchOutcome::Failed,
            Self::Skipped(_) => SearchOutcome::None,
        }
    }
}

/// For a route that asks for one: what copies the request, and what awaits the answer.
pub fn begin(app: &Arc<App>, route: &Route) -> Option<(BodyCopy, Search)> {
    if route.supplement.when == Supplement::Off || app.search.is_none() {
        return None;
    }
    let (tell, coming) = oneshot::channel();
    let then = Then { app: Arc::clone(app), route: Arc::clone(&route.supplement), tell };
    let copy = BodyCopy { held: HeldBytes::new(Arc::clone(&app.copies), MAX_COPY), then: Some(then) };
    let answer = Arc::new(Mutex::new(SearchState::Coming(coming)));
    Some((copy, Search { answer, max_wait: route.supplement.max_wait }))
}

/// The copy of a request's body. Dropped before the body's end, it searches for nothing.
pub struct BodyCopy {
    held: HeldBytes,
    then: Option<Then>,
}

struct Then {
    app: Arc<App>,
    route: Arc<Supplementing>,
    tell: oneshot::Sender<Searched>,
}

impl BodyCopy {
    pub fn add(&mut self, data: &[u8]) {
        if self.then.is_none() || self.held.add(data) {
            return;
        }
        let reason = if self.held.len() + data.len() > MAX_COPY { "too_large" } else { "busy" };
        drop(self.held.take());
        if let Some(then) = self.then.take() {
            let _ = then.tell.send(Searched::Skipped(reason));
        }
    }

    /// The body is complete: the search begins. Never waits.
    pub fn end(&mut self) {
        if let Some(mut then) = self.then.take() {
            let held = std::mem::replace(&mut self.held, HeldBytes::new(Arc::clone(&then.app.copies), 0));
            tokio::spawn(async move {
                let searched = tokio::select! {
                    biased;
                    () = then.tell.closed() => return,
                    searched = look(&then.app, &then.route, held) => searched,
                };
                let _ = then.tell.send(searched);
            });
        }
    }
}

async fn look(app: &App, route: &Arc<Supplementing>, mut body: HeldBytes) -> Searched {
    let by = Arc::clone(route);
    // A body of 1 MiB takes its time to read.
    let found = tokio::task::spawn_blocking(move || query::find(&body.take(), by.query.as_ref())).await;
    let Ok(Some(query)) = found else { return Searched::Skipped("no_query") };
    let Ok(_place) = app.supplementing.try_acquire() else { return Searched::Skipped("busy") };
    let ask = Ask { query, include_domains: route.domains.clone(), ..Ask::default() };
    let (Some(service), Ok(query)) = (&app.search, Query::new(ask, &app.config.search)) else {
        return Searched::Skipped("no_query");
    };
    match app.search(service, &query).await {
        Ok(found) => Searched::Found(Arc::from(found)),
        Err(_) => Searched::Failed,
    }
}

/// A search that is under way. Dropped, it is given up, unless its answer is still awaited for a record.
#[derive(Clone)]
pub struct Search {
    answer: Arc<Mutex<SearchState>>,
    /// For what is not there at the finish.
    pub max_wait: Duration,
}

enum SearchState {
    Coming(oneshot::Receiver<Searched>),
    Here(Searched),
}

impl Search {
    fn lock(&self) -> MutexGuard<'_, SearchState> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll(&self, task: &mut Context<'_>) -> Poll<Searched> {
        let mut answer = self.lock();
        let searched = match &mut *answer {
            SearchState::Here(searched) => searched.clone(),
            SearchState::Coming(coming) => match Pin::new(coming).poll(task) {
                Poll::Pending => return Poll::Pending,
                // The request ended before its body did, or had none.
                Poll::Ready(answer) => answer.unwrap_or(Searched::Skipped("no_body")),
            },
        };
        *answer = SearchState::Here(searched.clone());
        Poll::Ready(searched)
    }

    /// The answer, if it is there.
    pub fn now(&self) -> Option<Searched> {
        match self.poll(&mut Context::from_waker(std::task::Waker::noop())) {
            Poll::Ready(searched) => Some(searched),
            Poll::Pending => None,
        }
    }

    /// The answer, however late.
    pub async fn answered(&self) -> Searched {
        poll_fn(|task| self.poll(task)).await
    }

    /// For an event: what is there within the route's wait, and before the server cuts its streams. Dropping this
    /// does not give the search up.
    pub fn in_time(&self, app: &App) -> Supplying {
        let (search, cut) = (self.clone(), app.cut.clone());
        Box::pin(async move {
            tokio::select! {
                biased;
                searched = search.answered() => searched.supply(),
                () = sleep(search.max_wait) => SearchOutcome::Pending,
                () = cut.cancelled() => SearchOutcome::Pending,
            }
        })
    }
}

//! What a connection speaks is known when it is open. One that speaks h2 is handed on to those who share such connections.

use std::{
    collections::HashMap,
    future::{Future, ready},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use futures_util::TryFutureExt;
use http::Uri;
use tower::Service;

use super::{BoxError, Connector, io::Io};

/// Connects, unless an open connection was handed on.
#[derive(Clone)]
pub struct Handed {
    connector: Connector,
    /// By scheme and authority; each is taken by the request that found it.
    open: Arc<Mutex<HashMap<String, Vec<Io>>>>,
}

fn host(to: &Uri) -> String {
    let authority = to.authority().map_or("", |authority| authority.as_str());
    format!("{}://{authority}", to.scheme_str().unwrap_or_default())
}

impl Handed {
    pub fn new(connector: Connector) -> Self {
        Self { connector, open: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Vec<Io>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn hand(&self, to: &Uri, io: Io) {
        self.lock().entry(host(to)).or_default().push(io);
    }

    fn take(&self, to: &Uri) -> Option<Io> {
        let mut open = self.lock();
        let waiting = open.get_mut(&host(to))?;
        let io = waiting.pop();
        if waiting.is_empty() {
            open.remove(&host(to));
        }
        io
    }

    /// What was handed on and not taken, as another connection was there first.
    pub fn clear(&self) {
        self.lock().clear();
    }
}

impl Service<Uri> for Handed {
    type Response = Io;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Io, BoxError>> + Send>>;

    fn poll_ready(&mut self, task: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.connector.poll_ready(task)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        match self.take(&to) {
            Some(io) => Box::pin(ready(Ok(io))),
            None => Box::pin(self.connector.call(to).map_ok(Io::from)),
        }
    }
}

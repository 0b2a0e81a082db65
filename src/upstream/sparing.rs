//! Connections to upstreams leave some files to others. Without it one client with many h2 streams would take them all,
//! as each of its streams may need a connection of its own.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::Uri;
use tower::Service;

use super::BoxError;
use crate::files::Files;

#[derive(Clone)]
pub struct Sparing<C> {
    inner: C,
    files: Arc<Files>,
}

impl<C> Sparing<C> {
    pub fn new(inner: C) -> Self {
        Self { inner, files: Files::of_process() }
    }
}

impl<C> Service<Uri> for Sparing<C>
where
    C: Service<Uri>,
    C::Error: Into<BoxError>,
    C::Future: Send + 'static,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, task: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(task).map_err(Into::into)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let Some(opening) = self.files.begin() else { return Box::pin(async { Err(Crowded.into()) }) };
        let connecting = self.inner.call(to);
        Box::pin(async move {
            let connected = connecting.await.map_err(Into::into);
            drop(opening);
            connected
        })
    }
}

/// Few files are left.
#[derive(Debug)]
pub struct Crowded;

impl fmt::Display for Crowded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nearly all files that citetap may have open are in use (ulimit -n)")
    }
}

impl std::error::Error for Crowded {}

//! A connector that refuses when few file descriptors are left. Without it, one client with many h2 streams could use them
//! all, as each of its streams may need an upstream connection.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tower::Service;

use super::{BoxError, fd_limit::FdLimit};

/// Wraps the connector `C`.
#[derive(Clone)]
pub struct FdGuard<C> {
    inner: C,
    limit: Arc<FdLimit>,
}

impl<C> FdGuard<C> {
    pub fn new(inner: C) -> Self {
        Self { inner, limit: FdLimit::of_process() }
    }
}

impl<C, T> Service<T> for FdGuard<C>
where
    C: Service<T>,
    C::Error: Into<BoxError>,
    C::Future: Send + 'static,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, task: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(task).map_err(Into::into)
    }

    fn call(&mut self, to: T) -> Self::Future {
        let Some(permit) = self.limit.connect() else { return Box::pin(async { Err(TooManyOpenFiles.into()) }) };
        let connecting = self.inner.call(to);
        Box::pin(async move {
            let connected = connecting.await.map_err(Into::into);
            drop(permit);
            connected
        })
    }
}

/// The error of a connection that was refused because few file descriptors are left.
#[derive(Debug)]
pub struct TooManyOpenFiles;

impl fmt::Display for TooManyOpenFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nearly all files that citetap may have open are in use (ulimit -n)")
    }
}

impl std::error::Error for TooManyOpenFiles {}

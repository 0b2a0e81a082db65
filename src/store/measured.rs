//! A store whose calls are counted and timed, whichever engine it is.

use std::{future::Future, sync::Arc};

use super::{
    Bus, Cursor, Entry, Filter, Fut, Page, StatsFilter, StatsReport, Store, StoreError,
    task::{Advance, Advanced, Progress},
};
use crate::telemetry::Operations;

pub struct Measured {
    inner: Arc<dyn Store>,
    operations: Operations,
}

impl Measured {
    pub fn new(inner: Arc<dyn Store>, operations: Operations) -> Arc<Self> {
        Arc::new(Self { inner, operations })
    }

    fn call<'a, T>(
        &'a self,
        op: &'static str,
        call: impl Future<Output = Result<T, StoreError>> + Send + 'a,
    ) -> Fut<'a, Result<T, StoreError>> {
        Box::pin(async move {
            let measured = self.operations.begin(op);
            measured.ended(call.await)
        })
    }
}

impl Store for Measured {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn put<'a>(&'a self, entries: &'a [Entry]) -> Fut<'a, Result<(), StoreError>> {
        self.call("put", self.inner.put(entries))
    }

    fn get<'a>(
        &'a self,
        tenant: &'a str,
        id: &'a str,
        provider: Option<&'a str>,
    ) -> Fut<'a, Result<Option<Entry>, StoreError>> {
        self.call("get", self.inner.get(tenant, id, provider))
    }

    fn list<'a>(&'a self, tenant: &'a str, filter: &'a Filter) -> Fut<'a, Result<Page, StoreError>> {
        self.call("list", self.inner.list(tenant, filter))
    }

    fn stats<'a>(&'a self, tenant: &'a str, filter: &'a StatsFilter) -> Fut<'a, Result<StatsReport, StoreError>> {
        self.call("stats", self.inner.stats(tenant, filter))
    }

    fn delete<'a>(
        &'a self,
        tenant: &'a str,
        id: &'a str,
        provider: Option<&'a str>,
    ) -> Fut<'a, Result<u64, StoreError>> {
        self.call("delete", self.inner.delete(tenant, id, provider))
    }

    fn task<'a>(
        &'a self,
        tenant: &'a str,
        task: &'a str,
        after: Option<&'a Cursor>,
        limit: usize,
    ) -> Fut<'a, Result<Page, StoreError>> {
        self.call("task", self.inner.task(tenant, task, after, limit))
    }

    fn progress<'a>(
        &'a self,
        tenant: &'a str,
        task: &'a str,
        consumer: &'a str,
    ) -> Fut<'a, Result<Option<Progress>, StoreError>> {
        self.call("progress", self.inner.progress(tenant, task, consumer))
    }

    fn advance<'a>(&'a self, advance: &'a Advance) -> Fut<'a, Result<Advanced, StoreError>> {
        self.call("advance", self.inner.advance(advance))
    }

    fn sweep(&self, before_ms: i64) -> Fut<'_, Result<u64, StoreError>> {
        self.call("sweep", self.inner.sweep(before_ms))
    }

    fn ping(&self) -> Fut<'_, Result<(), StoreError>> {
        self.call("ping", self.inner.ping())
    }

    fn bus(&self) -> Option<Arc<dyn Bus>> {
        self.inner.bus()
    }

    fn remark(&self) -> Option<String> {
        self.inner.remark()
    }

    fn close(&self) -> Fut<'_, ()> {
        self.inner.close()
    }
}

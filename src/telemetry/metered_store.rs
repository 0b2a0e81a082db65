//! Wraps a store and counts and times its calls, for any engine.

use std::sync::Arc;

use super::StoreMetrics;
use crate::store::{
    Bus, Cursor, Entry, Filter, Fut, Page, RecordStore, StatsFilter, StatsReport, Store, StoreFut,
    task::{Advance, AdvanceOutcome, Progress},
};

pub struct MeteredStore {
    inner: Arc<dyn Store>,
    store_metrics: StoreMetrics,
}

impl MeteredStore {
    pub fn new(inner: Arc<dyn Store>, store_metrics: StoreMetrics) -> Arc<Self> {
        Arc::new(Self { inner, store_metrics })
    }

    fn call<'a, T: 'a>(&'a self, op: &'static str, call: StoreFut<'a, T>) -> StoreFut<'a, T> {
        Box::pin(async move {
            let metered = self.store_metrics.begin(op);
            metered.finish(call.await)
        })
    }
}

impl RecordStore for MeteredStore {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn put<'a>(&'a self, entries: &'a [Entry]) -> StoreFut<'a, ()> {
        self.call("put", self.inner.put(entries))
    }

    fn get<'a>(&'a self, tenant: &'a str, id: &'a str, provider: Option<&'a str>) -> StoreFut<'a, Option<Entry>> {
        self.call("get", self.inner.get(tenant, id, provider))
    }

    fn list<'a>(&'a self, tenant: &'a str, filter: &'a Filter) -> StoreFut<'a, Page> {
        self.call("list", self.inner.list(tenant, filter))
    }

    fn stats<'a>(&'a self, tenant: &'a str, filter: &'a StatsFilter) -> StoreFut<'a, StatsReport> {
        self.call("stats", self.inner.stats(tenant, filter))
    }

    fn delete<'a>(&'a self, tenant: &'a str, id: &'a str, provider: Option<&'a str>) -> StoreFut<'a, u64> {
        self.call("delete", self.inner.delete(tenant, id, provider))
    }

    fn task<'a>(
        &'a self,
        tenant: &'a str,
        task: &'a str,
        after: Option<&'a Cursor>,
        limit: usize,
    ) -> StoreFut<'a, Page> {
        self.call("task", self.inner.task(tenant, task, after, limit))
    }

    fn sweep(&self, before_ms: i64) -> StoreFut<'_, u64> {
        self.call("sweep", self.inner.sweep(before_ms))
    }

    fn ping(&self) -> StoreFut<'_, ()> {
        self.call("ping", self.inner.ping())
    }

    fn bus(&self) -> Option<Arc<dyn Bus>> {
        self.inner.bus()
    }

    fn setup_warning(&self) -> Option<String> {
        self.inner.setup_warning()
    }

    fn close(&self) -> Fut<'_, ()> {
        self.inner.close()
    }
}

impl Store for MeteredStore {
    fn progress<'a>(&'a self, tenant: &'a str, task: &'a str, consumer: &'a str) -> StoreFut<'a, Option<Progress>> {
        self.call("progress", self.inner.progress(tenant, task, consumer))
    }

    fn advance<'a>(&'a self, advance: &'a Advance) -> StoreFut<'a, AdvanceOutcome> {
        self.call("advance", self.inner.advance(advance))
    }
}

//! A store whose calls are counted and timed, whichever engine it is.

use std::sync::Arc;

use super::Operations;
use crate::store::{
    Bus, Cursor, Entry, Filter, Fut, Page, RecordStore, StatsFilter, StatsReport, Store, StoreFut,
    task::{Advance, Advanced, Progress},
};

pub struct Measured {
    inner: Arc<dyn Store>,
    operations: Operations,
}

impl Measured {
    pub fn new(inner: Arc<dyn Store>, operations: Operations) -> Arc<Self> {
        Arc::new(Self { inner, operations })
    }

    fn call<'a, T: 'a>(&'a self, op: &'static str, call: StoreFut<'a, T>) -> StoreFut<'a, T> {
        Box::pin(async move {
            let measured = self.operations.begin(op);
            measured.ended(call.await)
        })
    }
}

impl RecordStore for Measured {
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

    fn remark(&self) -> Option<String> {
        self.inner.remark()
    }

    fn close(&self) -> Fut<'_, ()> {
        self.inner.close()
    }
}

impl Store for Measured {
    fn progress<'a>(&'a self, tenant: &'a str, task: &'a str, consumer: &'a str) -> StoreFut<'a, Option<Progress>> {
        self.call("progress", self.inner.progress(tenant, task, consumer))
    }

    fn advance<'a>(&'a self, advance: &'a Advance) -> StoreFut<'a, Advanced> {
        self.call("advance", self.inner.advance(advance))
    }
}

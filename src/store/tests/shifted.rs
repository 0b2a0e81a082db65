//! Wraps PostgreSQL and shifts timestamps, so that cases written for days around 1970 run on current days, which have
//! partitions.

use super::server;
use crate::store::{
    Bus, Cursor, Entry, Filter, Fut, Page, PostgresStore, RecordStore, StatsFilter, StatsReport, Store, StoreFut,
    day_of,
    task::{Advance, AdvanceOutcome, Progress},
};

const DAY_MS: i64 = 86_400_000;

pub(crate) struct ShiftedStore {
    inner: PostgresStore,
    days: i64,
}

impl ShiftedStore {
    /// Shifts 1970-01-01 to eight days ago.
    pub(crate) async fn new() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        Self { inner: server::postgres().await, days: day_of(now.as_millis() as i64) - 8 }
    }

    fn there(&self, ms: i64) -> i64 {
        ms.saturating_add(self.days * DAY_MS)
    }

    fn back(&self, mut entry: Entry) -> Entry {
        entry.created_ms = entry.created_ms.saturating_sub(self.days * DAY_MS);
        entry
    }

    fn cursor_there(&self, cursor: &Cursor) -> Cursor {
        Cursor { created_ms: self.there(cursor.created_ms), ..cursor.clone() }
    }

    fn page(&self, page: Page) -> Page {
        let next = page.next.map(|next| Cursor { created_ms: next.created_ms - self.days * DAY_MS, ..next });
        Page { entries: page.entries.into_iter().map(|entry| self.back(entry)).collect(), next }
    }
}

impl RecordStore for ShiftedStore {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn put<'a>(&'a self, entries: &'a [Entry]) -> StoreFut<'a, ()> {
        Box::pin(async move {
            let there = |entry: &Entry| Entry { created_ms: self.there(entry.created_ms), ..entry.clone() };
            self.inner.put(&entries.iter().map(there).collect::<Vec<_>>()).await
        })
    }

    fn get<'a>(&'a self, tenant: &'a str, id: &'a str, provider: Option<&'a str>) -> StoreFut<'a, Option<Entry>> {
        Box::pin(async move { Ok(self.inner.get(tenant, id, provider).await?.map(|entry| self.back(entry))) })
    }

    fn list<'a>(&'a self, tenant: &'a str, filter: &'a Filter) -> StoreFut<'a, Page> {
        Box::pin(async move {
            let there = Filter {
                since_ms: filter.since_ms.map(|ms| self.there(ms)),
                until_ms: filter.until_ms.map(|ms| self.there(ms)),
                cursor: filter.cursor.as_ref().map(|cursor| self.cursor_there(cursor)),
                ..filter.clone()
            };
            Ok(self.page(self.inner.list(tenant, &there).await?))
        })
    }

    fn stats<'a>(&'a self, tenant: &'a str, filter: &'a StatsFilter) -> StoreFut<'a, StatsReport> {
        Box::pin(async move {
            let days = filter.days.start.saturating_add(self.days)..filter.days.end.saturating_add(self.days);
            let mut report = self.inner.stats(tenant, &StatsFilter { days, ..filter.clone() }).await?;
            for day in &mut report.days {
                day.day -= self.days;
            }
            Ok(report)
        })
    }

    fn delete<'a>(&'a self, tenant: &'a str, id: &'a str, provider: Option<&'a str>) -> StoreFut<'a, u64> {
        self.inner.delete(tenant, id, provider)
    }

    fn sweep(&self, before_ms: i64) -> StoreFut<'_, u64> {
        self.inner.sweep(self.there(before_ms))
    }

    fn ping(&self) -> StoreFut<'_, ()> {
        self.inner.ping()
    }

    fn bus(&self) -> Option<std::sync::Arc<dyn Bus>> {
        self.inner.bus()
    }

    fn close(&self) -> Fut<'_, ()> {
        self.inner.close()
    }
}

impl Store for ShiftedStore {
    fn progress<'a>(&'a self, tenant: &'a str, task: &'a str, consumer: &'a str) -> StoreFut<'a, Option<Progress>> {
        self.inner.progress(tenant, task, consumer)
    }

    fn advance<'a>(&'a self, advance: &'a Advance) -> StoreFut<'a, AdvanceOutcome> {
        self.inner.advance(advance)
    }
}

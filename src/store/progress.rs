//! Cursors of tasks for an engine that keeps none: records of a tenant that no client can have, one for each consumer.

use std::{collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard};

use super::{
    Bus, Entry, Filter, Fut, PAGE_MAX, Page, RecordStore, Result, StatsFilter, StatsReport, Store, StoreError,
    StoreFut,
    task::{Advance, Advanced, CONSUMERS_MAX, Consumed, Position, Progress},
};
use crate::citation::{
    bundle::task_id,
    record::{Record, RecordType, Stats},
};

/// Owns the cursors. The name of a configured tenant has no NUL.
const TENANT: &str = "\0progress";

/// A tenant and its task.
type Task = (String, String);

/// Makes a [`Store`] of a [`RecordStore`] that one process uses.
///
/// # Cancel safety
///
/// A call that is dropped half-way may leave the cursors of a task without records. The next sweep removes them.
pub struct WithProgress<E> {
    engine: E,
    /// The tasks that have cursors, once they were read. Whoever changes records or cursors holds the lock.
    tasks: Mutex<Option<BTreeSet<Task>>>,
}

/// What the metadata of a cursor's record has.
#[derive(Serialize, Deserialize)]
struct Kept {
    position: Position,
    /// The first consumed first.
    consumed: Vec<String>,
}

impl<E: RecordStore> WithProgress<E> {
    pub fn new(engine: E) -> Self {
        Self { engine, tasks: Mutex::default() }
    }

    async fn tasks(&self) -> Result<MappedMutexGuard<'_, BTreeSet<Task>>> {
        let mut tasks = self.tasks.lock().await;
        if tasks.is_none() {
            let mut found = self.cursors(Filter::default()).await?.into_iter().collect();
            // The process may have ended between the last record and its cursors.
            self.settle(&mut found, |_| true).await?;
            *tasks = Some(found);
        }
        Ok(MutexGuard::map(tasks, |tasks| tasks.get_or_insert_default()))
    }

    /// The task of each cursor.
    async fn cursors(&self, mut filter: Filter) -> Result<Vec<Task>> {
        let mut found = Vec::new();
        filter.limit = PAGE_MAX;
        loop {
            let page = self.engine.list(TENANT, &filter).await?;
            found.extend(page.entries.iter().filter_map(|one| serde_json::from_str(&one.record.message_id).ok()));
            filter.cursor = page.next;
            if filter.cursor.is_none() {
                return Ok(found);
            }
        }
    }

    /// Removes the cursors of those tasks that have no record any more.
    async fn settle(&self, tasks: &mut BTreeSet<Task>, left: impl Fn(&Task) -> bool) -> Result<()> {
        for task in tasks.iter().filter(|task| left(task)).cloned().collect::<Vec<_>>() {
            if !self.has_records(&task.0, &task.1).await? {
                self.engine.delete(TENANT, &id(&task.0, &task.1)?, None).await?;
                tasks.remove(&task);
            }
        }
        Ok(())
    }

    async fn has_records(&self, tenant: &str, task: &str) -> Result<bool> {
        Ok(!self.engine.task(tenant, task, None, 1).await?.entries.is_empty())
    }

    async fn consumed(&self, tenant: &str, task: &str, consumer: &str) -> Result<Option<Consumed>> {
        let Some(entry) = self.engine.get(TENANT, &id(tenant, task)?, Some(consumer)).await? else { return Ok(None) };
        let Kept { position, consumed } = serde_json::from_value(Value::Object(entry.record.metadata))
            .map_err(|_| StoreError::Engine("a stored cursor is not readable".to_owned()))?;
        Ok(Some(Consumed::new(position, consumed)))
    }
}

impl<E: RecordStore> RecordStore for WithProgress<E> {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn put<'a>(&'a self, entries: &'a [Entry]) -> StoreFut<'a, ()> {
        Box::pin(async move {
            let mut tasks = self.tasks().await?;
            let mut left = BTreeSet::new();
            for Entry { tenant, record, .. } in entries.iter().filter(|_| !tasks.is_empty()) {
                let old = self.engine.get(tenant, &record.message_id, Some(&record.provider)).await?;
                left.extend(old.map(|old| (old.tenant, task_id(&old.record).into_owned())));
            }
            let put = self.engine.put(entries).await;
            if matches!(put, Ok(()) | Err(StoreError::Volatile)) {
                self.settle(&mut tasks, |task| left.contains(task)).await?;
            }
            put
        })
    }

    fn get<'a>(&'a self, tenant: &'a str, id: &'a str, provider: Option<&'a str>) -> StoreFut<'a, Option<Entry>> {
        self.engine.get(tenant, id, provider)
    }

    fn list<'a>(&'a self, tenant: &'a str, filter: &'a Filter) -> StoreFut<'a, Page> {
        self.engine.list(tenant, filter)
    }

    fn delete<'a>(&'a self, tenant: &'a str, id: &'a str, provider: Option<&'a str>) -> StoreFut<'a, u64> {
        Box::pin(async move {
            let mut tasks = self.tasks().await?;
            let gone = self.engine.delete(tenant, id, provider).await?;
            self.settle(&mut tasks, |(of, _)| of == tenant).await?;
            Ok(gone)
        })
    }

    fn sweep(&self, before_ms: i64) -> StoreFut<'_, u64> {
        Box::pin(async move {
            let mut tasks = self.tasks().await?;
            let gone = self.engine.sweep(before_ms).await?;
            self.settle(&mut tasks, |_| true).await?;
            Ok(gone)
        })
    }

    fn ping(&self) -> StoreFut<'_, ()> {
        self.engine.ping()
    }

    fn close(&self) -> Fut<'_, ()> {
        self.engine.close()
    }

    fn stats<'a>(&'a self, tenant: &'a str, filter: &'a StatsFilter) -> StoreFut<'a, StatsReport> {
        self.engine.stats(tenant, filter)
    }

    fn bus(&self) -> Option<Arc<dyn Bus>> {
        self.engine.bus()
    }

    fn remark(&self) -> Option<String> {
        self.engine.remark()
    }
}

impl<E: RecordStore> Store for WithProgress<E> {
    fn progress<'a>(&'a self, tenant: &'a str, task: &'a str, consumer: &'a str) -> StoreFut<'a, Option<Progress>> {
        Box::pin(async move { Ok(self.consumed(tenant, task, consumer).await?.map(|consumed| consumed.progress())) })
    }

    fn advance<'a>(&'a self, advance: &'a Advance) -> StoreFut<'a, Advanced> {
        Box::pin(async move {
            let Advance { tenant, task, consumer, .. } = advance;
            let mut tasks = self.tasks().await?;
            if !self.has_records(tenant, task).await? {
                return Ok(Advanced::NoTask);
            }
            let mut consumed = match self.consumed(tenant, task, consumer).await? {
                Some(consumed) => consumed,
                None => {
                    let others = Filter { conversation: Some(id(tenant, task)?), ..Filter::default() };
                    if self.cursors(others).await?.len() >= CONSUMERS_MAX {
                        return Ok(Advanced::TooMany);
                    }
                    Consumed::default()
                }
            };
            let advanced = consumed.advance(advance);
            if matches!(advanced, Advanced::Moved(_)) {
                let kept = Kept { position: consumed.position.clone(), consumed: consumed.sources() };
                self.engine.put(&[entry(id(tenant, task)?, consumer, &kept)?]).await?;
                tasks.insert((tenant.clone(), task.clone()));
            }
            Ok(advanced)
        })
    }
}

/// The id of the records that are a task's cursors.
fn id(tenant: &str, task: &str) -> Result<String> {
    serde_json::to_string(&(tenant, task)).map_err(unwritable)
}

fn unwritable(_: serde_json::Error) -> StoreError {
    StoreError::Engine("a cursor cannot be written as JSON".to_owned())
}

/// Later than any sweep reaches: a cursor goes with its task.
fn entry(id: String, consumer: &str, kept: &Kept) -> Result<Entry> {
    let metadata = match serde_json::to_value(kept).map_err(unwritable)? {
        Value::Object(metadata) => metadata,
        _ => Map::new(),
    };
    let record = Record {
        kind: RecordType::Citations,
        version: 1,
        message_id: id.clone(),
        conversation_id: Some(id),
        task_id: None,
        provider: consumer.to_owned(),
        route: String::new(),
        source: String::new(),
        model: None,
        complete: true,
        stored: true,
        truncated: false,
        late: false,
        nonce: String::new(),
        created_at: String::new(),
        summary: None,
        queries: Vec::new(),
        citations: Vec::new(),
        stats: Stats::default(),
        corroboration: None,
        rounds: Vec::new(),
        metadata,
    };
    Ok(Entry { tenant: TENANT.to_owned(), created_ms: i64::MAX, record })
}

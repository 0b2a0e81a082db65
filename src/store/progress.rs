//! Task cursors for an engine that has none: stored as records of a reserved tenant, one per consumer.

use std::{collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard};

use super::{
    Bus, Entry, Filter, Fut, PAGE_MAX, Page, RecordStore, Result, StatsFilter, StatsReport, Store, StoreError,
    StoreFut,
    task::{Advance, AdvanceOutcome, CONSUMERS_MAX, Consumed, Position, Progress},
};
use crate::citation::{
    bundle::task_id,
    record::{Record, RecordStats, RecordType},
};

/// Tenant that owns the cursor records. A configured tenant's name cannot contain NUL.
const CURSOR_TENANT: &str = "\0progress";

/// (tenant, task)
type Task = (String, String);

/// Makes a [`Store`] of a [`RecordStore`] that only one process uses.
///
/// # Cancel safety
///
/// Dropping a call half-way may leave cursors of a task without records; the next sweep removes them.
pub struct WithProgress<E> {
    engine: E,
    /// Tasks that have cursors, loaded on first use. Held while records or cursors change.
    tasks: Mutex<Option<BTreeSet<Task>>>,
}

/// Metadata of a cursor record.
#[derive(Serialize, Deserialize)]
struct StoredCursor {
    position: Position,
    /// Consumed sources, oldest first.
    consumed: Vec<String>,
}

impl<E: RecordStore> WithProgress<E> {
    pub fn new(engine: E) -> Self {
        Self { engine, tasks: Mutex::default() }
    }

    async fn tasks(&self) -> Result<MappedMutexGuard<'_, BTreeSet<Task>>> {
        let mut tasks = self.tasks.lock().await;
        if tasks.is_none() {
            let mut found = self.tasks_with_cursors(Filter::default()).await?.into_iter().collect();
            // The process may have ended after deleting a task's last record and before deleting its cursors.
            self.remove_orphaned_cursors(&mut found, |_| true).await?;
            *tasks = Some(found);
        }
        Ok(MutexGuard::map(tasks, |tasks| tasks.get_or_insert_default()))
    }

    /// The task of each stored cursor.
    async fn tasks_with_cursors(&self, mut filter: Filter) -> Result<Vec<Task>> {
        let mut found = Vec::new();
        filter.limit = PAGE_MAX;
        loop {
            let page = self.engine.list(CURSOR_TENANT, &filter).await?;
            found.extend(page.entries.iter().filter_map(|one| serde_json::from_str(&one.record.message_id).ok()));
            filter.cursor = page.next;
            if filter.cursor.is_none() {
                return Ok(found);
            }
        }
    }

    /// Deletes the cursors of tasks that have no records left. Only tasks for which `may_be_empty` is true are checked.
    async fn remove_orphaned_cursors(
        &self,
        tasks: &mut BTreeSet<Task>,
        may_be_empty: impl Fn(&Task) -> bool,
    ) -> Result<()> {
        for task in tasks.iter().filter(|task| may_be_empty(task)).cloned().collect::<Vec<_>>() {
            if !self.has_records(&task.0, &task.1).await? {
                self.engine.delete(CURSOR_TENANT, &cursor_id(&task.0, &task.1)?, None).await?;
                tasks.remove(&task);
            }
        }
        Ok(())
    }

    async fn has_records(&self, tenant: &str, task: &str) -> Result<bool> {
        Ok(!self.engine.task(tenant, task, None, 1).await?.entries.is_empty())
    }

    async fn consumed(&self, tenant: &str, task: &str, consumer: &str) -> Result<Option<Consumed>> {
        let Some(entry) = self.engine.get(CURSOR_TENANT, &cursor_id(tenant, task)?, Some(consumer)).await? else {
            return Ok(None);
        };
        let StoredCursor { position, consumed } = serde_json::from_value(Value::Object(entry.record.metadata))
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
            let mut replaced_tasks = BTreeSet::new();
            for Entry { tenant, record, .. } in entries.iter().filter(|_| !tasks.is_empty()) {
                let old = self.engine.get(tenant, &record.message_id, Some(&record.provider)).await?;
                replaced_tasks.extend(old.map(|old| (old.tenant, task_id(&old.record).into_owned())));
            }
            let put = self.engine.put(entries).await;
            if matches!(put, Ok(()) | Err(StoreError::Volatile)) {
                self.remove_orphaned_cursors(&mut tasks, |task| replaced_tasks.contains(task)).await?;
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
            let deleted = self.engine.delete(tenant, id, provider).await?;
            self.remove_orphaned_cursors(&mut tasks, |(of, _)| of == tenant).await?;
            Ok(deleted)
        })
    }

    fn sweep(&self, before_ms: i64) -> StoreFut<'_, u64> {
        Box::pin(async move {
            let mut tasks = self.tasks().await?;
            let deleted = self.engine.sweep(before_ms).await?;
            self.remove_orphaned_cursors(&mut tasks, |_| true).await?;
            Ok(deleted)
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

    fn setup_warning(&self) -> Option<String> {
        self.engine.setup_warning()
    }
}

impl<E: RecordStore> Store for WithProgress<E> {
    fn progress<'a>(&'a self, tenant: &'a str, task: &'a str, consumer: &'a str) -> StoreFut<'a, Option<Progress>> {
        Box::pin(async move { Ok(self.consumed(tenant, task, consumer).await?.map(|consumed| consumed.progress())) })
    }

    fn advance<'a>(&'a self, advance: &'a Advance) -> StoreFut<'a, AdvanceOutcome> {
        Box::pin(async move {
            let Advance { tenant, task, consumer, .. } = advance;
            let mut tasks = self.tasks().await?;
            if !self.has_records(tenant, task).await? {
                return Ok(AdvanceOutcome::NoTask);
            }
            let mut consumed = match self.consumed(tenant, task, consumer).await? {
                Some(consumed) => consumed,
                None => {
                    let others = Filter { conversation: Some(cursor_id(tenant, task)?), ..Filter::default() };
                    if self.tasks_with_cursors(others).await?.len() >= CONSUMERS_MAX {
                        return Ok(AdvanceOutcome::TooManyConsumers);
                    }
                    Consumed::default()
                }
            };
            let advanced = consumed.advance(advance);
            if matches!(advanced, AdvanceOutcome::Moved(_)) {
                let stored = StoredCursor { position: consumed.position.clone(), consumed: consumed.sources() };
                self.engine.put(&[cursor_entry(cursor_id(tenant, task)?, consumer, &stored)?]).await?;
                tasks.insert((tenant.clone(), task.clone()));
            }
            Ok(advanced)
        })
    }
}

/// Message id of the records that are a task's cursors.
fn cursor_id(tenant: &str, task: &str) -> Result<String> {
    serde_json::to_string(&(tenant, task)).map_err(encode_error)
}

fn encode_error(_: serde_json::Error) -> StoreError {
    StoreError::Engine("a cursor cannot be written as JSON".to_owned())
}

/// Builds a cursor record. Its creation time is beyond every sweep: cursors are deleted with their task.
fn cursor_entry(id: String, consumer: &str, stored: &StoredCursor) -> Result<Entry> {
    let metadata = match serde_json::to_value(stored).map_err(encode_error)? {
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
        stats: RecordStats::default(),
        corroboration: None,
        rounds: Vec::new(),
        metadata,
    };
    Ok(Entry { tenant: CURSOR_TENANT.to_owned(), created_ms: i64::MAX, record })
}

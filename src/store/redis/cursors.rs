//! Read cursors of task consumers in Redis.

use std::collections::HashSet;

use redis::{Value, aio::MultiplexedConnection, from_redis_value};

use super::{
    connection::CallError,
    error::unreadable_error,
    keys::{self, Keys},
    list::task_start,
    script::ADVANCE,
};
use crate::{
    citation::task_reader::is_failed_source_id,
    store::{
        StoreError,
        task::{Advance, AdvanceOutcome, CONSUMED_SOURCES_MAX, CONSUMERS_MAX, Position, Progress},
    },
};

pub(super) async fn progress(
    conn: &mut MultiplexedConnection,
    keys: &Keys,
    task: &str,
    consumer: &str,
) -> Result<Option<Progress>, CallError> {
    // One transaction, so that position and sources are consistent.
    let mut pipe = redis::pipe();
    pipe.atomic().hget(keys.positions(task), consumer).zrange(keys.consumed(task, consumer), 0, -1);
    let (position, consumed): (Option<String>, HashSet<String>) = pipe.query_async(conn).await?;
    let Some(position) = position else { return Ok(None) };
    let parts: [String; 4] = serde_json::from_str(&position).map_err(|_| unreadable_error())?;
    Ok(Some(Progress { position: read(parts)?, consumed }))
}

/// One script: of two concurrent commits the second sees the first.
pub(super) async fn advance(
    conn: &mut MultiplexedConnection,
    keys: &Keys,
    advance: &Advance,
    live: Option<i64>,
) -> Result<AdvanceOutcome, CallError> {
    let mut seen = HashSet::new();
    let sources: Vec<&String> = advance.sources.iter().filter(|source| seen.insert(*source)).collect();
    let flags: String = sources.iter().map(|source| if is_failed_source_id(source) { '0' } else { '1' }).collect();
    let (query, source) = advance.last.clone().unwrap_or_default();
    let mut call = ADVANCE.key(keys.task(&advance.task));
    call.arg(&keys.base).arg(task_start(live)).arg(keys::escape_part(&advance.task)).arg(&advance.consumer);
    call.arg(CONSUMERS_MAX).arg(CONSUMED_SOURCES_MAX).arg(i32::from(advance.last.is_some())).arg(query).arg(source);
    let answer: Vec<Value> = call.arg(advance.now_ms).arg(flags).arg(sources).invoke_async(conn).await?;
    let mut answer = answer.into_iter().map(|part| from_redis_value(part).map_err(|_| unreadable_error()));
    let what: String = answer.next().ok_or_else(unreadable_error)??;
    let mut position = || -> Result<Position, StoreError> {
        let mut part = || answer.next().ok_or_else(unreadable_error)?;
        read([part()?, part()?, part()?, part()?])
    };
    Ok(match what.as_str() {
        "no task" => AdvanceOutcome::NoTask,
        "too many" => AdvanceOutcome::TooManyConsumers,
        "stays" => advance.without_new_sources(position()?),
        "moved" => AdvanceOutcome::Moved(position()?),
        _ => return Err(unreadable_error().into()),
    })
}

fn read([query, source, count, updated_ms]: [String; 4]) -> Result<Position, StoreError> {
    let count = count.parse().map_err(|_| unreadable_error())?;
    let updated_ms = updated_ms.parse().map_err(|_| unreadable_error())?;
    Ok(Position { query, source, count, updated_ms })
}

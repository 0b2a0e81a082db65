//! How far the consumers of a task have read.

use std::collections::HashSet;

use redis::{Value, aio::MultiplexedConnection, from_redis_value};

use super::{
    error::unreadable,
    keys::{self, Keys},
    link::Trouble,
    list::first_of_task,
    script::ADVANCE,
};
use crate::{
    citation::reading::is_failed_id,
    store::{
        StoreError,
        task::{Advance, Advanced, CONSUMED_MAX, CONSUMERS_MAX, Position, Progress},
    },
};

pub(super) async fn progress(
    conn: &mut MultiplexedConnection,
    keys: &Keys,
    task: &str,
    consumer: &str,
) -> Result<Option<Progress>, Trouble> {
    // One transaction, so that position and sources are of one moment.
    let mut pipe = redis::pipe();
    pipe.atomic().hget(keys.readers(task), consumer).zrange(keys.consumed(task, consumer), 0, -1);
    let (position, consumed): (Option<String>, HashSet<String>) = pipe.query_async(conn).await?;
    let Some(position) = position else { return Ok(None) };
    let parts: [String; 4] = serde_json::from_str(&position).map_err(|_| unreadable())?;
    Ok(Some(Progress { position: read(parts)?, consumed }))
}

/// One script: of two commits at once the one that comes second sees the first.
pub(super) async fn advance(
    conn: &mut MultiplexedConnection,
    keys: &Keys,
    advance: &Advance,
    live: Option<i64>,
) -> Result<Advanced, Trouble> {
    let mut seen = HashSet::new();
    let sources: Vec<&String> = advance.sources.iter().filter(|source| seen.insert(*source)).collect();
    let flags: String = sources.iter().map(|source| if is_failed_id(source) { '0' } else { '1' }).collect();
    let (query, source) = advance.last.clone().unwrap_or_default();
    let mut call = ADVANCE.key(keys.task(&advance.task));
    call.arg(&keys.base).arg(first_of_task(live)).arg(keys::part(&advance.task)).arg(&advance.consumer);
    call.arg(CONSUMERS_MAX).arg(CONSUMED_MAX).arg(i32::from(advance.last.is_some())).arg(query).arg(source);
    let answer: Vec<Value> = call.arg(advance.now_ms).arg(flags).arg(sources).invoke_async(conn).await?;
    let mut answer = answer.into_iter().map(|part| from_redis_value(part).map_err(|_| unreadable()));
    let what: String = answer.next().ok_or_else(unreadable)??;
    let mut position = || -> Result<Position, StoreError> {
        let mut part = || answer.next().ok_or_else(unreadable)?;
        read([part()?, part()?, part()?, part()?])
    };
    Ok(match what.as_str() {
        "no task" => Advanced::NoTask,
        "too many" => Advanced::TooMany,
        "stays" => advance.stays(position()?),
        "moved" => Advanced::Moved(position()?),
        _ => return Err(unreadable().into()),
    })
}

fn read([query, source, count, updated_ms]: [String; 4]) -> Result<Position, StoreError> {
    let count = count.parse().map_err(|_| unreadable())?;
    let updated_ms = updated_ms.parse().map_err(|_| unreadable())?;
    Ok(Position { query, source, count, updated_ms })
}

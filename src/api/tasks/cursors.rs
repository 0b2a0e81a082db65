//! A consumer's cursor: where it stands, and its way forward. Never back.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension,
    body::Body,
    extract::{Path, State, rejection::PathRejection},
    response::Response,
};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{exists, json, plain, progress_of, walk};
use crate::{
    api::{citations::Asker, normalize::collect},
    app::{
        App,
        problem::{Json, Problem, unquoted},
    },
    citation::task_reader::{MAX_FAILED, SearchReadCursor, TaskReader, covered, is_failed_source_id, is_source_id},
    store::{
        PAGE_MAX,
        task::{Advance, AdvanceOutcome, CONSUMERS_MAX, Position, Progress},
    },
};

/// For a commit to get its turn behind the writes that wait.
const COMMIT_WAIT: Duration = Duration::from_secs(5);
/// Sources of one commit: a page at most.
const MAX_SOURCES: usize = PAGE_MAX + MAX_FAILED;
/// A cursor with so many sources.
const MAX_CURSOR: u64 = 128 * 1024;

type Ids = Result<Path<(String, String)>, PathRejection>;

fn checked(path: Ids) -> Result<(String, String), Problem> {
    let Ok(Path((task, consumer))) = path else { return Err(Problem::bad_path_id("task or consumer")) };
    plain("task", &task)?;
    plain("consumer", &consumer)?;
    Ok((task, consumer))
}

pub fn shown(task: &str, at: Position) -> SearchReadCursor {
    let updated = jiff::Timestamp::from_millisecond(at.updated_ms).unwrap_or_default();
    SearchReadCursor {
        task_id: task.to_owned(),
        last_query_id: at.query,
        last_source_id: at.source,
        consumed_count: at.count,
        updated_at: format!("{updated:.3}"),
        consumed: None,
    }
}

/// How far a consumer has read
#[utoipa::path(
    get, path = "/tasks/{taskId}/cursors/{consumer}", tag = "tasks",
    params(
        ("taskId" = String, Path, description = "The task: what the client named in x-task-id, else the conversation, else the message", pattern = "^[A-Za-z0-9._:-]{1,128}$"),
        ("consumer" = String, Path, description = "Who reads", pattern = "^[A-Za-z0-9._:-]{1,128}$"),
    ),
    responses(
        (status = 200, description = "The cursor", body = SearchReadCursor),
        (status = 404, description = "There is no record of this task, or nothing was committed", body = Json, content_type = "application/problem+json"),
    ),
)]
pub async fn get(
    State(app): State<Arc<App>>,
    Extension(Asker(tenant)): Extension<Asker>,
    path: Ids,
) -> Result<Response, Problem> {
    let (task, consumer) = checked(path)?;
    if let Some(progress) = progress_of(&app, &tenant, &task, &consumer).await? {
        return Ok(json(&shown(&task, progress.position)));
    }
    exists(&app, &tenant, &task).await?;
    Err(Problem::unknown_cursor())
}

/// A cursor as a consumer commits it. `updated_at` is the server's to say.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CursorCommit)]
struct Commit {
    task_id: Option<String>,
    last_query_id: String,
    last_source_id: String,
    consumed_count: u64,
    #[serde(rename = "updated_at")]
    _updated_at: Option<String>,
    consumed: Option<Vec<String>>,
}

/// Commit what was read
///
/// As the cursor came with a page of results, or as a place alone. It never goes back.
#[utoipa::path(
    put, path = "/tasks/{taskId}/cursors/{consumer}", tag = "tasks",
    params(
        ("taskId" = String, Path, description = "The task: what the client named in x-task-id, else the conversation, else the message", pattern = "^[A-Za-z0-9._:-]{1,128}$"),
        ("consumer" = String, Path, description = "Who reads", pattern = "^[A-Za-z0-9._:-]{1,128}$"),
    ),
    request_body = Commit,
    responses(
        (status = 200, description = "The cursor as it is now", body = SearchReadCursor),
        (status = 404, description = "There is no record of this task", body = Json, content_type = "application/problem+json"),
        (status = 409, description = "The cursor is elsewhere, or there are too many consumers", body = Json, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = Json, content_type = "application/problem+json"),
    ),
)]
pub async fn put(
    State(app): State<Arc<App>>,
    Extension(Asker(tenant)): Extension<Asker>,
    path: Ids,
    body: Body,
) -> Result<Response, Problem> {
    let (task, consumer) = checked(path)?;
    let body = collect(&app, body, MAX_CURSOR).await?.take();
    let commit: Commit = serde_json::from_slice(&body).map_err(|error| {
        Problem::bad_request(format!("expected the cursor of a page of /results: {}", unquoted(&error)))
    })?;
    check(&commit, &task)?;
    exists(&app, &tenant, &task).await?;
    let progress = progress_of(&app, &tenant, &task, &consumer).await?;
    let (last, sources) = match &commit.consumed {
        Some(order) => of_page(&task, &commit, order, progress.as_ref())?,
        None => of_place(&app, &tenant, &task, &commit, progress.as_ref()).await?,
    };
    if sources.is_empty() {
        // Fine: so ends the reading of a task that has nothing new.
        return Ok(json(&shown(&task, progress.unwrap_or_default().position)));
    }
    let now_ms = jiff::Timestamp::now().as_millisecond();
    let advance = Advance { tenant, task: task.clone(), consumer, last, sources, now_ms };
    match tokio::time::timeout(COMMIT_WAIT, app.writer.advance(advance)).await {
        Ok(Ok(AdvanceOutcome::Moved(at) | AdvanceOutcome::Unchanged(at))) => Ok(json(&shown(&task, at))),
        Ok(Ok(AdvanceOutcome::Behind(at))) => Err(behind(&task, at)),
        Ok(Ok(AdvanceOutcome::NoTask)) => Err(Problem::unknown_task()),
        Ok(Ok(AdvanceOutcome::TooManyConsumers)) => Err(Problem::too_many_consumers(CONSUMERS_MAX)),
        _ => Err(Problem::store("the store did not confirm the cursor; commit it again")),
    }
}

fn check(commit: &Commit, task: &str) -> Result<(), Problem> {
    let list = commit.consumed.as_deref().unwrap_or_default();
    let wrong = if commit.task_id.as_ref().is_some_and(|named| named != task) {
        "task_id is not the task of the path"
    } else if list.len() > MAX_SOURCES {
        "consumed is longer than a page"
    } else if !list.iter().all(|id| is_source_id(id)) {
        "consumed is a list of source_ids"
    } else if !is_place(&commit.last_query_id, &commit.last_source_id) {
        "last_query_id and last_source_id are those of an item, or empty before the first"
    } else {
        return Ok(());
    };
    Err(Problem::bad_request(wrong))
}

fn is_place(query: &str, source: &str) -> bool {
    let number = query.strip_prefix('q').unwrap_or_default();
    let is_query = (1..=10).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit());
    (query.is_empty() && source.is_empty()) || (is_query && is_source_id(source))
}

type Covered = (Option<(String, String)>, Vec<String>);

/// The page says itself what was on it: whatever has joined the task since is not taken for read.
fn of_page(task: &str, commit: &Commit, order: &[String], progress: Option<&Progress>) -> Result<Covered, Problem> {
    if let Some(covered) = covered(order, &commit.last_source_id) {
        let last = (commit.last_query_id.clone(), commit.last_source_id.clone());
        return Ok((Some(last), covered.to_vec()));
    }
    if !order.iter().all(|id| is_failed_source_id(id)) {
        return Err(Problem::bad_request("last_source_id is not in consumed"));
    }
    // Nothing was consumed, so the place is still the one before.
    let at = progress.map(|progress| progress.position.clone()).unwrap_or_default();
    if at.source == commit.last_source_id { Ok((None, order.to_vec())) } else { Err(behind(task, at)) }
}

/// A cursor that is only a place. With one more consumed than before, it is that one. With several, it is everything up
/// to there in read order, if that is as much as its count says: if not, something has joined or left the task before
/// that place, and the reader has to look again.
async fn of_place(
    app: &App,
    tenant: &str,
    task: &str,
    commit: &Commit,
    progress: Option<&Progress>,
) -> Result<Covered, Problem> {
    let nothing = Progress::default();
    let known = progress.unwrap_or(&nothing);
    if known.position.source == commit.last_source_id && known.position.count == commit.consumed_count {
        return Ok((None, Vec::new()));
    }
    if commit.last_source_id.is_empty() || known.consumed.contains(&commit.last_source_id) {
        return Err(behind(task, known.position.clone()));
    }
    let last = (commit.last_query_id.clone(), commit.last_source_id.clone());
    if commit.consumed_count == known.position.count + 1 {
        return Ok((Some(last), vec![commit.last_source_id.clone()]));
    }
    let mut reader = TaskReader::new(&app.config.rules, &known.consumed, PAGE_MAX);
    let mut found = false;
    walk(app, tenant, task, |record| {
        let room = reader.message(record);
        found = reader.order().contains(&commit.last_source_id);
        room && !found
    })
    .await?;
    let order = reader.finish().order;
    let sources = covered(&order, &commit.last_source_id).unwrap_or_default();
    let count = sources.iter().filter(|id| !is_failed_source_id(id)).count() as u64;
    if !found || known.position.count + count != commit.consumed_count {
        return Err(Problem::cursor_conflict(
            "this cursor does not follow from the current one: what stands before it has changed, or was not read; \
             read /results again, and commit the cursor that comes with it",
            progress.map(|progress| shown(task, progress.position.clone())).as_ref(),
        ));
    }
    Ok((Some(last), sources.to_vec()))
}

fn behind(task: &str, at: Position) -> Problem {
    Problem::cursor_conflict("the cursor stands further on, and never goes back", Some(&shown(task, at)))
}

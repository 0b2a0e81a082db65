//! `/tasks/{taskId}/cursors/{consumer}`: reads and commits the cursor of a consumer. A cursor never moves back.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension,
    body::Body,
    extract::{Path, State, rejection::PathRejection},
    response::Response,
};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{check_id, check_task_exists, consumer_progress, for_each_message, json};
use crate::{
    api::{citations::TenantName, normalize::read_body},
    app::{
        App,
        problem::{Problem, ProblemJson, unquoted},
    },
    citation::task_reader::{MAX_FAILED, SearchReadCursor, TaskReader, covered, is_failed_source_id, is_source_id},
    store::{
        PAGE_MAX,
        task::{Advance, AdvanceOutcome, CONSUMERS_MAX, Position, Progress},
    },
};

/// Time limit of a commit, including the writes queued before it.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum sources of one commit: a page.
const MAX_SOURCES: usize = PAGE_MAX + MAX_FAILED;
/// Maximum bytes of a request: a cursor with [`MAX_SOURCES`] sources.
const MAX_BODY: u64 = 128 * 1024;

type CursorPath = Result<Path<(String, String)>, PathRejection>;

fn cursor_ids(path: CursorPath) -> Result<(String, String), Problem> {
    let Ok(Path((task, consumer))) = path else { return Err(Problem::bad_path_id("task or consumer")) };
    check_id("task", &task)?;
    check_id("consumer", &consumer)?;
    Ok((task, consumer))
}

/// The cursor as the API shows it.
pub fn read_cursor(task: &str, position: Position) -> SearchReadCursor {
    let updated = jiff::Timestamp::from_millisecond(position.updated_ms).unwrap_or_default();
    SearchReadCursor {
        task_id: task.to_owned(),
        last_query_id: position.query,
        last_source_id: position.source,
        consumed_count: position.count,
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
        (status = 404, description = "There is no record of this task, or nothing was committed", body = ProblemJson, content_type = "application/problem+json"),
    ),
)]
pub async fn get(
    State(app): State<Arc<App>>,
    Extension(TenantName(tenant)): Extension<TenantName>,
    path: CursorPath,
) -> Result<Response, Problem> {
    let (task, consumer) = cursor_ids(path)?;
    if let Some(progress) = consumer_progress(&app, &tenant, &task, &consumer).await? {
        return Ok(json(&read_cursor(&task, progress.position)));
    }
    check_task_exists(&app, &tenant, &task).await?;
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
        (status = 404, description = "There is no record of this task", body = ProblemJson, content_type = "application/problem+json"),
        (status = 409, description = "The cursor is elsewhere, or there are too many consumers", body = ProblemJson, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = ProblemJson, content_type = "application/problem+json"),
    ),
)]
pub async fn put(
    State(app): State<Arc<App>>,
    Extension(TenantName(tenant)): Extension<TenantName>,
    path: CursorPath,
    body: Body,
) -> Result<Response, Problem> {
    let (task, consumer) = cursor_ids(path)?;
    let body = read_body(&app, body, MAX_BODY).await?.take();
    let commit: Commit = serde_json::from_slice(&body).map_err(|error| {
        Problem::bad_request(format!("expected the cursor of a page of /results: {}", unquoted(&error)))
    })?;
    check_commit(&commit, &task)?;
    check_task_exists(&app, &tenant, &task).await?;
    let progress = consumer_progress(&app, &tenant, &task, &consumer).await?;
    let (last, sources) = match &commit.consumed {
        Some(order) => page_progress(&task, &commit, order, progress.as_ref())?,
        None => position_progress(&app, &tenant, &task, &commit, progress.as_ref()).await?,
    };
    if sources.is_empty() {
        // Not an error: a consumer commits an empty page when a task has nothing new.
        return Ok(json(&read_cursor(&task, progress.unwrap_or_default().position)));
    }
    let now_ms = jiff::Timestamp::now().as_millisecond();
    let advance = Advance { tenant, task: task.clone(), consumer, last, sources, now_ms };
    match tokio::time::timeout(COMMIT_TIMEOUT, app.writer.advance(advance)).await {
        Ok(Ok(AdvanceOutcome::Moved(at) | AdvanceOutcome::Unchanged(at))) => Ok(json(&read_cursor(&task, at))),
        Ok(Ok(AdvanceOutcome::Behind(at))) => Err(behind(&task, at)),
        Ok(Ok(AdvanceOutcome::NoTask)) => Err(Problem::unknown_task()),
        Ok(Ok(AdvanceOutcome::TooManyConsumers)) => Err(Problem::too_many_consumers(CONSUMERS_MAX)),
        _ => Err(Problem::store("the store did not confirm the cursor; commit it again")),
    }
}

fn check_commit(commit: &Commit, task: &str) -> Result<(), Problem> {
    let list = commit.consumed.as_deref().unwrap_or_default();
    let wrong = if commit.task_id.as_ref().is_some_and(|named| named != task) {
        "task_id is not the task of the path"
    } else if list.len() > MAX_SOURCES {
        "consumed is longer than a page"
    } else if !list.iter().all(|id| is_source_id(id)) {
        "consumed is a list of source_ids"
    } else if !is_position(&commit.last_query_id, &commit.last_source_id) {
        "last_query_id and last_source_id are those of an item, or empty before the first"
    } else {
        return Ok(());
    };
    Err(Problem::bad_request(wrong))
}

/// True for the position of an item, or the empty one before the first item.
fn is_position(query: &str, source: &str) -> bool {
    let number = query.strip_prefix('q').unwrap_or_default();
    let is_query = (1..=10).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit());
    (query.is_empty() && source.is_empty()) || (is_query && is_source_id(source))
}

/// The last consumed item (query and source), and the sources that a commit adds.
type NewProgress = (Option<(String, String)>, Vec<String>);

/// Progress of a commit that lists the sources of its page. Sources added to the task since do not count as read.
fn page_progress(
    task: &str,
    commit: &Commit,
    order: &[String],
    progress: Option<&Progress>,
) -> Result<NewProgress, Problem> {
    if let Some(covered) = covered(order, &commit.last_source_id) {
        let last = (commit.last_query_id.clone(), commit.last_source_id.clone());
        return Ok((Some(last), covered.to_vec()));
    }
    if !order.iter().all(|id| is_failed_source_id(id)) {
        return Err(Problem::bad_request("last_source_id is not in consumed"));
    }
    // The page had failed items only, so the position does not change.
    let at = progress.map(|progress| progress.position.clone()).unwrap_or_default();
    if at.source == commit.last_source_id { Ok((None, order.to_vec())) } else { Err(behind(task, at)) }
}

/// Progress of a commit that has a position only. If its count is one more than before, that one source was consumed.
/// If it is more, all sources up to the position in read order were. If their number differs from the count, sources
/// were added or removed before the position, and the consumer has to read again.
async fn position_progress(
    app: &App,
    tenant: &str,
    task: &str,
    commit: &Commit,
    progress: Option<&Progress>,
) -> Result<NewProgress, Problem> {
    let empty = Progress::default();
    let known = progress.unwrap_or(&empty);
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
    for_each_message(app, tenant, task, |record| {
        let has_room = reader.message(record);
        found = reader.order().contains(&commit.last_source_id);
        has_room && !found
    })
    .await?;
    let order = reader.finish().order;
    let sources = covered(&order, &commit.last_source_id).unwrap_or_default();
    let count = sources.iter().filter(|id| !is_failed_source_id(id)).count() as u64;
    if !found || known.position.count + count != commit.consumed_count {
        return Err(Problem::cursor_conflict(
            "this cursor does not follow from the current one: what stands before it has changed, or was not read; \
             read /results again, and commit the cursor that comes with it",
            progress.map(|progress| read_cursor(task, progress.position.clone())).as_ref(),
        ));
    }
    Ok((Some(last), sources.to_vec()))
}

/// The commit is behind the cursor.
fn behind(task: &str, at: Position) -> Problem {
    Problem::cursor_conflict("the cursor stands further on, and never goes back", Some(&read_cursor(task, at)))
}

//! `/tasks`: the sources of all messages of a task as bundles and in read order, and the cursors of its consumers.

mod cursors;

use std::sync::Arc;

use axum::{
    Extension,
    extract::{
        Path, Query, State,
        rejection::{PathRejection, QueryRejection},
    },
    response::Response,
    routing::any,
};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    citations::{TenantName, parse_query, plain_json, store_problem},
    openapi::only,
};
use crate::{
    app::{
        App,
        problem::{Problem, ProblemJson},
    },
    citation::{
        Record,
        bundle::{SearchResultBundle, bundles_from},
        record::is_plain_id,
        task_reader::{SearchReadCursor, TaskItem, TaskReader},
    },
    store::{
        Cursor, PAGE_DEFAULT, PAGE_MAX,
        task::{Position, Progress},
    },
};

/// Messages of a task that `/results` reads, oldest first. A response that does not cover all is marked `truncated`.
pub const MAX_MESSAGES: usize = 10_000;
/// Messages read from the store at a time (bounds memory per request).
const BATCH: usize = 50;

pub fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .route("/tasks/", any(|| async { Problem::bad_path_id("task") }))
        .routes(only(routes!(bundles)))
        .routes(only(routes!(results)))
        .routes(only(routes!(cursors::get, cursors::put)))
}

type Shared = State<Arc<App>>;

/// Refuses ids that citetap would not issue, so that no path, pattern or query is ever built from one.
fn check_id(what: &'static str, id: &str) -> Result<(), Problem> {
    if is_plain_id(id) { Ok(()) } else { Err(Problem::bad_path_id(what)) }
}

fn task_id(path: Result<Path<String>, PathRejection>) -> Result<String, Problem> {
    let Ok(Path(task)) = path else { return Err(Problem::bad_path_id("task")) };
    check_id("task", &task).map(|()| task)
}

fn page_limit(limit: Option<usize>) -> Result<usize, Problem> {
    let limit = limit.unwrap_or(PAGE_DEFAULT);
    if (1..=PAGE_MAX).contains(&limit) {
        Ok(limit)
    } else {
        Err(Problem::bad_request(format!("limit is a number from 1 to {PAGE_MAX}")))
    }
}

fn json(value: &impl Serialize) -> Response {
    plain_json(StatusCode::OK, serde_json::to_vec(value).unwrap_or_default())
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct BundlesParams {
    /// Messages on a page.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// `next` of the page before.
    cursor: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = TaskBundles)]
struct Bundles {
    task_id: String,
    bundles: Vec<SearchResultBundle>,
    next: Option<String>,
}

/// The searches of a task, as bundles
#[utoipa::path(
    get, path = "/tasks/{taskId}/bundles", tag = "tasks",
    params(
        ("taskId" = String, Path, description = "The task: what the client named in x-task-id, else the conversation, else the message", pattern = "^[A-Za-z0-9._:-]{1,128}$"),
        BundlesParams,
    ),
    responses(
        (status = 200, description = "A page", body = Bundles),
        (status = 404, description = "There is no record of this task", body = ProblemJson, content_type = "application/problem+json"),
    ),
)]
async fn bundles(
    State(app): Shared,
    Extension(TenantName(tenant)): Extension<TenantName>,
    path: Result<Path<String>, PathRejection>,
    query: Result<Query<BundlesParams>, QueryRejection>,
) -> Result<Response, Problem> {
    let task = task_id(path)?;
    let query = parse_query(query)?;
    let limit = page_limit(query.limit)?;
    let after = query.cursor.as_deref().map(BundlesCursor::decode);
    let after =
        after.map(|after| after.ok_or_else(|| Problem::bad_request("cursor is not one of ours"))).transpose()?;
    let _permit = app.reading.acquire().await.map_err(|_| Problem::draining())?;
    let page = app.store.task(&tenant, &task, after.as_ref().map(|after| &after.cursor), limit).await;
    let page = page.map_err(store_problem)?;
    // A later page may be empty, because its messages may have been deleted since.
    if page.entries.is_empty() && after.is_none() {
        return Err(Problem::unknown_task());
    }
    let mut queries = after.map_or(0, |after| after.queries);
    let mut bundles = Vec::new();
    for entry in &page.entries {
        let (message_bundles, total) = bundles_from(queries, &entry.record, &app.config.rules);
        bundles.extend(message_bundles);
        queries = total;
    }
    let next = page.next.map(|cursor| BundlesCursor { queries, cursor }.encode());
    Ok(json(&Bundles { task_id: task, bundles, next }))
}

/// Cursor of a page of bundles: its position, and the number of queries before it, because numbering continues.
struct BundlesCursor {
    queries: usize,
    cursor: Cursor,
}

impl BundlesCursor {
    fn encode(&self) -> String {
        format!("{}.{}", self.queries, self.cursor.encode())
    }

    fn decode(text: &str) -> Option<Self> {
        let (queries, cursor) = text.split_once('.')?;
        // A count above u32 was not issued by citetap, and could overflow when queries are added.
        let next = Self { queries: queries.parse::<u32>().ok()? as usize, cursor: Cursor::decode(cursor)? };
        (next.encode() == text).then_some(next)
    }
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ResultsParams {
    /// What it has committed is not given again.
    #[param(pattern = "^[A-Za-z0-9._:-]{1,128}$")]
    consumer: Option<String>,
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = TaskResults)]
struct Results {
    task_id: String,
    items: Vec<TaskItem>,
    failed: Vec<TaskItem>,
    /// There is something after this page.
    more: bool,
    /// The task has more messages than were looked at.
    truncated: bool,
    /// What to commit once this page is processed.
    cursor: SearchReadCursor,
}

/// The sources of a task in read order, and the cursor to commit
#[utoipa::path(
    get, path = "/tasks/{taskId}/results", tag = "tasks",
    params(
        ("taskId" = String, Path, description = "The task: what the client named in x-task-id, else the conversation, else the message", pattern = "^[A-Za-z0-9._:-]{1,128}$"),
        ResultsParams,
    ),
    responses(
        (status = 200, description = "A page", body = Results),
        (status = 404, description = "There is no record of this task", body = ProblemJson, content_type = "application/problem+json"),
    ),
)]
async fn results(
    State(app): Shared,
    Extension(TenantName(tenant)): Extension<TenantName>,
    path: Result<Path<String>, PathRejection>,
    query: Result<Query<ResultsParams>, QueryRejection>,
) -> Result<Response, Problem> {
    let task = task_id(path)?;
    let query = parse_query(query)?;
    let limit = page_limit(query.limit)?;
    let progress = match &query.consumer {
        Some(consumer) => {
            check_id("consumer", consumer)?;
            consumer_progress(&app, &tenant, &task, consumer).await?.unwrap_or_default()
        }
        None => Progress::default(),
    };
    let mut reader = TaskReader::new(&app.config.rules, &progress.consumed, limit);
    let truncated = for_each_message(&app, &tenant, &task, |record| reader.message(record)).await?;
    let page = reader.finish();
    let start = progress.position;
    let (query, source) = match page.items.last() {
        Some(last) => (last.query_id.clone(), last.item.source_id.clone()),
        None => (start.query, start.source),
    };
    let count = start.count + page.items.len() as u64;
    let end = Position { query, source, count, updated_ms: jiff::Timestamp::now().as_millisecond() };
    let cursor = SearchReadCursor { consumed: Some(page.order), ..cursors::read_cursor(&task, end) };
    let (items, failed) = (page.items, page.failed);
    Ok(json(&Results { task_id: task, items, failed, more: page.more, truncated, cursor }))
}

/// What a consumer has read of a task; `None` if it has committed nothing.
async fn consumer_progress(app: &App, tenant: &str, task: &str, consumer: &str) -> Result<Option<Progress>, Problem> {
    app.store.progress(tenant, task, consumer).await.map_err(store_problem)
}

async fn check_task_exists(app: &App, tenant: &str, task: &str) -> Result<(), Problem> {
    let page = app.store.task(tenant, task, None, 1).await.map_err(store_problem)?;
    if page.entries.is_empty() { Err(Problem::unknown_task()) } else { Ok(()) }
}

/// Passes the messages of a task to `take`, oldest first, until it returns false. True if there are more than
/// [`MAX_MESSAGES`].
async fn for_each_message(
    app: &App,
    tenant: &str,
    task: &str,
    mut take: impl FnMut(&Record) -> bool,
) -> Result<bool, Problem> {
    let _permit = app.reading.acquire().await.map_err(|_| Problem::draining())?;
    let (mut read, mut after) = (0, None);
    loop {
        let page = app.store.task(tenant, task, after.as_ref(), BATCH.min(MAX_MESSAGES - read)).await;
        let page = page.map_err(store_problem)?;
        if page.entries.is_empty() && read == 0 {
            return Err(Problem::unknown_task());
        }
        read += page.entries.len();
        if !page.entries.iter().all(|entry| take(&entry.record)) || page.next.is_none() {
            return Ok(false);
        }
        if read >= MAX_MESSAGES {
            return Ok(true);
        }
        after = page.next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundles_cursor_round_trips_and_refuses_other_text() {
        let cursor = || Cursor { created_ms: 5, provider: "doubao".to_owned(), id: "m".to_owned() };
        let text = BundlesCursor { queries: 12, cursor: cursor() }.encode();
        let next = BundlesCursor::decode(&text).unwrap();
        assert_eq!((next.queries, next.cursor), (12, cursor()));
        let plain = cursor().encode();
        for other in
            ["", ".", "12", "x.1.61.61", "-1.1.61.61", "+1.1.61.61", "01.1.61.61", "4294967296.1.61.61", &plain]
        {
            assert!(BundlesCursor::decode(other).is_none(), "{other:?}");
        }
    }
}

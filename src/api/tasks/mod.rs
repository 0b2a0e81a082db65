//! `/tasks`: the evidence of all messages of a task, as bundles and in read order, and how far each consumer has read.

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
    citations::{Asker, plain_json, read, store_problem},
    openapi::only,
};
use crate::{
    app::{
        App,
        problem::{Json, Problem},
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

/// Messages of a task that are read for `/results`, the oldest first; of a longer one the answer says `truncated`.
pub const MAX_MESSAGES: usize = 10_000;
/// Messages in memory at one time.
const STEP: usize = 50;

pub fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .route("/tasks/", any(|| async { Problem::bad_path_id("task") }))
        .routes(only(routes!(bundles)))
        .routes(only(routes!(results)))
        .routes(only(routes!(cursors::get, cursors::put)))
}

type Shared = State<Arc<App>>;

/// As message ids: exact match only, of ids that we would give.
fn plain(what: &'static str, id: &str) -> Result<(), Problem> {
    if is_plain_id(id) { Ok(()) } else { Err(Problem::bad_path_id(what)) }
}

fn task_of(path: Result<Path<String>, PathRejection>) -> Result<String, Problem> {
    let Ok(Path(task)) = path else { return Err(Problem::bad_path_id("task")) };
    plain("task", &task).map(|()| task)
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
struct OfBundles {
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
        OfBundles,
    ),
    responses(
        (status = 200, description = "A page", body = Bundles),
        (status = 404, description = "There is no record of this task", body = Json, content_type = "application/problem+json"),
    ),
)]
async fn bundles(
    State(app): Shared,
    Extension(Asker(tenant)): Extension<Asker>,
    path: Result<Path<String>, PathRejection>,
    query: Result<Query<OfBundles>, QueryRejection>,
) -> Result<Response, Problem> {
    let task = task_of(path)?;
    let query = read(query)?;
    let limit = page_limit(query.limit)?;
    let after = query.cursor.as_deref().map(NextBundles::decode);
    let after =
        after.map(|after| after.ok_or_else(|| Problem::bad_request("cursor is not one of ours"))).transpose()?;
    let _turn = app.reading.acquire().await.map_err(|_| Problem::draining())?;
    let page = app.store.task(&tenant, &task, after.as_ref().map(|after| &after.cursor), limit).await;
    let page = page.map_err(store_problem)?;
    // A later page may be empty: what was left may have been forgotten since.
    if page.entries.is_empty() && after.is_none() {
        return Err(Problem::unknown_task());
    }
    let mut queries = after.map_or(0, |after| after.queries);
    let mut bundles = Vec::new();
    for entry in &page.entries {
        let (of_message, so_far) = bundles_from(queries, &entry.record, &app.config.rules);
        bundles.extend(of_message);
        queries = so_far;
    }
    let next = page.next.map(|cursor| NextBundles { queries, cursor }.encode());
    Ok(json(&Bundles { task_id: task, bundles, next }))
}

/// Where the next page of bundles begins, and how many queries came before it: numbering goes on.
struct NextBundles {
    queries: usize,
    cursor: Cursor,
}

impl NextBundles {
    fn encode(&self) -> String {
        format!("{}.{}", self.queries, self.cursor.encode())
    }

    fn decode(text: &str) -> Option<Self> {
        let (queries, cursor) = text.split_once('.')?;
        // More than fits is no number that we gave, and would overflow with the next.
        let next = Self { queries: queries.parse::<u32>().ok()? as usize, cursor: Cursor::decode(cursor)? };
        (next.encode() == text).then_some(next)
    }
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct OfResults {
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
        OfResults,
    ),
    responses(
        (status = 200, description = "A page", body = Results),
        (status = 404, description = "There is no record of this task", body = Json, content_type = "application/problem+json"),
    ),
)]
async fn results(
    State(app): Shared,
    Extension(Asker(tenant)): Extension<Asker>,
    path: Result<Path<String>, PathRejection>,
    query: Result<Query<OfResults>, QueryRejection>,
) -> Result<Response, Problem> {
    let task = task_of(path)?;
    let query = read(query)?;
    let limit = page_limit(query.limit)?;
    let progress = match &query.consumer {
        Some(consumer) => {
            plain("consumer", consumer)?;
            progress_of(&app, &tenant, &task, consumer).await?.unwrap_or_default()
        }
        None => Progress::default(),
    };
    let mut reader = TaskReader::new(&app.config.rules, &progress.consumed, limit);
    let truncated = walk(&app, &tenant, &task, |record| reader.message(record)).await?;
    let page = reader.finish();
    let from = progress.position;
    let (query, source) = match page.items.last() {
        Some(last) => (last.query_id.clone(), last.item.source_id.clone()),
        None => (from.query, from.source),
    };
    let count = from.count + page.items.len() as u64;
    let to = Position { query, source, count, updated_ms: jiff::Timestamp::now().as_millisecond() };
    let cursor = SearchReadCursor { consumed: Some(page.order), ..cursors::shown(&task, to) };
    let (items, failed) = (page.items, page.failed);
    Ok(json(&Results { task_id: task, items, failed, more: page.more, truncated, cursor }))
}

async fn progress_of(app: &App, tenant: &str, task: &str, consumer: &str) -> Result<Option<Progress>, Problem> {
    app.store.progress(tenant, task, consumer).await.map_err(store_problem)
}

async fn exists(app: &App, tenant: &str, task: &str) -> Result<(), Problem> {
    let page = app.store.task(tenant, task, None, 1).await.map_err(store_problem)?;
    if page.entries.is_empty() { Err(Problem::unknown_task()) } else { Ok(()) }
}

/// Shows the task's messages, oldest first, until `take` has enough. Says whether there were too many to show.
async fn walk(app: &App, tenant: &str, task: &str, mut take: impl FnMut(&Record) -> bool) -> Result<bool, Problem> {
    let _turn = app.reading.acquire().await.map_err(|_| Problem::draining())?;
    let (mut seen, mut after) = (0, None);
    loop {
        let page = app.store.task(tenant, task, after.as_ref(), STEP.min(MAX_MESSAGES - seen)).await;
        let page = page.map_err(store_problem)?;
        if page.entries.is_empty() && seen == 0 {
            return Err(Problem::unknown_task());
        }
        seen += page.entries.len();
        if !page.entries.iter().all(|entry| take(&entry.record)) || page.next.is_none() {
            return Ok(false);
        }
        if seen >= MAX_MESSAGES {
            return Ok(true);
        }
        after = page.next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_bundles_go_on_comes_back_as_it_went() {
        let cursor = || Cursor { created_ms: 5, provider: "doubao".to_owned(), id: "m".to_owned() };
        let text = NextBundles { queries: 12, cursor: cursor() }.encode();
        let next = NextBundles::decode(&text).unwrap();
        assert_eq!((next.queries, next.cursor), (12, cursor()));
        let plain = cursor().encode();
        for strange in
            ["", ".", "12", "x.1.61.61", "-1.1.61.61", "+1.1.61.61", "01.1.61.61", "4294967296.1.61.61", &plain]
        {
            assert!(NextBundles::decode(strange).is_none(), "{strange:?}");
        }
    }
}

//! `/tasks`: bundles and results in read order, tenants, and invalid requests.

mod cursors;

use citetap::{
    citation::{
        bundle::SearchResultBundle,
        record::{Citation, Record, SearchFailure, SearchRound},
        task_reader::{SearchReadCursor, TaskItem},
        url::source_id,
    },
    replay::Script,
    store::Entry,
};
use http::Method;
use serde_json::{Value, json};

use super::{answering, ask, proxy, put, streamed, tenants};
use crate::net::{Client, ClientResponse, Proxy, raw, request, tencent};

/// Message `id` of `task`, created `ms` after the epoch. Per round: sources by name with their scores.
fn message(like: &Record, task: &str, id: &str, ms: i64, rounds: &[&[(&str, f64)]]) -> Entry {
    let mut record = like.clone();
    record.message_id = id.to_owned();
    record.task_id = Some(task.to_owned());
    (record.citations, record.rounds) = (Vec::new(), Vec::new());
    for (round, sources) in (1..).zip(rounds) {
        let queries = vec![format!("{id} {round}")];
        record.rounds.push(SearchRound { round, queries, ..SearchRound::default() });
        for (rank, (name, score)) in (1..).zip(*sources) {
            let mut scores = like.citations[0].scores.unwrap();
            scores.overall = *score;
            let mut citation = Citation {
                number: u32::try_from(record.citations.len()).unwrap() + 1,
                source_id: source_id(name),
                title: Some((*name).to_owned()),
                rank,
                scores: Some(scores),
                ..like.citations[0].clone()
            };
            citation.metadata.insert("round".to_owned(), round.into());
            record.citations.push(citation);
        }
    }
    Entry { tenant: "default".to_owned(), created_ms: ms, record }
}

fn failing(mut entry: Entry, position: u32) -> Entry {
    let round = &mut entry.record.rounds[0];
    round.failed_count += 1;
    round.failures.push(SearchFailure { position, id: None, error_code: "missing_title_and_url".to_owned() });
    entry.record.stats.failed_count += 1;
    entry
}

/// A proxy and a template record.
async fn begin() -> (citetap::replay::Upstream, Proxy, Record) {
    let (upstream, proxy) = answering(&["like"]).await;
    let like = streamed(&proxy, "like").await;
    (upstream, proxy, like)
}

async fn results(proxy: &Proxy, query: &str) -> Value {
    let response = proxy.get(&format!("/tasks/task/results?{query}")).await;
    assert_eq!(response.status, 200, "{query}");
    response.json().await
}

/// Formats results as `q1 a`, and so on.
fn shown(page: &Value) -> Vec<String> {
    let items: Vec<TaskItem> = serde_json::from_value(page["items"].clone()).unwrap();
    items.iter().map(|item| format!("{} {}", item.query_id, item.item.title)).collect()
}

async fn commit(proxy: &Proxy, consumer: &str, cursor: &Value) -> ClientResponse {
    let path = format!("/tasks/task/cursors/{consumer}");
    Client::h1(proxy.addr).await.send(request(Method::PUT, &path, &[], cursor.to_string())).await
}

/// Commits and returns the cursor of the response.
async fn committed(proxy: &Proxy, consumer: &str, cursor: &Value) -> SearchReadCursor {
    let response = commit(proxy, consumer, cursor).await;
    assert_eq!(response.status, 200);
    serde_json::from_value(response.json().await).unwrap()
}

#[tokio::test]
async fn task_header_is_recorded_and_not_relayed() {
    let scripts = ["m-1", "m-2", "m-3"].map(|id| (format!("/{id}"), Script::sse(tencent::answer(id))));
    let scripts = scripts.iter().map(|(path, script)| (path.as_str(), script.clone())).collect();
    let (upstream, proxy) = proxy(scripts, "").await;
    let chat = async |id: &str, task: &str| {
        let mut client = Client::h1(proxy.addr).await;
        let path = format!("/chat/{id}");
        let response = client.send(request(Method::POST, &path, &[("x-task-id", task)], "{}")).await;
        response.whole().await.split().1.remove(0)
    };
    assert_eq!(chat("m-1", "job:7").await.task_id.as_deref(), Some("job:7"));
    let strange = chat("m-2", "job 7/../x").await;
    let hashed = format!("x-{}", source_id("job 7/../x"));
    assert_eq!(strange.task_id.as_ref(), Some(&hashed));
    assert_eq!(strange.metadata["originalTaskId"], "job 7/../x");
    assert_eq!(chat("m-3", "  ").await.task_id, None, "an empty header sets no task");
    for seen in upstream.requests() {
        assert!(!seen.headers.contains_key("x-task-id"), "{:?}", seen.headers);
    }
    for (task, message) in [("job:7", "m-1"), (hashed.as_str(), "m-2"), ("m-3", "m-3")] {
        let page = proxy.get(&format!("/tasks/{task}/results")).await.json().await;
        assert_eq!((&page["task_id"], page["items"].as_array().unwrap().len()), (&json!(task), 2));
        assert_eq!(page["items"][0]["message_id"], message);
        let bundles = proxy.get(&format!("/tasks/{task}/bundles")).await.json().await;
        assert_eq!(bundles["bundles"][0]["task_id"], task);
    }
    proxy.get("/tasks/m-1/results").await.is_problem(404, "unknown-task").await;
}

#[tokio::test]
async fn bundles_are_ordered_and_numbered_consecutively() {
    let (_upstream, proxy, like) = begin().await;
    let mut entries: Vec<Entry> =
        (0..7).map(|n| message(&like, "task", &format!("m{n}"), n, &[&[("a", 0.5)], &[("b", 0.4)]])).collect();
    entries[3] = failing(entries[3].clone(), 9);
    entries.reverse();
    put(&proxy, &entries).await;
    let (mut all, mut path) = (Vec::new(), "/tasks/task/bundles?limit=3".to_owned());
    loop {
        let page = proxy.get(&path).await.json().await;
        let bundles: Vec<SearchResultBundle> = serde_json::from_value(page["bundles"].clone()).unwrap();
        assert!(bundles.len() <= 6 && bundles.iter().all(|bundle| bundle.task_id == "task"));
        all.extend(bundles);
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/tasks/task/bundles?limit=3&cursor={next}");
    }
    let queries: Vec<String> = all.iter().map(|bundle| format!("{} {}", bundle.query_id, bundle.query_text)).collect();
    let expected: Vec<String> = (0..14).map(|n| format!("q{} m{} {}", n + 1, n / 2, n % 2 + 1)).collect();
    assert_eq!(queries, expected);
    let failed = serde_json::to_value(&all[6].results[1]).unwrap();
    assert_eq!(
        (&failed["status"], &failed["error_code"], &failed["rank"]),
        (&json!("failed"), &json!("missing_title_and_url"), &json!(9))
    );
    for bundle in &all {
        let stats = bundle.stats;
        let sum = stats.kept_after_filter + stats.filtered_count + stats.failed_count + stats.dedup_count;
        assert_eq!(stats.total_returned, sum);
    }
    assert_eq!(all[6].stats.failed_count, 1);
}

#[tokio::test]
async fn results_are_in_read_order_and_deduplicated() {
    let (_upstream, proxy, like) = begin().await;
    let mut entries: Vec<Entry> = (1..=12)
        .map(|n| {
            message(
                &like,
                "task",
                &format!("m{n:02}"),
                n,
                &[&[(format!("low{n}").as_str(), 0.2), ("same", 0.3), (format!("high{n}").as_str(), 0.9)]],
            )
        })
        .collect();
    entries[1] = failing(entries[1].clone(), 4);
    put(&proxy, &entries).await;
    let page = results(&proxy, "limit=1000").await;
    let mut expected = vec!["q1 high1".to_owned(), "q1 same".to_owned(), "q1 low1".to_owned()];
    expected.extend((2..=12).flat_map(|n| [format!("q{n} high{n}"), format!("q{n} low{n}")]));
    assert_eq!(shown(&page), expected);
    assert_eq!((&page["more"], &page["truncated"]), (&json!(false), &json!(false)));
    assert_eq!(page["failed"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&page["failed"][0]["query_id"], &page["failed"][0]["error_code"]),
        (&json!("q2"), &json!("missing_title_and_url"))
    );
    assert!(page["items"].as_array().unwrap().iter().all(|item| item["status"] == "ok"));
    let cursor = &page["cursor"];
    assert_eq!(
        (&cursor["task_id"], &cursor["last_query_id"], &cursor["last_source_id"], &cursor["consumed_count"]),
        (&json!("task"), &json!("q12"), &json!(source_id("low12")), &json!(25))
    );
    // Page by page gives the same, and failed items are listed once.
    let (mut seen, mut failed) = (Vec::new(), 0);
    loop {
        let page = results(&proxy, "consumer=c&limit=4").await;
        seen.extend(shown(&page));
        failed += page["failed"].as_array().unwrap().len();
        let at = committed(&proxy, "c", &page["cursor"]).await;
        assert_eq!(at.consumed_count, seen.len() as u64);
        if page["more"] == false {
            break;
        }
    }
    assert_eq!((seen, failed), (expected, 1));
    let rest = results(&proxy, "consumer=c").await;
    assert_eq!((&rest["items"], &rest["failed"], &rest["cursor"]["consumed"]), (&json!([]), &json!([]), &json!([])));
    assert_eq!(committed(&proxy, "c", &rest["cursor"]).await.consumed_count, 25, "an empty page is no error");
    assert_eq!(
        shown(&results(&proxy, "consumer=d&limit=1").await),
        ["q1 high1"],
        "another consumer starts at the start"
    );
}

/// At the cap all is read, over it the response says so.
#[tokio::test]
async fn task_over_the_message_cap_is_truncated() {
    let (_upstream, proxy, like) = begin().await;
    let last = message(&like, "task", "last", 10_000, &[&[("a", 0.5)]]);
    let mut entries: Vec<Entry> = (1..10_000).map(|n| message(&like, "task", &format!("m{n}"), n, &[])).collect();
    entries.push(last);
    put(&proxy, &entries).await;
    let page = results(&proxy, "").await;
    assert_eq!((shown(&page), &page["truncated"]), (vec!["q1 a".to_owned()], &json!(false)));
    put(&proxy, &[message(&like, "task", "over", 10_001, &[&[("b", 0.5)]])]).await;
    let page = results(&proxy, "").await;
    assert_eq!((shown(&page), &page["truncated"]), (vec!["q1 a".to_owned()], &json!(true)));
}

#[tokio::test]
async fn deleted_records_leave_their_task() {
    let (_upstream, proxy, like) = begin().await;
    put(
        &proxy,
        &[message(&like, "task", "m1", 1, &[&[("a", 0.5)]]), message(&like, "task", "m2", 2, &[&[("b", 0.5)]])],
    )
    .await;
    let page = results(&proxy, "consumer=c&limit=1").await;
    committed(&proxy, "c", &page["cursor"]).await;
    assert_eq!(ask(&proxy, Method::DELETE, "/citations/m1", &[]).await.status, 204);
    assert_eq!(shown(&results(&proxy, "consumer=c").await), ["q1 b"]);
    assert_eq!(ask(&proxy, Method::DELETE, "/citations/m2", &[]).await.status, 204);
    for path in ["results", "bundles", "cursors/c"] {
        proxy.get(&format!("/tasks/task/{path}")).await.is_problem(404, "unknown-task").await;
    }
    commit(&proxy, "c", &page["cursor"]).await.is_problem(404, "unknown-task").await;
}

#[tokio::test]
async fn invalid_parameters_are_refused() {
    let (_upstream, proxy, like) = begin().await;
    put(&proxy, &[message(&like, "task", "m", 1, &[&[("a", 0.5)]])]).await;
    for query in ["limit=0", "limit=1001", "limit=x", "offset=1", "limit=1&limit=2", "cursor=1"] {
        proxy.get(&format!("/tasks/task/results?{query}")).await.is_problem(400, "bad-request").await;
    }
    for query in ["limit=0", "limit=1001", "cursor=", "cursor=1.61.61", "cursor=x.1.61.61", "consumer=c"] {
        proxy.get(&format!("/tasks/task/bundles?{query}")).await.is_problem(400, "bad-request").await;
    }
    for consumer in ["", "a%20b", "%00", "%27", "a/b"] {
        proxy.get(&format!("/tasks/task/results?consumer={consumer}")).await.is_problem(400, "bad-id").await;
    }
    let good = || json!({ "last_query_id": "q1", "last_source_id": source_id("a"), "consumed_count": 1 });
    let with = |key: &str, value: Value| {
        let mut cursor = good();
        cursor[key] = value;
        cursor
    };
    let long: Vec<String> = (0..2001).map(|n| source_id(&n.to_string())).collect();
    for cursor in [
        json!({}),
        json!([]),
        json!({ "last_query_id": "q1", "last_source_id": source_id("a") }),
        with("task_id", json!("other")),
        with("consumed_count", json!(-1)),
        with("consumed_count", json!("1")),
        with("last_source_id", json!("a")),
        with("last_source_id", json!("' OR 1=1 --")),
        with("last_query_id", json!("")),
        with("last_query_id", json!("q")),
        with("last_query_id", json!("q99999999999")),
        with("consumed", json!([source_id("b")])),
        with("consumed", json!([source_id("a"), "x"])),
        with("consumed", json!(long)),
        with("tenant", json!("other")),
    ] {
        commit(&proxy, "c", &cursor).await.is_problem(400, "bad-request").await;
    }
    let huge = with("consumed", json!(vec!["x"; 100_000]));
    commit(&proxy, "c", &huge).await.is_problem(413, "body-too-large").await;
    assert_eq!(commit(&proxy, "c", &good()).await.status, 200);
    for n in 1..64 {
        assert_eq!(commit(&proxy, &format!("c{n}"), &good()).await.status, 200);
    }
    commit(&proxy, "one-too-many", &good()).await.is_problem(409, "too-many-consumers").await;
}

#[tokio::test]
async fn invalid_paths_and_methods_are_refused() {
    let (_upstream, proxy, like) = begin().await;
    put(&proxy, &[message(&like, "task", "m", 1, &[&[("a", 0.5)]])]).await;
    let status = async |line: String| {
        let response =
            raw(proxy.addr, format!("{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")).await;
        assert!(response.contains("application/problem+json"), "{line}: {response}");
        response.split_whitespace().nth(1).unwrap().parse::<u16>().unwrap()
    };
    let long = "a".repeat(129);
    for id in ["%2e%2e%2f", "*", "%", "'", "m%201", "task%00", "%ff%fe", "task%2f", "%E8%B1%86", &long] {
        for line in [
            format!("GET /tasks/{id}/bundles"),
            format!("GET /tasks/{id}/results"),
            format!("GET /tasks/{id}/cursors/c"),
            format!("PUT /tasks/{id}/cursors/c"),
            format!("GET /tasks/task/cursors/{id}"),
        ] {
            assert_eq!(status(line.clone()).await, 400, "{line}");
        }
    }
    for path in ["/tasks", "/tasks/task", "/tasks/task/cursors", "/tasks/task/cursors/", "/tasks/task/x"] {
        assert_eq!(status(format!("GET {path}")).await, 404, "{path}");
    }
    for path in ["/tasks/", "/tasks//bundles"] {
        assert_eq!(status(format!("GET {path}")).await, 400, "{path}");
    }
    for (method, path, allowed) in [
        (Method::POST, "/tasks/task/bundles", "GET"),
        (Method::PUT, "/tasks/task/results", "GET"),
        (Method::DELETE, "/tasks/task/cursors/c", "PUT"),
        (Method::POST, "/tasks/task/cursors/c", "PUT"),
    ] {
        let response = ask(&proxy, method.clone(), path, &[]).await;
        assert!(response.header("allow").is_some_and(|allow| allow.contains(allowed)), "{method} {path}");
        response.is_problem(405, "method-not-allowed").await;
    }
}

/// P8: others cannot tell whether a task exists.
#[tokio::test]
async fn task_of_another_tenant_is_unknown() {
    let (_upstream, proxy) = proxy(vec![("/m-1", Script::sse(tencent::answer("m-1")))], &tenants::keys()).await;
    let send = async |method: Method, path: &str, key: &str, body: &str| {
        let headers = [("x-citetap-key", key), ("x-task-id", "task")];
        let response = Client::h1(proxy.addr).await.send(request(method, path, &headers, body.to_owned())).await;
        let whole = response.whole().await;
        (whole.status.as_u16(), whole.text())
    };
    assert_eq!(send(Method::POST, "/chat/m-1", "alpha-key", "{}").await.0, 200);
    let (status, page) = send(Method::GET, "/tasks/task/results", "alpha-key", "").await;
    assert_eq!(status, 200);
    let cursor = serde_json::from_str::<Value>(&page).unwrap()["cursor"].to_string();
    assert_eq!(send(Method::PUT, "/tasks/task/cursors/c", "alpha-key", &cursor).await.0, 200);
    let cursor = json!({ "last_query_id": "q1", "last_source_id": source_id("a"), "consumed_count": 7 }).to_string();
    for (method, tail, body) in [
        (Method::GET, "bundles", ""),
        (Method::GET, "results", ""),
        (Method::GET, "results?consumer=c", ""),
        (Method::GET, "cursors/c", ""),
        (Method::PUT, "cursors/c", cursor.as_str()),
    ] {
        let of = async |task: &str| send(method.clone(), &format!("/tasks/{task}/{tail}"), "beta-key", body).await;
        let (other, unknown) = (of("task").await, of("nobody").await);
        assert_eq!((other.0, &other), (404, &unknown), "{method} {tail}");
        assert_eq!(send(method.clone(), &format!("/tasks/task/{tail}"), "no-key", body).await.0, 401);
    }
    // The same names in another tenant are different tasks.
    assert_eq!(send(Method::POST, "/chat/m-1", "beta-key", "{}").await.0, 200);
    let (_, page) = send(Method::GET, "/tasks/task/results?consumer=c", "beta-key", "").await;
    assert_eq!(serde_json::from_str::<Value>(&page).unwrap()["items"].as_array().unwrap().len(), 2);
}

//! `POST /search` and `citetap search`, against a scripted Tavily on loopback.

use std::time::{Duration, Instant};

use citetap::replay::{Script, Scripted, Step, Upstream};
use http::{HeaderValue, Method, StatusCode, header};
use serde_json::{Value, json};

use super::{ask, tenants};
use crate::{
    net::{Client, ClientResponse, Proxy, post, request, route},
    process::{CommandOutput, Running, citetap, run},
};

/// Words that must be in no log, error, metric or record.
const CANARY: &str = "test-key-canary-4711";

const DOMAINS: &str = "[search.event_types]\nhack = [\"coin.example\", \"block.example.org\"]\nany = []\n";

fn response() -> Value {
    let result = |title: &str, url: &str, score: f64| json!({"title": title, "url": url, "content": "摘要", "score": score, "raw_content": null});
    json!({"query": "q", "answer": null, "images": [], "response_time": 1.2, "request_id": "req-1", "results": [
        result("一", "https://coin.example/1", 0.9),
        result("二", "https://www.coin.example/2", 0.8),
        result("三", "https://evilcoin.example/3", 0.7),
        result("四", "https://block.example.org.evil.example/4", 0.6),
    ]})
}

fn error(status: u16, body: Value) -> Script {
    Script::json(body.to_string()).status(StatusCode::from_u16(status).unwrap())
}

fn ok() -> Script {
    Script::json(response().to_string())
}

/// A scripted Tavily and a proxy that calls it. `toml` goes into `[search]`, `more` follows it.
async fn searching(script: Script, toml: &str, more: &str) -> (Upstream, Proxy) {
    let tavily = Upstream::bind(vec![Scripted::new("/", script)]).await.unwrap();
    let toml = format!(
        "{}[search]\nkey = \"{CANARY}\"\nbase_url = \"{}/api\"\n{toml}\n{more}\n",
        route("chat", &tavily.url()),
        tavily.url(),
    );
    let proxy = Proxy::start(&toml).await;
    (tavily, proxy)
}

async fn search(proxy: &Proxy, body: Value) -> ClientResponse {
    Client::h1(proxy.addr).await.send(post("/search", body.to_string())).await
}

fn urls(found: &Value) -> Vec<&str> {
    found["record"]["citations"].as_array().unwrap().iter().map(|one| one["url"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn search_returns_a_record_that_is_not_stored() {
    let (tavily, proxy) = searching(ok(), "", "").await;
    let response = search(
        &proxy,
        json!({"query": " q ", "topic": "news", "search_depth": "ultra-fast", "time_range": "week",
        "start_date": "2026-01-01", "max_results": 7, "exclude_domains": ["Spam.example"]}),
    );
    let response = response.await;
    assert_eq!((response.status, response.header("cache-control")), (StatusCode::OK, Some("no-store")));
    let found = response.json().await;
    let record = &found["record"];
    assert_eq!((&record["provider"], &record["route"]), (&json!("tavily"), &json!("search")));
    assert_eq!((&record["complete"], &record["stored"]), (&json!(true), &json!(false)));
    assert_eq!(uuid::Uuid::parse_str(record["messageId"].as_str().unwrap()).unwrap().get_version_num(), 7);
    assert_eq!((&record["queries"], &record["metadata"]), (&json!(["q"]), &json!({"requestId": "req-1"})));
    assert_eq!(record["citations"][1]["scores"]["relevance"], 0.8);
    assert_eq!(urls(&found).len(), 4);
    assert_eq!(proxy.get("/citations").await.json().await["items"], json!([]));

    let seen = tavily.requests().remove(0);
    assert_eq!((seen.method, seen.path.as_str()), (Method::POST, "/api/search"));
    assert_eq!(seen.headers["authorization"], format!("Bearer {CANARY}"));
    assert_eq!(
        (&seen.headers["content-type"], &seen.headers["accept-encoding"]),
        (&HeaderValue::from_static("application/json"), &HeaderValue::from_static("identity"))
    );
    let sent: Value = serde_json::from_slice(&seen.body).unwrap();
    assert_eq!(
        sent,
        json!({"query": "q", "topic": "news", "search_depth": "ultra-fast", "time_range": "week", "start_date": "2026-01-01",
        "max_results": 7, "exclude_domains": ["spam.example"], "include_answer": false, "include_favicon": true})
    );
}

#[tokio::test]
async fn search_returns_bundle_and_corroboration() {
    let (_tavily, proxy) = searching(ok(), "", "").await;
    let found = search(&proxy, json!({"query": "price of coin"})).await.json().await;
    let keys: Vec<&String> = found.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["bundle", "corroboration", "record"]);
    let (bundle, record) = (&found["bundle"], &found["record"]);
    assert_eq!((&bundle["task_id"], &bundle["executed_at"]), (&record["messageId"], &record["createdAt"]));
    assert_eq!((&bundle["query_id"], &bundle["query_text"]), (&json!("q1"), &json!("q")), "the service's own value");
    assert_eq!((&bundle["provider"], &bundle["query_intent"]), (&json!("tavily"), &json!("general")));
    assert_eq!(
        bundle["stats"],
        json!({"total_returned": 4, "kept_after_filter": 4, "filtered_count": 0, "failed_count": 0, "dedup_count": 0})
    );
    for (result, citation) in bundle["results"].as_array().unwrap().iter().zip(record["citations"].as_array().unwrap())
    {
        assert_eq!((&result["url"], &result["title"]), (&citation["url"], &citation["title"]));
        assert_eq!((&result["score_final"], &result["status"]), (&citation["scores"]["final"], &json!("ok")));
    }
    assert_eq!(found["corroboration"], record["corroboration"]);
    assert_eq!(found["corroboration"]["multiSource"], true);

    // A service without results, whose response does not repeat the query.
    let nothing = Script::json(r#"{"results":[],"response_time":1}"#);
    let (_tavily, proxy) = searching(nothing, "", "").await;
    let found = search(&proxy, json!({"query": "price of coin"})).await.json().await;
    assert_eq!((&found["corroboration"], &found["bundle"]["results"]), (&Value::Null, &json!([])));
    let bundle = &found["bundle"];
    assert_eq!((&bundle["query_text"], &bundle["query_intent"]), (&json!("price of coin"), &json!("market")));
}

#[tokio::test]
async fn results_outside_event_type_domains_are_dropped() {
    let (tavily, proxy) = searching(ok(), "", DOMAINS).await;
    let sent =
        |n: usize| serde_json::from_slice::<Value>(&tavily.requests()[n].body).unwrap()["include_domains"].clone();
    let found = search(&proxy, json!({"query": "q", "event_type": "hack"})).await.json().await;
    assert_eq!(urls(&found), ["https://coin.example/1", "https://www.coin.example/2"]);
    assert_eq!(found["bundle"]["results"].as_array().unwrap().len(), 2);
    assert_eq!(found["corroboration"]["uniqueDomains"], 1);
    let record = &found["record"];
    assert_eq!(record["metadata"]["droppedOutsideDomains"], 2);
    assert_eq!(record["metadata"]["eventType"], "hack");
    assert_eq!((&record["stats"]["totalReturned"], &record["stats"]["keptAfterFilter"]), (&json!(2), &json!(2)));
    assert_eq!(sent(0), json!(["coin.example", "block.example.org"]));

    // A request may narrow the list of domains, but not leave it.
    let narrow = json!({"query": "q", "event_type": "hack", "include_domains": ["www.coin.example", "other.example"]});
    let found = search(&proxy, narrow).await.json().await;
    assert_eq!(urls(&found), ["https://www.coin.example/2"]);
    assert_eq!(sent(1), json!(["www.coin.example"]));
    let leave = json!({"query": "q", "event_type": "hack", "include_domains": ["other.example"]});
    search(&proxy, leave).await.is_problem(400, "bad-request").await;

    let found = search(&proxy, json!({"query": "q", "event_type": "any"})).await.json().await;
    assert_eq!(urls(&found).len(), 4, "an empty list does not restrict results");
    let problem = search(&proxy, json!({"query": "q", "event_type": "hck"})).await.is_problem(400, "bad-request").await;
    assert_eq!(problem["detail"], "event_type is one of any, hack");
    let metrics = proxy.get("/metrics").await.whole().await.text();
    assert!(metrics.contains("citetap_search_results_dropped_total 5"), "{metrics}");
    assert!(metrics.contains(r#"citetap_searches_total{result="ok"} 3"#), "{metrics}");
}

#[tokio::test]
async fn each_service_failure_is_a_problem_without_the_key() {
    let echo = json!({"detail": {"error": format!("bad key {CANARY}\nquery too long")}});
    let redirect = error(302, json!({})).header(header::LOCATION, HeaderValue::from_static("/elsewhere"));
    let bulk = Script::new([Step::Bulk { len: 5 << 20, chunk: 65536 }]);
    let gzip = ok().header(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    let rest =
        |script: Script, after: &'static str| script.header(header::RETRY_AFTER, HeaderValue::from_static(after));
    for (script, status, kind, requests, detail) in [
        (error(401, echo.clone()), 502, "search-key-refused", 1, "refused the key (search.key, TAVILY_API_KEY)"),
        (error(403, echo.clone()), 502, "search-key-refused", 1, "refused the key"),
        (error(400, echo.clone()), 400, "search-refused", 1, "request: bad key ••• query too long"),
        (error(422, json!({"detail": [{"msg": "field required"}]})), 400, "search-refused", 1, "field required"),
        (error(400, json!([])), 400, "search-refused", 1, "it did not say why"),
        (rest(error(429, echo.clone()), "60"), 503, "search-rate-limited", 1, "60 s of rest"),
        (rest(error(429, echo.clone()), "18446744073709551615"), 503, "search-rate-limited", 1, "s of rest"),
        (rest(error(429, echo.clone()), "0"), 503, "search-rate-limited", 2, "limits the rate"),
        (error(432, echo.clone()), 503, "search-quota", 1, "credits are used up"),
        (error(500, echo.clone()), 502, "search-failed", 2, "status 500"),
        (error(503, echo), 502, "search-failed", 2, "status 503"),
        (redirect, 502, "search-failed", 1, "status 302"),
        (Script::hang(), 504, "search-timeout", 1, "within 0.7 s (search.timeout)"),
        (Script::json("{\"query\":"), 502, "search-unreadable", 1, "no search response"),
        (Script::json("{\"query\":\"q\",\"results\":{}}"), 502, "search-unreadable", 1, "no search response"),
        (gzip, 502, "search-unreadable", 1, "compressed"),
        (bulk, 502, "search-unreadable", 1, "larger than 4 MiB"),
        (ok().cut_after(20), 502, "search-unreachable", 1, "broke"),
    ] {
        let (tavily, proxy) = searching(script, "timeout = \"700ms\"", "").await;
        let began = Instant::now();
        let response = search(&proxy, json!({"query": "secret words"})).await;
        let waits = response.header("retry-after").is_some();
        let problem = response.is_problem(status, kind).await;
        assert!(began.elapsed() < Duration::from_secs(5), "{kind}");
        let text = problem["detail"].as_str().unwrap();
        assert!(text.contains(detail), "{text}");
        assert!(!text.contains(CANARY) && !text.contains("secret words"), "{text}");
        assert_eq!(waits, kind == "search-rate-limited", "{text}");
        assert_eq!(tavily.requests().len(), requests, "{kind} {text}");
        assert!(tavily.requests().iter().all(|seen| seen.path == "/api/search"), "a redirect is not followed");
        let metrics = proxy.get("/metrics").await.whole().await.text();
        assert!(metrics.contains("citetap_searches_total{result=") && !metrics.contains(CANARY), "{metrics}");
    }
}

/// An error with this `Retry-After`.
fn retry_after_error(status: u16, after: &str) -> Script {
    error(status, json!({})).header(header::RETRY_AFTER, HeaderValue::from_str(after).unwrap())
}

#[tokio::test]
async fn search_is_retried_once_after_retry_after() {
    // An HTTP date has whole seconds, so a date two seconds ahead is more than one second away.
    let soon = jiff::fmt::rfc2822::DateTimePrinter::new();
    let soon = soon.timestamp_to_rfc9110_string(&(jiff::Timestamp::now() + Duration::from_secs(2))).unwrap();
    for (first, least, most) in [
        // First, because its time is running.
        (retry_after_error(500, &soon), 500, 5000),
        (retry_after_error(429, "1"), 950, 5000),
        (retry_after_error(503, "1"), 950, 5000),
        (retry_after_error(429, "0"), 0, 2500),
        (retry_after_error(502, "Tue, 11 Nov 2025 09:00:00 GMT"), 0, 2500),
        (retry_after_error(503, "in a while"), 250, 5000),
        (error(500, json!({})), 250, 5000),
    ] {
        let (tavily, proxy) = searching(first.then(ok()), "", "").await;
        let began = Instant::now();
        let found = search(&proxy, json!({"query": "q"})).await.json().await;
        assert_eq!(urls(&found).len(), 4);
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(least) && took < Duration::from_millis(most), "{took:?} of {least}");
        assert_eq!(tavily.requests().len(), 2);
    }
    let (tavily, proxy) = searching(error(500, json!({})).then(Script::hang()), "timeout = \"600ms\"", "").await;
    search(&proxy, json!({"query": "q"})).await.is_problem(504, "search-timeout").await;
    assert_eq!(tavily.requests().len(), 2, "the timeout holds for both");
}

#[tokio::test]
async fn long_retry_after_is_returned_without_waiting() {
    for (status, kind, after) in
        [(429, "search-rate-limited", "6"), (503, "search-failed", "6"), (503, "search-failed", "18446744073709551615")]
    {
        // The timeout would allow a retry.
        let (tavily, proxy) = searching(retry_after_error(status, after).then(ok()), "timeout = \"60s\"", "").await;
        let began = Instant::now();
        let response = search(&proxy, json!({"query": "q"})).await;
        assert!(began.elapsed() < Duration::from_secs(4));
        let seconds: u64 = response.header("retry-after").unwrap().parse().unwrap();
        assert_eq!(seconds, after.parse::<u64>().unwrap().min(u32::MAX.into()));
        response.is_problem(if status == 429 { 503 } else { 502 }, kind).await;
        assert_eq!(tavily.requests().len(), 1);
    }
}

#[tokio::test]
async fn unreachable_service_is_a_problem() {
    let port = crate::process::dead_port();
    let toml = format!(
        "{}[search]\nkey = \"{CANARY}\"\nbase_url = \"http://127.0.0.1:{port}\"\n",
        route("chat", "http://127.0.0.1:9")
    );
    let proxy = Proxy::start(&toml).await;
    search(&proxy, json!({"query": "q"})).await.is_problem(502, "search-unreachable").await;
}

#[tokio::test]
async fn search_without_key_explains_the_configuration() {
    let proxy = Proxy::start(&route("chat", "http://127.0.0.1:9")).await;
    let problem = search(&proxy, json!({"query": "q"})).await.is_problem(503, "search-not-configured").await;
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("TAVILY_API_KEY") && detail.contains("[search]"), "{detail}");
}

#[tokio::test]
async fn invalid_parameters_are_refused_before_the_service() {
    let (tavily, proxy) = searching(ok(), "", &tenants::keys()).await;
    let send = async |headers, body: String| {
        Client::h1(proxy.addr).await.send(request(Method::POST, "/search", headers, body)).await
    };
    send(&[], json!({"query": "q"}).to_string()).await.is_problem(401, "unauthorized").await;
    for (body, detail) in [
        (String::new(), "expected JSON such as"),
        ("{}".to_owned(), "missing field `query`"),
        (json!({"query": "  "}).to_string(), "query is a text of 1 to 2000 characters"),
        (json!({"query": "长".repeat(2001)}).to_string(), "query is a text of 1 to 2000 characters"),
        (json!({"query": "q", "max_results": 21}).to_string(), "max_results is a number from 1 to 20"),
        (json!({"query": "q", "topic": "sports"}).to_string(), "expected one of `general`, `news`, `finance`"),
        (json!({"query": "q", "querry": 1}).to_string(), "unknown field `querry`"),
        (
            json!({"query": "q", "include_domains": ["https://a.example/x"]}).to_string(),
            "include_domains is a list of domains",
        ),
        (json!({"query": "q", "start_date": "yesterday"}).to_string(), "start_date is a date such as 2026-01-13"),
        (json!({"query": "q", "event_type": "hack"}).to_string(), "none is configured"),
    ] {
        let problem = send(tenants::ALPHA, body).await.is_problem(400, "bad-request").await;
        assert!(problem["detail"].as_str().unwrap().contains(detail), "{problem}");
    }
    send(tenants::ALPHA, " ".repeat(64 * 1024 + 1)).await.is_problem(413, "body-too-large").await;
    ask(&proxy, Method::GET, "/search", tenants::ALPHA).await.is_problem(405, "method-not-allowed").await;
    assert_eq!(tavily.requests().len(), 0);
    assert_eq!(send(tenants::ALPHA, json!({"query": "长".repeat(2000)}).to_string()).await.status, 200);
}

/// The real binary at its most verbose log level.
#[tokio::test]
async fn key_is_in_no_log_and_no_check_output() {
    let tavily = Upstream::bind(vec![Scripted::new("/", error(401, json!({"detail": CANARY})))]).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let toml = format!(
        "store = \"memory:\"\n{}[search]\nbase_url = \"{}\"\n[log]\nlevel = \"trace\"\n",
        route("chat", &tavily.url()),
        tavily.url()
    );
    std::fs::write(dir.path().join("citetap.toml"), toml).unwrap();
    std::fs::write(dir.path().join("key"), format!("{CANARY}\n")).unwrap();
    let mut command = citetap(dir.path(), &["serve", "--listen", "127.0.0.1:0"]);
    command.env("TAVILY_API_KEY_FILE", "key");
    let running = Running::start(command).await;
    let response = Client::h1(running.addr).await.send(post("/search", r#"{"query":"canary words"}"#)).await;
    response.is_problem(502, "search-key-refused").await;
    assert_eq!(tavily.requests()[0].headers["authorization"], format!("Bearer {CANARY}"));
    running.logged("search failed", 1).await;
    let logged = running.out().join("\n") + &running.err().join("\n");
    assert!(!logged.contains(CANARY) && !logged.contains("canary words"), "{logged}");

    for args in [&["check"][..], &["check", "--output", "json"]] {
        let mut command = citetap(dir.path(), args);
        command.env("TAVILY_API_KEY", CANARY);
        let ran = run(command, "");
        assert!(ran.out.contains("•••") && ran.out.contains("env TAVILY_API_KEY"), "{ran:?}");
        assert!(!ran.out.contains(CANARY) && !ran.err.contains(CANARY), "{ran:?}");
    }
}

async fn cli(script: Script, args: &[&str], key: Option<&str>) -> CommandOutput {
    let tavily = Upstream::bind(vec![Scripted::new("/", script)]).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let toml = format!("[search]\nbase_url = \"{}\"\n{DOMAINS}", tavily.url());
    std::fs::write(dir.path().join("citetap.toml"), toml).unwrap();
    let mut command = citetap(dir.path(), &[&["search"], args].concat());
    if let Some(key) = key {
        command.env("TAVILY_API_KEY", key);
    }
    tokio::task::spawn_blocking(move || run(command, "")).await.unwrap()
}

#[tokio::test]
async fn cli_search_needs_no_route() {
    let ran = cli(ok(), &["q"], Some(CANARY)).await;
    assert_eq!(ran.err, "", "progress is for terminals");
    assert_eq!(urls(&ran.json()).len(), 4);
    let ran =
        cli(ok(), &["q", "--event-type", "hack", "--output", "table", "-n", "3", "--topic", "news"], Some(CANARY))
            .await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert!(ran.out.contains("1  0.90   一     coin.example      https://coin.example/1"), "{}", ran.out);
    let ends =
        "2 results, 0 duplicates, 0 unusable, 2 outside the domains\nconfidence 0.71: 1 domain, average score 0.71\n";
    assert!(ran.out.ends_with(ends), "{}", ran.out);
}

#[tokio::test]
async fn cli_search_reports_failures_without_the_key() {
    for (script, args, key, message) in [
        (error(401, json!({})), &["q"][..], Some(CANARY), "refused the key"),
        (error(400, json!({"detail": {"error": CANARY}})), &["q"], Some(CANARY), "request: •••"),
        (ok(), &["q"], None, "TAVILY_API_KEY"),
        (ok(), &["q", "--event-type", "nope"], Some(CANARY), "event_type is one of any, hack"),
        (ok(), &["q"], Some("two words canary-4711"), "env TAVILY_API_KEY: search.key: expected a key"),
    ] {
        let ran = cli(script, args, key).await;
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{ran:?}");
        assert!(ran.err.contains(message) && !ran.err.contains("canary-4711"), "{ran:?}");
    }
}

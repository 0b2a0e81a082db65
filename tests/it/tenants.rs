//! P8 for every endpoint: to another tenant an object does not exist, and without a key nothing is returned. The table
//! lists every endpoint of the server. A new endpoint that is missing in it fails the test.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use citetap::replay::{Script, Scripted, Upstream};
use http::{Method, header};
use regex::Regex;
use serde_json::{Value, json};

use crate::{
    api::tenants::{ALPHA, BETA, keys},
    net::{Client, ClientResponse, Proxy, request, route, tencent},
    process::{citetap, dead_port, run},
};

/// Which data an endpoint returns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    /// One owner's object. To others its id is unknown.
    One,
    /// The caller's own data, without anybody else's.
    Caller,
    /// The same for every valid key.
    All,
}

struct Call {
    method: Method,
    /// The path as in the router.
    route: &'static str,
    /// `M` stands for a message, `T` for a task.
    paths: &'static [&'static str],
    body: &'static str,
    of: Of,
}

const fn call(method: Method, route: &'static str, paths: &'static [&'static str], of: Of) -> Call {
    Call { method, route, paths, body: "", of }
}

const fn call_with_body(method: Method, route: &'static str, body: &'static str, of: Of) -> Call {
    Call { method, route, paths: &[], body, of }
}

const CALLS: &[Call] = &[
    call(
        Method::GET,
        "/citations",
        &[
            "/citations",
            "/citations?limit=1",
            "/citations?conversation=s-1",
            "/citations?provider=tencent",
            "/citations?domain=s1.example.com",
            "/citations?q=%E8%B5%84%E6%96%99",
            "/citations?since=2020-01-01&until=2100-01-01",
        ],
        Of::Caller,
    ),
    call(
        Method::GET,
        "/citations/{messageId}",
        &[
            "/citations/M",
            "/citations/M?provider=tencent",
            "/citations/M?wait=0.1",
            "/citations/M?format=json",
            "/citations/M?format=bundle",
            "/citations/M?format=markdown",
            "/citations/M?format=footnotes",
            "/citations/M?format=html",
            "/citations/M?format=csv",
            "/citations/M?format=bibtex",
            "/citations/M?format=ris",
            "/citations/M?format=csl",
            "/citations/M?format=prompt",
        ],
        Of::One,
    ),
    call(
        Method::GET,
        "/citations/{messageId}/events",
        &["/citations/M/events", "/citations/M/events?provider=tencent"],
        Of::One,
    ),
    call(Method::GET, "/tasks/{taskId}/bundles", &["/tasks/T/bundles", "/tasks/T/bundles?limit=1"], Of::One),
    call(Method::GET, "/tasks/{taskId}/results", &["/tasks/T/results", "/tasks/T/results?consumer=c&limit=1"], Of::One),
    call(Method::GET, "/tasks/{taskId}/cursors/{consumer}", &["/tasks/T/cursors/c"], Of::One),
    Call {
        method: Method::PUT,
        route: "/tasks/{taskId}/cursors/{consumer}",
        paths: &["/tasks/T/cursors/c"],
        // The end of what alpha has read. Repeating it changes nothing.
        body: r#"{"task_id":"T","last_query_id":"","last_source_id":"","consumed_count":0,"consumed":[]}"#,
        of: Of::One,
    },
    call_with_body(Method::POST, "/render", r#"{"text":"a [1]","messageId":"M"}"#, Of::One),
    call(Method::GET, "/stats", &["/stats", "/stats?provider=tencent"], Of::Caller),
    call(Method::GET, "/console/routes", &[], Of::Caller),
    call(Method::GET, "/console/status", &[], Of::Caller),
    call_with_body(Method::POST, "/normalize", r#"data:{"completion_id":"x","is_stop":true}"#, Of::All),
    call_with_body(Method::POST, "/search", r#"{"query":"q"}"#, Of::All),
    call(Method::GET, "/citations/", &[], Of::All),
    call(Method::GET, "/tasks/", &[], Of::All),
    // Last, because it deletes the owner's object.
    call(Method::DELETE, "/citations/{messageId}", &["/citations/M"], Of::One),
];

/// Paths that are answered before the router.
const BEFORE_ROUTER: &[(Method, &str, &str)] = &[
    (Method::POST, "/chat/m-1", "{}"),
    (Method::GET, "/chat/m-1", ""),
    (Method::GET, "/nowhere", ""),
    (Method::GET, "/v1/models", ""),
    (Method::GET, "/v1/models/m", ""),
    (Method::POST, "/v1/chat/completions", "{}"),
    (Method::POST, "/v1/embeddings", "{}"),
];

impl Call {
    fn paths(&self) -> &[&'static str] {
        if self.paths.is_empty() { std::slice::from_ref(&self.route) } else { self.paths }
    }

    /// Fills ids into each path.
    fn requests(&self, message: &str, task: &str) -> Vec<(String, String)> {
        let of = |text: &str| text.replace("/M", &format!("/{message}")).replace("/T/", &format!("/{task}/"));
        let body = self.body.replace("\"M\"", &json!(message).to_string()).replace("\"T\"", &json!(task).to_string());
        self.paths().iter().map(|path| (of(path), body.clone())).collect()
    }
}

/// Finds every `.route("…", get(…).put(…))` in the server's sources.
fn routed() -> BTreeSet<(String, String)> {
    let mut sources = Vec::new();
    read(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/api"), &mut sources);
    let all = sources.concat();
    let route = Regex::new(r#"\.route\(\s*(?:"([^"]+)"|([A-Z_]+)),\s*"#).unwrap();
    let method = Regex::new(r"\b(get|post|put|patch|delete|any)\(").unwrap();
    let mut found = BTreeSet::new();
    for captured in route.captures_iter(&all) {
        let path = match (captured.get(1), captured.get(2)) {
            (Some(path), _) => path.as_str().to_owned(),
            (_, Some(name)) => {
                let constant = Regex::new(&format!("const {}: &str = \"([^\"]+)\"", name.as_str())).unwrap();
                constant.captures(&all).unwrap_or_else(|| panic!("where is {}?", name.as_str()))[1].to_owned()
            }
            _ => unreachable!(),
        };
        let rest = &all[captured.get(0).unwrap().end()..];
        let mut depth = 0;
        let end = rest.find(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth < 0
        });
        for method in method.captures_iter(&rest[..end.unwrap()]) {
            let method = if &method[1] == "any" { "get" } else { &method[1] };
            found.insert((method.to_uppercase(), path.clone()));
        }
    }
    found
}

/// Endpoints that the OpenAPI document lists as protected. The router uses the same handlers.
fn described() -> BTreeSet<(String, String)> {
    let dir = tempfile::tempdir().unwrap();
    let document: Value = run(citetap(dir.path(), &["openapi"]), "").json();
    let paths = document["paths"].as_object().unwrap().iter();
    let calls =
        paths.flat_map(|(path, item)| item.as_object().unwrap().iter().map(move |(method, of)| (method, path, of)));
    let private = calls.filter(|(_, _, of)| of["security"].is_array());
    private.map(|(method, path, _)| (method.to_uppercase(), path.clone())).collect()
}

fn read(folder: &Path, sources: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read(&path, sources);
        } else {
            sources.push(std::fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_endpoint_is_in_the_table() {
    let table: BTreeSet<_> = CALLS.iter().map(|call| (call.method.to_string(), call.route.to_owned())).collect();
    let mut known = routed();
    known.extend(described());
    assert_eq!(known, table);
    assert_eq!(table.len(), CALLS.len(), "each once");
}

/// A server with the tenants alpha and beta.
struct TenantRig {
    upstream: Upstream,
    _tavily: Upstream,
    proxy: Proxy,
    _dir: tempfile::TempDir,
}

impl TenantRig {
    async fn new() -> Self {
        let found = json!({"results": [{"title": "t", "url": "https://found.example/", "content": "c", "score": 0.9}]});
        let tavily = Upstream::bind(vec![Scripted::new("/", Script::json(found.to_string()))]).await.unwrap();
        let ids = ["m-1", "m-2", "m-3"];
        let answer = |id| tencent::answer(id).replace("{\"completion_id", "{\"session_id\":\"s-1\",\"completion_id");
        let answers = ids.map(|id| Scripted::new(format!("/{id}"), Script::sse(answer(id))));
        let upstream = Upstream::bind(answers.into()).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let toml = format!(
            "store = 'sqlite:{}'\n[timeouts]\ncommit = \"10s\"\n[search]\nkey = \"k\"\nbase_url = \"{}\"\n{}{}provider = \"tencent\"\n\
             [routes.openai]\nmodels = [\"m\"]\n{}",
            dir.path().join("c.db").display(),
            tavily.url(),
            keys(),
            route("chat", &upstream.url()),
            route("dead", &format!("http://127.0.0.1:{}", dead_port())),
        );
        Self { upstream, _tavily: tavily, proxy: Proxy::start(&toml).await, _dir: dir }
    }

    async fn ask(&self, method: &Method, path: &str, body: &str, key: &[(&str, &str)]) -> ClientResponse {
        Client::h1(self.proxy.addr).await.send(request(method.clone(), path, key, body.to_owned())).await
    }

    async fn content(&self, method: &Method, path: &str, body: &str, key: &[(&str, &str)]) -> String {
        content(self.ask(method, path, body, key).await).await
    }

    /// Messages of alpha in a task that it has not read yet, and a failure.
    async fn create_alphas_data(&self) {
        let headers = [ALPHA, &[("x-task-id", "t-1")]].concat();
        for id in ["m-1", "m-2"] {
            let whole = self.ask(&Method::POST, &format!("/chat/{id}"), "{}", &headers).await.whole().await;
            assert!(whole.split().1[0].stored);
        }
        assert_eq!(self.ask(&Method::GET, "/dead", "", ALPHA).await.status, 502);
        let page = self.ask(&Method::GET, "/tasks/t-1/results?consumer=c&limit=1", "", ALPHA).await.json().await;
        let put = self.ask(&Method::PUT, "/tasks/t-1/cursors/c", &page["cursor"].to_string(), ALPHA).await;
        assert_eq!(put.status, 200);
    }
}

/// The content of a response, without times and process data.
async fn content(response: ClientResponse) -> String {
    let whole = response.whole().await;
    let mut headers = whole.headers.clone();
    headers.remove(header::DATE);
    let mut body = whole.text();
    if let Ok(mut status) = serde_json::from_str::<Value>(&body)
        && status.get("startedAt").is_some()
    {
        for of_the_process in ["now", "streams", "store"] {
            status[of_the_process].take();
        }
        headers.remove(header::CONTENT_LENGTH);
        body = status.to_string();
    }
    format!("{} {headers:?} {body}", whole.status)
}

const WRONG: [&[(&str, &str)]; 4] =
    [&[], &[("x-citetap-key", "gamma-key")], &[("x-citetap-key", "alpha")], &[("authorization", "Bearer alpha-key2")]];

#[tokio::test]
async fn every_endpoint_returns_only_the_tenants_own_data() {
    let rig = TenantRig::new().await;
    let mut before = Vec::new();
    for call in CALLS.iter().filter(|call| call.of == Of::Caller) {
        for path in call.paths() {
            before.push((call.method.clone(), *path, rig.content(&call.method, path, "", BETA).await));
        }
    }
    rig.create_alphas_data().await;
    let requests = rig.upstream.request_count();

    // Without a key.
    for call in CALLS {
        for (path, body) in call.requests("m-1", "t-1") {
            let mut all = BTreeSet::new();
            for key in WRONG {
                let content = rig.content(&call.method, &path, &body, key).await;
                assert!(
                    content.starts_with("401") && content.contains("urn:citetap:problem:unauthorized"),
                    "{path}: {content}"
                );
                all.insert(content);
            }
            assert_eq!(all.len(), 1, "{path}: every request without a key gets the same response");
        }
    }
    for (method, path, body) in BEFORE_ROUTER {
        for key in WRONG {
            assert_eq!(rig.ask(method, path, body, key).await.status, 401, "{method} {path} {key:?}");
        }
    }
    assert_eq!(rig.upstream.request_count(), requests);

    // Another tenant.
    for call in CALLS.iter().filter(|call| call.of == Of::One) {
        let unknown = call.requests("m-9", "t-9");
        for ((path, body), (nowhere, of_nobody)) in call.requests("m-1", "t-1").into_iter().zip(unknown) {
            let expected = rig.content(&call.method, &nowhere, &of_nobody, BETA).await;
            assert!(expected.starts_with("404"), "{nowhere}: {expected}");
            assert_eq!(rig.content(&call.method, &path, &body, BETA).await, expected, "{} {path}", call.method);
            if call.method == Method::GET {
                let expected = rig.content(&Method::HEAD, &nowhere, "", BETA).await;
                assert_eq!(rig.content(&Method::HEAD, &path, "", BETA).await, expected, "HEAD {path}");
            }
        }
    }
    for (method, path, expected) in &before {
        assert_eq!(&rig.content(method, path, "", BETA).await, expected, "as before alpha's requests: {path}");
        assert_ne!(&rig.content(method, path, "", ALPHA).await, expected, "alpha has data here: {path}");
    }
    for call in CALLS.iter().filter(|call| call.of == Of::All) {
        for (path, body) in call.requests("m-1", "t-1") {
            let status = async |key| rig.ask(&call.method, &path, &body, key).await.status;
            assert_eq!(status(ALPHA).await, status(BETA).await, "{path}");
        }
    }

    // The owner, after all attempts of others.
    for call in CALLS.iter().filter(|call| call.of == Of::One) {
        for (path, body) in call.requests("m-1", "t-1") {
            let response = rig.ask(&call.method, &path, &body, ALPHA).await;
            let expected: &[u16] = match call.method {
                Method::DELETE => &[204],
                // The owner has read one item, which differs from this cursor's position.
                Method::PUT => &[409],
                _ => &[200],
            };
            assert!(expected.contains(&response.status.as_u16()), "{} {path}: {}", call.method, response.status);
        }
    }
    assert_eq!(rig.ask(&Method::GET, "/citations/m-1", "", ALPHA).await.status, 404, "the last call deleted it");
}

/// A cursor of one tenant's list is meaningless in another's.
#[tokio::test]
async fn list_cursor_of_another_tenant_reveals_nothing() {
    let rig = TenantRig::new().await;
    let theirs = rig.ask(&Method::POST, "/chat/m-3", "{}", BETA).await.whole().await;
    assert!(theirs.split().1[0].stored);
    rig.create_alphas_data().await;
    let page = rig.ask(&Method::GET, "/citations?limit=1", "", ALPHA).await.json().await;
    let cursor = page["next"].as_str().expect("there is more").to_owned();
    let ids = |page: &Value| -> Vec<String> {
        page["items"].as_array().unwrap().iter().map(|item| item["messageId"].as_str().unwrap().to_owned()).collect()
    };
    let path = format!("/citations?cursor={cursor}");
    assert_eq!(ids(&rig.ask(&Method::GET, &path, "", ALPHA).await.json().await), ["m-1"]);
    assert_eq!(ids(&rig.ask(&Method::GET, &path, "", BETA).await.json().await), ["m-3"], "its own, older one");

    let page = rig.ask(&Method::GET, "/tasks/t-1/bundles?limit=1", "", ALPHA).await.json().await;
    let cursor = page["next"].as_str().expect("there is more").to_owned();
    let of = async |task: &str, key| {
        let content = rig.content(&Method::GET, &format!("/tasks/{task}/bundles?cursor={cursor}"), "", key).await;
        content.replace(task, "TASK")
    };
    assert!(of("t-1", ALPHA).await.contains("s1.example.com"));
    let other = of("t-1", BETA).await;
    assert!(other.contains("\"bundles\":[]"), "{other}");
    assert_eq!(other, of("t-9", BETA).await);
}

/// Tasks and consumers may have the same names in two tenants, as message ids may.
#[tokio::test]
async fn same_names_in_two_tenants_are_separate() {
    let rig = TenantRig::new().await;
    rig.create_alphas_data().await;
    let headers = [BETA, &[("x-task-id", "t-1")]].concat();
    rig.ask(&Method::POST, "/chat/m-3", "{}", &headers).await.whole().await;
    let alphas = rig.content(&Method::GET, "/tasks/t-1/cursors/c", "", ALPHA).await;
    let page = rig.ask(&Method::GET, "/tasks/t-1/results?consumer=c", "", BETA).await.json().await;
    assert_eq!(page["items"].as_array().unwrap().len(), 2, "alpha's reads do not count for beta");
    assert_eq!(rig.ask(&Method::PUT, "/tasks/t-1/cursors/c", &page["cursor"].to_string(), BETA).await.status, 200);
    assert_eq!(rig.content(&Method::GET, "/tasks/t-1/cursors/c", "", ALPHA).await, alphas, "unchanged");
    assert_eq!(rig.ask(&Method::DELETE, "/citations/m-3", "", BETA).await.status, 204);
    assert_eq!(
        rig.ask(&Method::GET, "/tasks/t-1/results", "", BETA).await.status,
        404,
        "the task's last message is deleted"
    );
    assert_eq!(rig.content(&Method::GET, "/tasks/t-1/cursors/c", "", ALPHA).await, alphas);
}

/// Rejecting another tenant's id takes no longer than rejecting an unknown one.
#[tokio::test]
async fn response_time_does_not_reveal_other_tenants_ids() {
    const TIMES: usize = 60;
    let rig = TenantRig::new().await;
    rig.create_alphas_data().await;
    let mut client = Client::h1(rig.proxy.addr).await;
    for call in CALLS.iter().filter(|call| call.of == Of::One && !call.paths()[0].contains("wait")) {
        let (other, unknown) = (call.requests("m-1", "t-1").remove(0), call.requests("m-9", "t-9").remove(0));
        let mut times = [Vec::new(), Vec::new()];
        for n in 0..2 * TIMES {
            let (path, body) = [&other, &unknown][n % 2];
            let request = request(call.method.clone(), path, BETA, body.clone());
            let began = Instant::now();
            assert_eq!(client.send(request).await.whole().await.status, 404);
            times[n % 2].push(began.elapsed());
        }
        let [other, unknown] = times.map(|mut times| {
            times.sort();
            times[TIMES / 2]
        });
        let apart = other.abs_diff(unknown);
        let margin = other.max(unknown) / 2 + Duration::from_millis(1);
        assert!(apart < margin, "{} {}: {other:?} and {unknown:?}", call.method, call.route);
    }
}

/// The nonce identifies our events. Only the client of the response learns it, and nobody can choose it.
#[tokio::test]
async fn nonce_is_unique_and_sent_only_to_the_client() {
    const TIMES: usize = 100;
    let (upstream, proxy) = crate::net::chat(Script::sse(tencent::answer("m")), "").await;
    let theirs = "0123456789abcdef0123456789abcdef";
    let (mut client, mut seen) = (Client::h2(proxy.addr).await, BTreeSet::new());
    for _ in 0..TIMES {
        let request = request(Method::POST, "/chat", &[("x-citetap-nonce", theirs)], "{}");
        let whole = client.send(request).await.whole().await;
        let nonce = whole.header("x-citetap-nonce").unwrap().to_owned();
        assert_eq!(whole.split().1[0].nonce, nonce, "the event has the same nonce");
        assert!(nonce.len() == 32 && nonce.bytes().all(|byte| byte.is_ascii_hexdigit()), "{nonce}");
        let sent = format!("{:?}", upstream.requests().last().unwrap().headers);
        assert!(!sent.contains("citetap") && !sent.contains(&nonce) && !sent.contains(theirs), "{sent}");
        seen.insert(nonce);
    }
    assert_eq!(seen.len(), TIMES);
    assert!(!seen.contains(theirs));
    // Each bit varies, except the six of the UUID's version and variant.
    let numbers: Vec<u128> = seen.iter().map(|nonce| u128::from_str_radix(nonce, 16).unwrap()).collect();
    let (all, any) = numbers.iter().fold((u128::MAX, 0), |(all, any), number| (all & number, any | number));
    assert_eq!((any & !all).count_ones(), 122);
}

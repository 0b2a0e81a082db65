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
    net::{Answer, Client, Proxy, request, route, tencent},
    process::{citetap, dead_port, run},
};

/// Which data an endpoint returns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    /// One owner's object. To others its id is unknown.
    One,
    /// The caller's own data, without anybody else's.
    Asker,
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

const fn said(method: Method, route: &'static str, body: &'static str, of: Of) -> Call {
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
        Of::Asker,
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
    said(Method::POST, "/render", r#"{"text":"a [1]","messageId":"M"}"#, Of::One),
    call(Method::GET, "/stats", &["/stats", "/stats?provider=tencent"], Of::Asker),
    call(Method::GET, "/console/routes", &[], Of::Asker),
    call(Method::GET, "/console/status", &[], Of::Asker),
    said(Method::POST, "/normalize", r#"data:{"completion_id":"x","is_stop":true}"#, Of::All),
    said(Method::POST, "/search", r#"{"query":"q"}"#, Of::All),
    call(Method::GET, "/citations/", &[], Of::All),
    call(Method::GET, "/tasks/", &[], Of::All),
    // Last, because it deletes the owner's object.
    call(Method::DELETE, "/citations/{messageId}", &["/citations/M"], Of::One),
];

/// Paths that are answered before the router.
const BESIDE: &[(Method, &str, &str)] = &[
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
    fn asked(&self, message: &str, task: &str) -> Vec<(String, String)> {
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

struct Two {
    upstream: Upstream,
    _tavily: Upstream,
    proxy: Proxy,
    _dir: tempfile::TempDir,
}

impl Two {
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

    async fn ask(&self, method: &Method, path: &str, body: &str, who: &[(&str, &str)]) -> Answer {
        Client::h1(self.proxy.addr).await.send(request(method.clone(), path, who, body.to_owned())).await
    }

    async fn told(&self, method: &Method, path: &str, body: &str, who: &[(&str, &str)]) -> String {
        told(self.ask(method, path, body, who).await).await
    }

    /// Messages of alpha in a task that it has not read yet, and a failure.
    async fn alpha_asks(&self) {
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
async fn told(answer: Answer) -> String {
    let whole = answer.whole().await;
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
    let two = Two::new().await;
    let mut before = Vec::new();
    for call in CALLS.iter().filter(|call| call.of == Of::Asker) {
        for path in call.paths() {
            before.push((call.method.clone(), *path, two.told(&call.method, path, "", BETA).await));
        }
    }
    two.alpha_asks().await;
    let requests = two.upstream.request_count();

    // Without a key.
    for call in CALLS {
        for (path, body) in call.asked("m-1", "t-1") {
            let mut all = BTreeSet::new();
            for who in WRONG {
                let told = two.told(&call.method, &path, &body, who).await;
                assert!(told.starts_with("401") && told.contains("urn:citetap:problem:unauthorized"), "{path}: {told}");
                all.insert(told);
            }
            assert_eq!(all.len(), 1, "{path}: whoever has no key hears the same");
        }
    }
    for (method, path, body) in BESIDE {
        for who in WRONG {
            assert_eq!(two.ask(method, path, body, who).await.status, 401, "{method} {path} {who:?}");
        }
    }
    assert_eq!(two.upstream.request_count(), requests);

    // Another tenant.
    for call in CALLS.iter().filter(|call| call.of == Of::One) {
        let unknown = call.asked("m-9", "t-9");
        for ((path, body), (nowhere, of_nobody)) in call.asked("m-1", "t-1").into_iter().zip(unknown) {
            let expected = two.told(&call.method, &nowhere, &of_nobody, BETA).await;
            assert!(expected.starts_with("404"), "{nowhere}: {expected}");
            assert_eq!(two.told(&call.method, &path, &body, BETA).await, expected, "{} {path}", call.method);
            if call.method == Method::GET {
                let expected = two.told(&Method::HEAD, &nowhere, "", BETA).await;
                assert_eq!(two.told(&Method::HEAD, &path, "", BETA).await, expected, "HEAD {path}");
            }
        }
    }
    for (method, path, expected) in &before {
        assert_eq!(&two.told(method, path, "", BETA).await, expected, "as before alpha asked: {path}");
        assert_ne!(&two.told(method, path, "", ALPHA).await, expected, "alpha has something to see: {path}");
    }
    for call in CALLS.iter().filter(|call| call.of == Of::All) {
        for (path, body) in call.asked("m-1", "t-1") {
            let status = async |who| two.ask(&call.method, &path, &body, who).await.status;
            assert_eq!(status(ALPHA).await, status(BETA).await, "{path}");
        }
    }

    // The owner, after all attempts of others.
    for call in CALLS.iter().filter(|call| call.of == Of::One) {
        for (path, body) in call.asked("m-1", "t-1") {
            let answer = two.ask(&call.method, &path, &body, ALPHA).await;
            let expected: &[u16] = match call.method {
                Method::DELETE => &[204],
                // The owner has read one item, which differs from this cursor's position.
                Method::PUT => &[409],
                _ => &[200],
            };
            assert!(expected.contains(&answer.status.as_u16()), "{} {path}: {}", call.method, answer.status);
        }
    }
    assert_eq!(two.ask(&Method::GET, "/citations/m-1", "", ALPHA).await.status, 404, "it was the last call");
}

/// A cursor of one tenant's list is meaningless in another's.
#[tokio::test]
async fn list_cursor_of_another_tenant_reveals_nothing() {
    let two = Two::new().await;
    let theirs = two.ask(&Method::POST, "/chat/m-3", "{}", BETA).await.whole().await;
    assert!(theirs.split().1[0].stored);
    two.alpha_asks().await;
    let page = two.ask(&Method::GET, "/citations?limit=1", "", ALPHA).await.json().await;
    let cursor = page["next"].as_str().expect("there is more").to_owned();
    let ids = |page: &Value| -> Vec<String> {
        page["items"].as_array().unwrap().iter().map(|item| item["messageId"].as_str().unwrap().to_owned()).collect()
    };
    let path = format!("/citations?cursor={cursor}");
    assert_eq!(ids(&two.ask(&Method::GET, &path, "", ALPHA).await.json().await), ["m-1"]);
    assert_eq!(ids(&two.ask(&Method::GET, &path, "", BETA).await.json().await), ["m-3"], "its own, older one");

    let page = two.ask(&Method::GET, "/tasks/t-1/bundles?limit=1", "", ALPHA).await.json().await;
    let cursor = page["next"].as_str().expect("there is more").to_owned();
    let of = async |task: &str, who| {
        let told = two.told(&Method::GET, &format!("/tasks/{task}/bundles?cursor={cursor}"), "", who).await;
        told.replace(task, "TASK")
    };
    assert!(of("t-1", ALPHA).await.contains("s1.example.com"));
    let foreign = of("t-1", BETA).await;
    assert!(foreign.contains("\"bundles\":[]"), "{foreign}");
    assert_eq!(foreign, of("t-9", BETA).await);
}

/// Tasks and consumers may have the same names in two tenants, as message ids may.
#[tokio::test]
async fn same_names_in_two_tenants_are_separate() {
    let two = Two::new().await;
    two.alpha_asks().await;
    let headers = [BETA, &[("x-task-id", "t-1")]].concat();
    two.ask(&Method::POST, "/chat/m-3", "{}", &headers).await.whole().await;
    let alphas = two.told(&Method::GET, "/tasks/t-1/cursors/c", "", ALPHA).await;
    let page = two.ask(&Method::GET, "/tasks/t-1/results?consumer=c", "", BETA).await.json().await;
    assert_eq!(page["items"].as_array().unwrap().len(), 2, "what it has not read is its own");
    assert_eq!(two.ask(&Method::PUT, "/tasks/t-1/cursors/c", &page["cursor"].to_string(), BETA).await.status, 200);
    assert_eq!(two.told(&Method::GET, "/tasks/t-1/cursors/c", "", ALPHA).await, alphas, "where it stood");
    assert_eq!(two.ask(&Method::DELETE, "/citations/m-3", "", BETA).await.status, 204);
    assert_eq!(two.ask(&Method::GET, "/tasks/t-1/results", "", BETA).await.status, 404, "the last of its task");
    assert_eq!(two.told(&Method::GET, "/tasks/t-1/cursors/c", "", ALPHA).await, alphas);
}

/// Rejecting another tenant's id takes no longer than rejecting an unknown one.
#[tokio::test]
async fn response_time_does_not_reveal_other_tenants_ids() {
    const TIMES: usize = 60;
    let two = Two::new().await;
    two.alpha_asks().await;
    let mut client = Client::h1(two.proxy.addr).await;
    for call in CALLS.iter().filter(|call| call.of == Of::One && !call.paths()[0].contains("wait")) {
        let (foreign, unknown) = (call.asked("m-1", "t-1").remove(0), call.asked("m-9", "t-9").remove(0));
        let mut times = [Vec::new(), Vec::new()];
        for n in 0..2 * TIMES {
            let (path, body) = [&foreign, &unknown][n % 2];
            let asked = request(call.method.clone(), path, BETA, body.clone());
            let began = Instant::now();
            assert_eq!(client.send(asked).await.whole().await.status, 404);
            times[n % 2].push(began.elapsed());
        }
        let [foreign, unknown] = times.map(|mut times| {
            times.sort();
            times[TIMES / 2]
        });
        let apart = foreign.abs_diff(unknown);
        let margin = foreign.max(unknown) / 2 + Duration::from_millis(1);
        assert!(apart < margin, "{} {}: {foreign:?} and {unknown:?}", call.method, call.route);
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
        let asked = request(Method::POST, "/chat", &[("x-citetap-nonce", theirs)], "{}");
        let whole = client.send(asked).await.whole().await;
        let nonce = whole.header("x-citetap-nonce").unwrap().to_owned();
        assert_eq!(whole.split().1[0].nonce, nonce, "the event says it too");
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

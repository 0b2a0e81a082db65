//! Rate limits per tenant: at and over, independent of each other, with errors in the dialect of the path.

use std::time::Duration;

use citetap::replay::{Script, Scripted, Upstream};
use http::Method;
use serde_json::json;

use crate::{
    api::tenants::{ALPHA, BETA, keys},
    net::{Client, ClientResponse, Proxy, chat, get, post, request, route, tencent},
};

/// Tenants alpha and beta in front of an echoing upstream, with a model and the console.
async fn limited(limits: &str, of_alpha: &str) -> (Upstream, Proxy) {
    let scripts = vec![
        Scripted::new("/echo", Script::echo()),
        Scripted::new("/v1/chat/completions", Script::json("{}")),
        Scripted::new("/", Script::sse(tencent::answer("m"))),
    ];
    let upstream = Upstream::bind(scripts).await.unwrap();
    let keys = keys().replace("name = \"alpha\"\n", &format!("name = \"alpha\"\n{of_alpha}\n"));
    let route = route("chat", &upstream.url()) + "provider = \"tencent\"\n[routes.openai]\nmodels = [\"m\"]\n";
    let cors = "[cors]\norigins = [\"https://app.example\"]\n";
    let proxy = Proxy::start(&format!("[limits]\n{limits}\n{cors}{route}{keys}")).await;
    (upstream, proxy)
}

async fn ask(proxy: &Proxy, method: Method, path: &str, headers: &[(&str, &str)]) -> ClientResponse {
    Client::h1(proxy.addr).await.send(request(method, path, headers, "{}")).await
}

/// Every request of a tenant counts once.
const ASKED: &[(Method, &str)] = &[
    (Method::POST, "/chat/echo"),
    (Method::GET, "/citations"),
    (Method::GET, "/citations/none"),
    (Method::GET, "/stats"),
    (Method::GET, "/tasks/t/bundles"),
    (Method::POST, "/normalize"),
    (Method::POST, "/render"),
    (Method::POST, "/search"),
    (Method::GET, "/console/routes"),
    (Method::GET, "/console/status"),
    (Method::GET, "/v1/models"),
    (Method::GET, "/v1/models/m"),
    (Method::POST, "/v1/chat/completions"),
    (Method::POST, "/v1/embeddings"),
    (Method::GET, "/nowhere"),
];

#[tokio::test]
async fn every_request_of_a_tenant_counts_and_no_other() {
    let (upstream, proxy) = limited(&format!("requests = \"{}/d\"", ASKED.len()), "").await;
    for (method, path) in ASKED {
        assert_ne!(ask(&proxy, method.clone(), path, ALPHA).await.status, 429, "at the limit: {path}");
    }
    let before = upstream.request_count();
    for (method, path) in ASKED {
        let refused = ask(&proxy, method.clone(), path, ALPHA).await;
        let wait: u64 = refused.header("retry-after").unwrap_or_else(|| panic!("{path}")).parse().unwrap();
        assert!((1..=86_400 / ASKED.len() as u64 + 1).contains(&wait), "{wait}");
        assert_eq!(refused.header("cache-control"), Some("no-store"));
        if path.starts_with("/v1/") {
            let error = crate::facade::failed(refused, 429, "rate_limit_exceeded").await;
            assert_eq!(error["type"], "requests");
        } else {
            let problem = refused.is_problem(429, "too-many-requests").await;
            let expected = format!("more requests than {}/d (limits.requests, or requests of the tenant)", ASKED.len());
            assert_eq!(problem["detail"], expected);
        }
    }
    assert_eq!(upstream.request_count(), before, "refused requests did not reach the upstream");
    for (method, path) in ASKED {
        assert_ne!(ask(&proxy, method.clone(), path, BETA).await.status, 429, "beta has its own limit: {path}");
    }
    // A page can read Retry-After, and its preflight passes.
    let page = ("origin", "https://app.example");
    let refused = ask(&proxy, Method::GET, "/citations", &[ALPHA[0], page]).await;
    assert_eq!((refused.status.as_u16(), refused.header("access-control-allow-origin")), (429, Some(page.1)));
    let preflight = [page, ("access-control-request-method", "POST")];
    assert_eq!(ask(&proxy, Method::OPTIONS, "/citations", &preflight).await.status, 204);
    for path in ["/healthz", "/readyz", "/version", "/metrics", "/", "/component.js"] {
        assert_eq!(ask(&proxy, Method::GET, path, ALPHA).await.status, 200, "{path}");
    }
    let metrics = proxy.get("/metrics").await.whole().await.text();
    assert!(metrics.contains(&format!("\ncitetap_rate_limited_total {}\n", ASKED.len() + 1)), "{metrics}");
}

#[tokio::test]
async fn requests_without_key_do_not_use_a_tenants_rate() {
    let (_upstream, proxy) = limited("requests = \"2/d\"", "").await;
    for headers in [&[][..], &[("x-citetap-key", "wrong")], &[("authorization", "Bearer alpha")]] {
        for path in ["/citations", "/chat/echo", "/v1/models"] {
            for _ in 0..3 {
                assert_eq!(ask(&proxy, Method::GET, path, headers).await.status, 401, "{path}");
            }
        }
    }
    for headers in [ALPHA, &[("authorization", "Bearer beta-key")]] {
        let mut statuses = Vec::new();
        for _ in 0..3 {
            statuses.push(ask(&proxy, Method::GET, "/citations", headers).await.status.as_u16());
        }
        assert_eq!(statuses, [200, 200, 429], "{headers:?}");
    }
}

#[tokio::test]
async fn tenant_rate_overrides_the_default() {
    let (_upstream, proxy) = limited("requests = \"1/d\"", "requests = \"off\"").await;
    for _ in 0..5 {
        assert_eq!(ask(&proxy, Method::GET, "/citations", ALPHA).await.status, 200);
    }
    assert_eq!(ask(&proxy, Method::GET, "/citations", BETA).await.status, 200);
    assert_eq!(ask(&proxy, Method::GET, "/citations", BETA).await.status, 429);
}

/// A cell every 1.5 s: Retry-After is rounded up, otherwise a client would retry too early.
#[tokio::test]
async fn request_after_retry_after_is_admitted_over_h1_and_h2() {
    let (_upstream, proxy) = chat(Script::sse(tencent::answer("m")), "[limits]\nrequests = \"40/m\"").await;
    for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
        let mut refused = None;
        for _ in 0..1000 {
            let response = client.send(post("/chat", "{}")).await;
            if response.status == 429 {
                refused = Some(response);
                break;
            }
            assert_eq!(response.whole().await.error, None);
        }
        let refused = refused.expect("a refusal");
        let wait = Duration::from_secs(refused.header("retry-after").unwrap().parse().unwrap());
        refused.is_problem(429, "too-many-requests").await;
        assert!(wait <= Duration::from_secs(2), "{wait:?}");
        tokio::time::sleep(wait).await;
        let whole = client.send(post("/chat", "{}")).await.whole().await;
        assert_eq!((whole.status.as_u16(), whole.split().1.len()), (200, 1));
    }
}

/// Without tenants there is one limit. Of many simultaneous requests exactly the allowed number passes.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rate_admits_exactly_its_count_of_200_at_once() {
    let (upstream, proxy) = chat(Script::json(json!({}).to_string()), "[limits]\nrequests = \"50/d\"").await;
    let mut tasks = Vec::new();
    let shared = std::sync::Arc::new(tokio::sync::Barrier::new(200));
    for n in 0..200 {
        let (addr, together) = (proxy.addr, std::sync::Arc::clone(&shared));
        tasks.push(tokio::spawn(async move {
            let mut client = if n % 4 == 0 { Client::h2(addr).await } else { Client::h1(addr).await };
            together.wait().await;
            client.send(post("/chat", "{}")).await.status.as_u16()
        }));
    }
    let (mut passed, mut refused) = (0, 0);
    for task in tasks {
        match task.await.unwrap() {
            200 => passed += 1,
            429 => refused += 1,
            other => panic!("{other}"),
        }
    }
    assert_eq!((passed, refused, upstream.request_count()), (50, 150, 50));
    assert_eq!(Client::h1(proxy.addr).await.send(get("/healthz")).await.status, 200);
}

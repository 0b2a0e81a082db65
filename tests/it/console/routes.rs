//! `GET /console/routes`: the routes that the console offers.

use http::Method;
use serde_json::json;

use crate::{
    api::tenants,
    net::{Client, Proxy, config, request, route},
};

fn two(questions: &str) -> String {
    route("kb", "http://secret.example:81/path")
        + &format!("provider = \"tencent\"\ninject = \"live\"\nquestions = {questions}\n")
        + "[routes.openai]\nmodels = [\"a\", \"b\"]\n[routes.request_headers]\nset = { x-key = \"hidden\" }\n"
        + &route("plain", "http://127.0.0.1:1")
        + "profile = \"ai-sdk\"\nmarkers = \"link\"\n"
}

#[tokio::test]
async fn routes_are_listed_without_their_upstreams() {
    let proxy = Proxy::start(&two(r#"["什么是热泵？"]"#)).await;
    let response = proxy.get("/console/routes").await;
    assert_eq!((response.status.as_u16(), response.header("content-type")), (200, Some("application/json")));
    assert_eq!(response.header("cache-control"), Some("no-store"));
    let listed = response.json().await;
    assert_eq!(
        listed,
        json!({"tenant": "default", "keys": false, "providers": ["doubao", "tencent", "openai", "openai-responses", "anthropic", "gemini"], "routes": [
            {"name": "plain", "prefix": "/plain", "provider": "auto", "profile": "ai-sdk", "markers": "link",
             "inject": "final", "models": [], "questions": []},
            {"name": "kb", "prefix": "/kb", "provider": "tencent", "profile": "native", "markers": "keep",
             "inject": "live", "models": ["a", "b"], "questions": ["什么是热泵？"]},
        ]})
    );
    proxy.app.set_routes(config(&two(r#"["What now?"]"#)).routes);
    let listed = proxy.get("/console/routes").await.json().await;
    assert_eq!(listed["routes"][1]["questions"], json!(["What now?"]), "new routes are listed");
    proxy.post("/console/routes", "{}").await.is_problem(405, "method-not-allowed").await;
}

#[tokio::test]
async fn routes_require_a_key_with_tenants() {
    let (_upstream, proxy) = tenants::two().await;
    for key in [&[][..], &[("x-citetap-key", "gamma-key")]] {
        let response = Client::h1(proxy.addr).await.send(request(Method::GET, "/console/routes", key, "")).await;
        response.is_problem(401, "unauthorized").await;
    }
    let response = Client::h1(proxy.addr).await.send(request(Method::GET, "/console/routes", tenants::BETA, "")).await;
    let listed = response.json().await;
    assert_eq!(
        (&listed["tenant"], &listed["keys"], &listed["routes"][0]["name"]),
        (&json!("beta"), &json!(true), &json!("chat"))
    );
}

//! Which requests below `/v1` the facade answers and which are relayed.

use citetap::replay::{Script, Scripted, Upstream};

use super::{asking, failed};
use crate::net::{Proxy, config, post, route};

async fn echo() -> Upstream {
    Upstream::bind(vec![Scripted::new("/", Script::echo())]).await.unwrap()
}

fn at_root(url: &str) -> String {
    format!("[[routes]]\nname = \"root\"\nprefix = \"/\"\nupstream = \"{url}\"\n")
}

fn mapped(url: &str) -> String {
    route("kb", &format!("{url}/mapped")) + "[routes.openai]\nmodels = [\"m\"]\n"
}

#[tokio::test]
async fn without_models_v1_is_an_ordinary_path() {
    let upstream = echo().await;
    let proxy = Proxy::start(&at_root(&upstream.url())).await;
    for path in ["/v1/chat/completions?x=1", "/v1/models", "/v1/models/a", "/v1/embeddings", "/v1", "/v1beta/x"] {
        let seen = proxy.post(path, "not for us").await.json().await;
        assert_eq!((&seen["path"], &seen["body"]), (&path.into(), &"not for us".into()));
    }
}

#[tokio::test]
async fn without_models_and_route_error_explains_models() {
    let proxy = Proxy::start(&route("kb", "http://127.0.0.1:1")).await;
    for path in ["/v1/chat/completions", "/v1/models", "/v1"] {
        let error = failed(proxy.post(path, "{}").await, 404, "no_models").await;
        assert!(error["message"].as_str().unwrap().contains("[routes.openai]"), "{error}");
    }
    proxy.post("/v1beta/x", "{}").await.is_problem(404, "no-route").await;
}

#[tokio::test]
async fn with_models_other_v1_paths_are_relayed() {
    let upstream = echo().await;
    let proxy = Proxy::start(&(at_root(&upstream.url()) + &mapped(&upstream.url()))).await;
    proxy.post("/v1/chat/completions", asking("m", false)).await.whole().await;
    assert_eq!(upstream.requests()[0].path, "/mapped/v1/chat/completions");
    assert_eq!(proxy.get("/v1/models").await.json().await["data"][0]["id"], "m");
    assert_eq!(upstream.request_count(), 1);
    for path in ["/v1/embeddings", "/v1/chat/completions/x", "/v1/models/", "/v1"] {
        assert_eq!(proxy.post(path, "x").await.json().await["path"], path);
    }
}

#[tokio::test]
async fn with_models_unrouted_v1_paths_are_404() {
    let proxy = Proxy::start(&mapped("http://127.0.0.1:1")).await;
    for path in ["/v1/embeddings", "/v1/responses", "/v1"] {
        let error = failed(proxy.post(path, "{}").await, 404, "no_such_endpoint").await;
        assert!(error["message"].as_str().unwrap().contains("/v1/chat/completions"), "{error}");
    }
}

#[tokio::test]
async fn reloaded_routes_update_the_models() {
    let upstream = echo().await;
    let proxy = Proxy::start(&mapped(&upstream.url())).await;
    let mut client = crate::net::Client::h1(proxy.addr).await;
    failed(client.send(post("/v1/chat/completions", asking("n", false))).await, 404, "model_not_found").await;
    proxy.app.set_routes(config(&mapped(&upstream.url()).replace("\"m\"", "\"n\"")).routes);
    assert_eq!(client.send(post("/v1/chat/completions", asking("n", false))).await.status, 200);
    failed(client.send(post("/v1/chat/completions", asking("m", false))).await, 404, "model_not_found").await;
}

//! DNS rebinding: without keys, only known host names are served.

use citetap::replay::{Script, Scripted, Upstream};
use http::{Method, Request};

use crate::{
    api::tenants,
    net::{Client, ClientResponse, Proxy, raw, request, route},
};

async fn proxy(toml: &str) -> (Upstream, Proxy) {
    let upstream = Upstream::bind(vec![Scripted::new("/", Script::echo())]).await.unwrap();
    let toml = format!("{toml}{}", route("chat", &upstream.url()));
    (upstream, Proxy::start(&toml).await)
}

async fn get(proxy: &Proxy, path: &str, host: &str) -> ClientResponse {
    let headers = [("host", host)];
    Client::h1(proxy.addr).await.send(request(Method::GET, path, &headers, "")).await
}

#[tokio::test]
async fn unknown_hosts_are_421_on_every_path_without_keys() {
    let (upstream, proxy) = proxy("").await;
    for path in [
        "/chat",
        "/citations",
        "/citations/m-1",
        "/stats",
        "/tasks/t/results",
        "/metrics",
        "/version",
        "/openapi.json",
        "/",
        "/component.js",
        "/console/status",
        "/v1/models",
        "/nowhere",
    ] {
        for host in ["evil.example", "evil.example:8787", "localhost.evil.example", "citetap", "127.1"] {
            let problem = get(&proxy, path, host).await.is_problem(421, "unknown-host").await;
            assert!(problem["detail"].as_str().unwrap().contains("allowed_hosts"), "{path} {host}");
        }
    }
    assert_eq!(upstream.request_count(), 0);
}

#[tokio::test]
async fn loopback_names_addresses_and_probes_are_served() {
    let (_upstream, proxy) = proxy("allowed_hosts = [\"citetap\", \"*.tap.example\"]\n").await;
    for host in [
        "localhost",
        "localhost:1",
        "app.localhost",
        "127.0.0.1:8787",
        "[::1]:80",
        "10.0.0.7",
        "CiteTap:80",
        "a.tap.example",
    ] {
        assert_eq!(get(&proxy, "/chat", host).await.status, 200, "{host}");
    }
    for host in ["tap.example", "citetap.evil.example"] {
        assert_eq!(get(&proxy, "/chat", host).await.status, 421, "{host}");
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(get(&proxy, path, "any.example").await.status, 200, "{path}");
    }
}

/// Servers must use the target's host (RFC 9112 3.2.2), but some upstreams use the header.
#[tokio::test]
async fn target_and_header_must_both_be_allowed() {
    let (upstream, proxy) = proxy("").await;
    for head in [
        "GET http://evil.example/chat HTTP/1.1\r\nHost: localhost",
        "GET http://localhost/chat HTTP/1.1\r\nHost: evil.example",
        "GET /chat HTTP/1.1\r\nHost: localhost\r\nHost: evil.example",
        "GET /chat HTTP/1.0\r\nHost: evil.example",
    ] {
        let response = raw(proxy.addr, format!("{head}\r\nConnection: close\r\n\r\n")).await;
        assert!(response.contains(" 421 "), "{head}: {response}");
    }
    let mut h2 = Client::h2(proxy.addr).await;
    let evil: Request<http_body_util::Full<bytes::Bytes>> =
        Request::builder().uri("http://evil.example/chat").body(Default::default()).unwrap();
    h2.send(evil).await.is_problem(421, "unknown-host").await;
    assert_eq!(upstream.request_count(), 0);
    let without = raw(proxy.addr, "GET /chat HTTP/1.0\r\n\r\n").await;
    assert!(without.contains(" 200 "), "browsers always send a host: {without}");
}

#[tokio::test]
async fn any_host_is_served_with_keys_or_wildcard() {
    let (_upstream, open) = proxy("allowed_hosts = [\"*\"]\n").await;
    assert_eq!(get(&open, "/chat", "evil.example").await.status, 200);
    let upstream = Upstream::bind(vec![Scripted::new("/", Script::echo())]).await.unwrap();
    let keyed = Proxy::start(&format!("{}{}", route("chat", &upstream.url()), tenants::keys())).await;
    assert_eq!(get(&keyed, "/chat", "tap.example").await.status, 401);
    let headers = [("host", "tap.example"), tenants::ALPHA[0]];
    let response = Client::h1(keyed.addr).await.send(request(Method::GET, "/chat", &headers, "")).await;
    assert_eq!(response.status, 200);
}

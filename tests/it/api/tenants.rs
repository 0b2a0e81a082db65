//! P8: to other tenants a record does not exist.

use std::fmt::Write as _;

use citetap::replay::{Script, Upstream};
use http::{Method, header};
use sha2::{Digest, Sha256};

use super::{FOR_EVER, ask, proxy, record, steps};
use crate::net::{Client, ClientResponse, Proxy, eventually, request, tencent};

type Headers = &'static [(&'static str, &'static str)];

pub const ALPHA: Headers = &[("x-citetap-key", "alpha-key")];
pub const BETA: Headers = &[("x-citetap-key", "beta-key")];

pub fn keys() -> String {
    let mut toml = String::new();
    for name in ["alpha", "beta"] {
        let hash = Sha256::digest(format!("{name}-key"));
        let hex = hash.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        write!(toml, "[[tenants]]\nname = \"{name}\"\nkey_sha256 = \"{hex}\"\n").unwrap();
    }
    toml
}

pub async fn two() -> (Upstream, Proxy) {
    let open = [tencent::references("open", &[1]), tencent::finish("open")];
    let scripts = vec![
        ("/m-1", Script::sse(tencent::answer("m-1"))),
        ("/open", steps(&open, FOR_EVER)),
        ("/echo", Script::echo()),
    ];
    proxy(scripts, &keys()).await
}

pub async fn chat(proxy: &Proxy, path: &str, headers: &[(&str, &str)]) -> ClientResponse {
    Client::h1(proxy.addr).await.send(request(Method::POST, path, headers, "{}")).await
}

/// The content of a response.
async fn content(response: ClientResponse) -> String {
    let whole = response.whole().await;
    let mut headers = whole.headers.clone();
    headers.remove(header::DATE);
    format!("{} {headers:?} {}", whole.status, whole.text())
}

#[tokio::test]
async fn request_without_valid_key_reveals_nothing() {
    let (upstream, proxy) = two().await;
    let wrong: [Headers; 5] = [
        &[],
        &[("x-citetap-key", "gamma-key")],
        &[("x-citetap-key", "")],
        &[("authorization", "Bearer sk-upstream")],
        &[("authorization", "Basic alpha-key")],
    ];
    for headers in wrong {
        for (method, path) in [
            (Method::GET, "/citations"),
            (Method::GET, "/stats"),
            (Method::GET, "/citations/m-1"),
            (Method::GET, "/citations/m-1/events"),
            (Method::DELETE, "/citations/m-1"),
            (Method::POST, "/chat/m-1"),
            (Method::GET, "/nowhere"),
        ] {
            let response = ask(&proxy, method, path, headers).await;
            assert_eq!(response.header("www-authenticate"), Some("Bearer"));
            response.is_problem(401, "unauthorized").await;
        }
    }
    assert_eq!(upstream.request_count(), 0);
    for path in ["/healthz", "/readyz", "/version", "/metrics"] {
        assert_eq!(proxy.get(path).await.status, 200, "operators need no key: {path}");
    }
}

#[tokio::test]
async fn other_tenants_cannot_read_list_delete_or_watch() {
    let (_upstream, proxy) = two().await;
    chat(&proxy, "/chat/m-1", ALPHA).await.whole().await;
    let mut open = chat(&proxy, "/chat/open", ALPHA).await;
    open.until("reference_chunks").await;
    let flying =
        eventually(|| async { (ask(&proxy, Method::GET, "/citations/open", ALPHA).await.status == 202).then_some(()) });
    flying.await.expect("in flight for its tenant");

    for (method, tail) in [
        (Method::GET, ""),
        (Method::GET, "?wait=5"),
        (Method::GET, "/events"),
        (Method::DELETE, ""),
        (Method::HEAD, ""),
    ] {
        let unknown = content(ask(&proxy, method.clone(), &format!("/citations/nobody{tail}"), BETA).await).await;
        assert!(unknown.starts_with("404"), "{unknown}");
        for id in ["m-1", "open"] {
            let response = ask(&proxy, method.clone(), &format!("/citations/{id}{tail}"), BETA).await;
            assert_eq!(content(response).await, unknown, "{method} {id}{tail}");
        }
    }
    let listed = ask(&proxy, Method::GET, "/citations", BETA).await.json().await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 0);
    let listed = ask(&proxy, Method::GET, "/citations", ALPHA).await.json().await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    for (headers, messages) in [(BETA, 0), (ALPHA, 1)] {
        let sums = ask(&proxy, Method::GET, "/stats", headers).await.json().await;
        assert_eq!(sums["totals"]["messages"], messages);
    }
    assert_eq!(ask(&proxy, Method::GET, "/citations/m-1", ALPHA).await.status, 200, "not deleted");
}

#[tokio::test]
async fn same_id_in_two_tenants_is_separate() {
    let (_upstream, proxy) = two().await;
    let alpha = chat(&proxy, "/chat/m-1", ALPHA).await.whole().await.split().1.remove(0);
    let beta = chat(&proxy, "/chat/m-1", BETA).await.whole().await.split().1.remove(0);
    assert_ne!(alpha.nonce, beta.nonce);
    assert_eq!(record(ask(&proxy, Method::GET, "/citations/m-1", ALPHA).await).await, alpha);
    assert_eq!(record(ask(&proxy, Method::GET, "/citations/m-1", BETA).await).await, beta);
    assert_eq!(ask(&proxy, Method::DELETE, "/citations/m-1", BETA).await.status, 204);
    assert_eq!(record(ask(&proxy, Method::GET, "/citations/m-1", ALPHA).await).await, alpha);
}

#[tokio::test]
async fn our_keys_are_stripped_and_other_authorization_passes() {
    let (upstream, proxy) = two().await;
    let cases: [(Headers, &[&str]); 7] = [
        (&[("x-citetap-key", "alpha-key")], &[]),
        (&[("authorization", "Bearer alpha-key")], &[]),
        (&[("authorization", "bearer  alpha-key")], &[]),
        (&[("x-citetap-key", "alpha-key"), ("authorization", "Bearer sk-upstream")], &["Bearer sk-upstream"]),
        (&[("x-citetap-key", "alpha-key"), ("authorization", "Basic dTpw")], &["Basic dTpw"]),
        // A client that sends the key in both headers: neither is relayed.
        (&[("x-citetap-key", "alpha-key"), ("authorization", "Bearer alpha-key")], &[]),
        (&[("authorization", "Bearer sk-upstream"), ("authorization", "Bearer alpha-key")], &["Bearer sk-upstream"]),
    ];
    for (headers, passed) in cases {
        let response = chat(&proxy, "/chat/echo", headers).await;
        assert_eq!(response.status, 200, "{headers:?}");
        let seen = upstream.requests().pop().unwrap();
        let values: Vec<&str> =
            seen.headers.get_all("authorization").iter().map(|value| value.to_str().unwrap()).collect();
        assert_eq!(values, passed, "{headers:?}");
        assert!(!format!("{:?}", seen.headers).contains("alpha-key"), "{headers:?}: {:?}", seen.headers);
    }
}

#[tokio::test]
async fn metrics_contain_no_tenant_and_no_message() {
    let (_upstream, proxy) = two().await;
    chat(&proxy, "/chat/m-1", ALPHA).await.whole().await;
    let text = proxy.get("/metrics").await.whole().await.text();
    assert!(!text.contains("alpha") && !text.contains("m-1"), "{text}");
}

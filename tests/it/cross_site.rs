//! Cross-site requests of browsers.

use citetap::replay::{Script, Scripted, Upstream};
use http::Method;

use crate::{
    api::tenants,
    net::{Client, ClientResponse, Proxy, request, route},
};

const PAGE: &str = "https://app.example";

async fn proxy(toml: &str, route_toml: &str, more: &str) -> (Upstream, Proxy) {
    let upstream = Upstream::bind(vec![Scripted::new("/", Script::echo())]).await.unwrap();
    let toml = format!("{toml}{}{route_toml}{more}", route("chat", &upstream.url()));
    (upstream, Proxy::start(&toml).await)
}

async fn send(proxy: &Proxy, method: Method, path: &str, headers: &[(&str, &str)]) -> ClientResponse {
    Client::h1(proxy.addr).await.send(request(method, path, headers, "{}")).await
}

/// Headers of requests that a page of another site can send without a preflight.
const OTHER_SITES: &[&[(&str, &str)]] = &[
    &[("origin", "https://evil.example"), ("content-type", "text/plain")],
    &[("origin", "null")],
    &[("origin", "http://localhost:3000")],
    &[("sec-fetch-site", "cross-site")],
    &[("sec-fetch-site", "same-site")],
    &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "image")],
];

#[tokio::test]
async fn requests_of_other_sites_are_403_on_every_path_without_keys() {
    let (upstream, proxy) = proxy("", "", "").await;
    for headers in OTHER_SITES {
        for (method, path) in [
            (Method::POST, "/chat"),
            (Method::GET, "/chat"),
            (Method::DELETE, "/citations/m-1"),
            (Method::GET, "/citations"),
            (Method::POST, "/render"),
            (Method::POST, "/normalize"),
            (Method::POST, "/search"),
            (Method::POST, "/v1/chat/completions"),
            (Method::GET, "/console/status"),
            (Method::GET, "/metrics"),
            (Method::GET, "/nowhere"),
        ] {
            let response = send(&proxy, method, path, headers).await;
            assert!(response.header("access-control-allow-origin").is_none());
            response.is_problem(403, "cross-site").await;
        }
    }
    assert_eq!(upstream.request_count(), 0);
}

#[tokio::test]
async fn programs_own_pages_and_listed_origins_are_served() {
    let (upstream, proxy) = proxy("", "", &format!("[cors]\norigins = [{PAGE:?}]\n")).await;
    let own = format!("http://{}", proxy.addr);
    let served: [&[(&str, &str)]; 6] = [
        &[],
        &[("origin", &own)],
        &[("origin", &own), ("sec-fetch-site", "same-origin")],
        &[("sec-fetch-site", "none")],
        &[("origin", PAGE)],
        &[("origin", PAGE), ("sec-fetch-site", "cross-site"), ("content-type", "text/plain")],
    ];
    for headers in served {
        assert_eq!(send(&proxy, Method::POST, "/chat", headers).await.status, 200, "{headers:?}");
    }
    assert_eq!(upstream.request_count(), served.len());
}

#[tokio::test]
async fn links_lead_to_own_pages_but_not_to_routes() {
    let (upstream, proxy) = proxy("", "", "").await;
    let link = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
    for (path, status) in [("/", 200), ("/citations", 200), ("/citations/none", 404), ("/chat", 403), ("/nowhere", 403)]
    {
        assert_eq!(send(&proxy, Method::GET, path, &link).await.status, status, "{path}");
    }
    assert_eq!(send(&proxy, Method::POST, "/render", &link).await.status, 403, "a form");
    let frame = [link[0], link[1], ("sec-fetch-dest", "iframe")];
    assert_eq!(send(&proxy, Method::GET, "/citations", &frame).await.status, 403);
    let script = [("sec-fetch-site", "cross-site"), ("origin", PAGE), ("sec-fetch-dest", "script")];
    assert_eq!(send(&proxy, Method::GET, "/component.js", &script).await.status, 200);
    assert_eq!(upstream.request_count(), 0);
}

/// A page without a key gets 401. A page with a key must not use a credential that the operator configured.
#[tokio::test]
async fn with_keys_only_credentials_of_the_operator_are_guarded() {
    let headers = [("origin", PAGE), tenants::ALPHA[0]];
    let keys = tenants::keys();
    let credential = "[routes.request_headers.set]\nauthorization = \"Bearer of-the-operator\"\n";
    for (route_toml, status) in [("", 200), (credential, 403)] {
        let (upstream, proxy) = proxy("", route_toml, &keys).await;
        assert_eq!(send(&proxy, Method::POST, "/chat", &headers).await.status, status, "{route_toml}");
        assert_eq!(upstream.request_count(), usize::from(status == 200));
        assert_eq!(send(&proxy, Method::POST, "/chat", &headers[1..]).await.status, 200, "a program");
        assert_eq!(send(&proxy, Method::GET, "/citations", &headers).await.status, 200);
        assert_eq!(send(&proxy, Method::POST, "/search", &headers).await.status, 403);
        assert_eq!(send(&proxy, Method::POST, "/chat", &headers[..1]).await.status, 401);
    }
    let (_upstream, proxy) = proxy("", credential, &format!("{keys}[cors]\norigins = [{PAGE:?}]\n")).await;
    assert_eq!(send(&proxy, Method::POST, "/chat", &headers).await.status, 200, "a listed origin");
}

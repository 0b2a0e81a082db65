//! Cross-origin requests.

use citetap::replay::{Script, Scripted, Upstream};
use http::{HeaderName, HeaderValue, Method};

use crate::{
    api::tenants,
    net::{Client, ClientResponse, Proxy, request, route, tencent},
};

const PAGE: &str = "https://app.example";

/// A proxy with the route `/chat` to a stream, and `/own` to an upstream with its own CORS headers.
async fn proxy(toml: &str) -> (Upstream, Proxy) {
    proxy_with(toml, "").await
}

async fn proxy_with(toml: &str, route_toml: &str) -> (Upstream, Proxy) {
    let own =
        |name: &'static str, value: &'static str| (HeaderName::from_static(name), HeaderValue::from_static(value));
    let script = [
        own("access-control-allow-origin", "https://other.example"),
        own("access-control-allow-credentials", "true"),
        own("vary", "cookie"),
    ]
    .into_iter()
    .fold(Script::json("{}"), |script, (name, value)| script.header(name, value));
    let scripts = vec![
        Scripted::new("/m-1", Script::sse(tencent::answer("m-1"))),
        Scripted::new("/own", script),
        Scripted::new("/echo", Script::echo()),
    ];
    let upstream = Upstream::bind(scripts).await.unwrap();
    let toml = format!("{toml}\n{}provider = \"tencent\"\n{route_toml}", route("chat", &upstream.url()));
    (upstream, Proxy::start(&toml).await)
}

async fn ask(proxy: &Proxy, method: Method, path: &str, headers: &[(&str, &str)]) -> ClientResponse {
    Client::h1(proxy.addr).await.send(request(method, path, headers, "")).await
}

fn of_cors(response: &ClientResponse) -> Vec<String> {
    let names = response.headers.keys().map(HeaderName::as_str);
    names.filter(|name| name.starts_with("access-control-")).map(str::to_owned).collect()
}

const PREFLIGHT: &[(&str, &str)] = &[
    ("origin", PAGE),
    ("access-control-request-method", "POST"),
    ("access-control-request-headers", "content-type,x-citetap-key"),
];

#[tokio::test]
async fn without_origins_preflights_are_403_and_never_relayed() {
    let (upstream, proxy) = proxy("").await;
    for path in ["/chat/echo", "/chat/own", "/citations", "/nowhere"] {
        let refused = ask(&proxy, Method::OPTIONS, path, PREFLIGHT).await;
        assert!(of_cors(&refused).is_empty() && refused.header("vary").unwrap().contains("origin"), "{path}");
        refused.is_problem(403, "cross-site").await;
    }
    assert_eq!(upstream.request_count(), 0);
    let relayed = ask(&proxy, Method::OPTIONS, "/chat/echo", &[]).await;
    assert_eq!(relayed.json().await["method"], "OPTIONS", "not a preflight");
}

#[tokio::test]
async fn upstream_permissions_are_relayed_only_with_relay_cors() {
    for origins in ["", "[cors]\norigins = [\"https://app.example\"]\n"] {
        let (_upstream, proxy) = proxy_with(origins, "").await;
        let own = ask(&proxy, Method::GET, "/chat/own", &[]).await;
        assert!(of_cors(&own).is_empty(), "{:?}", own.headers);
        let (_upstream, proxy) = proxy_with(origins, "relay_cors = true\n").await;
        let own = ask(&proxy, Method::GET, "/chat/own", &[]).await;
        assert_eq!(own.header("access-control-allow-origin"), Some("https://other.example"));
        assert_eq!(own.header("access-control-allow-credentials"), Some("true"));
    }
    let (_upstream, proxy) = proxy_with("[cors]\norigins = [\"https://app.example\"]\n", "relay_cors = true\n").await;
    let own = ask(&proxy, Method::GET, "/chat/own", &[("origin", PAGE)]).await;
    assert_eq!(own.header("access-control-allow-origin"), Some("https://other.example"), "it wins over [cors]");
}

#[tokio::test]
async fn preflight_of_an_allowed_origin_is_answered() {
    let (upstream, proxy) = proxy(&format!("[cors]\norigins = [{PAGE:?}]\n")).await;
    for path in ["/", "/citations/m-1", "/render", "/v1/chat/completions", "/chat/echo", "/nowhere", "/console/routes"]
    {
        let response = ask(&proxy, Method::OPTIONS, path, PREFLIGHT).await;
        assert_eq!(response.status, 204, "{path}");
        for (name, value) in [
            ("access-control-allow-origin", PAGE),
            ("access-control-allow-headers", "content-type,x-citetap-key"),
            ("access-control-max-age", "600"),
            ("access-control-allow-methods", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
        ] {
            assert_eq!(response.header(name), Some(value), "{path}");
        }
        assert!(response.header("vary").unwrap().contains("origin"));
    }
    assert_eq!(upstream.request_count(), 0);
    // Not a preflight, and not an allowed origin.
    let plain = ask(&proxy, Method::OPTIONS, "/chat/echo", &[("origin", PAGE)]).await;
    assert_eq!(plain.json().await["method"], "OPTIONS");
    let other = [("origin", "https://app.example.evil"), PREFLIGHT[1]];
    let other = ask(&proxy, Method::OPTIONS, "/chat/echo", &other).await;
    assert!(of_cors(&other).is_empty());
    other.is_problem(403, "cross-site").await;
    assert_eq!(upstream.request_count(), 1);
}

#[tokio::test]
async fn responses_are_readable_by_allowed_origins_only() {
    let (_upstream, proxy) = proxy(&format!("[cors]\norigins = [\"https://x.example\", {PAGE:?}]\n")).await;
    for path in ["/chat/m-1", "/chat/own", "/citations", "/citations/none", "/console/routes", "/nowhere", "/healthz"] {
        let response = ask(&proxy, Method::GET, path, &[("origin", PAGE)]).await;
        assert_eq!(response.header("access-control-allow-origin"), Some(PAGE), "{path}");
        assert_eq!(of_cors(&response).len(), 2, "credentials or the upstream's headers: {path}");
        let exposed = response.header("access-control-expose-headers").unwrap();
        assert_eq!(exposed, "x-citetap-nonce, x-citetap-request, etag, content-type, retry-after");
        let varies: Vec<_> = response.headers.get_all("vary").iter().map(|value| value.to_str().unwrap()).collect();
        assert_eq!(varies.last(), Some(&"origin"), "{path}");
        assert!(path != "/chat/own" || varies[0] == "cookie", "{varies:?}");
        for other in [&[][..], &[("origin", "https://evil.example")], &[("origin", "null")]] {
            let response = ask(&proxy, Method::GET, path, other).await;
            assert!(of_cors(&response).is_empty(), "{path}");
            assert_eq!(response.status == 403, !other.is_empty(), "{path}");
        }
    }
}

#[tokio::test]
async fn wildcard_allows_any_origin() {
    let (_upstream, proxy) = proxy("[cors]\norigins = [\"*\"]\n").await;
    for origin in [PAGE, "null"] {
        let response = ask(&proxy, Method::GET, "/chat/own", &[("origin", origin)]).await;
        assert_eq!(response.header("access-control-allow-origin"), Some("*"));
        assert_eq!(response.header("access-control-allow-credentials"), None);
        assert_eq!(response.header("vary"), Some("cookie"), "the same for all");
    }
    assert!(!of_cors(&ask(&proxy, Method::OPTIONS, "/chat/echo", PREFLIGHT).await).is_empty());
    let component = ask(&proxy, Method::GET, "/component.js", &[]).await;
    assert_eq!(component.header("access-control-allow-origin"), Some("*"), "also without an origin");
}

/// A page without a key can read the error. Its preflight needs no key, because browsers send none with it.
#[tokio::test]
async fn missing_key_error_is_readable_by_the_page() {
    let (_upstream, proxy) = proxy(&format!("[cors]\norigins = [{PAGE:?}]\n{}", tenants::keys())).await;
    assert_eq!(ask(&proxy, Method::OPTIONS, "/citations", PREFLIGHT).await.status, 204);
    let refused = ask(&proxy, Method::GET, "/citations", &[("origin", PAGE)]).await;
    assert_eq!(refused.header("access-control-allow-origin"), Some(PAGE));
    refused.is_problem(401, "unauthorized").await;
}

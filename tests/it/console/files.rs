//! The embedded files of the console.

use citetap::replay::{Script, Scripted, Upstream};
use http::Method;

use crate::{
    api::tenants,
    net::{Client, ClientResponse, Proxy, request, route},
};

async fn ask(proxy: &Proxy, method: Method, path: &str, headers: &[(&str, &str)]) -> ClientResponse {
    Client::h1(proxy.addr).await.send(request(method, path, headers, "")).await
}

/// A proxy whose route has the prefix `/`, in front of an upstream that echoes the request.
async fn at_root(toml: &str) -> (Upstream, Proxy) {
    let upstream = Upstream::bind(vec![Scripted::new("/", Script::echo())]).await.unwrap();
    let toml = format!("{toml}\n[[routes]]\nname = \"root\"\nprefix = \"/\"\nupstream = \"{}\"\n", upstream.url());
    (upstream, Proxy::start(&toml).await)
}

#[tokio::test]
async fn page_is_public_and_loads_nothing_from_elsewhere() {
    let (_upstream, proxy) = tenants::two().await;
    let page = proxy.get("/").await;
    assert_eq!((page.status.as_u16(), page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'; "), "{policy}");
    assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"), "{policy}");
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-cache"),
        ("vary", "accept-encoding"),
    ] {
        assert_eq!(page.header(name), Some(value), "{name}");
    }
    assert_eq!(page.header("content-encoding"), None);
    let page = page.whole().await.text();
    assert_eq!(page, include_str!("../../../web/index.html"));
    // The content security policy would block them.
    let page = page.to_ascii_lowercase();
    for inline in ["<script>", "<style", " style=", "javascript:", " onclick=", " onload=", "src=\"http"] {
        assert!(!page.contains(inline), "{inline}");
    }
}

#[tokio::test]
async fn cached_page_gets_304() {
    let (_upstream, proxy) = at_root("").await;
    for h2 in [false, true] {
        let mut client = if h2 { Client::h2(proxy.addr).await } else { Client::h1(proxy.addr).await };
        for coding in ["br", "gzip", "identity"] {
            let first = client.send(request(Method::GET, "/", &[("accept-encoding", coding)], "")).await;
            assert_eq!(first.header("content-encoding").unwrap_or("identity"), coding);
            let tag = first.header("etag").unwrap().to_owned();
            let first = first.whole().await;
            let head = client.send(request(Method::HEAD, "/", &[("accept-encoding", coding)], "")).await;
            assert_eq!(head.status, 200);
            assert_eq!(head.header("content-length"), Some(first.bytes().len().to_string().as_str()));
            assert_eq!(head.whole().await.bytes(), b"");
            let known = [("accept-encoding", coding), ("if-none-match", tag.as_str())];
            let again = client.send(request(Method::GET, "/", &known, "")).await;
            assert_eq!((again.status.as_u16(), again.header("etag")), (304, Some(tag.as_str())));
            assert_eq!(again.whole().await.bytes(), b"");
        }
    }
}

#[tokio::test]
async fn other_methods_are_405_without_a_root_route() {
    let (upstream, proxy) = at_root("").await;
    for method in [Method::POST, Method::DELETE] {
        let refused = ask(&proxy, method.clone(), "/component.js", &[]).await;
        refused.is_problem(405, "method-not-allowed").await;
        let relayed = ask(&proxy, method.clone(), "/?x=1", &[]).await.json().await;
        assert_eq!((&relayed["method"], &relayed["path"]), (&method.as_str().into(), &"/?x=1".into()));
    }
    assert_eq!(upstream.request_count(), 2);
    let proxy = Proxy::start(&route("chat", &upstream.url())).await;
    let refused = ask(&proxy, Method::POST, "/", &[]).await;
    assert_eq!(refused.header("allow"), Some("GET,HEAD"));
    refused.is_problem(405, "method-not-allowed").await;
}

#[tokio::test]
async fn unknown_console_files_are_404_and_not_relayed() {
    let (upstream, proxy) = at_root("").await;
    for path in ["/console/", "/console/nothing.js", "/console/../index.html", "/console/%2e%2e/index.html"] {
        ask(&proxy, Method::GET, path, &[]).await.is_problem(404, "no-such-endpoint").await;
    }
    assert_eq!(upstream.request_count(), 0);
    for path in ["/index.html", "/consoles", "/component.js.map"] {
        assert_eq!(ask(&proxy, Method::GET, path, &[]).await.json().await["path"], path, "the upstream's");
    }
}

#[tokio::test]
async fn disabled_console_relays_its_paths() {
    let (upstream, proxy) = at_root("console = false").await;
    for path in ["/", "/component.js", "/console/routes", "/console/app.js"] {
        assert_eq!(ask(&proxy, Method::GET, path, &[]).await.json().await["path"], path);
    }
    assert_eq!(upstream.request_count(), 4);
}

#[tokio::test]
async fn component_can_be_loaded_by_any_origin() {
    let (_upstream, proxy) = tenants::two().await;
    let component = ask(&proxy, Method::GET, "/component.js", &[("origin", "https://app.example")]).await;
    assert_eq!(component.header("content-type"), Some("text/javascript; charset=utf-8"));
    assert_eq!(component.header("access-control-allow-origin"), Some("*"));
    assert_eq!(component.header("cross-origin-resource-policy"), Some("cross-origin"));
    assert_eq!(component.whole().await.text(), include_str!("../../../web/component.js"));
}

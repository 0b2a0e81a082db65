//! A path that could leave the upstream's base path is refused. Every other path is relayed byte for byte.

use citetap::replay::{Script, Scripted, Upstream};

use crate::net::{Proxy, raw, route};

/// Paths after the route's prefix that leave the base path for some server.
const CLIMBING: &[&str] = &[
    "..",
    "../x",
    "a/../../x",
    "a/..",
    "%2e%2e/x",
    "%2E%2e/x",
    ".%2e/x",
    "%2e./x",
    // Path parameters (RFC 3986 3.3), which servlet containers remove before they resolve dots.
    "..;/x",
    "..;a=b/x",
    "..%3b/x",
    "..%3Ba/x",
    "%2e%2e%3b/x",
    "a/..;",
    // Encoded separators.
    "..%2fx",
    "..%2Fx",
    "..%5cx",
    "..%5Cx",
    "a%2f..",
    "a%5c..",
    "%2f..",
    "a%2f..%2f..",
    "a%2f%2e%2e%2fx",
    // Encoded twice or three times.
    "%252e%252e/x",
    "..%252fx",
    "%252e%252e%252fx",
    "..%25253bx/x",
    "..%25252fx",
    // Characters that end a C string, a path or a file name.
    "..%00/x",
    "..%00.png",
    "..%20/x",
    "..%09/x",
    "..%0d%0a/x",
    "..%3fx",
    "..%23x",
    // Overlong UTF-8, the `%u` escapes of IIS, and full-width forms.
    "%c0%ae%c0%ae/x",
    "..%c0%afx",
    "..%c1%9cx",
    "%e0%80%ae%e0%80%ae/x",
    "%u002e%u002e/x",
    "..%u002fx",
    "%ef%bc%8e%ef%bc%8e/x",
    "..%ef%bc%8fx",
];

/// Paths that stay below the base path.
const PLAIN: &[&str] = &[
    "",
    "chat/completions",
    "./x",
    "%2e/x",
    "...",
    ".../x",
    "a..b",
    "..a/x",
    "a../x",
    "v1..2/x",
    ".well-known/x",
    "%2ehidden",
    "a%2fb",
    "a%5cb",
    "a..%2fb",
    "100%25",
    "%252f",
    "%",
    "%zz/%e",
    "%e4%bd%a0%E5%A5%BD/x",
    "..%e4%bd%a0",
    "%c0%ae",
    "a;b=c/d;e",
    "a%3bb",
    "a+b%20c/%20",
    "~x!$&'()*,=:@",
    "/x//y/",
    "%2e%2ex",
];

async fn proxy() -> (Upstream, Proxy) {
    let upstream = Upstream::bind(vec![Scripted::new("/", Script::echo())]).await.unwrap();
    let to = format!("{}/base/v3", upstream.url());
    let all = route("all", &to).replace("\"/all\"", "\"/\"");
    let proxy = Proxy::start(&(route("api", &to) + &all)).await;
    (upstream, proxy)
}

async fn send(proxy: &Proxy, path: &str) -> String {
    raw(proxy.addr, format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")).await
}

#[tokio::test]
async fn path_that_climbs_in_any_spelling_is_refused() {
    let (upstream, proxy) = proxy().await;
    let mut passed = Vec::new();
    for path in CLIMBING {
        for prefix in ["/api/", "/", "/api/a/b/"] {
            let path = format!("{prefix}{path}");
            if !send(&proxy, &path).await.starts_with("HTTP/1.1 400 ") {
                passed.push(path);
            }
        }
    }
    assert_eq!(passed, [""; 0]);
    assert_eq!(upstream.request_count(), 0);
}

#[tokio::test]
async fn path_that_does_not_climb_passes_byte_for_byte() {
    let (_upstream, proxy) = proxy().await;
    for path in PLAIN {
        for (prefix, base) in [("/api/", "/base/v3/"), ("/other/", "/base/v3/other/")] {
            let response = send(&proxy, &format!("{prefix}{path}?q=../%2e%2e/")).await;
            let expected = format!("\"path\":\"{base}{path}?q=../%2e%2e/\"");
            assert!(
                response.starts_with("HTTP/1.1 200 ") && response.contains(&expected),
                "{prefix}{path}: {response}"
            );
        }
    }
}

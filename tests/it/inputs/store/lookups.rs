//! Lookups of invalid and unknown ids.

use std::time::Duration;

use citetap::replay::{Script, Scripted, Upstream};
use http::{Method, header};

use super::keeping;
use crate::{
    api::tenants::{ALPHA, BETA, keys},
    net::{Client, Proxy, get, raw, request, route, tencent},
    process::Running,
    relay::memory::MIB,
};

/// Sends the path as written, without normalization by a client library.
async fn status_of(proxy: &Proxy, id: &str) -> u16 {
    let mut status = 0;
    for line in
        [format!("GET /citations/{id}"), format!("DELETE /citations/{id}"), format!("GET /citations/{id}/events")]
    {
        let response =
            raw(proxy.addr, format!("{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")).await;
        let code: u16 =
            response.split_whitespace().nth(1).unwrap_or_else(|| panic!("{line}: {response}")).parse().unwrap();
        assert!(matches!(code, 400 | 404 | 405 | 414 | 431), "{line}: {response}");
        assert!(!response.contains("example.com") && !response.contains("root:"), "{line}: {response}");
        if status == 0 {
            status = code;
        }
    }
    status
}

#[tokio::test]
async fn s83_path_traversal_in_an_id_is_404() {
    let dir = tempfile::tempdir().unwrap();
    let (_upstream, proxy) = keeping(dir.path(), &["m"], "").await;
    proxy.post("/chat/m", "{}").await.whole().await;
    let files = || {
        let mut names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = files();
    for id in [
        "../etc/passwd",
        "..",
        "%2e%2e%2f",
        "%2e%2e%2fetc%2fpasswd",
        "..%2f..%2fc.db",
        "%00",
        "m%00",
        "..;/",
        "%252e%252e",
        "c.db",
        ".%2fm",
        "%5c..%5cc.db",
    ] {
        status_of(&proxy, id).await;
    }
    assert_eq!(files(), before);
    assert_eq!(proxy.get("/citations/m").await.status, 200);
}

#[tokio::test]
async fn s84_wildcards_in_an_id_match_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (_upstream, proxy) = keeping(dir.path(), &["m-1"], "").await;
    proxy.post("/chat/m-1", "{}").await.whole().await;
    for id in [
        "*",
        "m*",
        "m-*",
        "%",
        "m-%25",
        "m-_",
        "m__",
        "?",
        "m-%3f",
        "[a-z]-1",
        "%5ba-z%5d-1",
        "{m-1,m-2}",
        "M-1",
        "m-1%20",
        "%20m-1",
        ".",
        ".*",
        "m-1|m-2",
        "^m-1$",
    ] {
        status_of(&proxy, id).await;
    }
    assert_eq!(proxy.get("/citations/m-1").await.status, 200, "still there");
}

#[tokio::test]
async fn s85_ids_outside_the_alphabet_are_not_looked_up() {
    let dir = tempfile::tempdir().unwrap();
    let (_upstream, proxy) = keeping(dir.path(), &["m"], "").await;
    proxy.post("/chat/m", "{}").await.whole().await;
    let long = "a".repeat(129);
    for id in [
        "",
        "'",
        "'%3b%20DROP%20TABLE%20record%3b--",
        "m'%20OR%20'1'='1",
        "\"",
        "$ne",
        "%7b%22$ne%22:1%7d",
        "m%0d%0aFLUSHALL",
        "m%0a",
        "%ff",
        "%E8%B1%86",
        "a%2fb",
        &long,
    ] {
        assert_eq!(status_of(&proxy, id).await, 400, "{id}");
    }
    for len in [20_000, 1 << 20] {
        let line =
            format!("GET /citations/{} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n", "a".repeat(len));
        let response = raw_in_parts(proxy.addr, line).await;
        assert!(response.is_empty() || response.starts_with("HTTP/1.1 4"), "{response}");
    }
    assert_eq!(status_of(&proxy, &"a".repeat(128)).await, 404, "at the length that ids may have");
    assert_eq!(proxy.get("/citations/m").await.status, 200);
    assert_eq!(proxy.get("/stats").await.json().await["totals"]["messages"], 1, "the table is there");
}

/// The server may close before everything is sent.
async fn raw_in_parts(addr: std::net::SocketAddr, request: String) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let (mut read, mut write) = tokio::net::TcpStream::connect(addr).await.unwrap().into_split();
    let sending = tokio::spawn(async move { drop(write.write_all(request.as_bytes()).await) });
    let mut response = Vec::new();
    let _ = crate::net::within("the end", read.read_to_end(&mut response)).await;
    sending.abort();
    String::from_utf8_lossy(&response).into_owned()
}

async fn lookup(client: &mut Client, path: &str) -> (String, Duration) {
    let began = std::time::Instant::now();
    let whole = client.send(request(Method::GET, path, BETA, "")).await.whole().await;
    let took = began.elapsed();
    let mut headers = whole.headers.clone();
    headers.remove(header::DATE);
    (format!("{} {headers:?} {}", whole.status, whole.text()), took)
}

#[tokio::test]
async fn s86_record_of_another_tenant_is_unknown() {
    const TIMES: usize = 60;
    let dir = tempfile::tempdir().unwrap();
    let (_upstream, proxy) = keeping(dir.path(), &["m"], &keys()).await;
    let mine = request(Method::POST, "/chat/m", ALPHA, "{}");
    Client::h1(proxy.addr).await.send(mine).await.whole().await;
    let mut client = Client::h1(proxy.addr).await;
    let (mut other, mut unknown) = (Vec::new(), Vec::new());
    for _ in 0..TIMES {
        let (of_another, took) = lookup(&mut client, "/citations/m").await;
        other.push(took);
        let (of_nobody, took) = lookup(&mut client, "/citations/n").await;
        unknown.push(took);
        assert!(of_another.starts_with("404"));
        assert_eq!(of_another, of_nobody);
    }
    other.sort();
    unknown.sort();
    let (other, unknown) = (other[TIMES / 2], unknown[TIMES / 2]);
    let apart = other.abs_diff(unknown);
    assert!(apart < other.max(unknown) / 2 + Duration::from_micros(500), "{other:?} and {unknown:?}");
    assert_eq!(Client::h1(proxy.addr).await.send(request(Method::GET, "/citations/m", ALPHA, "")).await.status, 200);
}

/// An unknown id leaves nothing in memory and causes no wait.
#[tokio::test]
async fn s96_lookups_of_unknown_ids_do_not_grow_memory() {
    const LOOKUPS: usize = 2000;
    let upstream = Upstream::bind(vec![Scripted::new("/", Script::sse(tencent::answer("m")))]).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let toml = format!("store = \"sqlite:c.db\"\n{}provider = \"tencent\"\n", route("chat", &upstream.url()));
    let running = Running::serve(dir.path(), &toml).await;
    running.post("/chat").await.whole().await;
    let mut client = Client::h1(running.addr).await;
    let mut look = async |from: usize, count: usize| {
        for n in from..from + count {
            let path = match n % 3 {
                0 => format!("/citations/unknown-{n}"),
                1 => format!("/citations/unknown-{n}?wait=60"),
                _ => format!("/citations/unknown-{n}/events"),
            };
            let response = client.send(get(&path)).await;
            assert_eq!(response.status, 404);
            response.whole().await;
        }
    };
    look(0, LOOKUPS / 4).await;
    let before = running.peak_memory();
    look(LOOKUPS, LOOKUPS).await;
    let grown = running.peak_memory() - before;
    assert!(grown < 2 * MIB, "{grown} bytes");
}

use http_body_util::BodyExt;

use super::*;

const FILE: File = File {
    path: "/console/a.css",
    kind: "text/css; charset=utf-8",
    tag: "0a1b",
    plain: b"body { color: black }",
    gzip: b"gz",
    brotli: b"b",
};

async fn fetch(
    file: &File,
    method: Method,
    request_headers: &[(&'static str, &'static str)],
) -> (u16, HeaderMap, String) {
    let mut headers = HeaderMap::new();
    for (name, value) in request_headers {
        headers.append(*name, HeaderValue::from_static(value));
    }
    let (head, body) = serve_file(file, &method, &headers).into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (head.status.as_u16(), head.headers, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn each_coding_has_its_own_etag() {
    for (accepted, coding, tag, body) in [
        ("br, gzip", Some("br"), "\"0a1b-br\"", "b"),
        ("gzip", Some("gzip"), "\"0a1b-gz\"", "gz"),
        ("identity", None, "\"0a1b\"", "body { color: black }"),
    ] {
        let (status, headers, got) = fetch(&FILE, Method::GET, &[("accept-encoding", accepted)]).await;
        assert_eq!((status, got.as_str()), (200, body));
        let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap());
        assert_eq!((header("content-encoding"), header("etag")), (coding, Some(tag)));
        assert_eq!((header("vary"), header("cache-control")), (Some("accept-encoding"), Some("no-cache")));
        let (status, known, got) = fetch(
            &FILE,
            Method::GET,
            &[("accept-encoding", accepted), ("if-none-match", "\"x\", W/\"0a1b-br\", \"0a1b-gz\", \"0a1b\"")],
        )
        .await;
        assert_eq!((status, got.as_str(), known.get("etag")), (304, "", headers.get("etag")));
        assert!(known.get("content-length").is_none() && known.get("content-encoding").is_none());
    }
    let (status, ..) = fetch(&FILE, Method::GET, &[("if-none-match", "\"0a1b-br\"")]).await;
    assert_eq!(status, 200, "the compressed form is not the plain one");
    assert_eq!(fetch(&FILE, Method::GET, &[("if-none-match", "*")]).await.0, 304);
}

#[tokio::test]
async fn head_returns_headers_without_body() {
    let (status, headers, body) = fetch(&FILE, Method::HEAD, &[]).await;
    assert_eq!((status, body.as_str(), headers["content-length"].to_str().unwrap()), (200, "", "21"));
}

#[tokio::test]
async fn incompressible_file_is_sent_plain() {
    let incompressible = File { gzip: b"", brotli: b"", ..FILE };
    let (_, headers, body) = fetch(&incompressible, Method::GET, &[("accept-encoding", "br, gzip")]).await;
    assert_eq!((body.as_bytes(), headers.get("content-encoding")), (FILE.plain, None));
}

#[tokio::test]
async fn only_the_component_allows_other_origins() {
    let (_, headers, _) = fetch(&FILE, Method::GET, &[]).await;
    assert!(headers.get("access-control-allow-origin").is_none());
    let component = File { path: COMPONENT, ..FILE };
    for status in [200, 304] {
        let known: &[(&str, &str)] = if status == 304 { &[("if-none-match", "*")] } else { &[] };
        let (got, headers, _) = fetch(&component, Method::GET, known).await;
        assert_eq!((got, headers["access-control-allow-origin"].to_str().unwrap()), (status, "*"));
        assert_eq!(headers["cross-origin-resource-policy"], "cross-origin");
    }
}

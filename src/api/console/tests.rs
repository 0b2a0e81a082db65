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

async fn ask(file: &File, method: Method, asked: &[(&'static str, &'static str)]) -> (u16, HeaderMap, String) {
    let mut headers = HeaderMap::new();
    for (name, value) in asked {
        headers.append(*name, HeaderValue::from_static(value));
    }
    let (head, body) = served(file, &method, &headers).into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (head.status.as_u16(), head.headers, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn each_coding_has_a_tag_of_its_own() {
    for (asked, coding, tag, body) in [
        ("br, gzip", Some("br"), "\"0a1b-br\"", "b"),
        ("gzip", Some("gzip"), "\"0a1b-gz\"", "gz"),
        ("identity", None, "\"0a1b\"", "body { color: black }"),
    ] {
        let (status, headers, got) = ask(&FILE, Method::GET, &[("accept-encoding", asked)]).await;
        assert_eq!((status, got.as_str()), (200, body));
        let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap());
        assert_eq!((header("content-encoding"), header("etag")), (coding, Some(tag)));
        assert_eq!((header("vary"), header("cache-control")), (Some("accept-encoding"), Some("no-cache")));
        let (status, known, got) = ask(
            &FILE,
            Method::GET,
            &[("accept-encoding", asked), ("if-none-match", "\"x\", W/\"0a1b-br\", \"0a1b-gz\", \"0a1b\"")],
        )
        .await;
        assert_eq!((status, got.as_str(), known.get("etag")), (304, "", headers.get("etag")));
        assert!(known.get("content-length").is_none() && known.get("content-encoding").is_none());
    }
    let (status, ..) = ask(&FILE, Method::GET, &[("if-none-match", "\"0a1b-br\"")]).await;
    assert_eq!(status, 200, "who kept it compressed and now wants it plain does not have it");
    assert_eq!(ask(&FILE, Method::GET, &[("if-none-match", "*")]).await.0, 304);
}

#[tokio::test]
async fn a_head_is_the_head_of_the_file() {
    let (status, headers, body) = ask(&FILE, Method::HEAD, &[]).await;
    assert_eq!((status, body.as_str(), headers["content-length"].to_str().unwrap()), (200, "", "21"));
}

#[tokio::test]
async fn a_file_that_compresses_badly_is_sent_as_it_is() {
    let incompressible = File { gzip: b"", brotli: b"", ..FILE };
    let (_, headers, body) = ask(&incompressible, Method::GET, &[("accept-encoding", "br, gzip")]).await;
    assert_eq!((body.as_bytes(), headers.get("content-encoding")), (FILE.plain, None));
}

#[tokio::test]
async fn only_the_component_is_for_other_origins() {
    let (_, headers, _) = ask(&FILE, Method::GET, &[]).await;
    assert!(headers.get("access-control-allow-origin").is_none());
    let component = File { path: COMPONENT, ..FILE };
    for status in [200, 304] {
        let known: &[(&str, &str)] = if status == 304 { &[("if-none-match", "*")] } else { &[] };
        let (got, headers, _) = ask(&component, Method::GET, known).await;
        assert_eq!((got, headers["access-control-allow-origin"].to_str().unwrap()), (status, "*"));
        assert_eq!(headers["cross-origin-resource-policy"], "cross-origin");
    }
}

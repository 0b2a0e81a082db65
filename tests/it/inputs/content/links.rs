//! Untrusted URLs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use citetap::replay::Script;
use serde_json::json;
use tokio::net::TcpListener;

use super::{
    super::{Bench, tapped, with_references},
    linking,
};
use crate::net::{Proxy, chat_with, tencent};

/// Every output made of a record.
const FORMATS: [&str; 10] =
    ["json", "bundle", "markdown", "footnotes", "html", "csv", "bibtex", "ris", "csl", "prompt"];

async fn in_every_format(proxy: &Proxy, id: &str) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    for format in FORMATS {
        let response = proxy.get(&format!("/citations/{id}?format={format}")).await;
        assert_eq!(response.status, 200, "{format}");
        all.push((format, response.whole().await.text()));
    }
    all
}

#[tokio::test]
async fn c73_only_http_becomes_a_link() {
    let urls = [
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        " \u{1}javascript:alert(1)",
        "java\tscript:alert(1)",
        "java\nscript:alert(1)",
        "data:text/html,<script>1</script>",
        "vbscript:x",
        "blob:https://a.example.com/x",
        "file:///etc/passwd",
        "view-source:https://a.example.com",
        "ftp://a.example.com/",
        "about:blank",
        "http:",
        "https://",
    ];
    let mut bench = Bench::new("tencent", vec![vec![Bytes::from(with_references(&linking(&urls)))]]).await;
    let sent = bench.one(0).await;
    let kept = bench.proxy.stored("m").await;
    for record in [&sent, &kept] {
        assert_eq!(record.citations.len(), urls.len(), "each is kept");
        for (citation, raw) in record.citations.iter().zip(urls) {
            assert_eq!((&citation.url, &citation.hostname), (&None, &None), "{raw:?}");
            assert!(citation.title.is_some() && citation.metadata.contains_key("droppedUrl"), "{raw:?}: the reason");
        }
    }
    for (format, text) in in_every_format(&bench.proxy, "m").await {
        assert!(!text.contains("href=\"javascript") && !text.contains("](javascript"), "{format}: {text}");
    }
}

#[tokio::test]
async fn c74_relative_urls_need_a_base_and_stay_on_its_host() {
    let urls = [
        "//evil.example.com/x",
        "/pages/xxx",
        "\\\\evil.example.com",
        "pages/yyy",
        "?q=1",
        "/\\evil.example.com",
        "///evil.example.com",
    ];
    let stream = with_references(&linking(&urls));
    let record = tapped(stream.clone()).await;
    assert!(record.citations.iter().all(|citation| citation.url.is_none()));
    let script = Script::sse(stream);
    let (_upstream, proxy) = chat_with(script, "", "link_base = \"https://lexiangla.com/a/\"").await;
    let record = proxy.post("/chat", "{}").await.whole().await.split().1.remove(0);
    let urls: Vec<_> = record.citations.iter().map(|citation| citation.url.as_deref()).collect();
    assert_eq!(urls[1], Some("https://lexiangla.com/pages/xxx"));
    for (citation, url) in record.citations.iter().zip(&urls) {
        assert!(url.is_none_or(|url| url.starts_with("https://lexiangla.com/")), "{url:?}");
        assert!(citation.hostname.as_deref().is_none_or(|host| host == "lexiangla.com"));
    }
}

#[tokio::test]
async fn c75_credentials_in_urls_are_removed() {
    let urls = [
        "https://user:pass@host.example.com/a",
        "https://good.example.com@evil.example.com/",
        "https://user@x.example.com",
        "https://:p@y.example.com/",
        "https://good.example.com%40evil.example.org/",
        "https://good.example.com\\@evil.example.com/",
    ];
    let record = tapped(with_references(&linking(&urls))).await;
    let shown: Vec<_> =
        record.citations.iter().map(|citation| (citation.url.as_deref(), citation.hostname.as_deref())).collect();
    assert_eq!(shown[0], (Some("https://host.example.com/a"), Some("host.example.com")));
    assert_eq!(shown[1], (Some("https://evil.example.com/"), Some("evil.example.com")));
    assert_eq!(shown[2].1, Some("x.example.com"));
    assert_eq!(shown[3].1, Some("y.example.com"));
    assert_eq!(shown[4], (None, None), "no host has an at sign");
    assert_eq!(shown[5].1, Some("good.example.com"), "a browser reads a backslash as a slash");
    let json =
        serde_json::to_string(&record.citations.iter().map(|citation| &citation.url).collect::<Vec<_>>()).unwrap();
    assert!(!json.contains("user") && !json.contains("pass"), "{json}");
}

#[tokio::test]
async fn c76_hosts_are_ascii_and_urls_have_no_bidi_controls() {
    let urls = [
        "https://例子.example/路径",
        "https://xn--fsqu00a.example/",
        "https://аррӏе.example.com/",
        "https://exa\u{200b}mple.com/",
        "https://example.com/\u{202e}gpj.exe",
        "https://a\u{202e}b.example.com/",
        "https://xn--example-.org/",
        "https://example.com/\u{200b}\u{2066}x",
        "https://ｅｘａｍｐｌｅ.com/",
    ];
    let mut bench = Bench::new("tencent", vec![vec![Bytes::from(with_references(&linking(&urls)))]]).await;
    let record = bench.one(0).await;
    for citation in &record.citations {
        assert!(citation.hostname.as_deref().is_none_or(str::is_ascii), "{citation:?}");
        assert_eq!(citation.url.is_some(), citation.hostname.is_some());
    }
    let host = |n: u32| {
        record.citations.iter().find(|citation| citation.title == Some(format!("T{n}"))).unwrap().hostname.clone()
    };
    assert_eq!((host(0), host(1)), (Some("xn--fsqu00a.example".to_owned()), Some("xn--fsqu00a.example".to_owned())));
    assert!(host(2).unwrap().starts_with("xn--"), "letters that look like Latin ones");
    assert_eq!(host(6), None, "no host is written so");
    let is_trick =
        |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{200b}');
    for citation in &record.citations {
        assert!(!citation.url.as_deref().unwrap_or_default().contains(is_trick), "{:?}", citation.url);
    }
    let title = "invoice\u{202e}fdp.exe\u{2066} \u{200f}x";
    let record = tapped(with_references(&super::titled(&[title]))).await;
    assert_eq!(record.citations[0].title.as_deref(), Some("invoicefdp.exe x"));
}

#[tokio::test]
async fn c77_private_addresses_are_never_fetched() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let visits = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&visits);
    tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counting.fetch_add(1, Relaxed);
        }
    });
    let hosts = [
        "127.1",
        "127.0.0.1",
        "0x7f000001",
        "2130706433",
        "0177.0.0.1",
        "localhost",
        "[::ffff:127.0.0.1]",
        "169.254.169.254",
        "[::1]",
    ];
    let list: serde_json::Value = hosts
        .iter()
        .enumerate()
        .map(|(n, host)| {
            json!({"target_id": n, "title": "T", "content": "x", "url": format!("http://{host}:{port}/{n}"),
                   "owner": {"avatar": format!("http://{host}:{port}/icon/{n}")}})
        })
        .collect();
    let mut bench = Bench::new("tencent", vec![vec![Bytes::from(with_references(&list))]]).await;
    let record = bench.one(0).await;
    assert_eq!(record.citations.len(), hosts.len());
    assert!(record.citations[..4].iter().all(|citation| citation.hostname.as_deref() == Some("127.0.0.1")));
    assert!(record.citations.iter().all(|citation| citation.icon_url.is_some()));
    in_every_format(&bench.proxy, "m").await;
    let ask = json!({"text": "a [1] [2]", "messageId": "m", "style": "html"}).to_string();
    assert_eq!(bench.proxy.post("/render", ask).await.status, 200);
    assert_eq!(bench.proxy.post("/normalize", with_references(&list)).await.status, 200);
    assert_eq!(bench.proxy.get("/stats").await.status, 200);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(visits.load(Relaxed), 0, "nobody came");
}

#[tokio::test]
async fn c80_url_over_8_kib_is_dropped() {
    let of = |len: usize| format!("https://a.example.com/{}", "x".repeat(len - 22));
    let query: String = (0..10_000).map(|n| format!("p{n}=v{n}&")).collect();
    let urls = [of(8 << 10), of((8 << 10) + 1), of(1 << 20), format!("https://a.example.com/?{query}")];
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let mut bench = Bench::new("tencent", vec![vec![Bytes::from(with_references(&linking(&urls)))]]).await;
    bench.one(0).await;
    let record = bench.proxy.stored("m").await;
    let kept: Vec<_> = record.citations.iter().map(|citation| citation.url.is_some()).collect();
    assert_eq!(kept, [true, false, false, false]);
    for citation in &record.citations[1..] {
        assert!(citation.metadata["droppedUrl"].as_str().unwrap().len() <= 1024);
    }
    assert!(tencent::answer("m").len() < serde_json::to_string(&record).unwrap().len());
}

//! `POST /render`: an answer's text with its markers rewritten, or as safe HTML.

use serde_json::{Value, json};

use super::{answering, streamed, tenants};
use crate::net::{Client, ClientResponse, Proxy, post, request};

async fn render(proxy: &Proxy, ask: &Value) -> ClientResponse {
    Client::h1(proxy.addr).await.send(post("/render", ask.to_string())).await
}

#[tokio::test]
async fn stored_message_resolves_markers() {
    let (_upstream, proxy) = answering(&["m-1"]).await;
    let record = streamed(&proxy, "m-1").await;
    let first = record.citations.iter().find(|citation| citation.url.is_some()).unwrap();
    let url = first.url.as_deref().unwrap();
    let text = format!("a [{}] b [999]", first.number);

    let response = render(&proxy, &json!({"text": text, "messageId": "m-1", "style": "link"})).await;
    assert_eq!((response.status.as_u16(), response.header("content-type")), (200, Some("application/json")));
    let linked = response.json().await;
    assert_eq!(linked["text"], format!("a [[{}]]({url}) b [999]", first.number));
    assert_eq!(linked["cited"], json!([first.number]));

    let html = render(&proxy, &json!({"text": text, "messageId": "m-1"})).await.json().await;
    assert_eq!(html["style"], "html");
    assert!(html["html"].as_str().unwrap().contains(&format!("href=\"{url}\"")), "{html}");

    let unknown = render(&proxy, &json!({"text": "x", "messageId": "m-2"})).await;
    assert_eq!(unknown.status, 404);
}

#[tokio::test]
async fn given_citations_resolve_markers() {
    let (_upstream, proxy) = answering(&[]).await;
    let record = json!({"messageId": "x", "citations": [
        {"number": 2, "url": "https://news.example/a b(1)", "title": "T", "content": "C"},
        {"number": 3, "url": "javascript:alert(1)", "title": "J"},
        {"number": 4, "url": "https://gone.example/", "status": "filtered"},
    ]});
    let of = async |style: &str| {
        let text = "香港宏福苑发生严重火灾[2] [3] [4] [5]";
        render(&proxy, &json!({"text": text, "record": record, "style": style})).await.json().await["text"].clone()
    };
    let fire = "香港宏福苑发生严重火灾";
    assert_eq!(of("keep").await, format!("{fire}[2] [3] [4] [5]"));
    assert_eq!(of("link").await, format!("{fire}[[2]](https://news.example/a%20b%281%29) [3] [4] [5]"));
    let sup = of("sup").await;
    let data = "{&quot;id&quot;:2,&quot;url&quot;:&quot;https://news.example/a%20b(1)&quot;,&quot;title&quot;:&quot;T&quot;,&quot;content&quot;:&quot;C&quot;}";
    assert!(
        sup.as_str().unwrap().starts_with(&format!(
            "{fire}[<sup data-citation='{data}'>2</sup>](https://news.example/a%20b%281%29) <sup data-citation="
        )),
        "{sup}"
    );
    let footnotes = of("footnote").await;
    assert!(
        footnotes.as_str().unwrap().contains("[^2]") && footnotes.as_str().unwrap().contains("\n[^2]: "),
        "{footnotes}"
    );
    assert_eq!(of("strip").await, format!("{fire} [4] [5]"));
}

#[tokio::test]
async fn accept_selects_plain_html_or_text() {
    let (_upstream, proxy) = answering(&[]).await;
    let ask = |style: &str| json!({"text": "a **b** [1]", "style": style, "record": {"citations": [{"number": 1, "url": "https://a.example/"}]}});
    let bare = async |style: &str, accept: &str| {
        let request = request(http::Method::POST, "/render", &[("accept", accept)], ask(style).to_string());
        Client::h1(proxy.addr).await.send(request).await
    };
    let html = bare("html", "text/html").await;
    assert_eq!(html.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(html.header("content-security-policy").unwrap().contains("default-src 'none'"));
    assert!(html.whole().await.bytes().starts_with(b"<p>a <strong>b</strong> <a class"));
    let text = bare("link", "text/markdown").await;
    assert_eq!(text.whole().await.bytes(), b"a **b** [[1]](https://a.example/)");
}

/// A page that shows a streaming answer: it keeps the finished blocks and sends the rest with new text.
#[tokio::test]
async fn partial_answer_is_rendered_block_by_block() {
    let (_upstream, proxy) = answering(&["m-1"]).await;
    streamed(&proxy, "m-1").await;
    let (mut settled, mut rest, mut open) = (String::new(), String::new(), String::new());
    for piece in ["# 标题\n\n第一", "句[1]。\n\n- 一[7", "]\n\n- 二\n\n", "尾", "声"] {
        let text = rest + piece;
        let response = render(&proxy, &json!({"text": text, "messageId": "m-1", "partial": true})).await.json().await;
        assert_eq!(response["style"], "html");
        settled += response["html"].as_str().unwrap();
        rest = response["rest"].as_str().unwrap().to_owned();
        open = response["open"].as_str().unwrap().to_owned();
        assert!(text.ends_with(&rest), "{response}");
        if text.contains("[1]") {
            assert_eq!(response["cited"], json!([1]));
            assert!(
                settled.contains("<h1>标题</h1>") && settled.contains("href=\"https://s1.example.com/\""),
                "{settled}"
            );
        }
    }
    assert_eq!(rest, "- 一[7]\n\n- 二\n\n尾声");
    assert!(
        open.contains("<sup data-citation=\"{&quot;id&quot;:7,&quot;url&quot;:&quot;&quot;"),
        "to be filled in: {open}"
    );
    let whole = json!({"text": "# 标题\n\n第一句[1]。\n\n- 一[7]\n\n- 二\n\n尾声", "messageId": "m-1"});
    let whole = render(&proxy, &whole).await.json().await["html"].as_str().unwrap().to_owned();
    assert!(whole.starts_with(&settled) && whole.ends_with("<p>尾声</p>\n"), "{whole}");
    assert!(whole.contains("一[7]"), "a marker without a source becomes text at the end: {whole}");

    let none = json!({"text": "a [2]", "record": {"citations": []}, "partial": true});
    let none = render(&proxy, &none).await.json().await;
    assert_eq!((&none["html"], &none["rest"], &none["cited"]), (&json!(""), &json!("a [2]"), &json!([])));
}

#[tokio::test]
async fn invalid_input_is_refused_with_a_reason() {
    let (_upstream, proxy) = answering(&[]).await;
    for (ask, why) in [
        (json!({"text": "x"}), "either record or messageId"),
        (json!({"text": "x", "messageId": "a", "record": {"citations": []}}), "either record or messageId"),
        (json!({"messageId": "a"}), "missing field `text`"),
        (json!({"text": "x", "messageId": "a", "style": "bold"}), "style is html, keep, link"),
        (
            json!({"text": "x", "record": {"citations": []}, "style": "link", "partial": true}),
            "partial is for style html",
        ),
        (json!({"text": "x", "messageId": "a", "colour": "red"}), "unknown field `colour`"),
    ] {
        let response = render(&proxy, &ask).await;
        assert_eq!(response.status, 400, "{ask}");
        let detail = response.json().await["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(why), "{detail}");
    }
    assert_eq!(render(&proxy, &json!({"text": "x", "messageId": "a/b"})).await.status, 400);
    assert_eq!(proxy.get("/render").await.status, 405);
    let large = render(&proxy, &json!({"text": "x".repeat(3 << 20), "messageId": "a"})).await;
    assert_eq!(large.status, 413);
}

#[tokio::test]
async fn message_of_another_tenant_is_unknown() {
    let (_upstream, proxy) = tenants::two().await;
    assert_eq!(tenants::chat(&proxy, "/chat/m-1", tenants::ALPHA).await.whole().await.error, None);
    let ask = json!({"text": "a [1]", "messageId": "m-1"}).to_string();
    for (key, status) in [(tenants::ALPHA, 200), (tenants::BETA, 404)] {
        let request = request(http::Method::POST, "/render", key, ask.clone());
        assert_eq!(Client::h1(proxy.addr).await.send(request).await.status, status);
    }
}

/// Each marker repeats its source: a request of 150 KiB could otherwise get hundreds of MiB.
#[tokio::test]
async fn result_is_bounded_however_often_a_source_is_cited() {
    let (_upstream, proxy) = answering(&[]).await;
    let source =
        |title: usize| json!({"citations": [{"number": 1, "url": "https://a.example/", "title": "t".repeat(title)}]});
    let ask = |markers: usize, title: usize| json!({"text": "a [1] ".repeat(markers), "record": source(title)});
    let long_title = render(&proxy, &ask(150, 500_000)).await;
    assert_eq!(long_title.status, 200);
    assert!(long_title.whole().await.text().len() < 1 << 20, "titles are cut as in a record");
    // 2 * 18 bytes of URL and 2 * 988 of title: 4,169 markers have 8 MiB.
    assert_eq!(render(&proxy, &ask(4169, 988)).await.status, 200);
    assert_eq!(render(&proxy, &ask(4170, 988)).await.status, 400);
}

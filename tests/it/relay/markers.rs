//! `markers` of a route and of a request over sockets, and their metric.

use citetap::replay::Script;

use super::dialects::ask_with;
use crate::net::{chat_with, eventually, tencent};

#[tokio::test]
async fn route_and_request_header_select_the_marker_style() {
    let (_upstream, proxy) = chat_with(Script::sse(tencent::answer("m")), "", "markers = \"strip\"").await;
    let text = async |headers: &[(&str, &str)]| {
        let whole = ask_with(&proxy, headers).await.whole().await;
        assert_eq!(whole.error, None);
        assert!(whole.header("content-length").is_none());
        whole.text()
    };
    assert!(text(&[]).await.contains(r#""delta_content":"第一句。""#));
    assert!(text(&[("x-citetap-markers", "keep")]).await.contains(r#""delta_content":"第一句[1]。""#));
    let linked = text(&[("x-citetap-markers", "link")]).await;
    assert!(linked.contains(r#""delta_content":"第一句[[1]](https://"#), "{linked}");
    let openai = text(&[("x-citetap-markers", "link"), ("x-citetap-profile", "openai")]).await;
    assert!(openai.contains("[[1]](https://") && openai.ends_with("data: [DONE]\n\n"), "{openai}");
    let refused = ask_with(&proxy, &[("x-citetap-markers", "links")]).await;
    assert_eq!(refused.status, 400);

    let counted = eventually(async || {
        let metrics = proxy.get("/metrics").await.whole().await.text();
        metrics.contains("citetap_markers_rewritten_total{provider=\"tencent\"} 3").then_some(())
    });
    counted.await.unwrap();
}

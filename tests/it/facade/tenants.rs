//! Tenants of facade requests: OpenAI clients send their key as `Authorization: Bearer`.

use citetap::replay::Script;
use http::Method;

use super::{LEXIANG, asking, chat_with, facade, failed};
use crate::{
    api::tenants::keys,
    net::{Client, request, tencent},
};

#[tokio::test]
async fn request_without_key_reveals_nothing() {
    let (upstream, proxy) = facade(vec![(LEXIANG, Script::sse(tencent::answer("m")))], &keys()).await;
    for headers in [&[][..], &[("authorization", "Bearer sk-upstream")], &[("x-citetap-key", "wrong")]] {
        for (method, path) in [
            (Method::POST, "/v1/chat/completions"),
            (Method::GET, "/v1/chat/completions"),
            (Method::GET, "/v1/models"),
            (Method::GET, "/v1/models/lexiang"),
            (Method::GET, "/v1/models/unknown"),
            (Method::POST, "/v1/embeddings"),
        ] {
            let response = Client::h1(proxy.addr).await.send(request(method, path, headers, "{")).await;
            assert_eq!(
                (response.header("www-authenticate"), response.header("allow")),
                (Some("Bearer"), None),
                "{path}"
            );
            let error = failed(response, 401, "invalid_api_key").await;
            assert_eq!(error["type"], "invalid_request_error");
        }
    }
    assert_eq!(upstream.request_count(), 0);
}

#[tokio::test]
async fn tenant_key_is_stripped_and_record_belongs_to_tenant() {
    let (upstream, proxy) = facade(vec![(LEXIANG, Script::sse(tencent::answer("m")))], &keys()).await;
    for (headers, passed) in [
        (&[("authorization", "Bearer alpha-key")][..], None),
        (&[("x-citetap-key", "alpha-key"), ("authorization", "Bearer lexiang-token")], Some("Bearer lexiang-token")),
    ] {
        let response = chat_with(&proxy, headers, asking("lexiang", false)).await;
        assert_eq!(response.json().await["citetap"]["messageId"], "m");
        let seen = upstream.requests().pop().unwrap();
        assert_eq!(seen.headers.get("authorization").map(|value| value.to_str().unwrap()), passed);
        assert!(!format!("{:?}", seen.headers).contains("alpha-key"));
    }
    for (key, status) in [("alpha-key", 200), ("beta-key", 404)] {
        let headers = [("authorization", &*format!("Bearer {key}"))];
        let response = Client::h1(proxy.addr).await.send(request(Method::GET, "/citations/m", &headers, "")).await;
        assert_eq!(response.status, status, "{key}");
        let models = Client::h1(proxy.addr).await.send(request(Method::GET, "/v1/models", &headers, "")).await;
        assert_eq!(models.status, 200);
    }
}

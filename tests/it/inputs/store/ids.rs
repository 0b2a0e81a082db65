//! Message ids: owners and forms.

use citetap::{
    citation::Record,
    replay::{Script, Scripted, Upstream},
};
use http::Method;

use super::{super::openai, keeping, on_file};
use crate::{
    api::tenants::{ALPHA, BETA, keys},
    net::{Client, Proxy, chat, request, route, tencent},
};

type Headers = &'static [(&'static str, &'static str)];

async fn streamed(proxy: &Proxy, path: &str, headers: Headers) -> Record {
    let request = request(Method::POST, path, headers, "{}");
    let whole = Client::h1(proxy.addr).await.send(request).await.whole().await;
    assert_eq!(whole.error, None);
    whole.split().1.remove(0)
}

async fn kept(proxy: &Proxy, path: &str, headers: Headers) -> Record {
    let response = Client::h1(proxy.addr).await.send(request(Method::GET, path, headers, "")).await;
    assert_eq!(response.status, 200, "{path}");
    serde_json::from_value(response.json().await).unwrap()
}

/// The key is tenant, provider and id, so an upstream that uses another tenant's id does not change its record.
#[tokio::test]
async fn s87_same_id_of_two_tenants_or_providers_is_separate() {
    let dir = tempfile::tempdir().unwrap();
    let url = "https://o1.example.com/";
    let chat = openai::citations(&[url]).replace("chat-1", "m") + "data: [DONE]\n\n";
    let upstream = Upstream::bind(vec![
        Scripted::new("/tencent", Script::sse(tencent::answer("m"))),
        Scripted::new("/openai", Script::sse(chat)),
    ])
    .await
    .unwrap();
    let store = format!("store = 'sqlite:{}'\n", dir.path().join("c.db").display());
    let routes = route("tencent", &format!("{}/tencent", upstream.url()))
        + "provider = \"tencent\"\n"
        + &route("openai", &format!("{}/openai", upstream.url()))
        + "provider = \"openai\"\n";
    let proxy = Proxy::start(&format!("{store}[timeouts]\ncommit = \"10s\"\n{}{routes}", keys())).await;
    let alphas = streamed(&proxy, "/tencent", ALPHA).await;
    let betas = streamed(&proxy, "/tencent", BETA).await;
    let of_openai = streamed(&proxy, "/openai", BETA).await;
    assert_eq!([&alphas.message_id, &betas.message_id, &of_openai.message_id], ["m"; 3]);
    assert_eq!(kept(&proxy, "/citations/m", ALPHA).await, alphas);
    assert_eq!(kept(&proxy, "/citations/m?provider=tencent", BETA).await, betas);
    assert_eq!(kept(&proxy, "/citations/m?provider=openai", BETA).await.nonce, of_openai.nonce);
    assert_eq!(kept(&proxy, "/citations/m", BETA).await.nonce, of_openai.nonce, "its own newest record");
    let gone = request(Method::DELETE, "/citations/m", BETA, "");
    assert_eq!(Client::h1(proxy.addr).await.send(gone).await.status, 204);
    assert_eq!(kept(&proxy, "/citations/m", ALPHA).await, alphas);
}

/// Replicas that share a file, as they would share another store.
#[tokio::test]
async fn s88_concurrent_writes_leave_one_complete_record() {
    let dir = tempfile::tempdir().unwrap();
    let of =
        |documents: &[u32]| tencent::references("m", documents) + &tencent::text("m", "[1]") + &tencent::finish("m");
    let upstream = Upstream::bind(vec![
        Scripted::new("/a", Script::sse(of(&[1, 2]))),
        Scripted::new("/b", Script::sse(of(&[3, 4, 5, 6]))),
    ])
    .await
    .unwrap();
    let (one, two) = (on_file(dir.path(), &upstream, "").await, on_file(dir.path(), &upstream, "").await);
    for _ in 0..12 {
        let (a, b) = tokio::join!(streamed(&one, "/chat/a", &[]), streamed(&two, "/chat/b", &[]));
        assert!(a.stored && b.stored);
        for replica in [&one, &two] {
            let record = kept(replica, "/citations/m", &[]).await;
            assert!(record == a || record == b, "a mix: {record:?}");
        }
        assert_eq!(kept(&one, "/citations/m", &[]).await, kept(&two, "/citations/m", &[]).await);
    }
    let listed = one.get("/citations").await.json().await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "one record after repeated requests");
}

/// The first id counts; a number becomes its digits; case matters; without an id the request's is used.
#[tokio::test]
async fn s89_missing_changing_and_similar_ids() {
    let nameless = tencent::answer("m").replace("\"completion_id\":\"m\",", "");
    let (_upstream, proxy) = chat(Script::sse(nameless), "[timeouts]\ncommit = \"10s\"").await;
    let whole = proxy.post("/chat", "{}").await.whole().await;
    let record = whole.split().1.remove(0);
    assert_eq!(Some(record.message_id.as_str()), whole.header("x-citetap-request"));
    assert_eq!(kept(&proxy, &format!("/citations/{}", record.message_id), &[]).await, record);

    let changing =
        tencent::references("first", &[1]) + &tencent::references("second", &[2]) + &tencent::finish("third");
    let (_upstream, proxy) = chat(Script::sse(changing), "[timeouts]\ncommit = \"10s\"").await;
    let record = streamed(&proxy, "/chat", &[]).await;
    assert_eq!((record.message_id.as_str(), record.citations.len()), ("first", 2));
    for other in ["second", "third"] {
        assert_eq!(proxy.get(&format!("/citations/{other}")).await.status, 404);
    }

    let number = tencent::answer("12").replace("\"completion_id\":\"12\"", "\"completion_id\":12");
    let (_upstream, proxy) = chat(Script::sse(number), "[timeouts]\ncommit = \"10s\"").await;
    assert_eq!(streamed(&proxy, "/chat", &[]).await.message_id, "12");

    let dir = tempfile::tempdir().unwrap();
    let (_upstream, proxy) = keeping(dir.path(), &["Abc", "abc", "ABC"], "").await;
    let mut nonces = Vec::new();
    for id in ["Abc", "abc", "ABC"] {
        nonces.push((id, streamed(&proxy, &format!("/chat/{id}"), &[]).await.nonce));
    }
    for (id, nonce) in nonces {
        assert_eq!(kept(&proxy, &format!("/citations/{id}"), &[]).await.nonce, nonce);
    }
    assert_eq!(proxy.get("/citations/aBC").await.status, 404);
}

//! Clients of another dialect than the upstream's: how they request it, and what they receive.

use std::time::{Duration, Instant};

use citetap::{
    profile::Profile,
    replay::{Script, Step},
};
use http::{HeaderName, HeaderValue, Method, header};

use crate::{
    client::{Got, client},
    net::{Client, ClientResponse, LIMIT, Proxy, Whole, chat, chat_with, post, request, tencent},
    transcoded::PROFILES,
};

pub async fn ask(proxy: &Proxy, profile: Profile) -> ClientResponse {
    ask_with(proxy, &[("x-citetap-profile", profile.as_str())]).await
}

pub async fn ask_with(proxy: &Proxy, headers: &[(&str, &str)]) -> ClientResponse {
    Client::h1(proxy.addr).await.send(request(Method::POST, "/chat", headers, "{}")).await
}

fn got(profile: Profile, whole: &Whole) -> Got {
    client(profile, &whole.bytes())
}

/// The answer of [`tencent::answer`] in any dialect.
fn is_the_answer(got: &Got, whole: &Whole) {
    assert_eq!(whole.error, None);
    assert_eq!(got.text, "第一句[1]。");
    assert_eq!((got.finishes, got.reason.as_deref(), got.done), (1, Some("stop"), true));
    let record = got.record.as_ref().unwrap();
    assert!(record.complete && record.stored);
    assert_eq!(Some(record.nonce.as_str()), whole.header("x-citetap-nonce"));
    assert_eq!(got.sources.len(), 2);
}

#[tokio::test]
async fn request_header_selects_the_dialect() {
    let body = tencent::answer("m");
    let script = Script::sse(body.clone())
        .header(header::CONTENT_LENGTH, HeaderValue::from(body.len()))
        .header(header::ETAG, HeaderValue::from_static("\"x\""))
        .header(HeaderName::from_static("x-request-id"), HeaderValue::from_static("r1"));
    let (upstream, proxy) = chat(script, "").await;
    for profile in PROFILES {
        for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
            let headers = [("x-citetap-profile", profile.as_str()), ("x-citetap-markers", "keep")];
            let whole = client.send(request(Method::POST, "/chat", &headers, "{}")).await.whole().await;
            assert_eq!(whole.status, 200);
            is_the_answer(&got(profile, &whole), &whole);
            assert_eq!(whole.header("content-type"), Some("text/event-stream; charset=utf-8"));
            let vercel = (profile == Profile::AiSdk).then_some("v1");
            assert_eq!(whole.header("x-vercel-ai-ui-message-stream"), vercel);
            assert_eq!(whole.header("x-accel-buffering"), Some("no"));
            assert_eq!(whole.header("x-request-id"), Some("r1"));
            assert_eq!((whole.header("content-length"), whole.header("etag")), (None, None));
            assert!(whole.header("x-citetap-request").is_some());
        }
    }
    assert!(upstream.requests().iter().all(|seen| seen.headers.keys().all(|name| !name.as_str().contains("citetap"))));
    let record = proxy.stored("m").await;
    assert!(record.complete && record.citations.len() == 2 && record.provider == "tencent");
}

#[tokio::test]
async fn request_header_overrides_the_routes_dialect() {
    for profile in PROFILES {
        let of_route = format!("profile = \"{}\"", profile.as_str());
        let (_upstream, proxy) = chat_with(Script::sse(tencent::answer("m")), "", &of_route).await;
        let whole = proxy.post("/chat", "{}").await.whole().await;
        is_the_answer(&got(profile, &whole), &whole);
        let native = ask(&proxy, Profile::Native).await.whole().await;
        assert_eq!(native.split().0, tencent::answer("m").into_bytes());
        assert_eq!(native.header("x-vercel-ai-ui-message-stream"), None);
        for other in PROFILES {
            let whole = ask(&proxy, other).await.whole().await;
            is_the_answer(&got(other, &whole), &whole);
        }
    }
}

#[tokio::test]
async fn unknown_dialect_or_style_is_refused_before_the_upstream() {
    let (upstream, proxy) = chat(Script::sse(tencent::answer("m")), "").await;
    for (name, values, known) in [
        ("x-citetap-profile", ["OpenAI", "ai_sdk", ""], "native, openai, ai-sdk or open-webui"),
        ("x-citetap-markers", ["links", "KEEP", ""], "keep, link, sup, footnote or strip"),
    ] {
        for value in values {
            let problem = ask_with(&proxy, &[(name, value)]).await.is_problem(400, "bad-request").await;
            assert!(problem["detail"].as_str().unwrap().contains(known), "{problem}");
        }
    }
    assert_eq!(upstream.request_count(), 0);
}

/// Text is sent as it arrives: a delta is received before the upstream sends the next one.
#[tokio::test]
async fn text_is_transcoded_as_it_arrives() {
    let script = Script::sse_steps([
        Step::Send((tencent::references("m", &[1]) + &tencent::text("m", "第一")).into()),
        Step::Pause(Duration::from_secs(60)),
    ]);
    let (upstream, proxy) = chat(script, "").await;
    for profile in PROFILES {
        let mut response = ask(&proxy, profile).await;
        response.until("第一").await;
        drop(response);
    }
    assert!(upstream.until(LIMIT, |upstream| upstream.cancelled() == 3).await);
}

#[tokio::test]
async fn client_disconnect_cancels_upstream_and_stores_record() {
    for profile in PROFILES {
        let script = Script::sse_steps([
            Step::Send((tencent::references("m", &[1, 2]) + &tencent::text("m", "一")).into()),
            Step::Pause(Duration::from_secs(60)),
        ]);
        let (upstream, proxy) = chat(script, "").await;
        let mut response = ask(&proxy, profile).await;
        response.until("一").await;
        drop(response);
        let left = Instant::now();
        assert!(upstream.until(LIMIT, |upstream| upstream.cancelled() == 1).await);
        assert!(left.elapsed() < Duration::from_secs(2), "{:?}", left.elapsed());
        let record = proxy.stored("m").await;
        assert!(!record.complete && record.citations.len() == 2);
    }
}

#[tokio::test]
async fn inject_off_and_live_work_in_every_dialect() {
    let growing = tencent::references("m", &[1])
        + &tencent::text("m", "一")
        + &tencent::references("m", &[1, 2])
        + &tencent::finish("m");
    let (_upstream, proxy) = chat(Script::sse(growing), "").await;
    for profile in PROFILES {
        let headers = [("x-citetap-profile", profile.as_str()), ("x-citetap-inject", "live")];
        let got = client(profile, &ask_with(&proxy, &headers).await.whole().await.bytes());
        let lists: Vec<_> = got.records.iter().map(|r| (r.citations.len(), r.complete, r.stored)).collect();
        assert_eq!(lists, [(1, false, false), (2, false, false), (2, true, true)], "{profile:?}");
        assert_eq!(got.sources.len(), 2, "{profile:?}");

        let headers = [("x-citetap-profile", profile.as_str()), ("x-citetap-inject", "off")];
        let got = client(profile, &ask_with(&proxy, &headers).await.whole().await.bytes());
        assert_eq!((got.text.as_str(), got.records.len(), got.sources.len()), ("一", 0, 0), "{profile:?}");
    }
    assert_eq!(proxy.stored("m").await.citations.len(), 2);
}

#[tokio::test]
async fn quiet_stream_has_heartbeats_from_start_to_end() {
    let silence = || Step::Pause(Duration::from_millis(1200));
    let script = Script::sse_steps([
        silence(),
        Step::Send(format!("id: 1\n{}", tencent::answer("m")).into()),
        silence(),
        Step::Send(": bye\n\n".into()),
    ]);
    let (_upstream, proxy) = chat(script, "[timeouts]\nheartbeat = \"100ms\"\ncommit = \"10s\"").await;
    for profile in PROFILES {
        let whole = ask(&proxy, profile).await.whole().await;
        is_the_answer(&got(profile, &whole), &whole);
        let text = whole.text();
        let (before, after) = text.split_once("data:").unwrap();
        // The upstream's ids are not ours, so heartbeats may be sent next to them.
        assert!(before.matches(": citetap\n\n").count() >= 2, "{text}");
        assert!(after.matches(": citetap\n\n").count() >= 2, "{text}");
    }
}

/// No body, and the headers of the response to a GET.
#[tokio::test]
async fn head_request_gets_the_dialects_headers() {
    let script = Script::sse(tencent::answer("m")).header(header::CONTENT_LENGTH, HeaderValue::from_static("9"));
    let (_upstream, proxy) = chat(script, "").await;
    for profile in PROFILES {
        let headers = [("x-citetap-profile", profile.as_str())];
        let mut client = Client::h1(proxy.addr).await;
        let whole = client.send(request(Method::HEAD, "/chat", &headers, "")).await.whole().await;
        assert_eq!((whole.status.as_u16(), whole.bytes().len(), whole.error.as_deref()), (200, 0, None));
        assert_eq!(whole.header("content-type"), Some("text/event-stream; charset=utf-8"));
        assert_eq!(whole.header("x-vercel-ai-ui-message-stream").is_some(), profile == Profile::AiSdk);
        assert_eq!(whole.header("content-length"), None);
    }
    let metrics = proxy.get("/metrics").await.whole().await.text();
    assert!(metrics.contains("outcome=\"complete\"") && !metrics.contains("client_gone"), "{metrics}");
}

/// A drain in the middle of an answer: a boundary, the sources, and an abort.
#[tokio::test]
async fn drain_cuts_at_a_boundary_with_sources_and_no_end() {
    let script = Script::sse_steps([
        Step::Send((tencent::references("m", &[1, 2]) + &tencent::text("m", "一")).into()),
        Step::Send("data:{\"half".into()),
        Step::Pause(Duration::from_secs(60)),
    ]);
    let (_upstream, mut proxy) = chat(script, "[timeouts]\ndrain = \"300ms\"").await;
    let mut responses = Vec::new();
    for profile in PROFILES {
        let mut response = ask(&proxy, profile).await;
        let begun = response.until("一").await;
        responses.push((profile, response, begun));
    }
    proxy.signals.drain.cancel();
    for (profile, response, begun) in responses {
        let rest = response.whole().await;
        assert!(rest.error.is_some(), "no clean end");
        let got = client(profile, (begun + &rest.text()).as_bytes());
        assert_eq!((got.text.as_str(), got.finishes, got.error, got.done), ("一", 0, None, false));
        assert!(got.record.is_some_and(|record| !record.complete && record.stored));
    }
    proxy.ended().await;
}

/// Without a provider in the route, the stream determines it.
#[tokio::test]
async fn auto_detects_the_provider_from_frames() {
    let upstream = citetap::replay::Upstream::bind(vec![
        citetap::replay::Scripted::new("/t", Script::sse(tencent::answer("m"))),
        citetap::replay::Scripted::new("/x", Script::sse("data: {\"hello\":1}\n\n")),
    ])
    .await
    .unwrap();
    let proxy = Proxy::start(&(crate::net::route("chat", &upstream.url()) + "profile = \"openai\"\n")).await;
    let whole = Client::h1(proxy.addr).await.send(post("/chat/t", "{}")).await.whole().await;
    is_the_answer(&got(Profile::OpenAi, &whole), &whole);
    let whole = proxy.post("/chat/x", "{}").await.whole().await;
    let got = got(Profile::OpenAi, &whole);
    assert!(got.error.unwrap().contains("no format that citetap can read") && got.done);
}

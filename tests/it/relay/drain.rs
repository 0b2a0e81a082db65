//! Shutdown and reload with open streams.

use std::time::{Duration, Instant};

use citetap::replay::{Script, Scripted, Step, Upstream};

use crate::net::{Client, Proxy, chat, config, eventually, get, post, route, tencent};

fn ends_after(wait: Duration) -> Script {
    Script::sse_steps([
        Step::Send(tencent::references("m", &[1, 2]).into()),
        Step::Pause(wait),
        Step::Send(tencent::finish("m").into()),
    ])
}

#[tokio::test]
async fn drain_delay_is_not_ready_but_serves() {
    let toml = "[timeouts]\ndrain_delay = \"1500ms\"\ndrain = \"1s\"";
    let (_upstream, mut proxy) = chat(Script::sse(tencent::answer("m")), toml).await;
    assert_eq!(proxy.get("/readyz").await.status, 200);
    proxy.signals.drain.cancel();
    let mut client = Client::h1(proxy.addr).await;
    let unready = eventually(|| async { (proxy.get("/readyz").await.status == 503).then_some(()) }).await;
    assert!(unready.is_some());
    client.send(get("/readyz")).await.is_problem(503, "draining").await;
    assert_eq!(proxy.get("/healthz").await.status, 200);
    assert_eq!(client.send(post("/chat", "{}")).await.whole().await.split().1.len(), 1);
    proxy.ended().await;
    assert!(tokio::net::TcpStream::connect(proxy.addr).await.is_err(), "the listener is still open");
}

#[tokio::test]
async fn streams_that_finish_within_the_grace_are_unchanged() {
    let (_upstream, mut proxy) = chat(ends_after(Duration::from_millis(600)), "[timeouts]\ndrain = \"15s\"").await;
    let (mut h1, mut h2) = (Client::h1(proxy.addr).await, Client::h2(proxy.addr).await);
    let responses = [h1.send(post("/chat", "{}")).await, h2.send(post("/chat", "{}")).await];
    let began = Instant::now();
    proxy.signals.drain.cancel();
    for response in responses {
        let whole = response.whole().await;
        assert_eq!(whole.error, None);
        let (theirs, ours) = whole.split();
        assert_eq!(theirs, (tencent::references("m", &[1, 2]) + &tencent::finish("m")).into_bytes());
        assert!(ours[0].complete && ours[0].stored);
    }
    proxy.ended().await;
    assert!(began.elapsed() < Duration::from_secs(10), "waited for the grace period without open streams");
}

/// L56
#[tokio::test]
async fn streams_beyond_the_grace_abort_with_citations() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.db");
    let script = Script::sse_steps([
        Step::Send(tencent::references("m", &[1, 2]).into()),
        Step::Send("data:{\"half".into()),
        Step::Pause(Duration::from_secs(60)),
    ]);
    let toml = format!("store = 'sqlite:{}'\n[timeouts]\ndrain = \"300ms\"\ncommit = \"10s\"", file.display());
    let (upstream, mut proxy) = chat(script, &toml).await;
    let (mut h1, mut h2) = (Client::h1(proxy.addr).await, Client::h2(proxy.addr).await);
    let mut responses = [h1.send(post("/chat", "{}")).await, h2.send(post("/chat", "{}")).await];
    let mut begun = Vec::new();
    for response in &mut responses {
        begun.push(response.until("reference_chunks").await);
    }
    proxy.signals.drain.cancel();
    for (response, begun) in responses.into_iter().zip(begun) {
        let rest = response.whole().await;
        assert!(rest.error.is_some(), "no clean end");
        let (theirs, ours) = crate::net::split((begun + &rest.text()).as_bytes());
        assert_eq!(String::from_utf8(theirs).unwrap(), tencent::references("m", &[1, 2]), "no part of a frame");
        assert_eq!(ours.len(), 1);
        assert!(!ours[0].complete && ours[0].stored);
    }
    proxy.ended().await;
    assert!(upstream.until(crate::net::LIMIT, |upstream| upstream.cancelled() == 2).await);

    // Records that were reported as stored are there for the next process.
    let next = Proxy::start(&format!("store = 'sqlite:{}'\n{}", file.display(), route("chat", &upstream.url()))).await;
    let record = next.stored("m").await;
    assert!(!record.complete);
    assert_eq!(record.citations.len(), 2);
}

#[tokio::test]
async fn request_without_response_after_the_grace_is_503() {
    let (upstream, mut proxy) = chat(Script::hang(), "[timeouts]\ndrain = \"200ms\"").await;
    let mut client = Client::h1(proxy.addr).await;
    let asking = tokio::spawn(async move { client.send(post("/chat", "{}")).await.is_problem(503, "draining").await });
    assert!(upstream.until(crate::net::LIMIT, |upstream| upstream.request_count() == 1).await);
    proxy.signals.drain.cancel();
    asking.await.unwrap();
    proxy.ended().await;
}

#[tokio::test]
async fn stop_ends_at_once_even_while_draining() {
    for draining in [false, true] {
        let (_upstream, mut proxy) = chat(ends_after(Duration::from_secs(60)), "").await;
        let mut response = proxy.post("/chat", "{}").await;
        response.until("reference_chunks").await;
        if draining {
            proxy.signals.drain.cancel();
            let shut = eventually(|| async { tokio::net::TcpStream::connect(proxy.addr).await.is_err().then_some(()) });
            assert!(shut.await.is_some());
        }
        let began = Instant::now();
        proxy.signals.stop.cancel();
        proxy.ended().await;
        // The stream would last 60 s, and a drain 25 s.
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn reloaded_routes_apply_to_new_requests() {
    let upstream = Upstream::bind(vec![
        Scripted::new("/old", ends_after(Duration::from_millis(800))),
        Scripted::new("/new", Script::json(&b"\"new\""[..])),
    ])
    .await
    .unwrap();
    let proxy = Proxy::start(&route("chat", &format!("{}/old", upstream.url()))).await;
    let mut client = Client::h1(proxy.addr).await;
    let mut open = client.send(post("/chat", "{}")).await;
    let begun = open.until("reference_chunks").await;

    let routes = route("chat", &format!("{}/new", upstream.url())) + &route("more", &format!("{}/new", upstream.url()));
    proxy.app.set_routes(config(&routes).routes);
    assert_eq!(proxy.post("/chat", "{}").await.whole().await.text(), "\"new\"");
    assert_eq!(proxy.post("/more", "{}").await.whole().await.text(), "\"new\"");

    let rest = open.whole().await;
    assert_eq!(rest.error, None);
    let (theirs, ours) = crate::net::split((begun + &rest.text()).as_bytes());
    assert_eq!(theirs, (tencent::references("m", &[1, 2]) + &tencent::finish("m")).into_bytes());
    assert!(ours[0].complete && ours[0].stored);
    // The same connection uses the new routes.
    assert_eq!(client.send(post("/chat", "{}")).await.whole().await.text(), "\"new\"");
}

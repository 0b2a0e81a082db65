//! Events are relayed as the upstream sends them, with ours before the finish.

use std::time::Duration;

use bytes::Bytes;
use citetap::replay::{Chunking, Pace, Script, Scripted, Step, Upstream, demo_routes};

use http::Method;

use crate::net::{Client, ClientResponse, Proxy, chat, frames, post, request, route, split, tencent};

const PAUSE: Duration = Duration::from_millis(150);

fn paced() -> Script {
    let pieces = [
        tencent::references("p1", &[1, 2]),
        tencent::text("p1", "一"),
        tencent::text("p1", "二"),
        tencent::finish("p1"),
    ];
    let steps: Vec<Step> =
        pieces.into_iter().flat_map(|piece| [Step::Send(Bytes::from(piece)), Step::Pause(PAUSE)]).collect();
    Script::sse_steps(steps)
}

/// Each piece is read before the upstream sends the next one.
async fn one_by_one(mut response: ClientResponse, upstream: &Upstream) {
    assert_eq!(response.status, 200);
    assert_eq!(response.header("x-accel-buffering"), Some("no"));
    assert_eq!(response.header("cache-control"), Some("no-cache"), "the upstream's own");
    assert_eq!(response.header("content-length"), None);
    let nonce = response.header("x-citetap-nonce").unwrap().to_owned();

    let sizes = [
        tencent::references("p1", &[1, 2]).len(),
        tencent::text("p1", "一").len(),
        tencent::text("p1", "二").len(),
        tencent::finish("p1").len(),
    ];
    let mut text = String::new();
    for (at, sign) in ["reference_chunks", "一", "二", "event:finish"].into_iter().enumerate() {
        text += &response.until(sign).await;
        let sent: usize = sizes[..=at].iter().sum();
        let out = upstream.requests()[0].bytes_out;
        assert_eq!(out, sent as u64, "{sign} arrived together with the next event");
    }
    assert!(response.piece().await.is_none(), "a clean end");

    let (_, ours) = split(text.as_bytes());
    assert_eq!(ours.len(), 1);
    assert!(ours[0].complete && ours[0].stored);
    assert_eq!(ours[0].nonce, nonce);
    let order = frames(text.as_bytes());
    let at = order.iter().position(|frame| frame.starts_with(b"event: citations")).unwrap();
    let finish = order.iter().position(|frame| frame.starts_with(b"event:finish")).unwrap();
    assert_eq!(at + 1, finish, "ours is right before the finish");
}

#[tokio::test]
async fn events_are_relayed_one_by_one_over_h1() {
    let (upstream, proxy) = chat(paced(), "").await;
    one_by_one(proxy.post("/chat", "{}").await, &upstream).await;
}

#[tokio::test]
async fn events_are_relayed_one_by_one_over_h2() {
    let (upstream, proxy) = chat(paced(), "").await;
    one_by_one(Client::h2(proxy.addr).await.send(post("/chat", "{}")).await, &upstream).await;
}

/// P1 over sockets.
#[tokio::test]
async fn bytes_minus_ours_are_the_upstreams_in_every_chunking() {
    const ASKS: &str = r#"{"stream":true}"#;
    let mut chunkings = vec![Chunking::Whole, Chunking::Frames];
    chunkings.extend((1..=7).map(Chunking::Bytes));
    for chunking in chunkings {
        let upstream = Upstream::bind(demo_routes(Pace::INSTANT.chunking(chunking))).await.unwrap();
        let names = ["doubao", "tencent", "doubao-en", "openai"];
        let toml: String = names.iter().map(|name| route(name, &format!("{}/{name}", upstream.url()))).collect();
        let proxy = Proxy::start(&toml).await;
        for name in names {
            let direct = Client::h1(upstream.addr()).await.send(post(&format!("/{name}"), ASKS)).await.whole().await;
            for mut client in clients(&proxy, chunking).await {
                let relayed = client.send(post(&format!("/{name}/completion"), ASKS)).await.whole().await;
                assert_eq!(relayed.error, None);
                let (theirs, ours) = relayed.split();
                assert!(theirs == direct.bytes(), "{name} in {chunking:?}");
                assert_eq!(ours.len(), 1, "{name} in {chunking:?}");
                assert!(ours[0].complete && ours[0].stored && !ours[0].citations.is_empty());
                assert_eq!(Some(ours[0].nonce.as_str()), relayed.header("x-citetap-nonce"));
            }
        }
    }
}

/// HTTP/2 frames the same pieces, so a few sizes are enough.
async fn clients(proxy: &Proxy, chunking: Chunking) -> Vec<Client> {
    let mut clients = vec![Client::h1(proxy.addr).await];
    if matches!(chunking, Chunking::Whole | Chunking::Frames | Chunking::Bytes(5)) {
        clients.push(Client::h2(proxy.addr).await);
    }
    clients
}

#[tokio::test]
async fn event_equals_the_stored_record() {
    let (_upstream, proxy) = chat(Script::sse(tencent::answer("m1")), "").await;
    let (_, ours) = proxy.post("/chat", "{}").await.whole().await.split();
    let record = proxy.app.store.get("default", "m1", None).await.unwrap().expect("stored before it was sent").record;
    assert_eq!(record, ours[0]);
    assert_eq!(record.citations.len(), 2);
}

#[tokio::test]
async fn parallel_streams_on_one_h2_connection_do_not_mix() {
    let upstream = Upstream::bind(
        (0..8)
            .map(|n| {
                let id = format!("m{n}");
                let steps = [
                    Step::Send(tencent::references(&id, &[n]).into()),
                    Step::Pause(Duration::from_millis(20)),
                    Step::Send((tencent::text(&id, &id) + &tencent::finish(&id)).into()),
                ];
                Scripted::new(format!("/{n}"), Script::sse_steps(steps))
            })
            .collect(),
    )
    .await
    .unwrap();
    let proxy = Proxy::start(&route("chat", &upstream.url())).await;
    let mut client = Client::h2(proxy.addr).await;
    let mut responses = Vec::new();
    for n in 0..8 {
        responses.push(client.send(post(&format!("/chat/{n}"), "{}")).await);
    }
    for (n, response) in responses.into_iter().enumerate() {
        let whole = response.whole().await;
        let (theirs, ours) = whole.split();
        let id = format!("m{n}");
        let n = u32::try_from(n).unwrap();
        assert_eq!(
            String::from_utf8(theirs).unwrap(),
            tencent::references(&id, &[n]) + &tencent::text(&id, &id) + &tencent::finish(&id)
        );
        assert_eq!(ours[0].message_id, id);
        assert_eq!(ours[0].citations[0].url, Some(format!("https://s{n}.example.com/")));
    }
}

/// Each would be an h2 frame of its own. A client that pauses reading closes its whole connection after hundreds of
/// small frames.
#[tokio::test]
async fn small_ready_frames_are_sent_together() {
    const FRAMES: usize = 5000;
    let text = tencent::text("m-small", "字").repeat(FRAMES);
    let stream = tencent::references("m-small", &[1]) + &text + &tencent::finish("m-small");
    let (_upstream, proxy) = chat(Script::sse(stream), "").await;
    for headers in [[("x-citetap-profile", "openai")], [("x-citetap-markers", "link")]] {
        let mut client = Client::h2(proxy.addr).await;
        let ask = || request(Method::POST, "/chat", &headers, "{}");
        let responses = [client.send(ask()).await, client.send(ask()).await];
        tokio::time::sleep(PAUSE).await;
        for response in responses {
            let whole = response.whole().await;
            assert_eq!(whole.error, None, "{headers:?}");
            assert_eq!(whole.text().matches('字').count(), FRAMES);
            assert!(whole.pieces.len() < FRAMES / 10, "{headers:?}: {} pieces", whole.pieces.len());
        }
    }
}

//! Heartbeat comments in quiet streams.

use std::time::Duration;

use citetap::replay::{Script, Step};

use crate::net::{Client, Whole, chat, frames, post, split, tencent};

const BEAT: &str = "[timeouts]\nheartbeat = \"100ms\"";
const SILENCE: Step = Step::Pause(Duration::from_millis(900));

fn beats(whole: &Whole) -> usize {
    whole.text().matches(": citetap\n\n").count()
}

#[tokio::test]
async fn quiet_upstream_has_heartbeats_until_the_finish() {
    let script = Script::sse_steps([
        SILENCE,
        Step::Send(tencent::references("m", &[1]).into()),
        SILENCE,
        Step::Send(tencent::finish("m").into()),
        SILENCE,
        Step::Send(": bye\n\n".into()),
    ]);
    let (_upstream, proxy) = chat(script, BEAT).await;
    let (mut h1, mut h2) = (Client::h1(proxy.addr).await, Client::h2(proxy.addr).await);
    let (h1, h2) = (h1.send(post("/chat", "{}")).await, h2.send(post("/chat", "{}")).await);
    let (h1, h2) = tokio::join!(h1.whole(), h2.whole());
    for whole in [h1, h2] {
        assert_eq!(whole.error, None);
        let text = whole.text();
        let (before, rest) = text.split_once("data:").unwrap();
        assert_eq!(before, "", "a BOM, which is one only at the very start, could still have come");
        let (between, after) = rest.split_once("event: citations").unwrap();
        assert!(between.matches(": citetap\n\n").count() >= 3, "between frames: {text}");
        assert!(!after.contains(": citetap"), "after the finish: {text}");
        let input = tencent::references("m", &[1]) + &tencent::finish("m") + ": bye\n\n";
        assert_eq!(split(text.as_bytes()).0, input.into_bytes());
    }
}

/// F28: a frame in two pieces is one frame. A heartbeat that is due meanwhile precedes it.
#[tokio::test]
async fn heartbeat_never_splits_a_frame() {
    let frame = tencent::references("m", &[1]);
    let (head, tail) = frame.split_at(40);
    let script = Script::sse_steps([
        Step::Send(tencent::text("m", "一").into()),
        Step::Send(head.to_owned().into()),
        SILENCE,
        Step::Send((tail.to_owned() + &tencent::finish("m")).into()),
    ]);
    let (_upstream, proxy) = chat(script, BEAT).await;
    let whole = proxy.post("/chat", "{}").await.whole().await;
    assert!(beats(&whole) >= 3, "{}", whole.text());
    let input = tencent::text("m", "一") + &frame + &tencent::finish("m");
    let (theirs, ours) = whole.split();
    assert_eq!(theirs, input.into_bytes());
    assert_eq!(ours.len(), 1);
    assert!(frames(&whole.bytes()).contains(&frame.as_bytes()));
}

/// A frame over the cap is being sent: nothing may come between its pieces.
#[tokio::test]
async fn heartbeat_never_splits_an_oversized_frame() {
    let big = format!("data: {}", "x".repeat(70_000));
    let script = Script::sse_steps([
        Step::Send(big.clone().into()),
        SILENCE,
        Step::Send("y\n\n".into()),
        SILENCE,
        Step::Send(tencent::answer("m").into()),
    ]);
    let (_upstream, proxy) = chat(script, &format!("[limits]\nframe = \"64KiB\"\n{BEAT}")).await;
    let whole = proxy.post("/chat", "{}").await.whole().await;
    let frame = big + "y\n\n";
    assert!(frames(&whole.bytes()).contains(&frame.as_bytes()));
    assert!(beats(&whole) >= 3, "heartbeats resume after the frame");
    assert_eq!(whole.split().0, (frame + &tencent::answer("m")).into_bytes());
}

/// openai-python fails on a comment after an `id:`.
#[tokio::test]
async fn stream_with_ids_has_no_heartbeats() {
    let script = Script::sse_steps([
        Step::Send(format!("id: 1\n{}", tencent::references("m", &[1])).into()),
        SILENCE,
        Step::Send(tencent::finish("m").into()),
    ]);
    let (_upstream, proxy) = chat(script, BEAT).await;
    let whole = proxy.post("/chat", "{}").await.whole().await;
    assert_eq!(beats(&whole), 0);
    assert_eq!(whole.split().1.len(), 1);
}

#[tokio::test]
async fn untapped_response_has_no_heartbeats() {
    let plain = |kind: &'static str| {
        Script::sse_steps([Step::Send("a".into()), SILENCE, Step::Send("b".into())])
            .header(http::header::CONTENT_TYPE, http::HeaderValue::from_static(kind))
    };
    for kind in ["application/x-ndjson", "application/json"] {
        let (_upstream, proxy) = chat(plain(kind), BEAT).await;
        assert_eq!(proxy.post("/chat", "{}").await.whole().await.text(), "ab");
    }
}

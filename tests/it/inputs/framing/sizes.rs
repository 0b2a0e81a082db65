//! Streams of any size in any number of pieces take linear time and a few MiB.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use citetap::{
    pipeline::{End, Inject},
    replay::{Script, Step},
};
use tokio::io::AsyncWriteExt;

use super::super::{Bench, is_linear, metric, raw_upstream};
use crate::{
    net::{chat, route, tencent},
    relay::memory::{MIB, Rig, is_all, references, script},
    support::{bytewise, pass},
};

/// The part of 1 MB in single bytes that goes over a socket here. Growth is measured in memory.
const SINGLE_BYTES: usize = 64 << 10;
const ONE_EVENT: u64 = 50 * MIB;
const ONE_LINE: u64 = 64 * MIB;
/// Lines of one event: with short lines it is under the frame cap, with long ones over it.
const LINES: usize = 100_000;
/// The part of a million events.
const EVENTS: usize = 100_000;

/// `len` bytes of x, as read from a socket.
fn filler(len: u64) -> Vec<Step> {
    let piece = Step::Send(Bytes::from(vec![b'x'; 64 * 1024]));
    vec![piece; usize::try_from(len / (64 * 1024)).unwrap()]
}

#[tokio::test]
async fn f04_single_bytes_are_relayed_in_linear_time() {
    let text = tencent::text("m", &"字".repeat(100));
    let body = text.repeat(SINGLE_BYTES / text.len()) + &tencent::references("m", &[1, 2]);
    let sent: Arc<[u8]> = (body.clone() + &tencent::finish("m")).into_bytes().into();
    // Each byte is a segment: no chunks, no delay.
    let by_hand = raw_upstream::serve(move |mut stream| {
        let sent = Arc::clone(&sent);
        async move {
            raw_upstream::head(&mut stream).await;
            stream.write_all(raw_upstream::STREAM.as_bytes()).await.unwrap();
            for byte in sent.iter() {
                stream.write_all(&[*byte]).await.unwrap();
            }
        }
    })
    .await;
    let more = route("bytes", &format!("http://{by_hand}")) + "provider = \"tencent\"\n";
    let rig = Rig::with(Script::hang(), &more).await;
    is_all(rig.proxy.get("/bytes").await, &[Step::Send(body.into())]).await;
    rig.is_flat();

    let whole = |n: usize| bytewise((tencent::text("m", &"字".repeat(n)) + &tencent::finish("m")).as_bytes());
    is_linear(
        |n| {
            assert!(
                pass(citetap::provider::tencent::PROVIDER, Inject::Final, whole(n), End::Clean).stream_stats.finished
            )
        },
        10_000,
    );
}

#[tokio::test]
async fn f07_event_of_any_size_is_relayed_and_the_next_one_tapped() {
    let mut steps = vec![Step::Send("data: ".into())];
    steps.extend(filler(ONE_EVENT));
    steps.extend([Step::Send("\n\n".into()), references()]);
    let rig = Rig::new(script(&steps)).await;
    is_all(rig.ask().await, &steps).await;
    rig.grew_at_most(8 * MIB);
}

/// No end of frame follows, so the record so far is stored and nothing of ours is sent.
#[tokio::test]
async fn f08_endless_line_is_relayed() {
    let mut steps = vec![references()];
    steps.extend(filler(ONE_LINE));
    let rig = Rig::new(Script::sse_steps(steps)).await;
    let mut response = rig.ask().await;
    let (mut came, mut text) = (0, Vec::new());
    while let Some(piece) = response.piece().await {
        let piece = piece.expect("a clean end");
        came += piece.len() as u64;
        text.extend_from_slice(&piece[..piece.len().min(64)]);
    }
    let before = tencent::references("m", &[1, 2]);
    assert_eq!(came, before.len() as u64 + ONE_LINE, "bytes were lost or added");
    assert!(text.iter().filter(|byte| **byte == b'x').count() > 1000);
    rig.grew_at_most(8 * MIB);
    let kept = rig.proxy.get("/citations/m").await.json().await;
    assert_eq!((&kept["complete"], kept["citations"].as_array().unwrap().len()), (&false.into(), 2));
}

#[tokio::test]
async fn f09_event_of_100_000_data_lines_is_relayed() {
    let line = format!("data: {}\n", "x".repeat(60));
    let many = Bytes::from(line.repeat(LINES / 100));
    let mut steps = vec![Step::Send(many); 100];
    steps.extend([Step::Send("\n".into()), references()]);
    let rig = Rig::new(script(&steps)).await;
    is_all(rig.ask().await, &steps).await;
    rig.grew_at_most(8 * MIB);

    let event = |n: usize| Bytes::from("data:\n".repeat(n) + "\n" + &tencent::finish("m"));
    is_linear(
        |n| {
            assert!(
                pass(citetap::provider::tencent::PROVIDER, Inject::Final, vec![event(n)], End::Clean)
                    .stream_stats
                    .finished
            )
        },
        LINES / 4,
    );
}

#[tokio::test]
async fn f10_tiny_events_do_not_grow_memory() {
    let tiny = tencent::text("m", "字");
    let many = Bytes::from(tiny.repeat(1000));
    let mut steps = vec![references()];
    steps.extend(vec![Step::Send(many); EVENTS / 1000]);
    let rig = Rig::new(script(&steps)).await;
    is_all(rig.ask().await, &steps).await;
    rig.grew_at_most(8 * MIB);

    let stream = |n: usize| Bytes::from(tiny.repeat(n) + &tencent::finish("m"));
    is_linear(
        |n| {
            assert!(
                pass(citetap::provider::tencent::PROVIDER, Inject::Final, vec![stream(n)], End::Clean)
                    .stream_stats
                    .finished
            )
        },
        EVENTS / 40,
    );
}

/// Scaled-down hour: each pause is shorter than the limit, all together are longer.
#[tokio::test]
async fn f11_comments_and_blank_lines_reset_the_idle_timer() {
    let mut steps = Vec::new();
    for n in 0..15 {
        let nothing = [": ping\n\n", "\n", "\r\n", ":\n", "\n\n\n"][n % 5];
        steps.extend([Step::Send(nothing.into()), Step::Pause(Duration::from_millis(150))]);
    }
    let input: String = (0..15).map(|n| [": ping\n\n", "\n", "\r\n", ":\n", "\n\n\n"][n % 5]).collect();
    let (_upstream, proxy) = chat(Script::sse_steps(steps), "[timeouts]\nupstream_idle = \"1s\"").await;
    let whole = proxy.post("/chat", "{}").await.whole().await;
    assert_eq!((whole.error.as_deref(), whole.text()), (None, input));
    assert_eq!(proxy.get("/citations").await.json().await["items"].as_array().unwrap().len(), 0);
    assert!(metric(&proxy, "citetap_store_operations_total", &["op=\"put\""]).await < 0.5, "no write was tried");

    // The maximum number of them, at once.
    let nothing = Bytes::from(": ping\n\n\n\r\n:\n\n".repeat(20_000));
    let mut bench = Bench::new("tencent", vec![vec![nothing]]).await;
    assert_eq!(bench.pass(0).await.len(), 0);
}

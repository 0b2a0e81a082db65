//! Floods of HTTP/2 frames. The proxy is a separate process, so that its memory can be measured.

use std::time::Duration;

use citetap::replay::{Script, Step};
use tokio::io::AsyncWriteExt;

use super::frames::{
    ACK, CONTINUATION, DATA, END_HEADERS, HEADERS, PING, RST_STREAM, Raw, SETTINGS, WINDOW_UPDATE, fields, frame, id,
    request,
};
use crate::{
    net::{Client, LIMIT, eventually, get, post, tencent},
    process::Running,
    relay::memory::{MIB, Rig},
};

/// Streams that are opened and reset. hyper tolerates 20 that are not yet accepted.
const RESETS: u32 = 5000;
/// Streams that the server is made to reset. hyper tolerates 1024.
const MADE_RESETS: u32 = 1500;
/// Number of frames of the smallest kinds.
const FRAMES: usize = 100_000;
const CALM: u32 = 0xb;
const STALL: &str = "[timeouts]\nclient_stall = \"1s\"\n";

/// A proxy in front of an answer that never ends.
async fn rig() -> Rig {
    let script = Script::sse_steps([
        Step::Send(tencent::references("m", &[1]).into()),
        Step::Bulk { len: 1 << 40, chunk: 65_536 },
    ]);
    Rig::with(script, STALL).await
}

/// Checks that the flood affected only its own connection.
async fn others_are_served(proxy: &Running, before: &mut Client) {
    assert_eq!(before.send(get("/healthz")).await.status, 200, "an earlier connection");
    for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
        assert_eq!(client.send(get("/healthz")).await.status, 200);
        let whole = client.send(post("/chat", "{}")).await.whole().await;
        assert_eq!((whole.error.as_deref(), whole.split().1.len()), (None, 1));
    }
}

#[tokio::test]
async fn h46_rapid_resets_get_goaway() {
    let rig = rig().await;
    let mut other = Client::h2(rig.proxy.addr).await;
    other.send(get("/healthz")).await;
    let raw = Raw::connect(rig.proxy.addr, &[]).await;
    let pieces =
        (0..RESETS).map(|n| [request(id(n), false, "/chat/big"), frame(RST_STREAM, 0, id(n), &[0, 0, 0, 8])].concat());
    let received = raw.flood_reading(pieces, Duration::from_secs(5)).await;
    assert_eq!(received.goaway(), Some(CALM), "{:?}", received.frames.len());
    others_are_served(&rig.proxy, &mut other).await;
    rig.grew_at_most(16 * MIB);
}

/// "MadeYouReset" (CVE-2025-8671): the client makes the server reset the streams.
#[tokio::test]
async fn h46_made_you_reset_gets_goaway() {
    let rig = rig().await;
    let mut other = Client::h2(rig.proxy.addr).await;
    other.send(get("/healthz")).await;
    let raw = Raw::connect(rig.proxy.addr, &[]).await;
    let too_wide = 0x7fff_ffff_u32.to_be_bytes();
    let pieces = (0..MADE_RESETS)
        .map(move |n| [request(id(n), true, "/chat/big"), frame(WINDOW_UPDATE, 0, id(n), &too_wide)].concat());
    let received = raw.flood_reading(pieces, Duration::from_secs(5)).await;
    assert_eq!(received.goaway(), Some(CALM), "{:?}", received.frames.len());
    others_are_served(&rig.proxy, &mut other).await;
    // A thousand streams may be open by then, each with an upstream connection.
    rig.grew_at_most(32 * MIB);
}

#[tokio::test]
async fn h46_endless_continuation_gets_goaway() {
    let rig = rig().await;
    let mut other = Client::h2(rig.proxy.addr).await;
    other.send(get("/healthz")).await;
    let raw = Raw::connect(rig.proxy.addr, &[]).await;
    let begun = frame(HEADERS, 0, 1, &fields(false, "/chat"));
    // A separate field each: `x: ` and a kilobyte, not indexed.
    let mut field = vec![0x00, 1, b'x', 0x7f, 0x81, 0x07];
    field.extend([b'v'; 1024]);
    let more = frame(CONTINUATION, 0, 1, &field);
    let pieces = std::iter::once(begun).chain(std::iter::repeat_n(more, 10_000));
    let received = raw.flood_reading(pieces, Duration::from_secs(5)).await;
    assert!(received.goaway().is_some(), "{:?}", received.frames.len());
    others_are_served(&rig.proxy, &mut other).await;
    rig.grew_at_most(16 * MIB);
}

/// Empty frames use no window, so only their processing limits them. Pings and settings require responses: a client
/// that does not read them is not read from either, and is dropped after the timeout. None of them is queued without
/// bound.
#[tokio::test]
async fn h46_endless_small_frames_cost_no_memory() {
    let rig = rig().await;
    let mut other = Client::h2(rig.proxy.addr).await;
    other.send(get("/healthz")).await;
    let batch = |one: Vec<u8>| std::iter::repeat_n(one.repeat(100), FRAMES / 100);
    let empty = frame(DATA, 0, 1, &[]);
    let ping = frame(PING, 0, 0, &[7; 8]);
    let settings = frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]);
    let acks = frame(SETTINGS, ACK, 0, &[]);
    for (name, one) in [("empty data", empty), ("pings", ping), ("settings", settings), ("acks", acks)] {
        // Whether the client reads or not.
        let mut raw = Raw::connect(rig.proxy.addr, &[]).await;
        raw.write.write_all(&request(1, true, "/chat")).await.unwrap();
        let flooding = raw.flood(batch(one.clone()), Duration::from_secs(2));
        let (_, ()) = tokio::join!(flooding, others_are_served(&rig.proxy, &mut other));
        drop(raw);
        let raw = Raw::connect(rig.proxy.addr, &[]).await;
        let received = raw.flood_reading(batch(one), Duration::from_millis(200)).await;
        assert!(received.closed, "{name}");
        others_are_served(&rig.proxy, &mut other).await;
        rig.grew_at_most(16 * MIB);
    }
}

#[tokio::test]
async fn h46_closed_window_times_out() {
    let rig = rig().await;
    let mut other = Client::h2(rig.proxy.addr).await;
    other.send(get("/healthz")).await;
    // SETTINGS_INITIAL_WINDOW_SIZE is 0.
    let mut raw = Raw::connect(rig.proxy.addr, &[0, 4, 0, 0, 0, 0]).await;
    for n in 0..50 {
        let request = frame(HEADERS, END_HEADERS | 1, id(n), &fields(false, "/chat/big"));
        raw.write.write_all(&request).await.unwrap();
    }
    assert!(rig.upstream.until(LIMIT, |upstream| upstream.request_count() >= 50).await);
    others_are_served(&rig.proxy, &mut other).await;
    assert!(rig.upstream.until(LIMIT, |upstream| upstream.cancelled() >= 50).await, "their upstreams are free");
    let free = eventually(|| async {
        let text = rig.proxy.get("/metrics").await.whole().await.text();
        text.contains("citetap_streams_in_flight 0").then_some(())
    });
    assert!(free.await.is_some());
    rig.grew_at_most(32 * MIB);
}

//! Missing, early and late ends of a stream.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use citetap::replay::{Outcome, Script, Scripted, Step, Upstream};
use http::Method;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Semaphore,
};

use super::super::{Bench, raw_upstream};
use crate::{
    net::{Client, Whole, chat, eventually, post, request, tencent},
    relay::{
        ends::cut_in_mid_frame,
        timeouts::{begins_and_hangs, ends_with_citations_and_an_abort},
        tls,
    },
};

const HALF: &str = "data:{\"completion_id\":\"m\",\"delta_content\":\"half";

/// A frame cut within its JSON is not parsed. A frame that lacks only its blank line is parsed, because clients that
/// read lines process it too.
#[tokio::test]
async fn f16_truncated_last_event_is_relayed_and_not_tapped() {
    let begun = tencent::references("m", &[1, 2]);
    let last = tencent::references("m", &[3]);
    let mut streams: Vec<Vec<Bytes>> = Vec::new();
    let cuts: Vec<usize> = (1..last.len() - 3).step_by(7).collect();
    for cut in &cuts {
        streams.push(vec![Bytes::from([begun.as_bytes(), &last.as_bytes()[..*cut]].concat())]);
    }
    // A cut finish frame does not finish the message. One that lacks only its blank line or line end does.
    let finishes = [
        ("event:finish\ndata:{\"completion_id\":\"m\",\"is_st", false),
        ("event:finish\ndata:", false),
        ("event:finish\n", false),
        ("event:finish\ndata:{\"completion_id\":\"m\",\"is_stop\":true}", true),
        ("event:finish\ndata:{\"completion_id\":\"m\",\"is_stop\":true}\n", true),
    ];
    streams.extend(finishes.iter().map(|(finish, _)| vec![Bytes::from(begun.clone() + finish)]));
    let mut bench = Bench::new("tencent", streams).await;
    for (n, cut) in cuts.iter().enumerate() {
        let record = bench.one(n).await;
        assert_eq!((record.citations.len(), record.complete, record.stored), (2, false, true), "cut at {cut}");
    }
    for (n, (finish, is_one)) in (cuts.len()..).zip(finishes) {
        let record = bench.one(n).await;
        assert_eq!((record.citations.len(), record.complete), (2, is_one), "{finish:?}");
    }
}

/// The bytes are relayed, our event is at the boundary with `complete: false`, and the end is an abort.
fn is_a_cut(whole: &Whole, how: &str) {
    assert!(whole.error.is_some(), "{how}: no clean end");
    let text = whole.text();
    let (before, after) = text.split_once("event: citations\n").unwrap_or_else(|| panic!("{how}: {text}"));
    assert_eq!(before, tencent::references("m", &[1, 2]) + &tencent::text("m", "一"), "{how}");
    let (ours, partial) = after.split_once("\n\n").unwrap();
    assert!(ours.contains("\"complete\":false") && ours.contains("\"stored\":true"), "{how}: {ours}");
    assert_eq!(partial, HALF, "{how}");
}

/// How a connection is cut.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Break {
    /// A FIN instead of another chunk.
    Fin,
    /// A FIN within a chunk.
    FinInChunk,
    Reset,
    /// An invalid chunk.
    BadChunk,
}

#[tokio::test]
async fn f20_cut_upstream_is_an_abort() {
    for how in [Break::Fin, Break::FinInChunk, Break::Reset, Break::BadChunk] {
        // A reset may overtake bytes, also those to an h2 client, so wait until they have arrived.
        let arrived = Arc::new(Semaphore::new(0));
        let gate = Arc::clone(&arrived);
        let by_hand = raw_upstream::serve(move |mut stream| {
            let gate = Arc::clone(&gate);
            async move {
                raw_upstream::head(&mut stream).await;
                let begun = tencent::references("m", &[1, 2]) + &tencent::text("m", "一");
                let half = match how {
                    Break::FinInChunk => format!("ff\r\n{HALF}"),
                    _ => raw_upstream::chunk(HALF),
                };
                let all = raw_upstream::CHUNKED.to_owned() + &raw_upstream::chunk(&begun) + &half;
                stream.write_all(all.as_bytes()).await.unwrap();
                gate.acquire().await.unwrap().forget();
                match how {
                    Break::BadChunk => {
                        stream.write_all(b"zz\r\n").await.unwrap();
                        // Wait until the proxy has closed it.
                        let _ = stream.read_to_end(&mut Vec::new()).await;
                    }
                    Break::Reset => stream.set_zero_linger().unwrap(),
                    Break::Fin | Break::FinInChunk => {}
                }
            }
        })
        .await;
        let proxy = raw_upstream::proxy(by_hand, "[timeouts]\ncommit = \"10s\"").await;
        for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
            let mut response = client.send(post("/chat", "{}")).await;
            let begun = response.until("一").await;
            // The partial frame is not relayed, but the budget counts it.
            let is_held = async || (proxy.app.budget.used() >= HALF.len()).then_some(());
            eventually(is_held).await.unwrap();
            arrived.add_permits(1);
            let mut whole = response.whole().await;
            whole.pieces.insert(0, (Duration::ZERO, Bytes::from(begun)));
            is_a_cut(&whole, &format!("{how:?}"));
        }
        assert!(!proxy.stored("m").await.complete);
    }
    // A reset stream of an h2 connection.
    let upstream = Upstream::bind(vec![Scripted::new("/", cut_in_mid_frame())]).await.unwrap();
    let (port, trusts) = tls::terminator(upstream.addr(), &[b"h2"], &["localhost"]).await;
    let proxy = tls::proxy(port, trusts).await;
    is_a_cut(&proxy.post("/chat", "{}").await.whole().await, "h2");
    assert_eq!(upstream.requests()[0].outcome, Outcome::Aborted);
}

#[tokio::test]
async fn f21_missing_finish_ends_with_the_idle_timeout() {
    let (upstream, proxy) = chat(begins_and_hangs(), "[timeouts]\nupstream_idle = \"300ms\"\ncommit = \"10s\"").await;
    let whole = proxy.post("/chat", "{}").await.whole().await;
    ends_with_citations_and_an_abort(&whole, &(tencent::references("m", &[1, 2]) + &tencent::text("m", "一")));
    assert!(!proxy.stored("m").await.complete);
    assert!(upstream.until(crate::net::LIMIT, |upstream| upstream.cancelled() == 1).await);
}

/// Heartbeats are sent between frames. One that is due within a frame waits or precedes it.
#[tokio::test]
async fn f28_heartbeat_is_never_inside_an_event() {
    let frame = tencent::references("m", &[1]);
    let stream = tencent::text("m", "一") + &frame + &tencent::finish("m");
    let begun = tencent::text("m", "一").len();
    let mut beats = 0;
    for at in [begun + 1, begun + 5, begun + 60, begun + frame.len() - 1] {
        let script = Script::sse_steps([
            Step::Send(stream[..at].to_owned().into()),
            Step::Pause(Duration::from_millis(350)),
            Step::Send(stream[at..].to_owned().into()),
        ]);
        let (_upstream, proxy) = chat(script, "[timeouts]\nheartbeat = \"100ms\"\ncommit = \"10s\"").await;
        for inject in ["final", "off"] {
            let headers = [("x-citetap-inject", inject)];
            let request = request(Method::POST, "/chat", &headers, "{}");
            let whole = Client::h1(proxy.addr).await.send(request).await.whole().await;
            assert_eq!(whole.split().0, stream.as_bytes());
            assert!(whole.text().contains(&frame), "in one piece, cut at {at}, {inject}: {}", whole.text());
            beats += usize::from(whole.text().contains(": citetap\n"));
        }
    }
    assert!(beats > 0, "no heartbeat came");
    // A frame over the cap is already being sent.
    let large = format!("data: {}\n\n", "x".repeat(70_000));
    let script = Script::sse_steps([
        Step::Send(large[..69_000].to_owned().into()),
        Step::Pause(Duration::from_millis(350)),
        Step::Send((large[69_000..].to_owned() + &stream).into()),
    ]);
    let toml = "[limits]\nframe = \"64KiB\"\n[timeouts]\nheartbeat = \"100ms\"\ncommit = \"10s\"";
    let (_upstream, proxy) = chat(script, toml).await;
    let whole = proxy.post("/chat", "{}").await.whole().await;
    assert!(whole.text().starts_with(&large), "in one piece");
}

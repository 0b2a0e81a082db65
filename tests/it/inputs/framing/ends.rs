//! Ends that are none, or too early, or too late.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use citetap::replay::{Outcome, Script, Scripted, Step, Upstream};
use http::Method;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Semaphore,
};

use super::super::{Bench, hand};
use crate::{
    net::{Client, Whole, chat, post, request, tencent},
    relay::{
        ends::cut_in_mid_frame,
        timeouts::{begins_and_hangs, ends_with_citations_and_an_abort},
        tls,
    },
};

const HALF: &str = "data:{\"completion_id\":\"m\",\"delta_content\":\"half";

/// Cut in the midst of its JSON it does not parse. One that lacks only its blank line is read: clients that look for
/// whole lines have it too.
#[tokio::test]
async fn f16_a_truncated_last_event_is_relayed_and_not_tapped() {
    let begun = tencent::references("m", &[1, 2]);
    let last = tencent::references("m", &[3]);
    let mut streams: Vec<Vec<Bytes>> = Vec::new();
    let cuts: Vec<usize> = (1..last.len() - 3).step_by(7).collect();
    for cut in &cuts {
        streams.push(vec![Bytes::from([begun.as_bytes(), &last.as_bytes()[..*cut]].concat())]);
    }
    // A finish that was cut finishes nothing, and one that only lacks its blank line, or its line end, does.
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

/// What came is relayed, our event stands at the boundary and says that it is not complete, and the end is none.
fn is_a_cut(whole: &Whole, how: &str) {
    assert!(whole.error.is_some(), "{how}: no clean end");
    let text = whole.text();
    let (before, after) = text.split_once("event: citations\n").unwrap_or_else(|| panic!("{how}: {text}"));
    assert_eq!(before, tencent::references("m", &[1, 2]) + &tencent::text("m", "一"), "{how}");
    let (ours, partial) = after.split_once("\n\n").unwrap();
    assert!(ours.contains("\"complete\":false") && ours.contains("\"stored\":true"), "{how}: {ours}");
    assert_eq!(partial, HALF, "{how}");
}

/// How a connection breaks off.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Break {
    /// A FIN where another chunk is due.
    Fin,
    /// A FIN in the midst of a chunk.
    FinInChunk,
    Reset,
    /// A chunk that is none.
    BadChunk,
}

#[tokio::test]
async fn f20_an_upstream_that_breaks_off_stays_broken_off() {
    for how in [Break::Fin, Break::FinInChunk, Break::Reset, Break::BadChunk] {
        // A reset may overtake bytes, an h2 client's among them: it waits until they have arrived.
        let arrived = Arc::new(Semaphore::new(0));
        let gate = Arc::clone(&arrived);
        let by_hand = hand::serve(move |mut stream| {
            let gate = Arc::clone(&gate);
            async move {
                hand::head(&mut stream).await;
                let begun = tencent::references("m", &[1, 2]) + &tencent::text("m", "一");
                let half = match how {
                    Break::FinInChunk => format!("ff\r\n{HALF}"),
                    _ => hand::chunk(HALF),
                };
                let all = hand::CHUNKED.to_owned() + &hand::chunk(&begun) + &half;
                stream.write_all(all.as_bytes()).await.unwrap();
                let _ = gate.acquire().await.unwrap();
                match how {
                    Break::BadChunk => {
                        stream.write_all(b"zz\r\n").await.unwrap();
                        // Until that has made the proxy go.
                        let _ = stream.read_to_end(&mut Vec::new()).await;
                    }
                    Break::Reset => stream.set_zero_linger().unwrap(),
                    Break::Fin | Break::FinInChunk => {}
                }
            }
        })
        .await;
        let proxy = hand::proxy(by_hand, "[timeouts]\ncommit = \"10s\"").await;
        for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
            let mut answer = client.send(post("/chat", "{}")).await;
            let begun = answer.until("一").await;
            // The half frame is held; give it the time to come, as nobody can see it.
            tokio::time::sleep(Duration::from_millis(100)).await;
            arrived.add_permits(1);
            let mut whole = answer.whole().await;
            whole.pieces.insert(0, (Duration::ZERO, Bytes::from(begun)));
            is_a_cut(&whole, &format!("{how:?}"));
        }
        assert!(!proxy.stored("m").await.complete);
    }
    // A stream of an h2 connection that is reset.
    let upstream = Upstream::bind(vec![Scripted::new("/", cut_in_mid_frame())]).await.unwrap();
    let (port, trusts) = tls::terminator(upstream.addr(), &[b"h2"], &["localhost"]).await;
    let proxy = tls::proxy(port, trusts).await;
    is_a_cut(&proxy.post("/chat", "{}").await.whole().await, "h2");
    assert_eq!(upstream.requests()[0].outcome, Outcome::Aborted);
}

#[tokio::test]
async fn f21_a_finish_that_never_comes_is_waited_for_no_longer_than_the_idle_time() {
    let (upstream, proxy) = chat(begins_and_hangs(), "[timeouts]\nupstream_idle = \"300ms\"\ncommit = \"10s\"").await;
    let whole = proxy.post("/chat", "{}").await.whole().await;
    ends_with_citations_and_an_abort(&whole, &(tencent::references("m", &[1, 2]) + &tencent::text("m", "一")));
    assert!(!proxy.stored("m").await.complete);
    assert!(upstream.until(crate::net::LIMIT, |upstream| upstream.cancelled() == 1).await);
}

/// Comments have their place between frames: one that is due while a frame is under way waits, or stands before it.
#[tokio::test]
async fn f28_a_heartbeat_is_never_inside_an_event() {
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
            let asked = request(Method::POST, "/chat", &headers, "{}");
            let whole = Client::h1(proxy.addr).await.send(asked).await.whole().await;
            assert_eq!(whole.split().0, stream.as_bytes());
            assert!(whole.text().contains(&frame), "in one piece, cut at {at}, {inject}: {}", whole.text());
            beats += usize::from(whole.text().contains(": citetap\n"));
        }
    }
    assert!(beats > 0, "some beats came");
    // A frame that is too large to be held is under way to the client already.
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

//! Exactly one event before the finish, whatever the upstream repeats.

use bytes::Bytes;
use serde_json::json;

use super::super::{Bench, doubao, openai, split_everywhere};
use crate::{
    net::{Whole, frames, tencent},
    support::bytewise,
};

/// Checks that our frame directly precedes the first frame with this text.
fn is_right_before(whole: &Whole, sign: &str) {
    let bytes = whole.bytes();
    let all: Vec<String> =
        frames(&bytes).into_iter().map(|frame| String::from_utf8_lossy(frame).into_owned()).collect();
    let ours = all.iter().position(|frame| frame.starts_with("event: citations")).expect("ours");
    let finish = all.iter().position(|frame| frame.contains(sign)).expect("the finish");
    assert_eq!(ours + 1, finish, "{}", whole.text());
}

#[tokio::test]
async fn f22_first_of_several_finishes_counts() {
    let begun = doubao::cards("b", &[doubao::card(1)]) + &doubao::text("一[1]");
    let thrice = begun.clone() + &doubao::end(1) + &doubao::end(2) + &doubao::end(3);
    let between = begun + &doubao::end(1) + &doubao::text("二") + &doubao::end(2);
    let streams = [thrice, between];
    let pieces = streams.iter().flat_map(|stream| [vec![Bytes::from(stream.clone())], bytewise(stream.as_bytes())]);
    let mut bench = Bench::new("doubao", pieces.collect()).await;
    for n in 0..4 {
        let record = bench.one(n).await;
        assert!(record.complete && record.stored);
        is_right_before(&bench.stream(n).await, "\"end_type\":1");
    }
}

#[tokio::test]
async fn f23_citations_after_the_finish_are_stored_only() {
    let stream = tencent::answer("m") + &tencent::references("m", &[3]) + &tencent::references("m", &[4]);
    let streams = vec![vec![Bytes::from(stream.clone())], bytewise(stream.as_bytes())];
    let mut bench = Bench::new("tencent", streams).await;
    for n in 0..2 {
        let sent = bench.one(n).await;
        assert_eq!((sent.citations.len(), sent.late), (2, false));
        let kept = crate::net::eventually(|| async {
            let kept = bench.proxy.stored("m").await;
            (kept.nonce == sent.nonce && kept.citations.len() == 4).then_some(kept)
        });
        let kept = kept.await.expect("the record has the late ones");
        assert!(kept.late && kept.complete && kept.stored);
    }
}

#[tokio::test]
async fn f24_references_in_the_finish_frame_precede_it() {
    let finish = json!({"completion_id": "m", "delta_content": "", "is_stop": true, "additional_content":
        {"reference_docs": [{"target_id": "t1", "title": "T", "url": "https://s1.example.com/"}]}});
    let tencent = tencent::text("m", "一[1]") + &format!("event:finish\ndata:{finish}\n\n");
    let urls = json!(["https://s1.example.com/", "https://s2.example.com/"]);
    let last = openai::chunk(&json!({}), Some("stop"), &[("citations", urls)]);
    let openai = openai::chunk(&json!({"content": "一[1]"}), None, &[]) + &last + "data: [DONE]\n\n";
    for (provider, stream, sign, count) in
        [("tencent", tencent, "event:finish", 1), ("openai", openai, "\"finish_reason\":\"stop\"", 2)]
    {
        let streams = vec![vec![Bytes::from(stream.clone())], bytewise(stream.as_bytes())];
        let mut bench = Bench::new(provider, streams).await;
        for n in 0..2 {
            let record = bench.one(n).await;
            assert_eq!((record.citations.len(), record.complete), (count, true), "{provider}");
            assert!(record.citations[0].cited);
            is_right_before(&bench.stream(n).await, sign);
        }
    }
}

#[tokio::test]
async fn f25_repeated_block_counts_once() {
    let (one, two) = (doubao::card(1), doubao::card(2));
    let mut again = doubao::card(1);
    again["index"] = json!(9);
    let stream = doubao::cards("b1", &[one.clone(), two.clone()])
        + &doubao::cards("b1", &[one.clone(), two.clone()])
        + &doubao::cards("b2", &[again])
        + &doubao::cards("b1", &[one, two, doubao::card(3)])
        + &doubao::end(1);
    let record = Bench::new("doubao", vec![vec![Bytes::from(stream)]]).await.one(0).await;
    let numbers: Vec<_> = record.citations.iter().map(|citation| citation.number).collect();
    assert_eq!(numbers, [1, 2, 3]);
    assert_eq!(record.citations[0].aliases, [9], "the first index is kept, the other still finds it");
}

#[tokio::test]
async fn f27_our_event_is_on_a_boundary_in_every_chunking() {
    let stream = tencent::answer("m");
    for stream in [stream.clone(), stream.replace('\n', "\r\n")] {
        let streams = split_everywhere(stream.as_bytes());
        let count = streams.len();
        let mut bench = Bench::new("tencent", streams).await;
        for n in 0..count {
            let whole = bench.stream(n).await;
            let (theirs, ours) = whole.split();
            assert_eq!(theirs, stream.as_bytes(), "cut at {}", n + 1);
            assert_eq!((ours.len(), ours[0].citations.len(), ours[0].complete), (1, 2, true), "cut at {}", n + 1);
            is_right_before(&whole, "event:finish");
        }
    }
}

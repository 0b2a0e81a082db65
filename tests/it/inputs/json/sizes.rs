//! Deep, long and numerous JSON.

use bytes::Bytes;
use citetap::pipeline::{End, Inject};
use serde_json::{Value, json};

use super::super::{Bench, is_linear, tapped, with_references};
use crate::{
    net::tencent,
    support::{bytewise, pass},
};

const MIB: usize = 1 << 20;

#[tokio::test]
async fn j60_json_deeper_than_the_limit_is_not_parsed() {
    const DEPTH: usize = 100_000;
    let deep = [
        "[".repeat(DEPTH),
        "[".repeat(DEPTH) + &"]".repeat(DEPTH),
        "{\"a\":".repeat(DEPTH),
        "{\"a\":".repeat(DEPTH) + "1" + &"}".repeat(DEPTH),
        "[{\"a\":".repeat(DEPTH / 2),
        "[".repeat(65) + &"]".repeat(65),
        format!("{{\"completion_id\":\"m\",\"additional_content\":{}1{}}}", "[".repeat(64), "]".repeat(64)),
        json!({"completion_id": "m", "additional_content": "[".repeat(DEPTH)}).to_string(),
    ];
    for provider in ["tencent", "doubao", "openai", "auto"] {
        let streams = deep.iter().map(|deep| vec![Bytes::from(format!("data:{deep}\n\n{}", tencent::answer("m")))]);
        let streams: Vec<_> = streams.collect();
        let count = streams.len();
        let mut bench = Bench::new(provider, streams).await;
        for n in 0..count {
            let ours = bench.pass(n).await;
            let reads = matches!(provider, "tencent" | "auto");
            assert_eq!(ours.len(), usize::from(reads), "{provider}: {n}: the next event is tapped");
        }
    }
    // At the limit a frame is parsed, beyond it is not.
    let list = json!([{"target_id": "t", "title": "T", "url": "https://s1.example.com/"}]);
    let stream = with_references(&list);
    let frame = stream.lines().next().unwrap().strip_suffix('}').unwrap();
    for (depth, count) in [(63, 3), (64, 2)] {
        let deep = format!("{frame},\"deep\":{}{}}}\n\n", "[".repeat(depth), "]".repeat(depth));
        let others = tencent::references("m", &[8, 9]);
        assert_eq!(tapped(deep + &others + &tencent::finish("m")).await.citations.len(), count, "{depth} and one more");
    }
}

/// Three nested JSON strings are parsed, as Doubao's older protocol has them, and not a fourth. All are part of one
/// frame and under its cap.
#[tokio::test]
async fn j66_json_in_strings_is_parsed_three_levels_deep() {
    let block = json!({"search_query_result_block": {"results": [
        {"text_card": {"index": 1, "title": "T", "url": "https://s1.example.com/"}}]}});
    let nested = |levels: u32| {
        let mut content = json!([{"block_type": 10025, "block_id": "b", "content": block}]);
        for _ in 2..levels {
            content = Value::String(content.to_string());
        }
        let message = json!({"id": "m", "content_block": content});
        let inner = json!({"message": message.to_string()});
        format!("data: {}\n\n", json!({"event_type": 2001, "event_data": inner.to_string()}))
    };
    let end = format!("data: {}\n\n", json!({"event_type": 2003, "event_data": "{}"}));
    let streams: Vec<String> = (2..=5).map(|levels| nested(levels) + &end).collect();
    let mut bench =
        Bench::new("doubao", streams.iter().map(|stream| vec![Bytes::from(stream.clone())]).collect()).await;
    for (n, opened) in [true, true, false, false].into_iter().enumerate() {
        assert_eq!(bench.pass(n).await.len(), usize::from(opened), "{} levels", n + 2);
    }
    // However much they contain.
    let stuffed = |n: usize| {
        let inner = json!({"message": json!({"id": "m", "content": "[1,2]".repeat(n)}).to_string()});
        let stream = format!("data: {}\n\n{end}", json!({"event_type": 2001, "event_data": inner.to_string()}));
        vec![Bytes::from(stream)]
    };
    is_linear(
        |n| {
            assert!(
                pass(citetap::provider::doubao::PROVIDER, Inject::Final, stuffed(n), End::Clean).stream_stats.finished
            )
        },
        20_000,
    );
}

fn documents(count: usize) -> String {
    let list: Vec<Value> = (0..count)
        .map(|n| json!({"target_id": format!("t{n}"), "title": format!("T{n}"), "url": format!("https://s{n}.example.com/")}))
        .collect();
    with_references(&json!(list))
}

#[tokio::test]
async fn j68_first_thousand_of_ten_thousand_references_are_kept() {
    for (count, kept, cut) in [(1000, 1000, false), (1001, 1000, true), (10_000, 1000, true)] {
        let mut bench = Bench::new("tencent", vec![vec![Bytes::from(documents(count))]]).await;
        let sent = bench.one(0).await;
        let record = bench.proxy.stored("m").await;
        assert_eq!((record.citations.len(), record.truncated), (kept, cut), "{count}");
        assert_eq!(record.citations[999].url.as_deref(), Some("https://s999.example.com/"));
        assert!(sent.truncated, "our line is not marked as truncated: {}", sent.citations.len());
    }
    is_linear(
        |n| {
            assert!(
                pass(citetap::provider::tencent::PROVIDER, Inject::Off, vec![Bytes::from(documents(n))], End::Clean)
                    .stream_stats
                    .finished
            )
        },
        2500,
    );
}

/// Every text of a reference and of the message has a cap.
#[tokio::test]
async fn j69_texts_of_a_megabyte_are_truncated() {
    let long = "长".repeat(MIB / 3);
    let of = |key: &str| {
        let mut reference = json!({"target_id": "t", "title": "T", "url": "https://s1.example.com/"});
        reference[key] = json!(long);
        reference
    };
    let mut keys: Vec<&str> =
        vec!["title", "content", "target_id", "block_id", "target_type", "file_type", "updated_at"];
    let mut streams: Vec<String> = keys.iter().map(|key| with_references(&json!([of(key)]))).collect();
    let mut reference = of("title");
    for (key, value) in
        [("space_info", json!({"name": long})), ("owner", json!({"avatar": format!("https://a.example.com/{long}")}))]
    {
        reference[key] = value;
        keys.push(key);
        streams.push(with_references(&json!([reference])));
    }
    let mut bench = Bench::new("tencent", streams.into_iter().map(|stream| vec![Bytes::from(stream)]).collect()).await;
    for (n, key) in keys.iter().enumerate() {
        let sent = bench.one(n).await;
        let record = bench.proxy.stored(&sent.message_id).await;
        let size = serde_json::to_string(&record).unwrap().len();
        assert!(size < 16 * 1024, "{key}: a record of {size} bytes");
    }
    // Doubao's cards, failing ones, and the surrounding fields.
    let cards = [
        json!({"index": 1, "title": "T", "url": "https://s1.example.com/", "id": long, "doc_id": long, "sitename": long}),
        json!({"id": long}),
        json!({"index": 2, "title": long, "summary": long, "url": "https://s2.example.com/"}),
    ];
    let stream = super::super::doubao::cards(&long[..300_000], &cards[..1])
        + &super::super::doubao::cards("b", &cards)
        + &super::super::doubao::end(1);
    let mut bench = Bench::new("doubao", vec![vec![Bytes::from(stream)]]).await;
    bench.one(0).await;
    let record = bench.proxy.stored("12").await;
    let size = serde_json::to_string(&record).unwrap().len();
    assert!(size < 24 * 1024, "a record of {size} bytes");
}

/// Keys are kept in a list and searched linearly: there are no hashes that could collide. A document with too many
/// values is not parsed at all.
#[tokio::test]
async fn j70_huge_numbers_of_keys_take_linear_time() {
    // These collide in hash functions that were attacked elsewhere (multiplication by 31).
    let colliding = |n: usize| -> String {
        let keys: Vec<String> = (0..n)
            .map(|n| {
                let key: String = (0..20).map(|bit| if n >> bit & 1 == 0 { "Aa" } else { "BB" }).collect();
                format!("\"{key}\":0")
            })
            .collect();
        keys.join(",")
    };
    let stream = |n: usize| format!("data:{{\"completion_id\":\"m\",{}}}\n\n{}", colliding(n), tencent::answer("m"));
    is_linear(
        |n| {
            let passed =
                pass(citetap::provider::tencent::PROVIDER, Inject::Final, vec![Bytes::from(stream(n))], End::Clean);
            assert!(passed.stream_stats.finished && passed.injected().len() == 1);
        },
        10_000,
    );
    // 300,000 are over the limit of values, a million over the frame cap.
    let many = format!("data:{{\"a\":0{}}}\n\n{}", ",\"a\":0".repeat(300_000), tencent::answer("m"));
    let more = format!("data:{{\"a\":0{}}}\n\n{}", ",\"a\":0".repeat(1_000_000), tencent::answer("m"));
    let mut bench = Bench::new("tencent", vec![vec![Bytes::from(many)], vec![Bytes::from(more)]]).await;
    for n in 0..2 {
        assert_eq!(bench.one(n).await.citations.len(), 2, "the next event is tapped");
    }
    assert_eq!(
        pass(citetap::provider::tencent::PROVIDER, Inject::Final, bytewise(b"data:{}\n\n"), End::Clean)
            .stream_stats
            .unparsed,
        0
    );
}

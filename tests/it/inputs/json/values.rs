//! Values of unexpected types and sizes.

use bytes::Bytes;
use serde_json::{Value, json};

use super::super::{Bench, doubao, metric, tapped, with_references};
use crate::net::tencent;

/// A reference as raw JSON within an answer.
fn raw_reference(reference: &str) -> String {
    let frame = format!("{{\"completion_id\":\"m\",\"additional_content\":{{\"reference_chunks\":[{reference}]}}}}");
    format!("data:{frame}\n\n{}", tencent::finish("m"))
}

#[tokio::test]
async fn j59_invalid_json_is_skipped_and_the_next_event_tapped() {
    let good = tencent::references("x", &[7]);
    let good = good.trim().strip_prefix("data:").unwrap();
    let bad: Vec<String> = vec![
        good[..good.len() - 1].to_owned(),
        good[..good.len() / 2].to_owned(),
        format!("{good}x"),
        format!("{good}{good}"),
        format!("{good},"),
        format!("// why\n{good}"),
        good.replace(":\"x\"", ":\"x\"/* why */"),
        good.replace("\"x\"", "NaN"),
        good.replace("\"x\"", "Infinity"),
        good.replace("\"x\"", "undefined"),
        good.replace("\"x\"", "'x'"),
        good.replace("\"completion_id\"", "completion_id"),
        good.replace("]", ",]"),
        good.replace(':', "="),
        String::new(),
        "\\".to_owned(),
    ];
    let stream: String = bad
        .iter()
        .map(|bad| {
            let lines: String = bad.split('\n').map(|line| format!("data:{line}\n")).collect();
            lines + "\n"
        })
        .collect();
    let mut bench = Bench::new("tencent", vec![vec![Bytes::from(stream + &tencent::answer("m"))]]).await;
    let record = bench.one(0).await;
    assert_eq!((record.message_id.as_str(), record.citations.len()), ("m", 2));
    let unread = metric(&bench.proxy, "citetap_frames_total", &["kind=\"unread\""]).await;
    assert!((unread - bad.len() as f64).abs() < 0.5, "{unread} of {}", bad.len());
}

#[tokio::test]
async fn j61_ids_beyond_2_to_the_53rd_stay_exact() {
    let stream = doubao::cards(
        "b",
        &[json!({"index": 1, "title": "T", "url": "https://s1.example.com/",
        "id": 35_744_004_404_204_546_u64, "doc_id": 18_446_744_073_709_551_615_u64})],
    )
    .replace("\"message_id\":\"12\"", "\"message_id\":35730705466983426")
        + &doubao::end(1);
    let mut bench = Bench::new("doubao", vec![vec![Bytes::from(stream)]]).await;
    let record = bench.one(0).await;
    assert_eq!(record.message_id, "35730705466983426");
    assert_eq!(record.citations[0].metadata["cardId"], "35744004404204546");
    assert_eq!(record.citations[0].metadata["docId"], "18446744073709551615");
    let json = bench.proxy.get("/citations/35730705466983426").await.whole().await.text();
    assert!(json.contains("\"messageId\":\"35730705466983426\"") && json.contains("\"cardId\":\"35744004404204546\""));
}

#[tokio::test]
async fn j62_numbers_of_any_size_are_accepted() {
    let digits = "9".repeat(1 << 20);
    for number in [
        "1e999999",
        "-1e999999",
        "1e-999999",
        "0.1e1000000000000",
        &digits,
        &format!("0.{digits}"),
        &format!("-{digits}"),
    ] {
        let frame = |key: &str| format!("data:{{\"completion_id\":\"m\",\"{key}\":{number}}}\n\n");
        let reference = format!("{{\"target_id\":\"t\",\"title\":\"T\",\"updated_at\":{number}}}");
        let stream = frame("x")
            + &frame("is_stop")
            + &frame("completion_id")
            + &raw_reference(&reference).replace(&tencent::finish("m"), "");
        let record = tapped(stream + &tencent::answer("m")).await;
        assert!(record.complete && record.citations.len() >= 2, "the next events are tapped");
        assert!(serde_json::to_string(&record).unwrap().len() < 16 * 1024);
    }
    // As text it is an id with more digits than the alphabet allows.
    let mut bench = Bench::new("tencent", vec![vec![Bytes::from(tencent::answer(&digits))]]).await;
    let long = bench.one(0).await;
    let sent = bench.inputs[0].len();
    assert!(bench.stream(0).await.bytes().len() < sent + (64 << 10), "our line is not short");
    assert!(long.message_id.starts_with("x-") && long.message_id.len() == 34, "{}", long.message_id);
}

#[tokio::test]
async fn j63_last_of_duplicate_keys_wins() {
    let reference = r#"{"target_id":"t","title":"first","title":"last","url":"https://first.example.com/","url":"https://last.example.com/"}"#;
    let mut bench = Bench::new("tencent", vec![vec![Bytes::from(raw_reference(reference))]]).await;
    let sent = bench.one(0).await;
    for record in [sent, bench.proxy.stored("m").await] {
        assert_eq!(record.citations[0].url.as_deref(), Some("https://last.example.com/"));
        assert_eq!(record.citations[0].title.as_deref(), Some("last"));
    }
}

#[tokio::test]
async fn j64_lone_surrogates_become_replacement_characters() {
    for (escaped, read) in [
        (r"\ud800", "\u{fffd}"),
        (r"\udfff", "\u{fffd}"),
        (r"\ud83dx", "\u{fffd}x"),
        (r"\ude00\ud83d", "\u{fffd}\u{fffd}"),
        (r"\ud83d\ude00", "😀"),
        (r"\ud83d\ud83d\ude00", "\u{fffd}😀"),
        (r"\\ud800", r"\ud800"),
    ] {
        let reference =
            format!("{{\"target_id\":\"t\",\"title\":\"a{escaped}b\",\"url\":\"https://s1.example.com/\"}}");
        let record = tapped(raw_reference(&reference)).await;
        assert_eq!(record.citations[0].title.as_deref(), Some(format!("a{read}b").as_str()), "{escaped}");
    }
}

/// PostgreSQL rejects a NUL in text. The record is the same in every store.
#[tokio::test]
async fn j65_nul_is_removed_from_records() {
    let nul = "a\0b";
    let reference = json!({"target_id": nul, "block_id": nul, "target_type": nul, "file_type": nul, "title": nul, "content": nul,
        "url": "https://s1.example.com/a\0b?c\0d", "updated_at": nul, "space_info": {"name": nul},
        "owner": {"avatar": "https://a.example.com/\0"}});
    let other = json!({"target_id": "t2", "title": "T", "url": "https://a\0b.example.com/"});
    let frame = json!({"completion_id": nul, "session_id": nul, "additional_content": {"reference_chunks": [reference, other]}});
    let dir = tempfile::tempdir().unwrap();
    let store = format!("store = 'sqlite:{}'", dir.path().join("c.db").display());
    let stream = format!("data:{frame}\n\n{}", tencent::finish("m"));
    let mut bench = Bench::with("tencent", vec![vec![Bytes::from(stream)]], &store).await;
    let sent = bench.one(0).await;
    assert!(sent.stored);
    let kept = bench.proxy.stored(&sent.message_id).await;
    for record in [sent, kept] {
        let json = serde_json::to_string(&record).unwrap();
        assert!(!json.contains("\\u0000"), "{json}");
        assert_eq!(record.citations[0].title.as_deref(), Some("ab"));
    }
}

#[tokio::test]
async fn j67_fields_of_the_wrong_type_are_skipped() {
    let odd = [
        json!(null),
        json!(true),
        json!(7),
        json!(-1),
        json!(1.5),
        json!([]),
        json!({}),
        json!([1]),
        json!({"a": 1}),
        json!(""),
    ];
    let mut list = Vec::new();
    let keys = ["title", "content", "target_type", "file_info", "space_info", "owner", "updated_at", "block_id"];
    for key in keys {
        for value in &odd {
            let n = list.len();
            let mut reference = json!({"target_id": format!("t{n}"), "url": format!("https://s{n}.example.com/")});
            reference[key] = value.clone();
            list.push(reference);
        }
    }
    let count = list.len();
    let mut bench = Bench::new("tencent", vec![vec![Bytes::from(with_references(&json!(list)))]]).await;
    bench.one(0).await;
    assert_eq!(bench.proxy.stored("m").await.citations.len(), count);

    for value in &odd {
        // The list itself, its parents, and all other fields of a frame.
        let mut stream = String::new();
        for key in ["additional_content", "processes", "delta_content", "content", "session_id", "finish_reason"] {
            stream += &format!("data:{}\n\n", json!({"completion_id": "m", key: value}));
        }
        for key in ["reference_chunks", "reference_docs"] {
            stream += &format!("data:{}\n\n", json!({"completion_id": "m", "additional_content": {key: value}}));
        }
        let record = tapped(stream + &tencent::answer("m")).await;
        assert!(record.citations.len() == 2 && record.complete, "{value}");
    }
    // Doubao: an index as text, null or missing; results as an object; invalid cards.
    for (index, number) in
        [(json!("1"), 1), (json!(null), 1), (json!("x"), 1), (json!(-3), 1), (json!([]), 1), (json!(5), 5)]
    {
        let card = json!({"index": index, "title": "T", "url": "https://s1.example.com/", "summary": 7});
        let stream = doubao::cards("b", &[card, json!(7), json!("x"), Value::Null]) + &doubao::end(1);
        let record = Bench::new("doubao", vec![vec![Bytes::from(stream)]]).await.one(0).await;
        assert_eq!((record.citations.len(), record.citations[0].number), (1, number), "{index}");
    }
    for results in [json!({}), json!("x"), json!(7)] {
        let stream = doubao::cards("b", &[doubao::card(1)])
            + &doubao::cards("c", &[]).replace("\"results\":[]", &format!("\"results\":{results}"))
            + &doubao::end(1);
        assert_eq!(Bench::new("doubao", vec![vec![Bytes::from(stream)]]).await.one(0).await.citations.len(), 1);
    }
}

#[tokio::test]
async fn j72_json_with_bom_or_in_utf16_is_skipped() {
    let good = tencent::references("x", &[7]);
    let json = good.trim().strip_prefix("data:").unwrap();
    let mut stream = format!("data:\u{feff}{json}\n\n").into_bytes();
    stream.extend(format!("data:{}\n\n", json.replacen('{', "{\u{feff}", 1)).bytes());
    for big_endian in [false, true] {
        for bom in [true, false] {
            stream.extend(b"data:");
            for unit in (if bom { "\u{feff}" } else { "" }).encode_utf16().chain(json.encode_utf16()) {
                stream.extend(if big_endian { unit.to_be_bytes() } else { unit.to_le_bytes() });
            }
            stream.extend(b"\n\n");
        }
    }
    stream.extend(tencent::answer("m").bytes());
    let record = tapped(stream).await;
    assert_eq!((record.message_id.as_str(), record.citations.len()), ("m", 2));
}

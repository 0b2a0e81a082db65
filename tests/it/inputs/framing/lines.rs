//! Lines, fields and characters in any chunking.

use bytes::Bytes;
use citetap::replay::{Script, Step};
use serde_json::{Value, json};
use std::time::Duration;

use super::super::{Bench, doubao, metric, openai, split_everywhere};
use crate::{
    net::{chat, tencent},
    support::bytewise,
};

/// Splits the stream into pieces of these lengths and the rest.
fn pieces(stream: &[u8], lengths: &[usize]) -> Vec<Bytes> {
    let mut rest = Bytes::copy_from_slice(stream);
    let mut pieces: Vec<Bytes> = lengths.iter().map(|length| rest.split_to(*length)).collect();
    pieces.push(rest);
    pieces
}

fn whole(stream: impl Into<Bytes>) -> Vec<Bytes> {
    vec![stream.into()]
}

#[tokio::test]
async fn f01_leading_bom_hides_no_event() {
    let stream = format!("\u{feff}{}", tencent::answer("m"));
    let stream = stream.as_bytes();
    let cuts: [&[usize]; 5] = [&[], &[3], &[1, 2], &[2, 1], &[1, 1, 1]];
    let mut streams: Vec<_> = cuts.iter().map(|cut| pieces(stream, cut)).collect();
    streams.push(bytewise(stream));
    let count = streams.len();
    let mut bench = Bench::new("tencent", streams).await;
    for n in 0..count {
        let record = bench.one(n).await;
        assert_eq!(record.citations.len(), 2, "the first event has them");
        assert!(record.complete);
    }
}

#[tokio::test]
async fn f02_bom_in_mid_stream_is_an_unknown_field() {
    let stream = format!(
        "{}\u{feff}{}{}",
        tencent::references("m", &[1]),
        tencent::references("m", &[2]),
        tencent::references("m", &[3]) + &tencent::finish("m")
    );
    let record = Bench::new("tencent", vec![whole(stream)]).await.one(0).await;
    let urls: Vec<_> = record.citations.iter().map(|citation| citation.url.as_deref().unwrap()).collect();
    assert_eq!(urls, ["https://s1.example.com/", "https://s3.example.com/"]);
}

#[tokio::test]
async fn f03_lf_cr_and_crlf_each_end_a_line_once() {
    let lf = tencent::answer("m");
    let frames = 3.0;
    let crlf = lf.replace('\n', "\r\n");
    let mut ends = ["\r\n", "\r", "\n"].iter().cycle();
    let mixed: String = lf.split_inclusive('\n').map(|line| line.replace('\n', ends.next().unwrap())).collect();
    // Split between the CR and the LF of every line.
    let mut between = Vec::new();
    let mut rest = Bytes::from(crlf.clone());
    while let Some(at) = memchr::memchr(b'\r', &rest) {
        between.push(rest.split_to(at + 1));
    }
    between.push(rest);
    let mut streams = vec![between];
    for stream in [lf.clone(), crlf, lf.replace('\n', "\r"), mixed] {
        streams.extend([whole(stream.clone()), bytewise(stream.as_bytes())]);
    }
    let count = streams.len();
    let mut bench = Bench::new("tencent", streams).await;
    for n in 0..count {
        let record = bench.one(n).await;
        assert_eq!((record.citations.len(), record.stats.dedup_count), (2, 0), "stream {n}");
        let tapped = metric(&bench.proxy, "citetap_frames_total", &["kind=\"tapped\""]).await;
        assert!((tapped - frames * (n + 1) as f64).abs() < 0.5, "stream {n}: {tapped} frames so far");
    }
}

#[tokio::test]
async fn f05_character_split_at_any_byte_is_parsed() {
    let list = json!([{"target_id": "t", "title": "é中文😀 标题", "url": "https://s1.example.com/"}]);
    let stream = super::super::with_references(&list);
    let streams = split_everywhere(stream.as_bytes());
    let count = streams.len();
    let mut bench = Bench::new("tencent", streams).await;
    for n in 0..count {
        let record = bench.one(n).await;
        assert_eq!(record.citations[0].title.as_deref(), Some("é中文😀 标题"), "cut at {}", n + 1);
    }
}

#[tokio::test]
async fn f06_invalid_utf8_is_relayed_but_never_in_a_citation() {
    let bad: [&[u8]; 6] = [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xe4\xb8", b"\xfe\xff"];
    let mut streams = Vec::new();
    for bytes in bad {
        let list = json!([{"target_id": "t", "title": "a#b", "content": "#", "url": "https://s1.example.com/#"}]);
        let stream = super::super::with_references(&list);
        let parts: Vec<&[u8]> = stream.as_bytes().split(|byte| *byte == b'#').collect();
        let stream = parts.join(bytes);
        streams.extend([whole(stream.clone()), bytewise(&stream)]);
    }
    let count = streams.len();
    let mut bench = Bench::new("tencent", streams).await;
    for n in 0..count {
        // Our event was parsed as JSON, so it is UTF-8.
        let record = bench.one(n).await;
        let title = record.citations[0].title.as_deref().unwrap();
        assert!(title.starts_with("a\u{fffd}") && title.ends_with("\u{fffd}b"), "{title:?}");
        let kept = bench.proxy.stored("m").await;
        assert_eq!(kept.citations[0].title.as_deref(), Some(title));
    }
}

#[tokio::test]
async fn f12_unknown_fields_are_ignored() {
    let named = tencent::references("m", &[7]);
    let (_, data) = named.split_once(':').unwrap();
    let mut stream = String::new();
    for field in ["Data", "DATA", "data ", " data", "datas", "event-data", "foo"] {
        stream += &format!("{field}:{data}");
    }
    stream += &tencent::answer("m");
    let record = Bench::new("tencent", vec![whole(stream)]).await.one(0).await;
    let urls: Vec<_> = record.citations.iter().map(|citation| citation.url.as_deref().unwrap()).collect();
    assert_eq!(urls, ["https://s1.example.com/", "https://s2.example.com/"]);
}

/// Clients dispatch no event for it, so it is not a finish either.
#[tokio::test]
async fn f13_event_without_data_is_not_dispatched() {
    let stream = format!("event:finish\n\nevent: finish\nid: 1\n\n{}", tencent::answer("m"));
    let record = Bench::new("tencent", vec![whole(stream.clone())]).await.one(0).await;
    assert_eq!(record.citations.len(), 2);
    let mut bench = Bench::new("tencent", vec![whole(stream)]).await;
    let text = bench.stream(0).await.text();
    let (before, _) = text.split_once("event: citations").unwrap();
    assert!(before.contains("第一句"), "before the true finish");
}

/// An id suppresses heartbeats, because some clients fail on comments after it. An id with a NUL is ignored.
#[tokio::test]
async fn f14_id_with_a_nul_is_ignored() {
    for (id, is_one) in [("1\0", false), ("\0", false), ("1", true)] {
        let begin = format!("id: {id}\n{}", tencent::references("m", &[1]));
        let script = Script::sse_steps([
            Step::Send(begin.clone().into()),
            Step::Pause(Duration::from_millis(500)),
            Step::Send(tencent::finish("m").into()),
        ]);
        let (_upstream, proxy) = chat(script, "[timeouts]\nheartbeat = \"100ms\"").await;
        let whole = proxy.post("/chat", "{}").await.whole().await;
        let (theirs, ours) = whole.split();
        assert_eq!(String::from_utf8(theirs).unwrap(), begin + &tencent::finish("m"));
        assert_eq!((ours.len(), ours[0].citations.len()), (1, 1));
        assert_eq!(whole.text().contains(": citetap\n"), !is_one, "{id:?}");
    }
}

#[tokio::test]
async fn f15_retry_of_any_size_is_relayed() {
    let mut stream = String::new();
    for value in ["99999999999999999999", "-1", "1e9", "", " ", "0x10", &"9".repeat(10_000)] {
        stream += &format!("retry: {value}\nretry:{value}\n{}", tencent::references("m", &[1]));
    }
    stream += &tencent::finish("m");
    let record = Bench::new("tencent", vec![whole(stream)]).await.one(0).await;
    assert_eq!((record.citations.len(), record.complete), (1, true));
}

#[tokio::test]
async fn f17_json_over_several_data_lines_is_joined() {
    let one_line = tencent::references("m", &[1, 2]);
    let json: Value = serde_json::from_str(one_line.trim().strip_prefix("data:").unwrap()).unwrap();
    let pretty = serde_json::to_string_pretty(&json).unwrap();
    let lines = |eol: &str| {
        let mut stream: String = pretty.lines().map(|line| format!("data: {line}{eol}")).collect();
        stream += eol;
        stream + &tencent::finish("m").replace('\n', eol)
    };
    let streams: Vec<String> = ["\n", "\r\n", "\r"].iter().map(|eol| lines(eol)).collect();
    let streams = streams.iter().flat_map(|stream| [whole(stream.clone()), bytewise(stream.as_bytes())]).collect();
    let mut bench = Bench::new("tencent", streams).await;
    for n in 0..6 {
        assert_eq!(bench.one(n).await.citations.len(), 2, "stream {n}");
    }
}

/// As a console prints a stream. In SSE these are unknown fields.
#[tokio::test]
async fn f18_json_lines_without_data_are_relayed_and_counted() {
    let bare: String = tencent::answer("m").replace("data:", "").replace("event:finish\n", "");
    assert!(bare.starts_with('{'));
    let mut bench = Bench::new("tencent", vec![whole(bare.clone()), bytewise(bare.as_bytes())]).await;
    for n in 0..2 {
        assert_eq!(bench.pass(n).await.len(), 0);
        let unread = metric(&bench.proxy, "citetap_frames_total", &["kind=\"unread\""]).await;
        assert!((unread - 3.0 * (n + 1) as f64).abs() < 0.5, "{unread} frames could not be read");
    }
    assert!(bench.proxy.app.store.get("default", "m", None).await.unwrap().is_none());
}

/// A trailing space or CR is tolerated. Another case is another word.
#[tokio::test]
async fn f19_done_marker_ends_only_openai_streams() {
    let url = "https://s1.example.com/";
    let begun = openai::citations(&[url]);
    let after = openai::chunk(&json!({"content": "二"}), None, &[]);
    let stream = |marker: &str| format!("{begun}data:{marker}\n\n{after}");
    let markers = [
        (" [DONE]", true),
        ("[DONE]", true),
        ("  [DONE] ", true),
        (" [done]", false),
        (" [Done]", false),
        (" DONE", false),
        (" [DONE].", false),
        (" [TRACEID:1]", false),
    ];
    let mut streams: Vec<_> = markers.iter().map(|(marker, _)| whole(stream(marker))).collect();
    streams.push(whole(stream(" [DONE]").replace('\n', "\r\n")));
    // In another dialect it is not a marker.
    let mut bench = Bench::new("openai", streams).await;
    for (n, is_one) in markers.iter().map(|(_, is_one)| *is_one).chain([true]).enumerate() {
        let record = bench.one(n).await;
        assert_eq!(record.complete, is_one, "stream {n}");
        let text = bench.stream(n).await.text();
        let (before, _) = text.split_once("event: citations").unwrap();
        assert_eq!(before.contains('二'), !is_one, "stream {n}: ours is before the first finish, else at the end");
    }
    let stream = doubao::cards("b", &[doubao::card(1)]) + "data: [DONE]\n\n" + &doubao::text("二") + &doubao::end(1);
    let mut bench = Bench::new("doubao", vec![whole(stream)]).await;
    assert!(bench.one(0).await.complete);
    let text = bench.stream(0).await.text();
    assert!(text.split_once("event: citations").unwrap().0.contains('二'));
}

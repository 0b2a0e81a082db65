//! Streams whose sources all name their message and the number of sources.

use bytes::Bytes;
use citetap::{
    citation::{Citation, Record},
    replay::{Script, Scripted, Step},
};
use serde_json::{Value, json};

use crate::{net::tencent, rng::Rng};

pub const DIALECTS: [&str; 4] = ["tencent", "doubao", "samantha", "openai"];
/// Scripts per dialect, with different lengths and speeds.
pub const VARIANTS: usize = 12;

/// Number of sources of most messages, and of a few large ones whose event still contains all of them.
const SOURCES: std::ops::Range<usize> = 1..9;
const LARGE: (usize, usize) = (40, 3500);

/// Every script under `/dialect/nn`. Each request gets its own message ids.
pub fn scripts(rng: &mut Rng) -> Vec<Scripted> {
    let mut all = Vec::new();
    for dialect in DIALECTS {
        for variant in 0..VARIANTS {
            let (sources, excerpt) = match variant {
                0 => LARGE,
                _ => (rng.within(SOURCES), rng.within(20..600)),
            };
            let frames = frames(dialect, sources, excerpt, rng.within(1..12));
            // Some are sent at once, most take time.
            let pace = if variant % 4 == 1 { 1 } else { rng.within(2..40) };
            let script = Script::sse_steps(pieces(&frames, pace, rng)).with_fresh_ids();
            all.push(Scripted::new(format!("/{dialect}/{variant:02}"), script));
        }
    }
    all
}

fn pieces(frames: &[String], pace: usize, rng: &mut Rng) -> Vec<Step> {
    let mut steps = Vec::new();
    for frame in frames {
        let bytes = Bytes::from(frame.clone());
        let cut = rng.within(0..bytes.len());
        for piece in [bytes.slice(..cut), bytes.slice(cut..)] {
            steps.extend([Step::Send(piece), Step::Pause(rng.millis(0..pace))]);
        }
    }
    steps
}

/// One source of message `id`: URL, title and snippet.
struct Source {
    url: String,
    title: String,
    excerpt: String,
}

fn sources(id: &str, count: usize, excerpt: usize) -> Vec<Source> {
    let of = |n| Source {
        url: format!("https://s{n}.example.com/{id}/{n}"),
        title: format!("资料 {id} 之 {n}/{count}"),
        excerpt: format!("{id} {n}:{}", "e".repeat(excerpt)),
    };
    (1..=count).map(of).collect()
}

/// The state of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordState {
    Whole,
    /// Sources of its message, but incomplete or altered.
    Torn,
    /// A source of another message.
    Mixed,
}

pub fn look(record: &Record) -> RecordState {
    let (id, count) = (&record.message_id, record.citations.len());
    let its_own = |text: &Option<String>| text.as_ref().is_some_and(|text| text.contains(id));
    let own = |citation: &Citation| its_own(&citation.url) && its_own(&citation.title) && its_own(&citation.content);
    let is = |(citation, wanted): (&Citation, Source)| {
        citation.url.as_ref() == Some(&wanted.url)
            && citation.title.as_ref() == Some(&wanted.title)
            && citation.content.as_ref().is_some_and(|text| text.starts_with(&wanted.excerpt))
    };
    if !record.citations.iter().all(own) {
        RecordState::Mixed
    } else if count > 0 && record.citations.iter().zip(sources(id, count, 0)).all(is) {
        RecordState::Whole
    } else {
        RecordState::Torn
    }
}

fn frames(dialect: &str, count: usize, excerpt: usize, texts: usize) -> Vec<String> {
    match dialect {
        "tencent" => {
            let id = "e6f695cb53a23d7209929e749405c534";
            let chunk = |(n, source): (usize, &Source)| json!({"target_id": format!("t{n}"), "title": source.title, "content": source.excerpt, "url": source.url});
            let chunks: Vec<Value> = sources(id, count, excerpt).iter().enumerate().map(chunk).collect();
            let found = json!({"completion_id": id, "processes": {"stage": "finished_internal_searching"},
                               "additional_content": {"reference_chunks": chunks}});
            let mut all = vec![format!("data:{found}\n\n")];
            all.extend((0..texts).map(|_| tencent::text(id, "第一句[1]。")));
            all.push(tencent::finish(id));
            all
        }
        "doubao" => {
            let id = "35800996639408167";
            let meta = json!({"content": {"content_type": 9999, "content_block": []},
                              "meta": {"message_id": id, "conversation_id": "38106639408", "user_type": 2}});
            let block = json!({"block_type": 10025, "block_id": "b1",
                "content": {"search_query_result_block": {"queries": ["月"], "results": cards(id, count, excerpt)}}});
            let found = json!({"message_id": id, "patch_op": [{"patch_object": 1, "patch_type": 1,
                               "patch_value": {"content_block": [block]}}]});
            let mut all = vec![
                format!("id: 0\nevent: STREAM_MSG_NOTIFY\ndata: {meta}\n\n"),
                format!("id: 1\nevent: STREAM_CHUNK\ndata: {found}\n\n"),
            ];
            all.extend(
                (2..2 + texts).map(|n| format!("id: {n}\nevent: CHUNK_DELTA\ndata: {{\"text\":\"红月[1]\"}}\n\n")),
            );
            all.push("event: SSE_REPLY_END\ndata: {\"end_type\":3}\n\n".to_owned());
            all
        }
        "samantha" => {
            let id = "3570760189948";
            let event = |kind: u32, content: Value| {
                // The second occurrence of the id is what the script replaces per request.
                let data = json!({"conversation_id": "29101899", "message_id": id,
                                  "message": {"id": id, "content_type": kind, "content": content.to_string()},
                                  "is_delta": true, "is_finish": false});
                let event = json!({"event_type": 2001, "event_id": "0", "event_data": data.to_string()});
                format!("data: {event}\n\n")
            };
            let mut all = vec![event(10025, json!({"queries": ["龙井"], "results": cards(id, count, excerpt)}))];
            all.extend((0..texts).map(|_| event(2001, json!({"text": "水温[1]"}))));
            all.push("data: {\"event_type\":2003,\"event_id\":\"9\",\"event_data\":\"{}\"}\n\n".to_owned());
            all
        }
        _ => {
            let id = "chatcmpl-5f0c9d2b7a8e4163";
            let found = |source: &Source| json!({"title": source.title, "url": source.url, "snippet": source.excerpt});
            let found: Vec<Value> = sources(id, count, excerpt).iter().map(found).collect();
            let chunk = |delta: Value, finish: Option<&str>| {
                json!({"id": id, "object": "chat.completion.chunk", "created": 1_768_380_000, "model": "m",
                       "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
            };
            let mut first = chunk(json!({"role": "assistant", "content": ""}), None);
            first["search_results"] = found.into();
            let mut all = vec![format!("data: {first}\n\n")];
            all.extend((0..texts).map(|_| format!("data: {}\n\n", chunk(json!({"content": "so[1] "}), None))));
            all.push(format!("data: {}\n\n", chunk(json!({}), Some("stop"))));
            all.push("data: [DONE]\n\n".to_owned());
            all
        }
    }
}

fn cards(id: &str, count: usize, excerpt: usize) -> Vec<Value> {
    let card = |(n, source): (usize, &Source)| json!({"text_card": {"title": source.title, "url": source.url, "summary": source.excerpt, "index": n + 1}});
    sources(id, count, excerpt).iter().enumerate().map(card).collect()
}

//! Markers are rewritten inside the upstream's own frames: only the text changes, however it is split over deltas.

use bytes::Bytes;
use citetap::{
    marker::{self, Source, Sources, Style},
    pipeline::{End, Inject, Settings, offline, offline::OfflineOutput},
    profile::OutputFormat,
    provider::{Provider, Signal, Sink},
    sse::{Cut, Event, Splitter},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{bytewise, context, fixtures, settings};

fn rewritten(kind: Provider, style: Style, chunks: Vec<Bytes>, end: End) -> OfflineOutput {
    let output_format = OutputFormat { markers: style, ..OutputFormat::default() };
    offline::run(context(kind), Settings { output_format, ..settings(Inject::Final) }, chunks, end, true)
}

fn link(kind: Provider, stream: &str) -> String {
    let passed = rewritten(kind, Style::Link, vec![Bytes::from(stream.to_owned())], End::Clean);
    let bytewise = rewritten(kind, Style::Link, bytewise(stream.as_bytes()), End::Clean);
    assert_eq!(passed.out(), bytewise.out());
    String::from_utf8(passed.upstream_bytes()).unwrap()
}

/// The frames of a stream.
fn frames(stream: &[u8]) -> Vec<&[u8]> {
    let (mut splitter, mut frames, mut at) = (Splitter::default(), Vec::new(), 0);
    while let Some(Cut::Frame(len) | Cut::Separator(len)) = splitter.advance(&stream[at..]) {
        frames.push(&stream[at..at + len]);
        at += len;
    }
    frames
}

/// The text that a client of the dialect reads: the deltas, and the full text if it is sent.
#[derive(Default)]
struct Client {
    text: String,
    answer: Option<String>,
    thinking: String,
}

impl Sink for Client {
    fn signal(&mut self, signal: Signal<'_>) {
        match signal {
            Signal::Text(piece, _) => self.text += piece,
            Signal::FullText(whole, _) => self.answer = Some(whole.to_owned()),
            Signal::Thinking(piece) => self.thinking += piece,
            _ => {}
        }
    }
}

fn read(kind: Provider, stream: &[u8]) -> Client {
    let (mut adapter, mut client) = (kind.adapter(), Client::default());
    for frame in frames(stream) {
        let _ = adapter.frame(&Event::read(frame), &mut client);
    }
    client
}

struct Cards(u32);

impl Sources for Cards {
    fn find(&self, number: u32) -> Option<Source<'_>> {
        const URLS: [&str; 4] = [
            "https://s1.example.com/",
            "https://s2.example.com/",
            "https://s3.example.com/",
            "https://s4.example.com/",
        ];
        let url = URLS.get(usize::try_from(number).ok()?.checked_sub(1)?)?;
        (number <= self.0).then_some(Source { number, url: Some(url), title: Some("T"), content: None })
    }
}

fn doubao_cards(count: u32) -> String {
    let cards: Vec<Value> = (1..=count)
        .map(|n| json!({"text_card": {"index": n, "title": "T", "url": format!("https://s{n}.example.com/")}}))
        .collect();
    let frame = json!({"message_id": "12", "patch_op": [{"patch_object": 1, "patch_value": {"content_block": [
        {"block_type": 10025, "block_id": "b", "content": {"search_query_result_block": {"results": cards}}}]}}]});
    format!("event: STREAM_CHUNK\ndata: {frame}\n\n")
}

/// The four carriers of Doubao's text, the text-to-speech copy, and reasoning.
fn doubao_text(carrier: u8, text: &str) -> String {
    let block = json!([{"block_type": 10000, "block_id": "t", "content": {"text_block": {"text": text}}}]);
    match carrier {
        0 => format!("event: CHUNK_DELTA\ndata: {}\n\n", json!({"text": text})),
        1 => format!(
            "id: 7\nevent: STREAM_CHUNK\ndata: {}\n\n",
            json!({"message_id": "12", "patch_op": [{"patch_object": 1, "patch_type": 1, "patch_value": {"content_block": block}}]})
        ),
        2 => format!(
            "event: STREAM_MSG_NOTIFY\ndata: {}\n\n",
            json!({"content": {"content_block": block}, "meta": {"message_id": "12", "user_type": 2}})
        ),
        3 => {
            let ops = json!([{"patch_object": 102, "patch_value": json!({"content": json!({"text": text}).to_string()}).to_string()}]).to_string();
            format!("event: STREAM_CHUNK\ndata: {}\n\n", json!({"patch_op": ops}))
        }
        _ => format!(
            "event: STREAM_CHUNK\ndata: {}\n\n",
            json!({"patch_op": [{"patch_object": 102, "patch_value": {"content": text}}]})
        ),
    }
}

const END: &str = "event: SSE_REPLY_END\ndata: {\"end_type\":1}\n\n";

#[test]
fn doubao_rewrites_all_answer_texts_and_nothing_else() {
    for carrier in 0..5 {
        let stream = |text: &str| {
            let tts = json!({"message_id": "12", "patch_op": [{"patch_object": 111, "patch_value": {"tts_content": "甲[1]"}}]});
            doubao_cards(2) + &doubao_text(carrier, text) + &format!("event: STREAM_CHUNK\ndata: {tts}\n\n") + END
        };
        let out = link(citetap::provider::doubao::PROVIDER, &stream("火灾[1]。`x[1]` \"[2]\" [9]"));
        assert_eq!(
            out,
            stream("火灾[[1]](https://s1.example.com/)。`x[1]` \"[[2]](https://s2.example.com/)\" [9]"),
            "carrier {carrier}"
        );
    }
}

#[test]
fn reasoning_is_not_rewritten() {
    let thinking = json!({"patch_op": [{"patch_object": 1, "patch_value": {"content_block": [{"block_type": 10040, "block_id": "th"}]}}]});
    let thought = json!({"patch_op": [{"patch_object": 1, "patch_value": {"content_block": [
        {"block_type": 10000, "parent_id": "th", "block_id": "x", "content": {"text_block": {"text": "so [1]"}}}]}}]});
    let stream = doubao_cards(1)
        + &format!("event: STREAM_CHUNK\ndata: {thinking}\n\nevent: STREAM_CHUNK\ndata: {thought}\n\n")
        + END;
    assert_eq!(link(citetap::provider::doubao::PROVIDER, &stream), stream);
}

#[test]
fn split_marker_is_written_where_it_starts() {
    let stream = |pieces: &[&str]| {
        let texts: String = pieces
            .iter()
            .zip([0, 1, 3, 0].iter().cycle())
            .map(|(piece, carrier)| doubao_text(*carrier, piece))
            .collect();
        doubao_cards(3) + &texts + END
    };
    assert_eq!(
        link(citetap::provider::doubao::PROVIDER, &stream(&["火灾[", "cit", "ation:2", "]。"])),
        stream(&["火灾[[2]](https://s2.example.com/)", "", "", "。"])
    );
    // Text that only looked like a marker is unchanged.
    let other = stream(&["a [", "x", "] b [", "99", "] ["]);
    assert_eq!(link(citetap::provider::doubao::PROVIDER, &other), other);
}

#[test]
fn frames_between_marker_halves_keep_their_order() {
    let beat = "event: SSE_HEARTBEAT\ndata: {}\n\n: note\n\n";
    let stream = |a: &str, b: &str| doubao_cards(1) + &doubao_text(0, a) + beat + &doubao_text(0, b) + beat + END;
    assert_eq!(
        link(citetap::provider::doubao::PROVIDER, &stream("a[", "1]b")),
        stream("a[[1]](https://s1.example.com/)", "b")
    );
}

#[test]
fn samantha_rewrites_text_in_three_nested_layers() {
    let frame = |kind: u32, content: Value| {
        let inner = json!({"conversation_id": "77", "message": {"id": "12", "content_type": kind, "content": content.to_string()}, "is_finish": false});
        format!("data: {}\n\n", json!({"event_type": 2001, "event_id": "0", "event_data": inner.to_string()}))
    };
    let stream = |text: &str| {
        let results = json!({"results": [{"text_card": {"index": 1, "title": "T", "url": "https://s1.example.com/"}}]});
        frame(10_025, results)
            + &frame(2001, json!({"text": text}))
            + &frame(2008, json!({"think": "[1]"}))
            + "data: {\"event_type\":2003,\"event_data\":\"{}\"}\n\n"
    };
    assert_eq!(
        link(citetap::provider::doubao::PROVIDER, &stream("中\\\"[1]\n")),
        stream("中\\\"[[1]](https://s1.example.com/)\n")
    );
}

#[test]
fn tencent_rewrites_deltas_spans_and_full_text() {
    let stream = |delta: &str, answer: &str| {
        let references = json!({"completion_id": "c", "processes": {"stage": "s"}, "delta_content": "",
            "additional_content": {"reference_chunks": [{"target_id": "t1", "title": "T", "url": "https://s1.example.com/", "content": "x"}]}});
        let text = json!({"completion_id": "c", "processes": {}, "delta_content": delta, "content": ""});
        let finish = json!({"completion_id": "c", "delta_content": "", "content": answer, "is_stop": true, "finish_reason": "stop",
            "additional_content": {"reference_docs": [
                {"target_id": "t1", "title": "T", "url": "https://s1.example.com/"}, {"target_id": "t2", "title": "U", "url": "https://s2.example.com/"}]}});
        format!("data:{references}\n\ndata:{text}\n\nevent:finish\ndata:{finish}\n\n")
    };
    let span = "<span id=\"ai-qa-ref\">1</span>";
    let linked = "[[1]](https://s1.example.com/)";
    // The second document arrives with the finish: too late for the delta, in time for the full text.
    let out = link(
        citetap::provider::tencent::PROVIDER,
        &stream(&format!("a{span}, b[2] and so on"), &format!("a{span}, b[2]")),
    );
    assert_eq!(
        out,
        stream(&format!("a{linked}, b[2] and so on"), &format!("a{linked}, b[[2]](https://s2.example.com/)"))
    );
}

#[test]
fn unstreamed_answer_is_rewritten_in_its_document() {
    let json = |text: &str| {
        let data = json!({"code": 0, "request_id": "r", "data": {"content": text, "session_id": "s",
            "additional_content": {"reference_docs": [{"target_id": "t1", "title": "T", "url": "https://s1.example.com/"}]}}});
        format!(" {data}\n")
    };
    let output_format = OutputFormat { markers: Style::Link, ..OutputFormat::default() };
    let settings = Settings { output_format, single_document: true, ..settings(Inject::Final) };
    for chunks in [vec![Bytes::from(json("a[1]"))], bytewise(json("a[1]").as_bytes())] {
        let passed =
            offline::run(context(citetap::provider::tencent::PROVIDER), settings.clone(), chunks, End::Clean, true);
        assert_eq!(String::from_utf8(passed.out()).unwrap(), json("a[[1]](https://s1.example.com/)"));
        assert_eq!(passed.stream_stats.markers, 1);
        assert!(passed.record.unwrap().citations[0].cited);
    }
}

/// A frame that cannot be edited is relayed as it is, and so is the text held before it.
#[test]
fn frames_that_cannot_be_edited_are_unchanged() {
    let two_lines = "event: CHUNK_DELTA\ndata: {\"text\":\ndata: \"[1]\"}\n\n";
    let stream = doubao_cards(1) + two_lines + END;
    assert_eq!(link(citetap::provider::doubao::PROVIDER, &stream), stream);
    let cut = doubao_cards(1) + &doubao_text(0, "a [") + "event: CHUNK_DELTA\ndata: {\"te";
    let passed = rewritten(citetap::provider::doubao::PROVIDER, Style::Link, vec![Bytes::from(cut.clone())], End::Cut);
    assert_eq!(String::from_utf8(passed.upstream_bytes()).unwrap(), cut);
}

#[test]
fn text_held_for_an_open_marker_is_bounded() {
    let beats = ": x\n\n".repeat(40_000);
    let stream = doubao_cards(1) + &doubao_text(0, "a[") + &beats + &doubao_text(0, "1]") + END;
    let passed =
        rewritten(citetap::provider::doubao::PROVIDER, Style::Link, vec![Bytes::from(stream.clone())], End::Clean);
    assert_eq!(String::from_utf8(passed.upstream_bytes()).unwrap(), stream, "its beginning has gone out already");
}

/// For every capture the record equals that of the unchanged stream, and `keep` changes nothing.
#[test]
fn captures_give_the_same_record_in_every_style() {
    for (folder, kind) in [
        ("doubao", citetap::provider::doubao::PROVIDER),
        ("samantha", citetap::provider::doubao::PROVIDER),
        ("tencent", citetap::provider::tencent::PROVIDER),
        ("openai", citetap::provider::openai::PROVIDER),
        ("openai-responses", citetap::provider::openai_responses::PROVIDER),
        ("anthropic", citetap::provider::anthropic::PROVIDER),
        ("gemini", citetap::provider::gemini::PROVIDER),
    ] {
        for entry in std::fs::read_dir(fixtures().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if !name.ends_with(".sse") || name.matches('.').count() != 1 {
                continue;
            }
            let input = Bytes::from(std::fs::read(&path).unwrap());
            let end = if name == "cut.sse" { End::Cut } else { End::Clean };
            let plain = rewritten(kind, Style::Keep, vec![input.clone()], end);
            for style in [Style::Link, Style::Sup, Style::Footnote, Style::Strip] {
                let changed = rewritten(kind, style, vec![input.clone()], end);
                assert_eq!(changed.record, plain.record, "{name}");
                assert_eq!(frames(&changed.upstream_bytes()).len(), frames(&plain.upstream_bytes()).len(), "{name}");
                let (was, is) = (read(kind, &input), read(kind, &changed.upstream_bytes()));
                assert_eq!(is.thinking, was.thinking, "{name}");
                if is.text == was.text && is.answer == was.answer {
                    assert_eq!(changed.upstream_bytes(), input, "{name}");
                    assert_eq!(changed.stream_stats.markers, 0, "{name}");
                }
            }
        }
    }
}

fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z ]{0,4}",
        "[\\[\\]1-5,`(){}\\\\]{0,6}",
        Just("火灾[1]。".to_owned()),
        Just("[citation:".to_owned()),
        Just("2]".to_owned()),
        Just("【3】".to_owned()),
        Just("[1][2]".to_owned()),
        Just("\n\n".to_owned()),
        any::<String>(),
    ]
}

fn style() -> impl Strategy<Value = Style> {
    prop::sample::select(vec![Style::Link, Style::Sup, Style::Footnote, Style::Strip])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// For every text, split, carrier and chunking, the deltas that a client concatenates equal the rewritten full
    /// text.
    #[test]
    fn rewritten_deltas_equal_the_rewritten_full_text(
        pieces in prop::collection::vec((piece(), 0_u8..5), 0..8), style in style(), places in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let texts: String = pieces.iter().map(|(text, carrier)| doubao_text(*carrier, text)).collect();
        let stream = doubao_cards(3) + &texts + END;
        // As a client reads it. The fourth carrier contains JSON.
        let text = read(citetap::provider::doubao::PROVIDER, stream.as_bytes()).text;
        let (expected, marks) = marker::rewrite(&text, style, &Cards(3));
        let whole = rewritten(citetap::provider::doubao::PROVIDER, style, vec![Bytes::from(stream.clone())], End::Clean);
        let got = read(citetap::provider::doubao::PROVIDER, &whole.upstream_bytes()).text;
        prop_assert_eq!(&got, &expected);
        if marks.is_empty() {
            prop_assert_eq!(whole.upstream_bytes(), stream.as_bytes());
        }
        let mut cuts: Vec<usize> = places.iter().map(|place| place.index(stream.len())).collect();
        cuts.sort_unstable();
        let mut chunks = Vec::new();
        let mut from = 0;
        for cut in cuts.into_iter().chain([stream.len()]) {
            chunks.push(Bytes::copy_from_slice(&stream.as_bytes()[from..cut]));
            from = cut;
        }
        let other = rewritten(citetap::provider::doubao::PROVIDER, style, chunks, End::Clean);
        prop_assert_eq!(other.out(), whole.out());
        prop_assert_eq!(other.record, whole.record);
    }
}

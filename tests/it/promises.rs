//! The promises as properties over random streams, chunkings and providers.

use std::{collections::HashSet, sync::Arc};

use bytes::Bytes;
use citetap::{
    citation::{
        Record,
        bundle::{self, ItemState},
        record::{CitationOrigin, CitationStatus, SearchRound},
        supplement::SearchOutcome,
    },
    pipeline::{End, Inject, Settings, Supplement, offline},
    provider::Provider,
    sse::{Cut, Event, Splitter},
};
use proptest::prelude::*;

use crate::support::{NONCE, bytewise, context, pass_with, settings};

/// A frame of a stream. Its content matters to the tap, never to the relay.
#[derive(Debug, Clone)]
enum Piece {
    Raw(Vec<u8>),
    DoubaoText(String),
    DoubaoCard(u32, String),
    /// A card without title and URL, with or without an id.
    DoubaoFailed(u32, bool),
    DoubaoEnd(u32),
    DoubaoError,
    TencentText(String),
    TencentChunks(Vec<u8>),
    TencentFinish(Vec<u8>),
    ChatText(String),
    ChatCitations(Vec<u8>),
    ChatAnnotation(u8, u32),
    ChatFinish(Vec<u8>),
    ChatError,
    ResponseText(String),
    ResponseSources(Vec<u8>),
    ResponseAnnotation(u8, u32),
    ResponseItem(String),
    ResponseEnd(String),
    ResponseError,
    AnthropicText(String),
    AnthropicResults(Vec<u8>),
    AnthropicCitation(u8),
    AnthropicBlockStop,
    AnthropicFinish,
    AnthropicError,
    GeminiText(String),
    GeminiChunks(Vec<u8>, Vec<u8>),
    GeminiFinish(Vec<u8>),
    Done,
    Comment,
    Id,
}

fn eol() -> impl Strategy<Value = &'static str> {
    prop_oneof![4 => Just("\n"), 2 => Just("\r\n"), 1 => Just("\r")]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z ]{0,8}",
        Just("火灾[1]。".to_owned()),
        Just("[citation:2]".to_owned()),
        Just("`[3]`[".to_owned()),
        Just("4]".to_owned()),
        any::<String>(),
    ]
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        2 => prop::collection::vec(any::<u8>(), 0..24).prop_map(Piece::Raw),
        1 => prop::sample::select(vec!["\u{feff}", "data", "data:", ":x", "data: {\"a\":", "event: SSE_ACK", "\r", "\n", "\n\n"])
            .prop_map(|s| Piece::Raw(s.as_bytes().to_vec())),
        4 => text().prop_map(Piece::DoubaoText),
        4 => (0_u32..6, "[a-c]{1}").prop_map(|(n, host)| Piece::DoubaoCard(n, host)),
        1 => (0_u32..3, any::<bool>()).prop_map(|(n, with_id)| Piece::DoubaoFailed(n, with_id)),
        1 => (1_u32..4).prop_map(Piece::DoubaoEnd),
        1 => Just(Piece::DoubaoError),
        3 => text().prop_map(Piece::TencentText),
        2 => prop::collection::vec(0_u8..6, 0..4).prop_map(Piece::TencentChunks),
        1 => prop::collection::vec(0_u8..6, 0..4).prop_map(Piece::TencentFinish),
        3 => text().prop_map(Piece::ChatText),
        2 => prop::collection::vec(0_u8..6, 0..4).prop_map(Piece::ChatCitations),
        2 => (0_u8..6, 0_u32..3).prop_map(|(host, end)| Piece::ChatAnnotation(host, end)),
        1 => prop::collection::vec(0_u8..6, 0..4).prop_map(Piece::ChatFinish),
        1 => Just(Piece::ChatError),
        3 => text().prop_map(Piece::ResponseText),
        2 => prop::collection::vec(0_u8..6, 0..4).prop_map(Piece::ResponseSources),
        2 => (0_u8..6, 0_u32..3).prop_map(|(host, end)| Piece::ResponseAnnotation(host, end)),
        1 => text().prop_map(Piece::ResponseItem),
        1 => text().prop_map(Piece::ResponseEnd),
        1 => Just(Piece::ResponseError),
        3 => text().prop_map(Piece::AnthropicText),
        2 => prop::collection::vec(0_u8..6, 0..4).prop_map(Piece::AnthropicResults),
        2 => (0_u8..6).prop_map(Piece::AnthropicCitation),
        1 => Just(Piece::AnthropicBlockStop),
        1 => Just(Piece::AnthropicFinish),
        1 => Just(Piece::AnthropicError),
        3 => text().prop_map(Piece::GeminiText),
        2 => (prop::collection::vec(0_u8..6, 0..4), prop::collection::vec(0_u8..9, 0..4))
            .prop_map(|(ids, used)| Piece::GeminiChunks(ids, used)),
        1 => prop::collection::vec(0_u8..6, 0..4).prop_map(Piece::GeminiFinish),
        1 => Just(Piece::Done),
        1 => Just(Piece::Comment),
        1 => Just(Piece::Id),
    ]
}

fn bytes_of(piece: &Piece, eol: &str) -> Vec<u8> {
    let event = |name: &str, json: serde_json::Value| format!("event: {name}{eol}data: {json}{eol}{eol}").into_bytes();
    let docs = |ids: &[u8]| -> Vec<serde_json::Value> {
        ids.iter().map(|id| serde_json::json!({"target_id": format!("t{id}"), "title": format!("T{id}"), "url": format!("/pages/{id}"), "content": format!("c{id}")})).collect()
    };
    let data = |json: serde_json::Value| format!("data: {json}{eol}{eol}").into_bytes();
    let chat = |delta: serde_json::Value, finish: Option<&str>| serde_json::json!({"id": "chat-1", "object": "chat.completion.chunk", "created": 7, "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
    let host = |id: &u8| format!("https://{}.example.com/", char::from(b'a' + id));
    let gemini = |candidate: serde_json::Value| serde_json::json!({"candidates": [candidate], "modelVersion": "m", "responseId": "gemini-1"});
    let grounding = |ids: &[u8], used: &[u8]| {
        let chunks: Vec<serde_json::Value> =
            ids.iter().map(|id| serde_json::json!({"web": {"uri": host(id), "title": format!("T{id}")}})).collect();
        let support = serde_json::json!({"segment": {"endIndex": 3}, "groundingChunkIndices": used});
        serde_json::json!({"groundingMetadata": {"groundingChunks": chunks, "groundingSupports": [support]}})
    };
    let message = |text: &str| serde_json::json!({"id": "msg-1", "type": "message", "content": [{"type": "output_text", "text": text, "annotations": []}]});
    match piece {
        Piece::Raw(bytes) => bytes.clone(),
        Piece::DoubaoText(text) => event("CHUNK_DELTA", serde_json::json!({"text": text})),
        Piece::DoubaoCard(n, host) => event(
            "STREAM_CHUNK",
            serde_json::json!({"message_id": "12", "patch_op": [{"patch_object": 1, "patch_value": {"content_block": [
                {"block_type": 10025, "block_id": format!("b{n}"), "content": {"search_query_result_block": {
                    "queries": ["q"], "results": [{"text_card": {"index": n, "title": "标题", "url": format!("https://{host}.example.com/")}}]}}}]}}]}),
        ),
        Piece::DoubaoFailed(n, with_id) => event(
            "STREAM_CHUNK",
            serde_json::json!({"message_id": "12", "patch_op": [{"patch_object": 1, "patch_value": {"content_block": [
                {"block_type": 10025, "block_id": format!("b{n}"), "content": {"search_query_result_block": {
                    "results": [{"text_card": {"id": with_id.then(|| n.to_string())}}, 7]}}}]}}]}),
        ),
        Piece::DoubaoEnd(end) => event("SSE_REPLY_END", serde_json::json!({"end_type": end})),
        Piece::DoubaoError => event("STREAM_ERROR", serde_json::json!({"error_code": 1})),
        Piece::TencentText(text) => format!(
            "data:{}{eol}{eol}",
            serde_json::json!({"completion_id": "c", "processes": {}, "delta_content": text})
        )
        .into_bytes(),
        Piece::TencentChunks(ids) => {
            let json = serde_json::json!({"completion_id": "c", "processes": {"stage": "finished_internal_searching"}, "additional_content": {"reference_chunks": docs(ids)}});
            format!("data:{json}{eol}{eol}").into_bytes()
        }
        Piece::TencentFinish(ids) => {
            let json = serde_json::json!({"completion_id": "c", "delta_content": "", "is_stop": true, "additional_content": {"reference_docs": docs(ids)}});
            format!("event:finish{eol}data:{json}{eol}{eol}").into_bytes()
        }
        Piece::ChatText(text) => data(chat(serde_json::json!({"content": text}), None)),
        Piece::ChatCitations(ids) => {
            let mut json = chat(serde_json::json!({"content": ""}), None);
            json["citations"] = ids.iter().map(host).collect();
            data(json)
        }
        Piece::ChatAnnotation(id, end) => {
            let citation = serde_json::json!({"url": host(id), "title": "标题", "start_index": 0, "end_index": end});
            data(chat(serde_json::json!({"annotations": [{"type": "url_citation", "url_citation": citation}]}), None))
        }
        Piece::ChatFinish(ids) => {
            let mut json = chat(serde_json::json!({}), Some("stop"));
            let result = |id| serde_json::json!({"title": format!("T{id}"), "url": host(id)});
            json["search_results"] = ids.iter().map(result).collect();
            data(json)
        }
        Piece::ChatError => data(serde_json::json!({"error": {"code": "1301", "message": "no"}})),
        Piece::ResponseText(text) => data(
            serde_json::json!({"type": "response.output_text.delta", "sequence_number": 7, "item_id": "msg-1", "output_index": 1, "content_index": 0, "delta": text}),
        ),
        Piece::ResponseSources(ids) => {
            let sources: Vec<_> = ids.iter().map(|id| serde_json::json!({"type": "url", "url": host(id)})).collect();
            let item = serde_json::json!({"id": "ws-1", "type": "web_search_call", "action": {"type": "search", "query": "q", "sources": sources}});
            data(
                serde_json::json!({"type": "response.output_item.done", "sequence_number": 7, "output_index": 0, "item": item}),
            )
        }
        Piece::ResponseAnnotation(id, end) => {
            let annotation = serde_json::json!({"type": "url_citation", "url": host(id), "title": "标题", "start_index": 0, "end_index": end});
            data(
                serde_json::json!({"type": "response.output_text.annotation.added", "sequence_number": 7, "item_id": "msg-1", "output_index": 1, "content_index": 0, "annotation_index": 0, "annotation": annotation}),
            )
        }
        Piece::ResponseItem(text) => data(
            serde_json::json!({"type": "response.output_item.done", "sequence_number": 7, "output_index": 1, "item": message(text)}),
        ),
        Piece::ResponseEnd(text) => data(
            serde_json::json!({"type": "response.completed", "sequence_number": 8, "response": {"id": "resp-1", "object": "response", "output": [{}, message(text)]}}),
        ),
        Piece::ResponseError => {
            data(serde_json::json!({"type": "error", "code": "c", "message": "no", "sequence_number": 8}))
        }
        Piece::AnthropicText(text) => {
            let kind = "content_block_delta";
            event(kind, serde_json::json!({"type": kind, "index": 0, "delta": {"type": "text_delta", "text": text}}))
        }
        Piece::AnthropicResults(ids) => {
            let kind = "content_block_start";
            let result =
                |id| serde_json::json!({"type": "web_search_result", "title": format!("T{id}"), "url": host(id)});
            let results: Vec<_> = ids.iter().map(result).collect();
            let block = serde_json::json!({"type": "web_search_tool_result", "tool_use_id": "s", "content": results});
            event(kind, serde_json::json!({"type": kind, "index": 0, "content_block": block}))
        }
        Piece::AnthropicCitation(id) => {
            let citation = serde_json::json!({"type": "web_search_result_location", "url": host(id), "title": "标题", "cited_text": "c"});
            let block = serde_json::json!({"type": "text", "text": "", "citations": [citation]});
            data(serde_json::json!({"type": "content_block_start", "index": 0, "content_block": block}))
        }
        Piece::AnthropicBlockStop => data(serde_json::json!({"type": "content_block_stop", "index": 0})),
        Piece::AnthropicFinish => {
            let kind = "message_delta";
            event(
                kind,
                serde_json::json!({"type": kind, "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}),
            )
        }
        Piece::AnthropicError => {
            event("error", serde_json::json!({"type": "error", "error": {"type": "overloaded_error", "message": "no"}}))
        }
        Piece::GeminiText(text) => {
            data(gemini(serde_json::json!({"content": {"parts": [{"text": text}], "role": "model"}})))
        }
        Piece::GeminiChunks(ids, used) => data(gemini(grounding(ids, used))),
        Piece::GeminiFinish(ids) => {
            let mut candidate = grounding(ids, &[0]);
            candidate["finishReason"] = "STOP".into();
            data(gemini(candidate))
        }
        Piece::Done => format!("data: [DONE]{eol}{eol}").into_bytes(),
        Piece::Comment => format!(": ping{eol}{eol}").into_bytes(),
        Piece::Id => format!("id: 7{eol}").into_bytes(),
    }
}

pub fn stream() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec((piece(), eol()), 0..24)
        .prop_map(|pieces| pieces.iter().flat_map(|(piece, eol)| bytes_of(piece, eol)).collect())
}

pub fn kind() -> impl Strategy<Value = Provider> {
    prop::sample::select(vec![
        citetap::provider::doubao::PROVIDER,
        citetap::provider::tencent::PROVIDER,
        citetap::provider::openai::PROVIDER,
        citetap::provider::openai_responses::PROVIDER,
        citetap::provider::anthropic::PROVIDER,
        citetap::provider::gemini::PROVIDER,
        Provider::AUTO,
    ])
}

pub fn inject() -> impl Strategy<Value = Inject> {
    prop::sample::select(vec![Inject::Final, Inject::Live, Inject::Off])
}

/// Hosts that are filtered: none, some or all of a stream's.
fn deny() -> impl Strategy<Value = HashSet<String>> {
    prop::collection::hash_set(prop::sample::select(vec!["a.example.com", "b.example.com", "lexiangla.com"]), 0..3)
        .prop_map(|hosts| hosts.into_iter().map(str::to_owned).collect())
}

/// Results of a supplementary search: a page of its own and one that streams contain too.
fn extra() -> impl Strategy<Value = (Supplement, SearchOutcome)> {
    let json = serde_json::json!({"query": "user text", "results": [
        {"title": "S", "url": "https://s.example.com/", "content": "c", "score": 0.9},
        {"title": "A", "url": "https://a.example.com/", "content": "c", "score": 0.8}, {}]});
    let found =
        offline::document_record(context(citetap::provider::tavily::PROVIDER), Bytes::from(json.to_string())).unwrap();
    let supplies = vec![
        SearchOutcome::None,
        SearchOutcome::Pending,
        SearchOutcome::Failed,
        SearchOutcome::Found(Arc::new(*found)),
    ];
    (
        prop::sample::select(vec![Supplement::Off, Supplement::WhenEmpty, Supplement::Always]),
        prop::sample::select(supplies),
    )
}

pub fn end() -> impl Strategy<Value = End> {
    prop::sample::select(vec![End::Clean, End::Cut])
}

/// Splits the stream into chunks at the given offsets.
pub fn cut(stream: &[u8], places: &[prop::sample::Index]) -> Vec<Bytes> {
    let mut at: Vec<usize> = places.iter().map(|place| place.index(stream.len() + 1)).collect();
    at.extend([0, stream.len()]);
    at.sort_unstable();
    at.windows(2).map(|pair| Bytes::copy_from_slice(&stream[pair[0]..pair[1]])).collect()
}

/// The complete frames of a stream.
pub fn frames(stream: &[u8]) -> Vec<&[u8]> {
    let (mut splitter, mut at, mut all) = (Splitter::default(), 0, Vec::new());
    while let Some(cut) = splitter.advance(&stream[at..]) {
        let (Cut::Frame(len) | Cut::Separator(len)) = cut;
        if let Cut::Frame(_) = cut {
            all.push(&stream[at..at + len]);
        }
        at += len;
    }
    all
}

/// Whether this frame is a finish or an error of the dialect, decided without the adapters.
fn is_finish_of(dialect: &str, frame: &[u8]) -> bool {
    let event = Event::read(frame);
    let Some(data) = event.data else { return false };
    let json: serde_json::Value = serde_json::from_str(&data).unwrap_or_default();
    match dialect {
        "doubao" => matches!(&*event.name, "SSE_REPLY_END" | "STREAM_ERROR"),
        "tencent" => event.name == "finish",
        "openai-responses" => {
            matches!(json["type"].as_str(), Some("response.completed" | "error"))
                || json["error"].is_object()
                || data == "[DONE]"
        }
        "anthropic" => json["delta"]["stop_reason"].is_string() || json["type"] == "error",
        "gemini" => json["candidates"][0]["finishReason"].is_string() || json["error"].is_object() || data == "[DONE]",
        _ if matches!(&*event.name, "SSE_REPLY_END" | "STREAM_ERROR" | "finish") => false,
        _ => json["choices"][0]["finish_reason"].is_string() || json["error"].is_object() || data == "[DONE]",
    }
}

/// Whether this frame is ours. Its name depends on the dialect; every record has the nonce.
fn is_ours(frame: &[u8]) -> bool {
    frame.windows(NONCE.len()).any(|part| part == NONCE.as_bytes())
}

/// The record in one of our frames, in any envelope.
fn record_in(frame: &[u8]) -> Record {
    let event = Event::read(frame);
    let json: serde_json::Value = serde_json::from_str(event.data.as_deref().unwrap()).unwrap();
    assert!(json.get("error").is_none() && json.get("event").is_none());
    if json.get("candidates").is_some() {
        // Some of Google's SDKs fail on a name, and forget a turn that has a chunk without parts.
        assert!(frame.starts_with(b"data: ") && event.name.is_empty());
        let candidate = serde_json::json!({"content": {"parts": [{"text": ""}], "role": "model"}, "index": 0});
        assert_eq!(json["candidates"], serde_json::json!([candidate]));
    } else if json.get("sequence_number").is_some() {
        // Responses API: named after its type, with a number. An annotation has all fields and the item's id.
        assert!(["keepalive", "response.output_text.annotation.added"].contains(&&*event.name), "{json}");
        assert!(json["type"] == *event.name && json["sequence_number"].is_u64());
        let annotation = &json["annotation"];
        assert_eq!(annotation.is_object(), event.name != "keepalive");
        if annotation.is_object() {
            assert_eq!((&json["item_id"], &json["content_index"]), (&"msg-1".into(), &0.into()));
            assert!(json["annotation_index"].is_u64() && json["output_index"] == 1);
            let url = annotation["url"].as_str().unwrap();
            assert!(url.starts_with("https://") && annotation["title"].as_str().is_some_and(|title| title != url));
            assert!(annotation["start_index"].is_u64() && annotation["end_index"].is_u64());
        }
        return serde_json::from_value(json["citetap"].clone()).unwrap();
    } else {
        assert_eq!(event.name, if json["type"] == "ping" { "ping" } else { "citations" });
    }
    if json.get("citetap").is_none() {
        return serde_json::from_value(json["citations"].clone()).unwrap();
    }
    // OpenAI dialect: a chunk of the stream's own shape, without keys that have another meaning there.
    assert!(json.get("citations").is_none());
    assert_eq!((&json["object"], &json["model"]), (&"chat.completion.chunk".into(), &"m".into()));
    assert_eq!((&json["id"], &json["created"]), (&"chat-1".into(), &7.into()));
    let choice = &json["choices"][0];
    assert_eq!((&choice["index"], &choice["delta"]["content"]), (&0.into(), &"".into()));
    assert!(choice["finish_reason"].is_null() && choice.get("finish_reason").is_some());
    for annotation in choice["delta"]["annotations"].as_array().into_iter().flatten() {
        let citation = &annotation["url_citation"];
        let url = citation["url"].as_str().unwrap();
        assert!(url.starts_with("https://") && citation["title"].as_str().is_some_and(|title| title != url));
        assert!(citation["start_index"].is_u64() && citation["end_index"].is_u64());
    }
    serde_json::from_value(json["citetap"].clone()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn p1_identity(stream in stream(), places in prop::collection::vec(any::<prop::sample::Index>(), 0..12), kind in kind(), inject in inject(), end in end(), extra in extra()) {
        let passed = pass_with(kind, inject, cut(&stream, &places), end, &extra);
        prop_assert_eq!(passed.upstream_bytes(), stream.clone());
        if inject == Inject::Off {
            prop_assert_eq!(passed.out(), stream);
        }
    }

    #[test]
    fn p3_once_before_the_finish(stream in stream(), places in prop::collection::vec(any::<prop::sample::Index>(), 0..12), kind in kind(), inject in inject(), end in end(), extra in extra()) {
        let passed = pass_with(kind, inject, cut(&stream, &places), end, &extra);
        let ours: Vec<Record> = passed.injected().iter().map(|frame| record_in(frame)).collect();
        prop_assert!(ours.iter().all(|record| record.nonce == NONCE && record.version == 1));
        // Live events are not stored. The final one is stored and is the last.
        let finals = ours.iter().filter(|record| record.stored).count();
        if inject == Inject::Off {
            prop_assert_eq!(ours.len(), 0);
        }
        prop_assert!(finals <= 1);
        prop_assert!(ours.iter().rev().skip(1).all(|record| !record.stored && !record.complete));
        prop_assert_eq!(passed.stream_stats.injected, finals == 1);
        if let Some(last) = ours.last() {
            prop_assert!(!last.citations.is_empty());
            prop_assert!(last.stored, "a final event follows every live one");
        }
        // Clients collect annotations, and one fails on a second list. So there is at most one of ours, and only in a
        // stream without annotations.
        let annotated = |frame: &[u8]| {
            let json: serde_json::Value = serde_json::from_str(&Event::read(frame).data.unwrap_or_default()).unwrap_or_default();
            json["choices"][0]["delta"]["annotations"].is_array()
        };
        let of_ours = passed.injected().iter().filter(|frame| annotated(frame)).count();
        prop_assert!(of_ours <= 1);
        if of_ours == 1 {
            let upstream: Vec<u8> = passed.pieces.iter().take_while(|(ours, piece)| !(*ours && annotated(piece))).filter(|(ours, _)| !ours).flat_map(|(_, piece)| piece.to_vec()).collect();
            prop_assert!(!frames(&upstream).into_iter().any(annotated));
        }
        // Each of our frames lies between frames: the output's frames are the input's plus ours.
        let out = passed.out();
        let of_ours = frames(&out).into_iter().filter(|frame| is_ours(frame)).count();
        prop_assert_eq!(of_ours, ours.len());
        // The final event precedes the first finish of the tapped dialect that follows a reference.
        if let Some(at) = passed.pieces.iter().rposition(|(ours, _)| *ours) {
            let before: Vec<u8> = passed.pieces[..at].iter().filter(|(ours, _)| !ours).flat_map(|(_, piece)| piece.to_vec()).collect();
            let dialect = &ours[0].provider;
            // Until a chunk identifies the dialect, an error or a [DONE] can belong to any.
            let undecided = |frame: &&[u8]| {
                let json: serde_json::Value = serde_json::from_str(&Event::read(frame).data.unwrap_or_default()).unwrap_or_default();
                kind == Provider::AUTO && match &**dialect {
                    "openai" => json.get("choices").is_none(),
                    "openai-responses" => json.get("sequence_number").is_none(),
                    "gemini" => json.get("candidates").is_none(),
                    _ => false,
                }
            };
            let finished = frames(&before).into_iter().skip_while(undecided).any(|frame| is_finish_of(dialect, frame));
            prop_assert!(!finished, "our event came after a finish");
        }
    }

    #[test]
    fn p10_record_is_the_same_in_every_chunking(stream in stream(), places in prop::collection::vec(any::<prop::sample::Index>(), 0..12), kind in kind(), inject in inject(), end in end(), extra in extra()) {
        let whole = pass_with(kind, inject, vec![Bytes::from(stream.clone())], end, &extra);
        for chunks in [cut(&stream, &places), bytewise(&stream)] {
            let other = pass_with(kind, inject, chunks, end, &extra);
            prop_assert_eq!(other.out(), whole.out());
            prop_assert_eq!(&other.record, &whole.record);
        }
    }

    #[test]
    fn stats_add_up(stream in stream(), kind in kind(), inject in inject(), deny in deny(), (supplement, supply) in extra()) {
        let mut context = context(kind);
        Arc::make_mut(&mut context.rules).scores.deny = deny;
        let rules = Arc::clone(&context.rules);
        let passed = offline::run_with_search(context, Settings { supplement, ..settings(inject) }, vec![Bytes::from(stream)], End::Clean, true, &supply);
        let ours: Vec<Bytes> = passed.injected().into_iter().cloned().collect();
        if let Some(record) = passed.record {
            let stats = &record.stats;
            let sum = stats.kept_after_filter + stats.filtered_count + stats.failed_count + stats.dedup_count;
            prop_assert_eq!(stats.total_returned, sum);
            prop_assert_eq!((stats.kept_after_filter + stats.filtered_count) as usize, record.citations.len());
            let of_rounds = |of: fn(&SearchRound) -> u32| record.rounds.iter().map(of).sum::<u32>();
            prop_assert_eq!(of_rounds(|round| round.failed_count), stats.failed_count);
            prop_assert_eq!(of_rounds(|round| round.dedup_count), stats.dedup_count);
            let bundles = bundle::bundles(&record, &rules);
            prop_assert_eq!(bundles.iter().map(|bundle| bundle.stats.total_returned).sum::<u32>(), stats.total_returned);
            for bundle in &bundles {
                let stats = bundle.stats;
                let sum = stats.kept_after_filter + stats.filtered_count + stats.failed_count + stats.dedup_count;
                prop_assert_eq!(stats.total_returned, sum);
            }
            let listed = bundles.iter().flat_map(|bundle| &bundle.results).filter(|item| matches!(item.state, ItemState::Failed { .. }));
            prop_assert_eq!(listed.count(), stats.failed_count as usize, "failed citations are listed");
            // Filtered and failed citations are only in the record.
            for frame in ours {
                let event = record_in(&frame);
                prop_assert!(event.rounds.iter().all(|round| round.failures.is_empty()));
                prop_assert!(event.citations.iter().all(|citation| citation.status == CitationStatus::Ok));
                if event.stored && !record.late {
                    prop_assert_eq!(event.citations.len(), stats.kept_after_filter as usize);
                }
            }
            let mut numbers: Vec<u32> = record.citations.iter().flat_map(|c| c.aliases.iter().copied().chain([c.number])).collect();
            let count = numbers.len();
            numbers.sort_unstable();
            numbers.dedup();
            prop_assert_eq!(numbers.len(), count, "numbers are unique");
            let supplemental = record.citations.iter().filter(|citation| citation.origin == CitationOrigin::Supplemental);
            prop_assert!(supplemental.clone().all(|citation| !citation.cited));
            prop_assert!(supplemental.count() == 0 || supplement != Supplement::Off);
            prop_assert!(!serde_json::to_string(&record).unwrap().contains("user text"));
        }
    }
}

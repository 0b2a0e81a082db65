use serde_json::{Value, json};

use super::*;
use crate::{
    citation::{
        Record,
        ledger::{MAX_CITATIONS, Published},
        record::CitationType,
    },
    provider::{REGISTRY, json_path::Step},
};

/// Records each signal as a short line.
#[derive(Default)]
struct SignalLog(Vec<String>);

impl Sink for SignalLog {
    fn signal(&mut self, signal: Signal<'_>) {
        self.0.push(match signal {
            Signal::MessageId(id) => format!("message {id}"),
            Signal::Model(name) => format!("model {name}"),
            Signal::Text(text, at) => format!("text {text} @{}", path_text(at)),
            Signal::Thinking(text) => format!("thinking {text}"),
            Signal::SearchRound { queries, .. } => format!("search {}", queries.join("; ")).trim_end().to_owned(),
            Signal::Reference(it) => {
                let number = it.number.map_or("-".to_owned(), |n| n.to_string());
                let texts = [it.url, it.title, it.snippet, it.site_name, it.doc_id.as_deref()];
                let mut line = format!("ref {number} {}", texts.into_iter().flatten().collect::<Vec<_>>().join(" "));
                line += if it.cited { " cited" } else { "" };
                line += if it.kind == CitationType::Knowledge { " knowledge" } else { "" };
                if let Some(Published::Text(date)) = it.published {
                    line += &format!(" {date}");
                }
                let span = |key: &str| it.metadata.iter().find(|(known, _)| *known == key).map(|(_, value)| value);
                match span("startIndex").zip(span("endIndex")) {
                    Some((start, end)) => line + &format!(" {start}..{end}"),
                    None => line,
                }
            }
            Signal::InvalidReference { code, .. } => format!("failed {code}"),
            Signal::Usage(usage) => format!("usage {} {} {}", usage.input, usage.output, usage.total),
            Signal::Finish(reason) => format!("finish {reason:?}"),
            Signal::Fault { code, message } => {
                format!("fault {} {}", code.unwrap_or_default(), message.unwrap_or_default())
            }
            other => format!("{other:?}"),
        });
    }
}

fn path_text(at: JsonPath<'_>) -> String {
    let step = |step: &Step| match step {
        Step::Key(key) => (*key).to_owned(),
        Step::Index(index) => index.to_string(),
    };
    at.steps().iter().map(step).collect::<Vec<_>>().join("/")
}

fn read(adapter: &mut GenerateContent, data: &str) -> Vec<String> {
    let mut log = SignalLog::default();
    let _ = adapter.frame(&Event::read(format!("data: {data}").as_bytes()), &mut log);
    log.0
}

/// The signals that a new adapter reads from frames.
fn signals(frames: &[Value]) -> Vec<String> {
    let mut adapter = GenerateContent::default();
    frames.iter().flat_map(|frame| read(&mut adapter, &frame.to_string())).collect()
}

/// The signals of chunks with these candidates.
fn candidates(candidates: &[Value]) -> Vec<String> {
    signals(&candidates.iter().map(|candidate| json!({ "candidates": [candidate] })).collect::<Vec<_>>())
}

fn text(text: &str) -> Value {
    json!({"content": {"parts": [{ "text": text }], "role": "model"}})
}

fn web(name: &str) -> Value {
    json!({"web": {"uri": format!("https://{name}.example.com/"), "title": name}})
}

fn grounding(chunks: &[Value], supports: &[Value]) -> Value {
    json!({"groundingMetadata": {"groundingChunks": chunks, "groundingSupports": supports}})
}

fn support(segment: Value, chunks: &[u64]) -> Value {
    json!({ "segment": segment, "groundingChunkIndices": chunks })
}

fn record() -> Record {
    let stats = json!({"totalReturned": 0, "keptAfterFilter": 0, "failedCount": 0, "dedupCount": 0, "citedCount": 0, "danglingMarkers": []});
    serde_json::from_value(json!({"type": "citations", "version": 1, "messageId": "m", "conversationId": null, "provider": "gemini",
        "route": "r", "source": "default", "model": null, "complete": true, "stored": true, "truncated": false, "nonce": "n",
        "createdAt": "", "summary": null, "queries": ["a\u{2028}b"], "citations": [], "stats": stats, "corroboration": null}))
    .unwrap()
}

#[test]
fn id_and_model_are_sent_once_and_repeated_in_our_frame() {
    let record = record();
    let payload = Payload { record: &record, span_lookup: None };
    let frame = |adapter: &GenerateContent| serde_json::from_str::<Value>(&adapter.envelope(&payload).json).unwrap();
    let mut adapter = GenerateContent::default();
    let nameless = frame(&adapter);
    assert!(nameless.get("responseId").is_none() && nameless.get("modelVersion").is_none());
    let chunk = r#"{"responseId":"r-1","modelVersion":"m","candidates":[]}"#;
    assert_eq!(read(&mut adapter, chunk), ["message r-1", "model m"]);
    assert_eq!(read(&mut adapter, &chunk.replace("r-1", "r-2")), Vec::<String>::new());
    assert_eq!((&frame(&adapter)["responseId"], &frame(&adapter)["modelVersion"]), (&json!("r-1"), &json!("m")));
    for (len, kept) in [(256, 256), (257, 256)] {
        let mut adapter = GenerateContent::default();
        read(&mut adapter, &json!({"responseId": "x".repeat(len), "modelVersion": "y".repeat(len)}).to_string());
        let frame = frame(&adapter);
        let len = |key: &str| frame[key].as_str().map(str::len);
        assert_eq!((len("responseId"), len("modelVersion")), (Some(kept), Some(kept)));
    }
}

#[test]
fn our_frame_is_a_nameless_chunk_with_empty_text() {
    let mut adapter = GenerateContent::default();
    read(&mut adapter, &json!({"responseId": "a\u{2028}b\u{2029}c"}).to_string());
    let record = record();
    let envelope = adapter.envelope(&Payload { record: &record, span_lookup: None });
    assert_eq!(envelope.event, "");
    assert!(!envelope.json.contains(['\u{2028}', '\u{2029}']), "python-genai splits lines there");
    let frame: Value = serde_json::from_str(&envelope.json).unwrap();
    let candidate = json!({"content": {"parts": [{"text": ""}], "role": "model"}, "index": 0});
    assert_eq!(frame["candidates"], json!([candidate]));
    assert_eq!(frame["responseId"], "a\u{2028}b\u{2029}c");
    assert_eq!(frame["citations"]["type"], "citations");
    assert!(!adapter.clients_accept_comments());
}

#[test]
fn text_and_thoughts_are_parts_of_candidate_0() {
    let parts =
        json!([{"text": "hm", "thought": true}, {"text": ""}, {"executableCode": {"code": "1"}}, {"text": "你好"}, 7]);
    let chunk = json!({"candidates": [
        {"content": {"parts": [{"text": "other"}]}, "finishReason": "STOP", "index": 1}, null,
        {"content": {"parts": parts, "role": "model"}}]});
    let path = "candidates/2/content/parts/3/text";
    assert_eq!(signals(std::slice::from_ref(&chunk)), ["thinking hm".to_owned(), format!("text 你好 @{path}")]);
    assert_eq!(signals(&[json!([{}, chunk])])[1], format!("text 你好 @1/{path}"));
}

#[test]
fn finish_reasons_are_mapped() {
    for (reason, parsed) in [
        ("STOP", "Stop"),
        ("MAX_TOKENS", "Length"),
        ("SAFETY", "Filter"),
        ("RECITATION", "Filter"),
        ("MODEL_ARMOR", "Filter"),
        ("MALFORMED_FUNCTION_CALL", "Stop"),
        ("NEW", "Stop"),
    ] {
        assert_eq!(candidates(&[json!({ "finishReason": reason })]), [format!("finish {parsed}")]);
    }
    for none in [json!(null), json!(""), json!(1), json!("FINISH_REASON_UNSPECIFIED")] {
        assert_eq!(candidates(&[json!({ "finishReason": none })]), Vec::<String>::new());
    }
    let call = json!({"content": {"parts": [{"functionCall": {"name": "f", "args": {}}}]}});
    assert_eq!(candidates(&[call, json!({"finishReason": "STOP"})]), ["finish Tools"]);
    let mut adapter = GenerateContent::default();
    assert_eq!(read(&mut adapter, "[DONE]"), ["finish Stop"]);
    assert_eq!(read(&mut adapter, "{"), Vec::<String>::new());
}

#[test]
fn error_is_a_fault_instead_of_the_finish() {
    let error = json!({"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}});
    assert_eq!(signals(std::slice::from_ref(&error)), ["fault 503 busy"]);
    assert_eq!(signals(&[json!([error.clone()])]), ["fault 503 busy"]);
    let mut chunk = json!({"candidates": [{"finishReason": "STOP"}]});
    assert_eq!(signals(&[json!([error, chunk])]), ["fault 503 busy"]);
    chunk["error"] = json!("no");
    assert_eq!(signals(&[chunk]), ["fault  no"]);
    assert_eq!(signals(&[json!({"error": null}), json!({"error": {}})]), Vec::<String>::new());
}

#[test]
fn blocked_prompt_is_a_filtered_answer() {
    assert_eq!(signals(&[json!({"promptFeedback": {"blockReason": "SAFETY"}})]), ["finish Filter"]);
    let feedback = json!({"promptFeedback": {"safetyRatings": []}, "candidates": [text("a")]});
    assert_eq!(signals(&[feedback]).len(), 1);
}

#[test]
fn usage_adds_up_to_the_total() {
    let usage = json!({"usageMetadata": {"promptTokenCount": 17, "candidatesTokenCount": 41, "totalTokenCount": 572,
        "toolUsePromptTokenCount": 102, "thoughtsTokenCount": 412}});
    assert_eq!(signals(&[usage]), ["usage 119 453 572"]);
    assert_eq!(signals(&[json!({"usageMetadata": {"promptTokenCount": 0}})]), Vec::<String>::new());
}

#[test]
fn supports_give_spans_in_code_points() {
    let supports = [
        support(json!({"endIndex": 6, "text": "火灾"}), &[1]),
        support(json!({"startIndex": 6, "endIndex": 10, "text": "😀"}), &[0, 1]),
    ];
    let log = candidates(&[text("火灾"), text("😀。"), grounding(&[web("a"), web("b"), web("c")], &supports)]);
    let expected = [
        "search",
        "ref 1 https://a.example.com/ a cited 2..3",
        "ref 2 https://b.example.com/ b cited 0..2",
        "ref 3 https://c.example.com/ c",
    ];
    assert_eq!(log[2..], expected);
}

#[test]
fn doubtful_offsets_give_no_span() {
    for segment in [
        json!({"startIndex": 1, "endIndex": 3}),
        json!({"endIndex": 7}),
        json!({"endIndex": 3, "text": "火灾"}),
        json!({"endIndex": 3, "partIndex": 1}),
        json!({"startIndex": 3, "endIndex": 3}),
        json!({"startIndex": 3}),
        json!("x"),
    ] {
        let log = candidates(&[text("火灾"), grounding(&[web("a")], &[support(segment.clone(), &[0])])]);
        assert_eq!(log[2], "ref 1 https://a.example.com/ a cited", "{segment}");
    }
}

#[test]
fn chunks_are_counted_over_all_responses() {
    let log = candidates(&[
        text("ab"),
        grounding(&[web("a"), web("b")], &[]),
        grounding(&[web("c")], &[support(json!({"endIndex": 1}), &[2]), support(json!({"endIndex": 2}), &[0])]),
        grounding(&[], &[support(json!({"endIndex": 2}), &[2, 0, 9])]),
    ]);
    let expected = [
        "search",
        "ref 1 https://a.example.com/ a",
        "ref 2 https://b.example.com/ b",
        "search",
        "ref 3 https://c.example.com/ c cited 0..1",
        "ref 1 https://a.example.com/ cited 0..2",
    ];
    assert_eq!(log[1..], expected);
}

#[test]
fn repeated_lists_keep_their_numbers() {
    let numbers = |lists: &[&[Value]]| -> Vec<String> {
        let log = candidates(&lists.iter().map(|list| grounding(list, &[])).collect::<Vec<_>>());
        let number = |line: &String| Some(line.strip_prefix("ref ")?.split(' ').next()?.to_owned());
        log.iter().filter_map(number).collect()
    };
    let [a, b, c] = ["a", "b", "c"].map(web);
    let (ab, abc) = ([a.clone(), b.clone()], [a.clone(), b.clone(), c.clone()]);
    assert_eq!(numbers(&[&ab, &ab, &abc]), ["1", "2", "1", "2", "1", "2", "3"]);
    assert_eq!(numbers(&[&ab, std::slice::from_ref(&c), &[c.clone(), a.clone()]]), ["1", "2", "3", "3", "4"]);
}

#[test]
fn remembered_chunks_are_capped() {
    let chunks: Vec<Value> = (0..=MAX_CITATIONS).map(|n| web(&format!("s{n}"))).collect();
    let last = MAX_CITATIONS as u64;
    for (index, cited) in [(last - 1, true), (last, false)] {
        let log = candidates(&[grounding(&chunks, &[]), grounding(&[], &[support(json!({}), &[index])])]);
        assert_eq!(log.len(), chunks.len() + 1 + usize::from(cited), "{index}");
    }
    // Names beyond the cap are not kept, so a later support does not find them.
    let name = "n".repeat(64 * 1024);
    let long = |n: u32| json!({"web": {"uri": format!("https://x.example.com/{n}{name}"), "title": "t"}});
    for (index, cited) in [(2, true), (3, false)] {
        let log = candidates(&[
            grounding(&[long(0), long(1), long(2), long(3)], &[]),
            grounding(&[], &[support(json!({}), &[index])]),
        ]);
        assert_eq!(log.len(), 5 + usize::from(cited), "{index}");
    }
}

#[test]
fn every_kind_of_chunk_is_read() {
    let redirect = "https://vertexaisearch.cloud.google.com/grounding-api-redirect/x";
    let chunks = [
        json!({"web": {"uri": redirect, "title": "a.example.com"}}),
        json!({"web": {"uri": redirect, "title": "A page", "domain": "b.example.com"}}),
        json!({"web": {"title": "No link"}}),
        json!({"maps": {"uri": "https://m.example.com/", "title": "Café", "placeId": "places/1", "text": "Cake"}}),
        json!({"image": {"sourceUri": "https://i.example.com/", "imageUri": "https://i.example.com/1.png"}}),
        json!({"retrievedContext": {"uri": "gs://b/d", "title": "D", "documentName": "d1", "ragChunk": {"text": "p"}}}),
        json!({"retrievedContext": {"title": "T", "text": "passage"}}),
        json!({"retrievedContext": {"uri": "", "title": ""}}),
        json!({"other": {}}),
        json!(null),
    ];
    let log = candidates(&[grounding(&chunks, &[])]);
    let failed = "failed missing_title_url_and_id";
    let expected = [
        &format!("ref 1 {redirect} a.example.com a.example.com"),
        &format!("ref 2 {redirect} A page b.example.com"),
        "ref 3 No link No link",
        "ref 4 https://m.example.com/ Café Cake places/1",
        "ref 5 https://i.example.com/",
        "ref 6 gs://b/d D p d1 knowledge",
        "ref 7 T passage T knowledge",
        failed,
        failed,
        failed,
    ];
    assert_eq!(log[1..], expected);
}

#[test]
fn nameless_passages_differ_by_their_text() {
    let passage = |text: &str| json!({"retrievedContext": {"text": text, "fileSearchStore": "fileSearchStores/s"}});
    let log = candidates(&[grounding(&[passage("a"), passage("b"), passage("a")], &[])]);
    let id = |line: &str| line.split("fileSearchStores/s#").nth(1).map(str::to_owned);
    assert!(id(&log[1]).is_some_and(|id| id.starts_with(|c: char| c.is_ascii_hexdigit())), "{log:?}");
    assert_ne!(id(&log[1]), id(&log[2]));
    assert_eq!(id(&log[1]), id(&log[3]));
}

#[test]
fn fetched_pages_are_sources_and_failed_ones_are_not() {
    let page = |url: &str, status: &str| json!({"retrievedUrl": url, "urlRetrievalStatus": format!("URL_RETRIEVAL_STATUS_{status}")});
    let pages = [
        page("https://a.example.com/", "SUCCESS"),
        page("https://b.example.com/", "ERROR"),
        page("https://c.example.com/", "PAYWALL"),
        page("https://d.example.com/", "UNSAFE"),
        json!({"retrievedUrl": "https://e.example.com/"}),
        json!({}),
    ];
    let log = candidates(&[json!({"urlContextMetadata": {"urlMetadata": pages}})]);
    let expected =
        ["search", "ref - https://a.example.com/", "ref - https://e.example.com/", "failed missing_title_and_url"];
    assert_eq!(log, expected);
}

#[test]
fn quoted_sources_are_cited() {
    for key in ["citations", "citationSources"] {
        let quotes = [
            json!({"startIndex": 1, "endIndex": 2, "uri": "https://a.example.com/", "title": "A", "publicationDate": {"year": 2024, "month": 2, "day": 9}}),
            json!({"endIndex": 2, "title": "B", "uri": "", "publicationDate": {"year": 2024, "month": 2, "day": 0}}),
            json!({"endIndex": 2, "uri": "https://c.example.com/", "publicationDate": {"year": 2024, "month": 13}}),
            json!({"endIndex": 2, "license": "mit"}),
        ];
        let log = candidates(&[json!({"citationMetadata": { key: quotes }})]);
        let expected = [
            "ref - https://a.example.com/ A cited 2024-02-09",
            "ref - B B cited 2024-02",
            "ref - https://c.example.com/ cited 2024",
            "failed missing_title_and_url",
        ];
        assert_eq!(log, expected);
    }
}

#[test]
fn sniff_detects_chunks_and_documents_only() {
    let is_ours = |json: &Value| REGISTRY.detect_document(&json.to_string()) == Some(PROVIDER);
    for ours in [
        json!({"candidates": [text("a")]}),
        json!([{"candidates": [text("a")]}]),
        json!({"candidates": [{"finishReason": "SAFETY", "index": 0}]}),
        json!({"promptFeedback": {"blockReason": "OTHER"}}),
        json!({"usageMetadata": {"promptTokenCount": 1}, "modelVersion": "m"}),
    ] {
        assert!(is_ours(&ours), "{ours}");
    }
    for other in [
        json!({"candidates": []}),
        json!({"candidates": ["a", {"name": "b", "content": "c"}]}),
        json!({"choices": [{"delta": {"content": "a"}}], "usageMetadata": {}}),
        json!({"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "no"}}),
        json!([]),
        json!({"models": [{"name": "models/gemini-2.5-pro"}]}),
    ] {
        assert!(!is_ours(&other), "{other}");
    }
}

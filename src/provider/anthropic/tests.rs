use serde_json::{Value, json};

use super::*;
use crate::provider::{REGISTRY, json_path::Step};

/// Records each signal as a short line.
#[derive(Default)]
struct SignalLog(Vec<String>);

fn path_text(at: JsonPath<'_>) -> String {
    let step = |step: &Step| match step {
        Step::Key(key) => (*key).to_owned(),
        Step::Index(index) => index.to_string(),
    };
    at.steps().iter().map(step).collect::<Vec<_>>().join("/")
}

impl Sink for SignalLog {
    fn signal(&mut self, signal: Signal<'_>) {
        self.0.push(match signal {
            Signal::MessageId(id) => format!("message {id}"),
            Signal::Model(name) => format!("model {name}"),
            Signal::Text(text, at) => format!("text {text} @{}", path_text(at)),
            Signal::Thinking(text) => format!("thinking {text}"),
            Signal::Stage { name, message, .. } => format!("stage {name} {message}"),
            Signal::SearchRound { key, queries, .. } => format!("round {key} {}", queries.join("; ")).trim().to_owned(),
            Signal::Reference(it) => {
                let fields = [it.url, it.title, it.snippet, it.doc_id.as_deref()].map(|field| field.unwrap_or("-"));
                let span = it.metadata.iter().filter(|(key, _)| matches!(*key, "startIndex" | "endIndex"));
                let span: Vec<String> = span.map(|(_, value)| value.to_string()).collect();
                format!("{} {} {}", if it.cited { "cited" } else { "found" }, fields.join(" "), span.join("-"))
                    .trim()
                    .to_owned()
            }
            Signal::InvalidReference { code, .. } => format!("failed {code}"),
            Signal::Usage(usage) => format!("usage {} {} {}", usage.input, usage.output, usage.total),
            Signal::Finish(reason) => format!("finish {reason:?}"),
            Signal::Fault { code, message } => {
                format!("fault {} {}", code.unwrap_or_default(), message.unwrap_or_default())
            }
            Signal::ConversationId(_) | Signal::FullText(..) => unreachable!("the format has none"),
        });
    }
}

/// The signals that a new adapter reads from the data of these frames.
fn signals(frames: &[Value]) -> Vec<String> {
    let (mut adapter, mut log) = (Messages::default(), SignalLog::default());
    for frame in frames {
        adapter.frame(&Event::read(format!("data: {frame}").as_bytes()), &mut log).unwrap();
    }
    log.0
}

fn start(block: Value) -> Value {
    json!({"type": "content_block_start", "index": 0, "content_block": block})
}

fn delta(delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": 0, "delta": delta})
}

fn text(text: &str) -> Value {
    delta(json!({"type": "text_delta", "text": text}))
}

fn cite(citation: Value) -> Value {
    delta(json!({"type": "citations_delta", "citation": citation}))
}

fn stop() -> Value {
    json!({"type": "content_block_stop", "index": 0})
}

fn empty_text() -> Value {
    start(json!({"type": "text", "text": ""}))
}

fn ends(reason: &Value) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": reason}})
}

fn search() -> Value {
    start(json!({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}))
}

fn input(piece: &str) -> Value {
    delta(json!({"type": "input_json_delta", "partial_json": piece}))
}

#[test]
fn message_start_gives_id_model_and_usage() {
    let usage = json!({"input_tokens": 10, "cache_creation_input_tokens": 5, "cache_read_input_tokens": null, "output_tokens": 1});
    let frame =
        json!({"type": "message_start", "message": {"id": "msg_1", "model": "m", "content": [], "usage": usage}});
    let later = json!({"type": "message_delta", "delta": {"stop_reason": null}, "usage": {"output_tokens": 7}});
    assert_eq!(signals(&[frame, later]), ["message msg_1", "model m", "usage 15 1 16", "usage 15 7 22"]);
}

#[test]
fn text_and_thinking_are_read_at_their_paths() {
    let frames = [
        start(json!({"type": "text", "text": "你"})),
        text("好"),
        text(""),
        delta(json!({"type": "thinking_delta", "thinking": "hm"})),
        delta(json!({"type": "signature_delta", "signature": "x"})),
    ];
    assert_eq!(signals(&frames), ["text 你 @content_block/text", "text 好 @delta/text", "thinking hm"]);
}

#[test]
fn query_in_pieces_is_sent_when_its_block_ends() {
    let frames = [search(), input(""), input(r#"{"query": "热"#), input(r#"泵 \"x\""}"#), stop()];
    assert_eq!(signals(&frames), [r#"round s1 热泵 "x""#]);
    let fetch = json!({"type": "server_tool_use", "id": "f1", "name": "web_fetch", "input": {}});
    assert_eq!(signals(&[start(fetch), input(r#"{"query": "q"}"#), stop()]), Vec::<String>::new());
    assert_eq!(signals(&[search(), input(r#"{"query": "#), stop()]), Vec::<String>::new(), "cut input");
}

#[test]
fn search_input_over_its_cap_has_no_query() {
    for (len, has_query) in [(MAX_INPUT, true), (MAX_INPUT + 1, false)] {
        let all = format!(r#"{{"query":"q"{}}}"#, " ".repeat(len - 13));
        let (first, rest) = all.split_at(10);
        assert_eq!(signals(&[search(), input(first), input(rest), stop()]).len(), usize::from(has_query), "{len}");
    }
}

#[test]
fn cited_sources_get_the_span_of_their_text_block() {
    let a =
        json!({"type": "web_search_result_location", "url": "https://a.example.com/", "title": "A", "cited_text": "c"});
    let frames = [
        text("一二"),
        stop(),
        empty_text(),
        cite(a.clone()),
        text("🔥"),
        cite(a),
        text("四"),
        stop(),
        empty_text(),
        stop(),
    ];
    let log = signals(&frames);
    let lines: Vec<&str> = log.iter().map(String::as_str).filter(|line| !line.starts_with("text")).collect();
    let cited = "cited https://a.example.com/ A c -";
    assert_eq!(lines, [cited, cited, "cited https://a.example.com/ - - - 2-4"]);
}

#[test]
fn spans_per_block_are_capped_at_the_limit() {
    let source =
        |n: usize| cite(json!({"type": "web_search_result_location", "url": format!("https://s{n}.example.com/")}));
    for (count, spans) in [(MAX_BLOCK_SOURCES, MAX_BLOCK_SOURCES), (MAX_BLOCK_SOURCES + 1, MAX_BLOCK_SOURCES)] {
        let frames: Vec<Value> =
            std::iter::once(empty_text()).chain((0..count).map(source)).chain([text("x"), stop()]).collect();
        assert_eq!(signals(&frames).iter().filter(|line| line.ends_with("0-1")).count(), spans);
    }
    for (len, spans) in [(2048, 1), (2049, 0)] {
        let url = format!("https://a.example.com/{}", "x".repeat(len - 22));
        let frames = [empty_text(), cite(json!({"type": "web_search_result_location", "url": url})), text("x"), stop()];
        assert_eq!(signals(&frames).iter().filter(|line| line.ends_with("0-1")).count(), spans, "{len}");
    }
}

#[test]
fn every_location_type_is_a_cited_source() {
    let of = |citation: Value| {
        let message = json!({"type": "message_start", "message": {"id": "m"}});
        signals(&[message, cite(citation)]).split_off(1)
    };
    for kind in ["char_location", "page_location", "content_block_location"] {
        let named = json!({"type": kind, "cited_text": "c", "document_index": 2, "document_title": "D"});
        assert_eq!(of(named), ["round request", "cited - D c D#2"]);
        let unnamed = json!({"type": kind, "cited_text": "c", "document_index": 0, "document_title": null});
        assert_eq!(of(unnamed), ["round request", "cited - - c m#0"]);
        let file = json!({"type": kind, "document_index": 0, "document_title": "D", "file_id": "file_1"});
        assert_eq!(of(file), ["round request", "cited - D - file_1"]);
        assert_eq!(of(json!({"type": kind})), ["failed missing_title_url_and_id"]);
    }
    let result = |source: &str, title: Value| json!({"type": "search_result_location", "source": source, "title": title, "cited_text": "c"});
    assert_eq!(of(result("https://a.example.com/", json!("A"))), ["cited https://a.example.com/ A c -"]);
    assert_eq!(of(result("handbook", json!("A"))), ["round request", "cited - A c handbook"]);
    assert_eq!(of(result("handbook", json!(null))), ["round request", "cited - handbook c handbook"]);
    let web =
        json!({"type": "web_search_result_location", "url": "https://a.example.com/", "title": null, "cited_text": ""});
    assert_eq!(of(web), ["cited https://a.example.com/ - - -"]);
    assert_eq!(of(json!({"type": "new_location", "url": "https://a.example.com/"})), Vec::<String>::new());
}

fn page(title: Value, source: &str, url: &str) -> Value {
    let document = json!({"type": "document", "title": title, "source": {"type": source}});
    start(json!({"type": "web_fetch_tool_result", "tool_use_id": "f",
        "content": {"type": "web_fetch_result", "url": url, "content": document}}))
}

/// The URL that a citation gets after these pages were fetched.
fn url_of(pages: &[Value], citation: Value) -> Option<String> {
    let log = signals(&[pages, &[cite(citation)]].concat());
    let url = log.last()?.split(' ').nth(1)?.to_owned();
    (url != "-").then_some(url)
}

#[test]
fn citation_of_a_fetched_page_gets_its_url() {
    let pages = [
        page(json!("A"), "text", "https://a.example.com/"),
        page(json!("B"), "text", "https://b1.example.com/"),
        page(json!("B"), "text", "https://b2.example.com/"),
        page(json!(null), "base64", "https://c.example.com/x.pdf"),
    ];
    let at = |kind: &str, index: u32, title: Value| {
        url_of(&pages, json!({"type": kind, "document_index": index, "document_title": title}))
    };
    assert_eq!(at("char_location", 0, json!("A")).as_deref(), Some("https://a.example.com/"));
    assert_eq!(at("char_location", 5, json!("A")).as_deref(), Some("https://a.example.com/"), "after other documents");
    assert_eq!(at("char_location", 2, json!("B")).as_deref(), Some("https://b2.example.com/"));
    assert_eq!(at("char_location", 5, json!("B")), None, "two pages have the title");
    assert_eq!(at("char_location", 0, json!("Other")), None);
    assert_eq!(at("page_location", 3, json!(null)).as_deref(), Some("https://c.example.com/x.pdf"));
    assert_eq!(at("page_location", 2, json!(null)), None);
    assert_eq!(at("char_location", 3, json!(null)), None, "a PDF is cited by pages");
}

#[test]
fn fetched_pages_are_capped_at_the_limit() {
    let pages = |count: usize| -> Vec<Value> {
        (1..=count).map(|n| page(json!(format!("T{n}")), "text", &format!("https://p{n}.example.com/"))).collect()
    };
    let last = |count: usize| {
        let citation = json!({"type": "char_location", "document_index": 99, "document_title": format!("T{count}")});
        url_of(&pages(count), citation)
    };
    assert_eq!(last(64).as_deref(), Some("https://p64.example.com/"));
    assert_eq!(last(65), None);
    for (len, has_url) in [(2048, true), (2049, false)] {
        let url = format!("https://a.example.com/{}", "x".repeat(len - 22));
        let citation = json!({"type": "char_location", "document_index": 0, "document_title": "A"});
        assert_eq!(url_of(&[page(json!("A"), "text", &url)], citation).is_some(), has_url, "{len}");
    }
}

#[test]
fn failed_tool_is_a_stage_and_not_a_source() {
    let failed = |kind: &str| {
        let content = json!({"type": format!("{kind}_error"), "error_code": "max_uses_exceeded"});
        signals(&[start(json!({"type": kind, "tool_use_id": "s1", "content": content}))])
    };
    assert_eq!(failed("web_search_tool_result"), ["round s1", "stage web_search_tool_result_error max_uses_exceeded"]);
    assert_eq!(failed("web_fetch_tool_result"), ["stage web_fetch_tool_result_error max_uses_exceeded"]);
}

#[test]
fn tool_reference_is_no_source() {
    let tool = json!({"type": "tool_reference", "tool_name": "x", "url": "https://a.example.com/", "title": "A"});
    let list = json!({"type": "tool_search_tool_search_result", "tool_references": [tool]});
    let frames = [
        start(json!({"type": "tool_search_tool_result", "tool_use_id": "t", "content": list})),
        start(json!({"type": "web_search_tool_result", "tool_use_id": "s", "content": [tool]})),
        cite(tool),
    ];
    assert_eq!(signals(&frames), ["round s"]);
}

#[test]
fn written_page_age_is_a_date() {
    let of = |age: Value| {
        struct Date(Option<String>);
        impl Sink for Date {
            fn signal(&mut self, signal: Signal<'_>) {
                if let Signal::Reference(reference) = signal {
                    self.0 = reference.published.map(|published| format!("{published:?}"));
                }
            }
        }
        let result = json!({"type": "web_search_result", "url": "https://a.example.com/", "page_age": age});
        let frame = start(json!({"type": "web_search_tool_result", "content": [result]}));
        let mut date = Date(None);
        Messages::default().frame(&Event::read(format!("data: {frame}").as_bytes()), &mut date).unwrap();
        date.0
    };
    assert_eq!(of(json!("April 30, 2025")).as_deref(), Some("Text(\"2025-04-30\")"));
    assert_eq!(of(json!("May 6, 2026")).as_deref(), Some("Text(\"2026-05-06\")"));
    assert_eq!(of(json!("2 days ago")).as_deref(), Some("Text(\"2 days ago\")"));
    assert_eq!(of(json!("February 30, 2025")).as_deref(), Some("Text(\"February 30, 2025\")"));
    assert_eq!((of(json!(null)), of(json!(17))), (None, None));
}

#[test]
fn stop_reason_finishes_and_null_does_not() {
    for (reason, finish) in [
        ("end_turn", "Stop"),
        ("stop_sequence", "Stop"),
        ("pause_turn", "Stop"),
        ("max_tokens", "Length"),
        ("model_context_window_exceeded", "Length"),
        ("tool_use", "Tools"),
        ("refusal", "Filter"),
        ("something_new", "Stop"),
    ] {
        assert_eq!(signals(&[ends(&json!(reason))]), [format!("finish {finish}")]);
    }
    assert_eq!(signals(&[ends(&json!(null))]), Vec::<String>::new());
    assert_eq!(signals(&[json!({"type": "message_stop"})]), ["finish Stop"]);
}

#[test]
fn error_is_a_fault_with_its_type() {
    let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    assert_eq!(signals(&[error]), ["fault overloaded_error Overloaded"]);
}

#[test]
fn unreadable_stop_and_error_frames_still_end() {
    for (frame, signal) in [("event: message_stop\ndata: {", "finish Stop"), ("event: error\ndata: {", "fault  ")] {
        let mut log = SignalLog::default();
        assert_eq!(Messages::default().frame(&Event::read(frame.as_bytes()), &mut log), Err(ParseError));
        assert_eq!(log.0, [signal]);
    }
}

#[test]
fn message_id_over_its_cap_is_cut_in_document_ids() {
    for (len, kept) in [(MAX_ID, MAX_ID), (MAX_ID + 1, MAX_ID)] {
        let message = json!({"type": "message_start", "message": {"id": "x".repeat(len)}});
        let log = signals(&[message, cite(json!({"type": "char_location", "document_index": 0}))]);
        assert_eq!(log.last(), Some(&format!("cited - - - {}#0", "x".repeat(kept))));
    }
}

#[test]
fn envelope_is_a_ping_with_the_record() {
    let record =
        crate::provider::openai::shapes::tests::record(&json!([]), &json!([{"url": "https://a.example.com/"}]));
    let envelope = Messages::default().envelope(&Payload { record: &record, span_lookup: None });
    assert_eq!(envelope.event, "ping");
    let frame: Value = serde_json::from_str(&envelope.json).unwrap();
    assert_eq!(frame, json!({"type": "ping", "citations": *record}));
}

#[test]
fn sniff_takes_its_own_frames_only() {
    let detected = |frame: Value| REGISTRY.detect_document(&frame.to_string()).map(|provider| provider.as_str());
    for own in [
        json!({"type": "message_start", "message": {}}),
        empty_text(),
        text("x"),
        ends(&json!("end_turn")),
        json!({"type": "message_stop"}),
        json!({"type": "error", "error": {"type": "api_error", "message": "no"}}),
        json!({"type": "message", "role": "assistant", "content": [{"type": "text", "text": "{\"results\":[]}"}], "stop_reason": "end_turn"}),
    ] {
        assert_eq!(detected(own.clone()), Some("anthropic"), "{own}");
    }
    for other in [
        json!({"type": "ping"}),
        json!({"type": "message", "role": "assistant", "content": "text"}),
        json!({"type": "message", "role": "user", "content": [], "stop_reason": null}),
        json!({"type": "error", "code": "x", "message": "no"}),
        json!({"error": {"type": "invalid_request_error", "message": "no"}}),
        json!({"type": "message-start", "delta": {"message": {}}}),
        json!({"type": "response.output_text.delta", "delta": "x"}),
    ] {
        assert_eq!(detected(other.clone()), None, "{other}");
    }
}

use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::{
    citation::{Record, ledger::MAX_CITATIONS, record::CitationType},
    pipeline::{Context, offline},
    provider::{REGISTRY, json_path::Step},
};

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
            Signal::ConversationId(id) => format!("conversation {id}"),
            Signal::Model(name) => format!("model {name}"),
            Signal::Text(text, at) => format!("text {text} @{}", path_text(at)),
            Signal::FullText(text, at) => format!("answer {text} @{}", path_text(at)),
            Signal::Thinking(text) => format!("thinking {text}"),
            Signal::Stage { name, .. } => format!("stage {name}"),
            Signal::SearchRound { key, queries, .. } => format!("round {key}: {}", queries.join("; ")),
            Signal::Reference(it) => {
                let mut line = format!("ref {}", it.number.map_or("-".to_owned(), |n| n.to_string()));
                for text in [it.url, it.title, it.snippet, it.doc_id.as_deref()].into_iter().flatten() {
                    line += &format!(" {text}");
                }
                line += if it.cited { " cited" } else { "" };
                line + if it.kind == CitationType::Knowledge { " knowledge" } else { "" }
            }
            Signal::InvalidReference { code, .. } => format!("failed {code}"),
            Signal::Usage(usage) => format!("usage {} {} {}", usage.input, usage.output, usage.total),
            Signal::Finish(reason) => format!("finish {reason:?}"),
            Signal::Fault { code, message } => {
                format!("fault {} {}", code.unwrap_or_default(), message.unwrap_or_default())
            }
        });
    }
}

fn read(adapter: &mut Responses, frame: &Value) -> Vec<String> {
    let mut log = SignalLog::default();
    let _ = adapter.frame(&Event::read(format!("data: {frame}").as_bytes()), &mut log);
    log.0
}

/// The signals that a new adapter reads from frames.
fn signals(frames: &[Value]) -> Vec<String> {
    let mut adapter = Responses::default();
    frames.iter().flat_map(|frame| read(&mut adapter, frame)).collect()
}

fn delta(text: &str) -> Value {
    json!({"type": "response.output_text.delta", "item_id": "m", "output_index": 1, "content_index": 0, "delta": text})
}

fn annotation(annotation: &Value) -> Value {
    json!({"type": "response.output_text.annotation.added", "item_id": "m", "output_index": 1, "content_index": 0,
        "annotation_index": 0, "annotation": annotation})
}

fn message(text: &str, annotations: &Value) -> Value {
    json!({"id": "m", "type": "message", "content": [{"type": "output_text", "text": text, "annotations": annotations}]})
}

fn item_done(item: &Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": 1, "item": item})
}

/// A record of pages with these URLs.
fn record(urls: &[&str]) -> Box<Record> {
    let context = Context {
        route: "r".to_owned(),
        provider: PROVIDER,
        link_base: None,
        nonce: "n".to_owned(),
        created: jiff::Timestamp::UNIX_EPOCH,
        fallback_id: "fallback".to_owned(),
        task: None,
        rules: crate::config::default_rules(),
    };
    let sources: Vec<Value> = urls.iter().map(|url| json!({"type": "url", "url": url})).collect();
    let search = json!({"id": "w", "type": "web_search_call", "action": {"type": "search", "sources": sources}});
    let response = json!({"object": "response", "output": [search, message("See [2].", &json!([]))]});
    offline::document_record(context, Bytes::from(response.to_string())).unwrap()
}

fn frame_of(adapter: &Responses, record: &Record, is_final: bool) -> (&'static str, Value) {
    let span_lookup: &crate::provider::SpanLookup<'_> = &|_| (4, 7);
    let envelope = adapter.envelope(&Payload { record, span_lookup: is_final.then_some(span_lookup) });
    (envelope.event, serde_json::from_str(&envelope.json).unwrap())
}

fn lines(expected: &[&str]) -> Vec<String> {
    expected.iter().map(|line| (*line).to_owned()).collect()
}

#[test]
fn text_after_its_deltas_is_a_repetition() {
    let part = json!({"type": "output_text", "text": "ab", "annotations": []});
    let place = |kind: &str, key: &str, value: &Value| json!({"type": kind, "item_id": "m", "output_index": 1, "content_index": 0, key: value});
    let response = json!({"status": "completed", "output": [{"type": "reasoning"}, message("ab", &json!([]))]});
    let log = signals(&[
        delta("a"),
        delta("b"),
        place("response.output_text.done", "text", &json!("ab")),
        place("response.content_part.done", "part", &part),
        item_done(&message("ab", &json!([]))),
        json!({"type": "response.completed", "response": response}),
    ]);
    let expected = [
        "text a @delta",
        "text b @delta",
        "answer ab @text",
        "answer ab @part/text",
        "answer ab @item/content/0/text",
        "answer ab @response/output/1/content/0/text",
        "finish Stop",
    ];
    assert_eq!(log, lines(&expected));
}

#[test]
fn text_without_deltas_is_read_from_the_first_copy() {
    let done = |index: u32, text: &str| json!({"type": "response.output_text.done", "output_index": 1, "content_index": index, "text": text});
    let both = json!({"type": "message", "content": [{"type": "output_text", "text": "a"}, {"type": "output_text", "text": "b"}]});
    let end = json!({"type": "response.completed", "response": {"output": [{}, both]}});
    let copies = ["answer a @response/output/1/content/0/text", "answer b @response/output/1/content/1/text"];
    for (frames, first) in [
        (vec![done(0, "a"), done(1, "b")], ["text a @text", "text b @text"]),
        (vec![item_done(&both)], ["text a @item/content/0/text", "text b @item/content/1/text"]),
    ] {
        let log = signals(&[&frames[..], std::slice::from_ref(&end)].concat());
        assert_eq!(log, lines(&[&first[..], &copies, &["finish Stop"]].concat()));
    }
    let only_at_the_end = signals(&[end]);
    assert_eq!(only_at_the_end.len(), 3);
    assert!(only_at_the_end[1].starts_with("text b"), "{only_at_the_end:?}");
}

#[test]
fn thinking_is_read_once() {
    let item = json!({"type": "reasoning", "summary": [{"text": "s"}], "content": [{"text": "c"}]});
    let thinking = json!({"type": "response.reasoning_summary_text.delta", "output_index": 1, "delta": "s"});
    let end = json!({"type": "response.completed", "response": {"output": [item]}});
    assert_eq!(signals(&[thinking, item_done(&item), end.clone()]), ["thinking s", "finish Stop"]);
    assert_eq!(signals(&[item_done(&item), end.clone()]), ["thinking s", "thinking c", "finish Stop"]);
    assert_eq!(signals(&[end]), ["thinking s", "thinking c", "finish Stop"]);
}

#[test]
fn annotation_with_a_span_is_cited() {
    let page = |more: Value| {
        let mut page = json!({"type": "url_citation", "url": "https://a.example.com/", "title": "A"});
        page.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        signals(&[annotation(&page)])
    };
    assert_eq!(page(json!({"start_index": 0, "end_index": 4})), ["ref - https://a.example.com/ A cited"]);
    for no_span in [json!({}), json!({"start_index": 0, "end_index": 0}), json!({"start_index": 9, "end_index": 4})] {
        assert_eq!(page(no_span), ["ref - https://a.example.com/ A"]);
    }
    let file = json!({"type": "file_citation", "file_id": "f", "filename": "a.md", "index": 4});
    assert_eq!(signals(&[annotation(&file)]), ["ref - a.md f cited knowledge"]);
    let container = json!({"type": "container_file_citation", "container_id": "c", "file_id": "f", "filename": "a.csv", "start_index": 1, "end_index": 2});
    assert_eq!(signals(&[annotation(&container)]), ["ref - a.csv f cited knowledge"]);
    let nothing = json!({"type": "url_citation"});
    assert_eq!(signals(&[annotation(&nothing)]), ["failed missing_title_url_and_id"]);
    for none in [json!(null), json!(7), json!({"type": "file_path", "file_id": "f"})] {
        assert_eq!(signals(&[annotation(&none)]), Vec::<String>::new());
    }
}

#[test]
fn title_of_digits_is_the_number_of_a_link() {
    let page = |title: &str, end: u32| {
        signals(&[annotation(
            &json!({"type": "url_citation", "url": "https://a.example.com/", "title": title, "start_index": 0, "end_index": end}),
        )])
    };
    assert_eq!(page("7", 4), ["ref 7 https://a.example.com/ cited"]);
    assert_eq!(page("999", 4), ["ref 999 https://a.example.com/ cited"]);
    for title in ["1000", "2048", "0", "+7", "7 wonders"] {
        assert_eq!(page(title, 4), [format!("ref - https://a.example.com/ {title} cited")]);
    }
    assert_eq!(page("7", 0), ["ref - https://a.example.com/ 7"]);
}

#[test]
fn searches_are_read_in_every_spelling() {
    let read = |item: Value| signals(&[item_done(&item)]);
    let web = |more: Value| {
        let mut item = json!({"id": "w", "type": "web_search_call"});
        item.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        read(item)
    };
    assert_eq!(web(json!({"action": {"type": "search", "query": "q", "queries": ["q", "", "r"]}})), ["round w: q; r"]);
    assert_eq!(web(json!({"action": {"query": "q", "queries": null, "sources": null}})), ["round w: q"]);
    assert_eq!(web(json!({"action": {"query": "", "sources": []}, "arguments": "{\"query\":\"q\"}"})), ["round w: q"]);
    for broken in ["{\"query\":", "", "[]"] {
        assert_eq!(web(json!({"arguments": broken})), ["round w: "]);
    }
    let page = ["ref - https://a.example.com/"];
    assert_eq!(web(json!({"action": {"type": "open_page", "url": "https://a.example.com/"}})), page);
    let xai = json!({"arguments": "{\"url\":\"https://a.example.com/\"}"});
    assert_eq!(web(xai), Vec::<String>::new(), "its annotation follows");
    let x = |name: &str| {
        read(json!({"id": "x", "type": "custom_tool_call", "name": name, "input": "{\"query\":\"q\",\"limit\":9}"}))
    };
    assert_eq!(x("x_keyword_search"), ["round x: q"]);
    assert_eq!(x("my_tool"), Vec::<String>::new());
    let sources =
        json!({"sources": [{"type": "url", "url": "https://a.example.com/"}, {"type": "api", "name": "oai-x"}, {}]});
    let expected =
        ["round w: ", "ref - https://a.example.com/", "ref - oai-x oai-x", "failed missing_title_url_and_id"];
    assert_eq!(web(json!({"action": sources})), expected);
}

#[test]
fn doubao_events_are_read_in_both_spellings() {
    let card = json!({"text_card": {"index": 3, "title": "标题", "sitename": "站", "url": "https://a.example.com/"}});
    for prefix in ["response.doubao_app_call_", "response.doubao_app_call."] {
        let event = |kind: &str, mut more: Value| {
            let members = more.as_object_mut().unwrap();
            members.insert("type".to_owned(), json!(format!("{prefix}{kind}")));
            members.insert("item_id".to_owned(), json!("d"));
            members.insert("block_index".to_owned(), json!(2));
            more
        };
        let log = signals(&[
            event("search.completed", json!({"summary": "s", "queries": ["q"], "results": [card]})),
            event("reasoning_search.completed", json!({"queries": ["r"], "results": []})),
            event("reasoning_text.delta", json!({"delta": "想"})),
            event("output_text.delta", json!({"delta": "正"})),
            event("output_text.done", json!({"text": "正"})),
            event("search.searching", json!({"searching_state": "x"})),
        ]);
        let expected = [
            "round d/2: q",
            "ref 3 https://a.example.com/ 标题",
            "round d/2: r",
            "thinking 想",
            "text 正 @delta",
            "answer 正 @text",
        ];
        assert_eq!(log, lines(&expected));
    }
}

#[test]
fn finish_reason_is_that_of_the_status() {
    let end =
        |kind: &str, response: Value| signals(&[json!({"type": format!("response.{kind}"), "response": response})]);
    let incomplete = |reason: Value| end("incomplete", json!({"incomplete_details": {"reason": reason}}));
    assert_eq!(end("completed", json!({"output": null})), ["finish Stop"]);
    assert_eq!(end("completed", json!({"output": [{"type": "function_call"}]})), ["finish Tools"]);
    let server = json!({"output": [{"type": "custom_tool_call", "name": "x_user_search"}]});
    assert_eq!(end("completed", server), ["finish Stop"]);
    assert_eq!(incomplete(json!("max_output_tokens")), ["finish Length"]);
    assert_eq!(incomplete(json!("content_filter")), ["finish Filter"]);
    assert_eq!(incomplete(json!("other")), ["finish Length"]);
    assert_eq!(incomplete(json!(null)), ["finish Length"]);
    assert_eq!(end("failed", json!({"error": {"code": "c", "message": "m"}})), ["fault c m"]);
    assert_eq!(end("failed", json!({"error": null})), ["fault  "]);
    assert_eq!(end("cancelled", json!({})), ["fault cancelled "]);
    for kind in ["created", "queued", "in_progress"] {
        assert_eq!(
            end(kind, json!({"id": "r", "model": "m", "output": [message("x", &json!([]))]})),
            ["message r", "model m"]
        );
    }
    let document = |status: Value| signals(&[json!({"object": "response", "status": status, "error": null})]);
    assert_eq!(document(json!("completed")), ["finish Stop"]);
    assert_eq!(document(json!(null)), ["finish Stop"]);
    assert_eq!(document(json!("in_progress")), Vec::<String>::new());
}

#[test]
fn error_event_is_read_flat_and_nested() {
    let flat = json!({"type": "error", "code": "c", "message": "m", "param": null, "sequence_number": 3});
    assert_eq!(signals(&[flat]), ["fault c m"]);
    let nested = json!({"type": "error", "error": {"type": "t", "code": null, "message": "m"}});
    assert_eq!(signals(&[nested]), ["fault t m"]);
    assert_eq!(signals(&[json!({"error": {"message": "m"}})]), ["fault  m"]);
    assert_eq!(signals(&[json!({"error": "m"})]), ["fault  m"]);
    let mut log = SignalLog::default();
    let read = Responses::default().frame(&Event::read(b"event: error\ndata: no JSON"), &mut log);
    assert_eq!((read, log.0), (Err(ParseError), lines(&["fault  "])));
    let mut log = SignalLog::default();
    assert_eq!(Responses::default().frame(&Event::read(b"data: [DONE]"), &mut log), Ok(()));
    assert_eq!(log.0, ["finish Stop"]);
}

#[test]
fn sniff_matches_responses_and_no_other_format() {
    let found = |json: Value| REGISTRY.detect_document(&json.to_string()).map(Provider::as_str);
    for json in [
        json!({"type": "response.created", "response": {}}),
        json!({"type": "response.output_text.delta", "item_id": "m", "delta": "x"}),
        json!({"type": "response.doubao_app_call_output_text.delta", "output_index": 0, "delta": "x"}),
        json!({"type": "error", "code": "c", "message": "m", "sequence_number": 0}),
        json!({"object": "response", "status": "completed", "output": []}),
    ] {
        assert_eq!(found(json.clone()), Some("openai-responses"), "{json}");
    }
    for json in [
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "m"}}),
        json!({"type": "message_start", "message": {}}),
        json!({"type": "conversation.response.started", "conversation_id": "c"}),
        json!({"type": "response.text", "text": "x"}),
        json!({"object": "list", "output": []}),
    ] {
        assert_ne!(found(json.clone()), Some("openai-responses"), "{json}");
    }
}

#[test]
fn final_frame_announces_a_page_at_the_next_index() {
    let mut adapter = Responses::default();
    let record = record(&["https://a.example.com/", "https://b.example.com/"]);
    read(&mut adapter, &delta("See [2]."));
    let (event, frame) = frame_of(&adapter, &record, true);
    assert_eq!((event, &frame["type"]), ("response.output_text.annotation.added", &json!(event)));
    assert_eq!(
        (&frame["item_id"], &frame["output_index"], &frame["content_index"], &frame["annotation_index"]),
        (&json!("m"), &json!(1), &json!(0), &json!(0))
    );
    // The cited page, not the first one.
    let expected = json!({"type": "url_citation", "url": "https://b.example.com/", "title": "b.example.com", "start_index": 4, "end_index": 7});
    assert_eq!(frame["annotation"], expected);
    assert_eq!(frame["citetap"]["citations"].as_array().map(Vec::len), Some(2));

    let cited = json!({"type": "url_citation", "url": "https://b.example.com/?utm_source=openai", "start_index": 4, "end_index": 7});
    read(&mut adapter, &annotation(&cited));
    let (_, frame) = frame_of(&adapter, &record, true);
    assert_eq!(
        (&frame["annotation_index"], &frame["annotation"]["url"]),
        (&json!(1), &json!("https://a.example.com/"))
    );
    // Clients replace the part by that in the item.
    read(&mut adapter, &item_done(&message("See [2].", &json!([cited, cited, cited]))));
    assert_eq!(frame_of(&adapter, &record, true).1["annotation_index"], 3);
}

#[test]
fn frame_without_a_new_page_is_a_keepalive() {
    let record = record(&["https://a.example.com/"]);
    let is_keepalive = |adapter: &Responses, is_final| {
        let (event, frame) = frame_of(adapter, &record, is_final);
        let keys: Vec<&str> = frame.as_object().unwrap().keys().map(String::as_str).collect();
        event == "keepalive" && frame["type"] == "keepalive" && keys == ["citetap", "sequence_number", "type"]
    };
    let mut adapter = Responses::default();
    assert!(is_keepalive(&adapter, true), "no text part");
    read(&mut adapter, &delta("a"));
    assert!(!is_keepalive(&adapter, true));
    assert!(is_keepalive(&adapter, false), "a live event");
    read(&mut adapter, &annotation(&json!({"type": "url_citation", "url": "https://A.example.com/#x"})));
    assert!(is_keepalive(&adapter, true), "announced by the upstream");
    for (len, annotates) in [(256, true), (257, false)] {
        let mut adapter = Responses::default();
        let mut frame = delta("a");
        frame["item_id"] = json!("m".repeat(len));
        read(&mut adapter, &frame);
        assert_eq!(is_keepalive(&adapter, true), !annotates, "{len}");
    }
}

#[test]
fn announced_pages_are_counted_to_the_cap() {
    let mut target = Target::default();
    let url = |n: usize| format!("https://a.example.com/{n}");
    for n in 0..=MAX_CITATIONS {
        target.announce(&url(n));
    }
    assert!(target.is_announced(&url(MAX_CITATIONS - 1)));
    assert!(!target.is_announced(&url(MAX_CITATIONS)));
    target.announce("javascript:alert(1)");
    assert!(!target.is_announced("javascript:alert(1)"));
}

#[test]
fn sequence_number_is_that_before_the_finish() {
    let record = record(&["https://a.example.com/"]);
    let mut adapter = Responses::default();
    let numbered = |kind: &str, number: u64| json!({"type": kind, "sequence_number": number, "response": {}});
    for (frame, expected) in [
        (numbered("response.created", 0), 0),
        (json!({"type": "response.web_search_call.completed", "sequence_number": 41}), 41),
        (json!({"type": "response.output_text.delta", "delta": "x"}), 41),
        (numbered("response.completed", 42), 41),
        (json!({"type": "error", "message": "m", "sequence_number": 43}), 41),
    ] {
        read(&mut adapter, &frame);
        assert_eq!(frame_of(&adapter, &record, true).1["sequence_number"], expected, "{frame}");
    }
}

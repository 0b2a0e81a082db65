use serde_json::json;

use super::*;
use crate::{
    citation::{
        ledger::{MAX_CITATIONS, Published},
        record::CitationType,
    },
    provider::json_path::Step,
};

/// Our final frame for a record with one page.
fn final_frame(adapter: &ChatCompletions) -> serde_json::Value {
    let record = shapes::tests::record(&json!([]), &json!([{ "url": "https://a.example.com/" }]));
    let payload = Payload { record: &record, span_lookup: Some(&|_| (0, 0)) };
    serde_json::from_str(&adapter.envelope(&payload).json).unwrap()
}

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
            Signal::FullText(text, at) => format!("answer {text} @{}", path_text(at)),
            Signal::Thinking(text) => format!("thinking {text}"),
            Signal::Stage { name, message, .. } => format!("stage {name} {message}"),
            Signal::SearchRound { queries, .. } if queries.is_empty() => return,
            Signal::SearchRound { queries, .. } => format!("queries {}", queries.join("; ")),
            Signal::Reference(it) => {
                let number = it.number.map_or("-".to_owned(), |n| n.to_string());
                let more = [it.url, it.title, it.snippet, it.site_name, it.icon_url].into_iter().flatten();
                let mut line = format!("ref {number} {}", more.collect::<Vec<_>>().join(" "));
                line += if it.cited { " cited" } else { "" };
                line += if it.kind == CitationType::Knowledge { " knowledge" } else { "" };
                if let Some(Published::Text(date)) = it.published {
                    line += &format!(" {date}");
                }
                line
            }
            Signal::InvalidReference { code, .. } => format!("failed {code}"),
            Signal::Usage(usage) => format!("usage {} {} {}", usage.input, usage.output, usage.total),
            Signal::Finish(reason) => format!("finish {reason:?}"),
            Signal::Fault { code, message } => {
                format!("fault {} {}", code.unwrap_or_default(), message.unwrap_or_default())
            }
            Signal::ConversationId(id) => format!("conversation {id}"),
        });
    }
}

fn read(adapter: &mut ChatCompletions, data: &str) -> Vec<String> {
    let mut log = SignalLog::default();
    let _ = adapter.frame(&Event::read(format!("data: {data}").as_bytes()), &mut log);
    log.0
}

/// The signals that a new adapter reads from frames, each given as its data.
fn signals(frames: &[&str]) -> Vec<String> {
    let mut adapter = ChatCompletions::default();
    frames.iter().flat_map(|data| read(&mut adapter, data)).collect()
}

/// A chunk with these members in its choice, and `more` after its choices.
fn chunk(choice: &str, more: &str) -> String {
    format!("{{\"choices\":[{{\"index\":0,{choice}}}]{more}}}")
}

#[test]
fn id_and_model_are_sent_once_and_repeated_in_our_frame() {
    let mut adapter = ChatCompletions::default();
    let frame = r#"{"id":"c-1","model":"m","created":1770768240,"choices":[]}"#;
    assert_eq!(read(&mut adapter, frame), ["message c-1", "model m"]);
    assert_eq!(read(&mut adapter, &frame.replace("c-1", "c-2")), Vec::<String>::new());
    let frame = final_frame(&adapter);
    assert_eq!((&frame["id"], &frame["model"], &frame["created"]), (&json!("c-1"), &json!("m"), &json!(1_770_768_240)));
    for (len, kept) in [(256, 256), (257, 256)] {
        let mut adapter = ChatCompletions::default();
        read(&mut adapter, &format!(r#"{{"id":"{0}","model":"{0}","choices":[]}}"#, "x".repeat(len)));
        let frame = final_frame(&adapter);
        let len = |key: &str| frame[key].as_str().map(str::len);
        assert_eq!((len("id"), len("model")), (Some(kept), Some(kept)));
    }
}

#[test]
fn text_is_content_string_or_parts_of_choice_0() {
    assert_eq!(signals(&[&chunk(r#""delta":{"content":"你好"}"#, "")]), ["text 你好 @choices/0/delta/content"]);
    let parts = r#""delta":{"content":[{"type":"text","text":"a"},{"type":"reference","text":"x"},"b",{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}"#;
    let expected = ["text a @choices/0/delta/content/0/text", "text b @choices/0/delta/content/2", "thinking hm"]
        .map(str::to_owned);
    assert_eq!(signals(&[&chunk(parts, "")]), expected);
    // The choice with index 0 is not always the first one of a chunk, and some chunks have none.
    let two = r#"{"choices":[{"index":1,"delta":{"content":"other"},"finish_reason":"stop"},{"index":0,"delta":{"content":"a"}}]}"#;
    assert_eq!(signals(&[two]), ["text a @choices/1/delta/content"]);
    let other = r#"{"choices":[{"index":1,"delta":{"content":"other"},"finish_reason":"stop"}]}"#;
    assert_eq!(signals(&[other]), Vec::<String>::new());
}

#[test]
fn reasoning_content_is_thinking() {
    for key in ["reasoning_content", "reasoning"] {
        let frame = chunk(&format!(r#""delta":{{"content":null,"{key}":"hm"}}"#), "");
        assert_eq!(signals(&[&frame]), ["thinking hm"]);
    }
}

#[test]
fn finish_reason_null_or_blank_does_not_finish() {
    for no in ["null", "\"\"", "\"null\"", "\" \"", "7"] {
        let frame = chunk(&format!(r#""delta":{{}},"finish_reason":{no}"#), "");
        assert_eq!(signals(&[&frame]), Vec::<String>::new(), "{no}");
    }
    for (reason, parsed) in [
        ("stop", "Stop"),
        ("length", "Length"),
        ("content_filter", "Filter"),
        ("tool_calls", "Tools"),
        ("normal", "Stop"),
    ] {
        let frame = chunk(&format!(r#""delta":{{}},"finish_reason":"{reason}""#), "");
        assert_eq!(signals(&[&frame]), [format!("finish {parsed}")]);
    }
    assert_eq!(signals(&[r#"{"object":"chat.completion.done","choices":[]}"#]), ["finish Stop"]);
    assert_eq!(signals(&[&chunk(r#""delta":{}"#, r#","object":"chat.completion.done""#)]), ["finish Stop"]);
    assert_eq!(signals(&["[DONE]"]), ["finish Stop"]);
    assert_eq!(signals(&["  [DONE]  "]), ["finish Stop"]);
    for other in ["[DONE", "[done]", "[DONE]x", "[TRACEID:1]", "", "status"] {
        assert_eq!(signals(&[other]), Vec::<String>::new(), "{other}");
    }
}

#[test]
fn growing_message_next_to_deltas_is_read_once() {
    let frame = |delta: &str, message: &str, finish: &str| {
        chunk(
            &format!(r#""delta":{{"content":"{delta}"}},"message":{{"content":"{message}"}},"finish_reason":{finish}"#),
            "",
        )
    };
    let frames = [frame("a", "a", "null"), frame("[1]", "a[1]", "null"), frame("", "a[1]", "\"stop\"")];
    let frames: Vec<&str> = frames.iter().map(String::as_str).collect();
    let expected = [
        "text a @choices/0/delta/content",
        "text [1] @choices/0/delta/content",
        "answer a[1] @choices/0/message/content",
        "finish Stop",
    ];
    assert_eq!(signals(&frames), expected);
}

#[test]
fn complete_message_is_text_and_finish() {
    let message = r#""message":{"content":"a[1]","reasoning_content":"hm"}"#;
    let expected = ["thinking hm", "text a[1] @choices/0/message/content", "finish Stop"];
    assert_eq!(signals(&[&chunk(&format!("{message},\"finish_reason\":\"stop\""), "")]), expected);
    assert_eq!(signals(&[&chunk(message, r#","object":"chat.completion""#)]), expected);
}

#[test]
fn server_side_search_turns_are_no_text_and_no_finish() {
    let call = r#""delta":{"role":"assistant","tool_calls":[{"type":"web_search","function":{"name":"s","arguments":"{}"}}]},"finish_reason":"tool_calls""#;
    assert_eq!(signals(&[&chunk(call, "")]), Vec::<String>::new());
    let own = call.replace("web_search", "function");
    assert_eq!(signals(&[&chunk(&own, "")]), ["finish Tools"]);
    let tool = r#""delta":{"role":"tool","content":"[{\"no\":2,\"url\":\"https://a.example.com/\",\"title\":\"T\",\"content\":\"c\",\"web_icon\":\"https://a.example.com/i\"}]"},"finish_reason":"stop""#;
    assert_eq!(signals(&[&chunk(tool, "")]), ["ref 2 https://a.example.com/ T c https://a.example.com/i"]);
}

#[test]
fn minimax_last_frame_messages_are_read() {
    let last = r#"{"object":"chat.completion","base_resp":{"status_code":0,"status_msg":"unknown field"},"choices":[{"finish_reason":"tool_calls","index":0,"messages":[
        {"role":"user","content":"q"},
        {"role":"assistant","content":"","tool_calls":[{"type":"web_search","function":{"arguments":"{\"query_list\":[\"上海 天气\"]}"}}]},
        {"role":"tool","content":""},
        {"role":"assistant","content":"","annotations":[{"text":"【5†source】","url":"https://a.example.com/","quote":"晴"}]}]}]}"#;
    let expected = ["queries 上海 天气", "ref 5 https://a.example.com/ 晴 cited", "finish Stop"];
    assert_eq!(signals(&[&last.replace('\n', "")]), expected);
}

#[test]
fn fault_is_read_in_every_shape() {
    let faults = [
        (r#"{"error":{"code":"1301","message":"unsafe"}}"#, "fault 1301 unsafe"),
        (r#"{"error":{"message":"slow down","type":"rate_limit"}}"#, "fault rate_limit slow down"),
        (r#"{"error":"overloaded","code":503}"#, "fault 503 overloaded"),
        (r#"{"code":"InvalidParameter","message":"no model"}"#, "fault InvalidParameter no model"),
        (r#"{"error_code":17,"error_msg":"quota"}"#, "fault 17 quota"),
        (r#"{"base_resp":{"status_code":1004,"status_msg":"login"}}"#, "fault 1004 login"),
        (
            r#"{"error":{"code":502,"message":"gone"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}"#,
            "fault 502 gone",
        ),
        (r#"{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}"#, "fault  "),
    ];
    for (frame, fault) in faults {
        assert_eq!(signals(&[frame]), [fault], "{frame}");
    }
    for none in [
        r#"{"error":null,"choices":[]}"#,
        r#"{"error":{},"choices":[]}"#,
        r#"{"code":0,"message":"ok"}"#,
        r#"{"code":200,"message":"ok"}"#,
        r#"{"code":7}"#,
    ] {
        assert_eq!(signals(&[none]), Vec::<String>::new(), "{none}");
    }
    let named = |data: &str| {
        let mut log = SignalLog::default();
        let _ =
            ChatCompletions::default().frame(&Event::read(format!("event: error\ndata: {data}").as_bytes()), &mut log);
        log.0
    };
    assert_eq!(named("{\"message\":\"m\"}"), ["fault  m"]);
    assert_eq!(named("gone"), ["fault  "]);
}

#[test]
fn failing_frame_is_read_before_its_fault() {
    let frame = chunk(
        r#""delta":{"content":"a"},"finish_reason":"error""#,
        r#","error":{"message":"m"},"citations":["https://a.example.com/"]"#,
    );
    assert_eq!(signals(&[&frame]), ["ref 1 https://a.example.com/", "text a @choices/0/delta/content", "fault  m"]);
}

#[test]
fn usage_without_choice_is_read() {
    let frame = r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}"#;
    assert_eq!(signals(&[frame]), ["usage 3 4 7"]);
    assert_eq!(signals(&[r#"{"choices":[],"usage":null}"#]), Vec::<String>::new());
}

#[test]
fn search_results_take_the_numbers_of_citations() {
    let citations = r#""citations":["https://a.example.com/","https://b.example.com/"]"#;
    let results = r#""search_results":[{"title":"B","url":"https://b.example.com/?utm_source=x","date":"2025-01-02","snippet":"s"},{"title":"C","url":"https://c.example.com/"},{"title":"A","url":"https://a.example.com"}]"#;
    let expected = [
        "ref 1 https://a.example.com/",
        "ref 2 https://b.example.com/",
        "ref 2 https://b.example.com/?utm_source=x B s 2025-01-02",
        "ref - https://c.example.com/ C",
        "ref 1 https://a.example.com A",
    ];
    assert_eq!(signals(&[&format!("{{\"choices\":[],{citations},{results}}}")]), expected);
    // The results may also follow in a chunk of their own.
    assert_eq!(
        signals(&[&format!("{{\"choices\":[],{citations}}}"), &format!("{{\"choices\":[],{results}}}")]),
        expected
    );
    let alone = signals(&[&format!("{{\"choices\":[],{results}}}")]);
    assert!(alone[0].starts_with("ref 1 https://b.") && alone[2].starts_with("ref 3 https://a."), "{alone:?}");
    // A result without a URL takes that of the citation at its position.
    let bare = r#"{"choices":[],"citations":["https://a.example.com/"],"search_results":[{"title":"A"}]}"#;
    assert_eq!(signals(&[bare]), ["ref 1 https://a.example.com/", "ref 1 https://a.example.com/ A"]);
}

#[test]
fn citations_may_be_urls_objects_or_names() {
    let frame = r#"{"choices":[],"citations":["https://a.example.com/",{"url":"https://b.example.com/","title":"B"},"handbook.pdf","",7]}"#;
    let nothing = "failed missing_title_url_and_id";
    let expected =
        ["ref 1 https://a.example.com/", "ref 2 https://b.example.com/ B", "ref 3 handbook.pdf", nothing, nothing];
    assert_eq!(signals(&[frame]), expected);
}

#[test]
fn references_of_each_upstream_are_read() {
    let read_list = |list: &str| signals(&[&format!("{{\"choices\":[],{list}}}")]);
    let ark = r#""references":[{"url":"https://a.example.com/","title":"T","site_name":"S","summary":"s","publish_time":"2025-10-29","logo_url":"https://l.example.com/"},{"doc_id":"d1","doc_name":"手册.pdf","chunk_id":"c9","collection_name":"库"}]"#;
    let expected =
        ["ref - https://a.example.com/ T s S https://l.example.com/ 2025-10-29", "ref - 手册.pdf 库 knowledge"];
    assert_eq!(read_list(ark), expected);
    let zhipu = r#""web_search":[{"refer":"ref_2","title":"T","link":"","content":"c","media":"M"},{"refer":"ref_1","title":"U","link":"https://a.example.com/"}]"#;
    assert_eq!(read_list(zhipu), ["ref 2 T c M", "ref 1 https://a.example.com/ U"]);
    let hunyuan = r#""search_info":{"search_results":[{"index":1,"title":"T","url":"https://a.example.com/","icon":"https://i.example.com/","text":"站"}]}"#;
    assert_eq!(read_list(hunyuan), ["ref 1 https://a.example.com/ T 站 https://i.example.com/"]);
    let ragflow = chunk(
        r#""delta":{"content":"","reference":{"chunks":{"0":{"content":"c","document_id":"d","document_name":"N","similarity":0.5},"1":{"document_id":"e","document_name":"O","url":"https://a.example.com/"}}}}"#,
        "",
    );
    assert_eq!(signals(&[&ragflow]), ["ref 0 N c knowledge", "ref 1 https://a.example.com/ O knowledge"]);
    let steps = chunk(
        r#""delta":{"content":"","reasoning_steps":[{"thought":"Searching","type":"web_search","web_search":{"search_keywords":["k"],"search_results":[{"title":"T","url":"https://a.example.com/"}]}}]},"finish_reason":"stop""#,
        r#","object":"chat.reasoning""#,
    );
    assert_eq!(signals(&[&steps]), ["stage web_search Searching", "queries k", "ref - https://a.example.com/ T"]);
}

#[test]
fn annotation_with_a_span_is_cited() {
    let read_annotation =
        |annotation: &str| signals(&[&chunk(&format!(r#""delta":{{"annotations":[{annotation}]}}"#), "")]);
    let nested = |more: &str| {
        read_annotation(&format!(
            r#"{{"type":"url_citation","url_citation":{{"url":"https://a.example.com/","title":"T"{more}}}}}"#
        ))
    };
    assert_eq!(nested(r#","start_index":3,"end_index":9"#), ["ref - https://a.example.com/ T cited"]);
    assert_eq!(nested(r#","start_index":0,"end_index":9,"content":"c""#), ["ref - https://a.example.com/ T c cited"]);
    for nothing in ["", r#","start_index":0,"end_index":0"#, r#","start_index":9,"end_index":3"#, r#","end_index":3"#] {
        assert_eq!(nested(nothing), ["ref - https://a.example.com/ T"], "{nothing}");
    }
    let flat = r#"{"type":"url_citation","url":"https://a.example.com/","title":"https://a.example.com/","index":4}"#;
    assert_eq!(
        read_annotation(flat),
        ["ref - https://a.example.com/ cited"],
        "a title that repeats the URL is dropped"
    );
    let file = r#"{"type":"file_citation","file_citation":{"file_id":"f","filename":"a.pdf","index":4}}"#;
    assert_eq!(read_annotation(file), ["ref - a.pdf cited knowledge"]);
    for other in ["null", "7", r#"{"type":"file","file":{"name":"a"}}"#, r#"{"type":"file_path","file_id":"f"}"#] {
        assert_eq!(read_annotation(other), Vec::<String>::new(), "{other}");
    }
}

#[test]
fn repeated_list_is_read_once() {
    let frame = r#"{"choices":[],"citations":["https://a.example.com/"]}"#;
    let grown = r#"{"choices":[],"citations":["https://a.example.com/","https://b.example.com/"]}"#;
    assert_eq!(signals(&[frame, frame, frame]).len(), 1);
    assert_eq!(signals(&[frame, grown, frame, grown]).len(), 3);
    // A list is read again once MAX_READ_LISTS others followed it.
    for (others, count) in [(15, 16), (16, 18)] {
        let others: Vec<String> = (0..others).map(|n| frame.replace("a.", &format!("h{n}."))).collect();
        let frames: Vec<&str> = [frame].into_iter().chain(others.iter().map(String::as_str)).chain([frame]).collect();
        assert_eq!(signals(&frames).len(), count);
    }
}

#[test]
fn annotations_of_deltas_are_not_repeated() {
    let is_annotated = |choice: &str| {
        let mut adapter = ChatCompletions::default();
        read(&mut adapter, &chunk(choice, ""));
        // Our frame does not repeat the upstream's annotations.
        final_frame(&adapter)["choices"][0]["delta"].get("annotations").is_none()
    };
    assert!(is_annotated(r#""delta":{"annotations":[{"type":"url_citation","url":"https://a.example.com/"}]}"#));
    assert!(is_annotated(r#""delta":{"annotations":[null]}"#), "even if they are not objects");
    assert!(!is_annotated(r#""delta":{"annotations":[]}"#));
    assert!(!is_annotated(r#""delta":{},"message":{"annotations":[{"url":"https://a.example.com/"}]}"#));
}

#[test]
fn citation_positions_are_kept_up_to_the_cap() {
    let urls =
        |count: usize| (0..count).map(|n| format!("\"https://h{n}.example.com/\"")).collect::<Vec<_>>().join(",");
    for (count, numbered) in [(MAX_CITATIONS, true), (MAX_CITATIONS + 1, false)] {
        let last = format!("https://h{}.example.com/", count - 1);
        let citations = format!("{{\"choices\":[],\"citations\":[{}]}}", urls(count));
        let results = format!("{{\"choices\":[],\"search_results\":[{{\"title\":\"T\",\"url\":\"{last}\"}}]}}");
        let number = if numbered { count.to_string() } else { "-".to_owned() };
        assert_eq!(signals(&[&citations, &results]).pop(), Some(format!("ref {number} {last} T")));
    }
}

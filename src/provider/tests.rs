use super::{Provider, Signal, Sink};
use crate::sse::Event;

/// Records each signal as a short line.
#[derive(Default)]
struct SignalLog(Vec<String>);

impl Sink for SignalLog {
    fn signal(&mut self, signal: Signal<'_>) {
        self.0.push(match signal {
            Signal::MessageId(id) => format!("message {id}"),
            Signal::ConversationId(id) => format!("conversation {id}"),
            Signal::Model(name) => format!("model {name}"),
            Signal::Text(text, _) => format!("text {text}"),
            Signal::Thinking(text) => format!("thinking {text}"),
            Signal::FullText(text, _) => format!("answer {text}"),
            Signal::Stage { name, detail, .. } => format!("stage {name} {}", detail.unwrap_or_default()),
            Signal::SearchRound { key, .. } => format!("round {key}"),
            Signal::Reference(reference) => format!("reference {:?}", reference.number),
            Signal::Finish(_) => "finish".to_owned(),
            Signal::Usage(usage) => format!("usage {} {} {}", usage.input, usage.output, usage.total),
            Signal::Fault { .. } => "fault".to_owned(),
            Signal::InvalidReference { code, .. } => format!("failed {code}"),
        });
    }
}

/// The signals of `frames`, each given as the lines of an event.
fn signals(provider: Provider, frames: &[&str]) -> Vec<String> {
    let (mut adapter, mut log) = (provider.adapter(), SignalLog::default());
    for frame in frames {
        let _ = adapter.frame(&Event::read(frame.as_bytes()), &mut log);
    }
    log.0
}

#[test]
fn tencent_stages_are_signals_and_thinking_is_not_text() {
    let frame = |stage: &str, detail: &str| {
        format!(
            r#"data:{{"completion_id":"c","processes":{{"stage":"{stage}","delta_content":"想","detail":{detail}}},"delta_content":""}}"#
        )
    };
    let stages = [
        ("tool_call_start", r#"{"tool_name":"search_docs"}"#),
        ("tool_call_progress", r#"{"tool_name":"search_docs","progress":50}"#),
        ("tool_call_complete", r#"{"tool_name":"search_docs"}"#),
        ("tool_call_error", r#"{"tool_name":"search_docs"}"#),
        ("internal_searching", r#"{"space_name":"聚工单"}"#),
        ("finished_internal_searching", r#"{"space_name":"聚工单","doc_count":14}"#),
        ("resource_retrieval_start", r#"{"query":"派单"}"#),
        ("resource_retrieval_complete", r#"{"resource_count":5}"#),
        ("something_new", "null"),
    ];
    for (stage, detail) in stages {
        let log = signals(crate::provider::tencent::PROVIDER, &[&frame(stage, detail)]);
        assert_eq!(log.len(), 2, "{log:?}");
        assert!(log[1].starts_with(&format!("stage {stage} ")), "{log:?}");
    }
    assert_eq!(signals(crate::provider::tencent::PROVIDER, &[&frame("thinking", "null")])[1], "thinking 想");
    assert_eq!(signals(crate::provider::tencent::PROVIDER, &[&frame("", "null")]).len(), 1, "answer text has no stage");
}

#[test]
fn tencent_finish_event_or_is_stop_finishes() {
    let named = signals(
        crate::provider::tencent::PROVIDER,
        &["event:finish\ndata:{\"completion_id\":\"c\",\"content\":\"全文\"}"],
    );
    assert_eq!(named, ["message c", "answer 全文", "finish"]);
    let stopped = signals(crate::provider::tencent::PROVIDER, &["data:{\"completion_id\":\"c\",\"is_stop\":true}"]);
    assert_eq!(stopped, ["message c", "finish"]);
    let broken = signals(crate::provider::tencent::PROVIDER, &["event:finish\ndata:{\"completion_id\":"]);
    assert_eq!(broken, ["finish"], "a malformed finish event also finishes");
}

#[test]
fn doubao_delta_continues_the_last_channel() {
    let block = |kind: u32, id: &str, parent: &str| {
        format!(
            "event: STREAM_CHUNK\ndata: {{\"message_id\":\"12\",\"patch_op\":[{{\"patch_object\":1,\"patch_value\":{{\"content_block\":[\
             {{\"block_type\":{kind},\"block_id\":\"{id}\",\"parent_id\":\"{parent}\",\"content\":{{\"text_block\":{{\"text\":\"甲\"}}}}}}]}}}}]}}"
        )
    };
    let delta = "event: CHUNK_DELTA\ndata: {\"text\":\"乙\"}";
    let frames = [&block(10_040, "t", ""), &block(10_000, "b1", "t"), delta, &block(10_000, "b2", ""), delta];
    let log = signals(crate::provider::doubao::PROVIDER, &frames);
    let texts: Vec<&str> = log.iter().map(String::as_str).filter(|s| !s.starts_with("message")).collect();
    assert_eq!(texts, ["thinking 甲", "thinking 乙", "text 甲", "text 乙"]);
}

#[test]
fn doubao_conversation_zero_is_ignored() {
    let ack = |id: &str| format!("event: SSE_ACK\ndata: {{\"ack_client_meta\":{{\"conversation_id\":\"{id}\"}}}}");
    assert_eq!(signals(crate::provider::doubao::PROVIDER, &[&ack("0")]), Vec::<String>::new());
    assert_eq!(signals(crate::provider::doubao::PROVIDER, &[&ack("77")]), ["conversation 77"]);
}

#[test]
fn auto_gives_up_on_an_unknown_stream() {
    let (mut adapter, mut log) = (Provider::AUTO.adapter(), SignalLog::default());
    for n in 0..64 {
        assert!(!adapter.gave_up(), "after {n}");
        let _ = adapter.frame(&Event::read(b"data: {\"choices\":[]}"), &mut log);
    }
    assert!(adapter.gave_up() && log.0.is_empty() && adapter.provider().is_none());
}

#[test]
fn auto_reads_the_frame_that_decides_the_provider() {
    let log = signals(
        Provider::AUTO,
        &[
            "data: [DONE]",
            "data: {\"event_type\":2001,\"event_data\":\"{\\\"message\\\":{\\\"id\\\":\\\"9\\\"},\\\"is_finish\\\":true}\"}",
        ],
    );
    assert_eq!(log, ["message 9", "finish"]);
}

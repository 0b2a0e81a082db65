use serde_json::{Value, json};

use super::*;

fn query_in(body: Value) -> Option<String> {
    find(body.to_string().as_bytes(), None)
}

fn query_at(pointer: &str, body: &Value) -> Option<String> {
    find(body.to_string().as_bytes(), Some(&Pointer::parse(pointer).unwrap()))
}

#[test]
fn query_is_found_in_every_known_format() {
    let block = |content: Value| json!({"block_type": 10000, "content": content, "block_id": "b", "parent_id": ""});
    let text = json!({"text_block": {"text": "问题", "icon_url": "", "summary": ""}, "pc_event_block": ""});
    let attachment = json!({"attachment_block": {"attachments": [{"type": 1, "identifier": "x"}]}});
    let doubao = |blocks: Value| {
        json!({"client_meta": {"conversation_id": "", "bot_id": "1"}, "option": {"need_deep_think": 0},
               "messages": [{"local_message_id": "l", "content_block": blocks, "message_status": 0}]})
    };
    for (shape, body) in [
        (
            "openai",
            json!({"model": "m", "stream": true, "messages": [{"role": "system", "content": "sys"},
            {"role": "user", "content": "早先"}, {"role": "assistant", "content": "答"}, {"role": "user", "content": "问题"}]}),
        ),
        (
            "openai parts",
            json!({"messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "https://i.example.com/"}}, {"type": "text", "text": "问题"}]}]}),
        ),
        (
            "openai after a tool",
            json!({"messages": [{"role": "user", "content": "问题"},
            {"role": "assistant", "content": null, "tool_calls": []}, {"role": "tool", "content": "result"}]}),
        ),
        (
            "anthropic",
            json!({"system": "s", "messages": [{"role": "user", "content": [{"type": "tool_result", "content": "r"},
            {"type": "text", "text": "问题"}]}]}),
        ),
        ("responses text", json!({"model": "m", "input": "问题"})),
        (
            "responses items",
            json!({"input": [{"role": "user", "content": [{"type": "input_text", "text": "问题"}]},
            {"type": "function_call_output", "output": "r"}]}),
        ),
        (
            "gemini",
            json!({"contents": [{"role": "user", "parts": [{"text": "问题"}]}, {"role": "model", "parts": [{"text": "答"}]}]}),
        ),
        ("ai sdk", json!({"messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "问题"}]}]})),
        (
            "chatgpt web",
            json!({"messages": [{"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["问题"]}}]}),
        ),
        (
            "samantha",
            json!({"messages": [{"content": json!({"text": "问题"}).to_string(), "content_type": 2001,
            "attachments": [], "references": []}], "completion_option": {"is_regen": false}, "conversation_id": "0"}),
        ),
        ("doubao web", doubao(json!([block(attachment.clone()), block(text.clone())]))),
        ("doubao web as strings", doubao(json!(json!([block(json!(text.to_string()))]).to_string()))),
        (
            "doubao web, the attachment last",
            json!({"messages": [
            {"content_block": [block(text)]}, {"content_block": [block(attachment)]}]}),
        ),
        (
            "lexiang",
            json!({"query": "问题", "stream": true, "session_id": "s", "targets": [{"type": "space", "id": "x"}]}),
        ),
        ("question", json!({"question": "问题", "session_id": 1})),
        ("prompt", json!({"prompt": "问题", "chat_session_id": "c"})),
        ("lke", json!({"content": "问题", "bot_app_key": "k"})),
        ("one message", json!({"message": {"role": "user", "content": "问题"}})),
    ] {
        assert_eq!(query_in(body).as_deref(), Some("问题"), "{shape}");
    }
}

#[test]
fn body_without_a_user_text_has_no_query() {
    for body in [
        json!({}),
        json!([]),
        json!("问题"),
        json!({"messages": []}),
        json!({"messages": [{"role": "assistant", "content": "答"}]}),
        json!({"messages": [{"role": "user", "content": "  \n"}]}),
        json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}),
        json!({"prompt": 7, "query": null}),
        json!({"conversation_id": "1"}),
    ] {
        assert_eq!(query_in(body.clone()), None, "{body}");
    }
    for body in [&b""[..], b"query=x", b"{\"query\":\"x\"", b"{\"query\":\"\xff\"}", b"\x1f\x8b\x08"] {
        assert_eq!(find(body, None), None);
    }
}

#[test]
fn user_text_that_is_json_is_not_decoded() {
    let pasted = r#"{"text":"x"} what is this?"#;
    assert_eq!(query_in(json!({"messages": [{"role": "user", "content": pasted}]})).as_deref(), Some(pasted));
    let object = r#"{"text":"x"}"#;
    assert_eq!(query_in(json!({"messages": [{"role": "user", "content": object}]})).as_deref(), Some(object));
}

#[test]
fn query_is_one_line_and_cut_at_the_limit() {
    assert_eq!(query_in(json!({"query": " 一\n\n二\t三 "})).as_deref(), Some("一 二 三"));
    for (count, kept) in [(MAX_CHARS, MAX_CHARS), (MAX_CHARS + 1, MAX_CHARS)] {
        assert_eq!(query_in(json!({"query": "长".repeat(count)})).map(|query| query.chars().count()), Some(kept));
    }
}

#[test]
fn pointer_finds_a_text_a_message_or_a_list() {
    let body = json!({
        "a/b": {"m~n": "甲"}, "query": "not this",
        "chat": [{"role": "user", "content": "乙"}, {"role": "assistant", "content": "丙"}],
        "inner": json!({"turns": [{"say": "丁"}, {"say": "戊"}]}).to_string(),
    });
    for (pointer, query) in [
        ("/a~1b/m~0n", Some("甲")),
        ("/chat", Some("乙")),
        ("/chat/0", Some("乙")),
        ("/chat/1/content", Some("丙")),
        ("/inner/turns/-/say", Some("戊")),
        ("/inner/turns/0/say", Some("丁")),
        ("/chat/7", None),
        ("/chat/x", None),
        ("/nowhere", None),
        ("/a~1b", None),
    ] {
        assert_eq!(query_at(pointer, &body).as_deref(), query, "{pointer}");
    }
    for wrong in ["", "query", "a/b", "/a~2", "/~", &"/x".repeat(65)] {
        assert_eq!(Pointer::parse(wrong), None, "{wrong}");
    }
    assert!(Pointer::parse(&"/x".repeat(64)).is_some());
}

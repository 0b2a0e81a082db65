//! Custom mutators that keep an input well-formed: frames stay frames and JSON stays JSON, so that the code behind the
//! parsers is reached. A third of the mutations are libFuzzer's own.

use citetap::sse::Event;
use libfuzzer_sys::fuzzer_mutate;
use serde_json::{Map, Value, json};

use crate::{
    input::{Dice, HEAD},
    stream::pieces,
};

/// Values that are inserted into texts and JSON.
#[rustfmt::skip]
const TEXTS: &[&str] = &[
    "", " ", "[1]", "[2]", "[1][2]", "[1,2]", "[citation:3]", "【1†source】", "^[1]^", "[[1]](https://a.example/1)", "[", "1]", "火灾", "🔥", "`", "```\n",
    "$", "\\", "<span id=\"ai-qa-ref\">1</span>", "\u{E200}cite\u{E202}turn0search0\u{E201}", "https://a.example/", "http://b.example/x?utm_source=y#z",
    "HTTPS://A.example:443/", "javascript:alert(1)", "//evil.example", "/pages/1", "https://u:p@c.example/", "\0", "\u{202E}", "\u{200B}", "\u{FEFF}",
    "\r\n", "\n\n", "1", "0", "-1", "18446744073709551616", "1e400", "true", "null", "{}", "[]", "{\"text\":\"a\"}", "[DONE]", "stop", "length",
    "2025-10-29T07:50:20+08:00", "Tue, 11 Nov 2025 09:00:00 GMT", "1761695420", "</script>", "<b>", "\u{F0000}",
];
#[rustfmt::skip]
const KEYS: &[&str] = &[
    "additional_content", "annotations", "answer", "block_id", "block_type", "choices", "citation", "citations", "cited_text", "code", "completion_id", "content", "content_block",
    "content_type", "conversation_id", "created", "data", "delta", "delta_content", "document_index", "document_title", "end_type", "error", "event_data", "event_type", "finish_reason", "id",
    "index", "input", "is_finish", "is_stop", "message", "message_id", "model", "page_age", "partial_json", "patch_object", "patch_op", "patch_value", "processes", "query", "queries",
    "reasoning_content", "reference_chunks", "reference_docs", "references", "response", "results", "score", "search_query_result_block", "search_results",
    "session_id", "site_name", "snippet", "source", "stage", "stop_reason", "thinking", "tool_use_id", "start_index", "end_index", "structuredContent", "summary", "target_id", "text", "text_card", "title",
    "type", "url", "url_citation", "usage", "user_type", "webSearchResult", "a", "in", "t", "action", "annotation", "arguments", "blocks", "item", "item_id",
    "output", "output_index", "part", "sources",
];
#[rustfmt::skip]
const NAMES: &[&str] = &[
    "STREAM_CHUNK", "CHUNK_DELTA", "STREAM_MSG_NOTIFY", "FULL_MSG_NOTIFY", "SSE_ACK", "SSE_REPLY_END", "STREAM_ERROR", "gateway-error", "SSE_HEARTBEAT",
    "finish", "citations", "message", "error", "ping", "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop", "response.completed", "keepalive",
];
#[rustfmt::skip]
const FRAMES: &[&str] = &[
    "event: CHUNK_DELTA\ndata: {\"text\":\"火灾[1]。\"}\n\n",
    "event: STREAM_CHUNK\ndata: {\"message_id\":\"12\",\"patch_op\":[{\"patch_object\":1,\"patch_value\":{\"content_block\":[{\"block_type\":10025,\"block_id\":\"b1\",\"content\":{\"search_query_result_block\":{\"summary\":\"s\",\"queries\":[\"q\"],\"results\":[{\"text_card\":{\"index\":1,\"title\":\"标题\",\"url\":\"https://a.example.com/\",\"summary\":\"x\"}},{\"text_card\":{\"index\":2,\"title\":\"B\",\"url\":\"https://b.example.com/\"}}]}}}]}}]}\n\n",
    "event: SSE_REPLY_END\ndata: {\"end_type\":1}\n\n",
    "event: STREAM_ERROR\ndata: {\"error_code\":1,\"error_msg\":\"no\"}\n\n",
    "data: {\"event_type\":2001,\"event_id\":\"1\",\"event_data\":\"{\\\"message\\\":{\\\"id\\\":\\\"7\\\",\\\"content_type\\\":2001,\\\"content\\\":\\\"{\\\\\\\"text\\\\\\\":\\\\\\\"a[1]\\\\\\\"}\\\"},\\\"is_finish\\\":false}\"}\n\n",
    "data: {\"event_type\":2003,\"event_data\":\"{}\"}\n\n",
    "data:{\"completion_id\":\"c\",\"processes\":{\"stage\":\"finished_internal_searching\"},\"additional_content\":{\"reference_chunks\":[{\"target_id\":\"t1\",\"title\":\"T\",\"url\":\"/pages/1\",\"content\":\"c\"}]}}\n\n",
    "data:{\"completion_id\":\"c\",\"processes\":{},\"delta_content\":\"a[1]\"}\n\n",
    "event:finish\ndata:{\"completion_id\":\"c\",\"session_id\":\"s\",\"delta_content\":\"\",\"content\":\"a[1]\",\"is_stop\":true,\"additional_content\":{\"reference_docs\":[{\"target_id\":\"t1\",\"title\":\"T\",\"url\":\"/pages/1\"}]}}\n\n",
    "data: {\"id\":\"chat-1\",\"object\":\"chat.completion.chunk\",\"created\":7,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a[1]\",\"annotations\":[{\"type\":\"url_citation\",\"url_citation\":{\"url\":\"https://a.example.com/\",\"title\":\"t\",\"start_index\":0,\"end_index\":2}}]},\"finish_reason\":null}],\"citations\":[\"https://b.example.com/\"],\"search_results\":[{\"title\":\"C\",\"url\":\"https://c.example.com/\"}]}\n\n",
    "data: {\"id\":\"chat-1\",\"object\":\"chat.completion.chunk\",\"created\":7,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2,\"total_tokens\":3}}\n\n",
    "data: {\"error\":{\"code\":\"1301\",\"message\":\"no\"}}\n\n",
    "data: {\"type\":\"response.output_item.done\",\"sequence_number\":1,\"output_index\":0,\"item\":{\"id\":\"w\",\"type\":\"web_search_call\",\"action\":{\"type\":\"search\",\"query\":\"q\",\"sources\":[{\"type\":\"url\",\"url\":\"https://a.example.com/\"}]}}}\n\n",
    "data: {\"type\":\"response.output_text.delta\",\"sequence_number\":2,\"item_id\":\"m\",\"output_index\":1,\"content_index\":0,\"delta\":\"a[1]\"}\n\n",
    "data: {\"type\":\"response.output_text.annotation.added\",\"sequence_number\":3,\"item_id\":\"m\",\"output_index\":1,\"content_index\":0,\"annotation_index\":0,\"annotation\":{\"type\":\"url_citation\",\"url\":\"https://b.example.com/\",\"title\":\"B\",\"start_index\":0,\"end_index\":2}}\n\n",
    "data: {\"type\":\"response.doubao_app_call_search.completed\",\"item_id\":\"d\",\"block_index\":0,\"queries\":[\"q\"],\"results\":[{\"text_card\":{\"index\":1,\"title\":\"标题\",\"url\":\"https://c.example.com/\"}}]}\n\n",
    "data: {\"type\":\"response.completed\",\"sequence_number\":9,\"response\":{\"id\":\"r\",\"object\":\"response\",\"status\":\"completed\",\"output\":[{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"a[1]\",\"annotations\":[]}]}],\"usage\":{\"input_tokens\":1}}}\n\n",
    "data: [DONE]\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"server_tool_use\",\"id\":\"s\",\"name\":\"web_search\",\"input\":{}}}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"query\\\":\\\"q\\\"}\"}}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"web_search_tool_result\",\"tool_use_id\":\"s\",\"content\":[{\"type\":\"web_search_result\",\"title\":\"标题\",\"url\":\"https://a.example.com/\",\"page_age\":\"April 30, 2025\"}]}}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":2,\"content_block\":{\"type\":\"web_fetch_tool_result\",\"tool_use_id\":\"f\",\"content\":{\"type\":\"web_fetch_result\",\"url\":\"https://b.example.com/\",\"content\":{\"type\":\"document\",\"title\":\"B\"}}}}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":3,\"content_block\":{\"type\":\"text\",\"text\":\"\",\"citations\":[]}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":3,\"delta\":{\"type\":\"citations_delta\",\"citation\":{\"type\":\"char_location\",\"cited_text\":\"c\",\"document_index\":0,\"document_title\":\"B\"}}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":3,\"delta\":{\"type\":\"text_delta\",\"text\":\"火灾[1]。\"}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":3}\n\n",
    "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":7}}\n\n",
    "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"no\"}}\n\n",
    ": ping\n\n",
    "id: 7\n",
    "retry: 3000\n\n",
    "\u{FEFF}",
];

/// Mutates a stream of frames that follows its settings.
pub fn frames(data: &mut [u8], size: usize, max: usize, seed: u32) -> usize {
    change(data, HEAD, size, max, seed, |body, dice| {
        let mut all: Vec<Vec<u8>> = pieces(body).into_iter().map(<[u8]>::to_vec).collect();
        for _ in 0..1 + dice.below(3) {
            let at = dice.below(all.len());
            match dice.below(12) {
                0 => all.insert(at, dice.of(FRAMES).into()),
                1 if !all.is_empty() => drop(all.remove(at)),
                2 if !all.is_empty() => all.insert(at, all[at].clone()),
                3 if !all.is_empty() => {
                    let other = dice.below(all.len());
                    all.swap(at, other);
                }
                4 if !all.is_empty() => all[at] = respell(&all[at], dice),
                _ if !all.is_empty() => all[at] = edit_json(&all[at], dice),
                _ => all.push(dice.of(FRAMES).into()),
            }
        }
        all.concat()
    })
}

/// Mutates a JSON document that follows its settings.
pub fn document(data: &mut [u8], size: usize, max: usize, seed: u32) -> usize {
    change(data, HEAD, size, max, seed, |body, dice| {
        let Ok(mut value) = serde_json::from_slice::<Value>(body) else { return tokens(body, dice) };
        for _ in 0..1 + dice.below(3) {
            edit(&mut value, dice, 3);
        }
        escaped(&value.to_string(), dice).into_bytes()
    })
}

/// Mutates a text that follows its settings.
pub fn text(data: &mut [u8], size: usize, max: usize, seed: u32) -> usize {
    change(data, HEAD, size, max, seed, tokens)
}

/// Mutates a text without settings.
pub fn line(data: &mut [u8], size: usize, max: usize, seed: u32) -> usize {
    change(data, 0, size, max, seed, tokens)
}

/// Calls `with` on the bytes after `head` settings bytes, or libFuzzer's mutator. Returns the new size.
fn change(
    data: &mut [u8],
    head: usize,
    size: usize,
    max: usize,
    seed: u32,
    with: impl Fn(&[u8], &mut Dice) -> Vec<u8>,
) -> usize {
    let mut dice = Dice::new(seed);
    if size <= head || max <= head || dice.one_in(3) {
        return fuzzer_mutate(data, size, max);
    }
    if head > 0 && dice.one_in(8) {
        data[dice.below(head)] = u8::try_from(dice.below(256)).unwrap_or_default();
    }
    let body = with(&data[head..size], &mut dice);
    let len = body.len().min(max - head);
    data[head..head + len].copy_from_slice(&body[..len]);
    head + len
}

/// Inserts one of [`TEXTS`], or duplicates or removes a part of the text.
fn tokens(body: &[u8], dice: &mut Dice) -> Vec<u8> {
    let text = String::from_utf8_lossy(body).into_owned();
    let mut random_offset = || text.ceil_char_boundary(dice.below(text.len() + 1));
    let (a, b) = (random_offset(), random_offset());
    let (from, to) = (a.min(b), a.max(b));
    match dice.below(6) {
        0 => [&text[..from], &text[to..]].concat(),
        1 => [&text[..to], &text[from..]].concat(),
        2 => text.replace("\n\n", dice.of(&["\n", "\r\n\r\n", "\n\n\n"])),
        3 => [
            &text[..from],
            dice.of(&["\n\n", "\n- ", "\n> ", "\n    ", "\n# ", "](", "`", "$$", "|", "\n|---|\n"]),
            &text[from..],
        ]
        .concat(),
        _ => [&text[..from], dice.of(TEXTS), &text[from..]].concat(),
    }
    .into_bytes()
}

/// Changes the frame's spelling: line ends, spaces, data on two lines, a missing end, an event name.
fn respell(frame: &[u8], dice: &mut Dice) -> Vec<u8> {
    let text = String::from_utf8_lossy(frame).into_owned();
    match dice.below(7) {
        0 => text.replace("\r\n", "\n").replace('\n', "\r\n"),
        1 => text.replace("\r\n", "\n").replace('\n', "\r"),
        2 => text.replace('\r', ""),
        3 => text.replace("data: ", "data:"),
        4 => text.replacen(',', ",\ndata: ", 1),
        5 => text.trim_end().to_owned(),
        _ => format!("event: {}\n{text}", dice.of(NAMES)),
    }
    .into_bytes()
}

/// Edits the frame's JSON. Keeps its event name and line end.
fn edit_json(frame: &[u8], dice: &mut Dice) -> Vec<u8> {
    let event = Event::read(frame);
    let data = event.data.unwrap_or_default();
    let Ok(mut value) = serde_json::from_str::<Value>(&data) else { return tokens(frame, dice) };
    edit(&mut value, dice, 3);
    let eol = if frame.ends_with(b"\r\n") {
        "\r\n"
    } else if frame.ends_with(b"\r") {
        "\r"
    } else {
        "\n"
    };
    let name = if event.name.is_empty() { String::new() } else { format!("event: {}{eol}", event.name) };
    let json = escaped(&value.to_string(), dice);
    format!("{name}data: {json}{eol}{eol}").into_bytes()
}

/// The same JSON, sometimes with escapes for non-ASCII characters and slashes.
fn escaped(json: &str, dice: &mut Dice) -> String {
    if !dice.one_in(3) {
        return json.to_owned();
    }
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if !c.is_ascii() && dice.one_in(2) {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out += &format!("\\u{unit:04x}"));
        } else if c == '/' && dice.one_in(4) {
            out += "\\/";
        } else {
            out.push(c);
        }
    }
    out
}

/// Changes one value, here or deeper. Descends into JSON nested in strings, up to `left` levels.
fn edit(value: &mut Value, dice: &mut Dice, left: u8) {
    let deeper = !dice.one_in(4);
    match value {
        Value::Array(items) if deeper && !items.is_empty() => {
            let at = dice.below(items.len());
            return edit(&mut items[at], dice, left);
        }
        Value::Object(pairs) if deeper && !pairs.is_empty() => {
            let at = dice.below(pairs.len());
            if let Some((_, inner)) = pairs.iter_mut().nth(at) {
                return edit(inner, dice, left);
            }
        }
        Value::String(text) if deeper && left > 0 => {
            if let Ok(mut inner @ (Value::Array(_) | Value::Object(_))) = serde_json::from_str(text) {
                edit(&mut inner, dice, left - 1);
                *text = inner.to_string();
                return;
            }
        }
        _ => {}
    }
    match value {
        Value::Array(items) if !dice.one_in(4) => edit_list(items, dice),
        Value::Object(pairs) if !dice.one_in(4) => edit_object(pairs, dice),
        Value::String(text) if !dice.one_in(3) => {
            *text = match dice.below(8) {
                // Over the caps of titles and excerpts.
                0 => text.repeat(5000 / text.len().max(1)),
                _ => String::from_utf8_lossy(&tokens(text.as_bytes(), dice)).into_owned(),
            };
        }
        Value::Number(_) if !dice.one_in(3) => *value = random_number(dice),
        _ => *value = replacement(value, dice),
    }
}

fn edit_list(items: &mut Vec<Value>, dice: &mut Dice) {
    let at = dice.below(items.len());
    match dice.below(5) {
        0 if !items.is_empty() => drop(items.remove(at)),
        1 if !items.is_empty() => items.insert(at, items[at].clone()),
        2 if !items.is_empty() => {
            let mut copies = vec![items[at].clone(); dice.below(40)];
            copies.iter_mut().for_each(|copy| edit(copy, dice, 3));
            items.append(&mut copies);
        }
        3 if !items.is_empty() => items.swap(at, 0),
        _ => items.push(replacement(&Value::Null, dice)),
    }
}

fn edit_object(pairs: &mut Map<String, Value>, dice: &mut Dice) {
    let at = dice.below(pairs.len());
    let key = pairs.keys().nth(at).cloned().unwrap_or_default();
    match dice.below(4) {
        0 => drop(pairs.remove(&key)),
        1 => {
            let value = pairs.remove(&key).unwrap_or_default();
            pairs.insert(dice.of(KEYS).to_owned(), value);
        }
        2 => {
            let copy = pairs.get(&key).cloned().unwrap_or_default();
            pairs.insert(dice.of(KEYS).to_owned(), copy);
        }
        _ => drop(pairs.insert(dice.of(KEYS).to_owned(), replacement(&Value::Null, dice))),
    }
}

fn random_number(dice: &mut Dice) -> Value {
    match dice.below(3) {
        0 => dice
            .of(&[0, 1, 2, 3, 5, 999, 1000, 10_000, 10_025, 10_040, 2001, 2003, 2008, i64::MAX, i64::MIN, -1])
            .into(),
        1 => dice.of(&[u64::MAX, 4_294_967_295, 4_294_967_296, 999_999, 1_000_000]).into(),
        _ => dice.of(&[0.0, -0.0, 0.5, 1.0, 1.5, 1e300, 1e-300, -1.0]).into(),
    }
}

fn replacement(value: &Value, dice: &mut Dice) -> Value {
    match dice.below(9) {
        0 => Value::Null,
        1 => dice.one_in(2).into(),
        2 => json!([value]),
        3 => json!({ dice.of(KEYS): value }),
        // Upstreams sometimes turn a value into a string without notice.
        4 => value.to_string().into(),
        5 => random_number(dice),
        _ => dice.of(TEXTS).into(),
    }
}

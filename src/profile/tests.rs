use serde_json::{Value, json};

use super::*;
use crate::sse::Event;

fn citation(number: u32, aliases: &[u32], title: &str, cited: bool) -> Value {
    json!({"number": number, "aliases": aliases, "url": format!("https://s{number}.example.com/"), "title": title,
           "content": "excerpt", "hostname": null, "type": "websearch", "showFavicon": true, "siteName": null,
           "iconUrl": null, "publishedAt": null, "sourceId": format!("id{number}"), "rank": number,
           "origin": "upstream", "cited": cited, "status": "ok", "scores": null, "snippets": [], "metadata": {}})
}

fn record(citations: &[Value], dangling: &[u32]) -> Record {
    let stats = json!({"totalReturned": 0, "keptAfterFilter": 0, "failedCount": 0, "dedupCount": 0, "citedCount": 0,
                       "danglingMarkers": dangling});
    serde_json::from_value(json!({"type": "citations", "version": 1, "messageId": "m", "conversationId": null,
        "provider": "p", "route": "r", "source": "default", "model": null, "complete": true, "stored": true,
        "truncated": false, "nonce": "n", "createdAt": "", "summary": null, "queries": [], "citations": citations,
        "stats": stats, "corroboration": null}))
    .unwrap()
}

/// Parses the data of each frame as JSON, or as a string.
fn parse_frames(out: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(out).unwrap();
    let frames = text.split_inclusive("\n\n").map(|frame| Event::read(frame.as_bytes()).data.unwrap().into_owned());
    frames.map(|data| serde_json::from_str(&data).unwrap_or(Value::String(data))).collect()
}

/// Returns the frames that the profile's encoder writes during `encode`, after the start of the message.
fn frames_of(profile: Profile, encode: impl FnOnce(&mut dyn Encoder, &mut Vec<u8>)) -> Vec<Value> {
    let mut encoder = encoder(OutputFormat { profile, ..OutputFormat::default() }).unwrap();
    let mut out = Vec::new();
    encoder.open(&MessageStart { id: "m", model: "a model", created: 7 }, &mut out);
    out.clear();
    encode(&mut *encoder, &mut out);
    parse_frames(&out)
}

/// The names in Open WebUI's list of sources.
fn names(record: &Record) -> Vec<String> {
    let frames = frames_of(Profile::OpenWebUi, |encoder, out| encoder.citations(record, &Positions::default(), out));
    let sources = frames.iter().filter(|frame| frame["event"]["type"] == "source");
    sources.map(|frame| frame["event"]["data"]["source"]["name"].as_str().unwrap().to_owned()).collect()
}

/// Some upstreams send usage with a failed answer.
#[test]
fn openai_error_is_the_last_chunk() {
    let usage = Usage { input: 1, output: 2, total: 3 };
    for profile in [Profile::OpenAi, Profile::OpenWebUi] {
        let frames = frames_of(profile, |encoder, out| {
            encoder.usage(usage, out);
            encoder.fault(None, "no", out);
            encoder.usage(usage, out);
            encoder.end(out);
        });
        let (done, before) = frames.split_last().unwrap();
        assert_eq!(*done, "[DONE]");
        assert!(before.last().is_some_and(|last| last.get("error").is_some()), "{frames:?}");
    }
}

#[test]
fn open_webui_lists_a_source_at_its_number() {
    let (a, b) = (citation(2, &[4], "A", true), citation(5, &[], "B", true));
    assert_eq!(names(&record(&[b.clone(), a.clone()], &[])), ["[1]", "A", "[3]", "A (4)", "B"]);
    // An uncited source does not need to be at its number.
    let uncited = citation(9, &[8], "C", false);
    assert_eq!(names(&record(&[uncited.clone(), a.clone()], &[])), ["[1]", "A", "[3]", "A (4)", "C"]);
    assert_eq!(names(&record(std::slice::from_ref(&uncited), &[])), ["C"]);
    // But it must not be at a number that the text cites and no source has.
    assert_eq!(names(&record(&[citation(1, &[], "D", true), uncited], &[2, 2024])), ["D", "[2]", "C"]);
    // The list has no position for number 0.
    assert_eq!(names(&record(&[citation(0, &[], "Z", true), citation(1, &[], "D", true)], &[])), ["D", "Z"]);
}

#[test]
fn open_webui_placeholders_are_capped() {
    let last = |number| record(&[citation(1, &[], "A", true), citation(number, &[], "B", true)], &[]);
    let at_cap = names(&last(34));
    assert_eq!((at_cap.len(), at_cap.last().map(String::as_str)), (34, Some("B")));
    // Above the cap, sources follow in order after the placeholders.
    let over_cap = names(&last(35));
    assert_eq!((over_cap.len(), over_cap.last().map(String::as_str)), (34, Some("B")));
}

#[test]
fn open_webui_names_are_unique_and_no_links() {
    let same = [citation(1, &[], "T", true), citation(2, &[], "T", true), citation(3, &[], "T (2)", true)];
    assert_eq!(names(&record(&same, &[])), ["T", "T (2)", "T (2) (3)"]);
    assert_eq!(names(&record(&[citation(1, &[], "https://evil.example.com/", true)], &[])), ["Source 1"]);
}

#[test]
fn open_webui_excerpts_are_capped() {
    let mut many = citation(1, &[], "T", true);
    many["snippets"] = json!(vec!["长".repeat(1001); 5]);
    let mut none = citation(2, &[], "U", true);
    none["content"] = Value::Null;
    let record = record(&[many, none], &[]);
    let frames = frames_of(Profile::OpenWebUi, |encoder, out| encoder.citations(&record, &Positions::default(), out));
    let data = &frames[0]["event"]["data"];
    assert_eq!(data["document"].as_array().unwrap().len(), 4);
    assert_eq!(data["metadata"].as_array().unwrap().len(), 4);
    assert_eq!(data["document"][0].as_str().unwrap().chars().count(), 1000);
    assert_eq!(frames[1]["event"]["data"]["document"], json!(["U"]), "without content, the title");
}

#[test]
fn open_webui_status_starts_and_ends_once() {
    let frames = frames_of(Profile::OpenWebUi, |encoder, out| {
        encoder.stage("searching", "正在搜索", None, out);
        encoder.stage("searching", "正在搜索", None, out);
        encoder.stage("silent_stage", "", None, out);
        let queries: Vec<String> = (0..20).map(|n| format!("q{}", n / 2 * 2)).chain([String::from("x")]).collect();
        encoder.searching(&queries, out);
        encoder.text("a", out);
        encoder.text("b", out);
        encoder.finish(FinishReason::Stop, out);
    });
    let status =
        |n: usize| (frames[n]["event"]["data"]["description"].clone(), frames[n]["event"]["data"]["done"].clone());
    assert_eq!(status(0), (json!("正在搜索"), json!(false)));
    assert_eq!(status(1), (json!("silent_stage"), json!(false)));
    let queries = frames[2]["event"]["data"]["queries"].as_array().unwrap();
    assert_eq!((queries.len(), queries.last()), (11, Some(&json!("x"))), "no query twice");
    assert_eq!(status(3).1, json!(true));
    assert_eq!(frames.len(), 4 + 3, "each status once");
}

#[test]
fn long_statuses_are_cut() {
    let long = "长".repeat(301);
    for profile in [Profile::AiSdk, Profile::OpenWebUi] {
        let frames = frames_of(profile, |encoder, out| {
            encoder.stage(&long, &long, Some(&long), out);
            encoder.searching(&(0..17).map(|n| format!("{n:02}{long}")).collect::<Vec<_>>(), out);
        });
        let json = serde_json::to_string(&frames).unwrap();
        assert!(!json.contains(&long), "{profile:?}");
        assert!(json.contains("15长") && !json.contains("16长"), "{profile:?}");
    }
}

/// Clients count the number in the id from zero.
#[test]
fn ai_sdk_source_id_derives_from_the_number() {
    let (zero, mut document) = (citation(0, &[], "Z", false), citation(7, &[], "D", true));
    document["url"] = Value::Null;
    document["metadata"]["fileType"] = json!("pdf");
    let record = record(&[zero, citation(3, &[], "A", true), document], &[]);
    let frames = frames_of(Profile::AiSdk, |encoder, out| encoder.citations(&record, &Positions::default(), out));
    assert_eq!(frames[0]["sourceId"], "id0");
    let linked =
        json!({"type": "source-url", "sourceId": "citation-2", "url": "https://s3.example.com/", "title": "A"});
    assert_eq!(frames[1], linked);
    let unlinked =
        json!({"type": "source-document", "sourceId": "citation-6", "mediaType": "application/pdf", "title": "D"});
    assert_eq!(frames[2], unlinked);
    assert_eq!(frames[3]["data"]["citations"].as_array().map(Vec::len), Some(3));
}

#[test]
fn finish_reason_is_spelled_per_dialect() {
    for (reason, openai, ai_sdk) in [
        (FinishReason::Stop, "stop", "stop"),
        (FinishReason::Length, "length", "length"),
        (FinishReason::Filter, "content_filter", "content-filter"),
        (FinishReason::Tools, "tool_calls", "tool-calls"),
    ] {
        let finish = |profile| frames_of(profile, |encoder, out| encoder.finish(reason, out)).remove(0);
        assert_eq!(finish(Profile::OpenAi)["choices"][0]["finish_reason"], openai);
        assert_eq!(finish(Profile::AiSdk)["finishReason"], ai_sdk);
    }
}

/// A chunk with late usage has a choice, because clients read the first choice of every chunk.
#[test]
fn openai_usage_is_sent_with_or_after_the_finish() {
    let usage = Usage { input: 3, output: 4, total: 7 };
    let tokens = json!({"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7});
    let with_finish = frames_of(Profile::OpenAi, |encoder, out| {
        encoder.usage(usage, out);
        encoder.finish(FinishReason::Stop, out);
        encoder.end(out);
    });
    assert_eq!((with_finish.len(), &with_finish[0]["usage"]), (2, &tokens));
    let after_finish = frames_of(Profile::OpenAi, |encoder, out| {
        encoder.finish(FinishReason::Stop, out);
        encoder.usage(usage, out);
        encoder.end(out);
    });
    assert_eq!((after_finish.len(), &after_finish[1]["usage"]), (3, &tokens));
    assert_eq!(after_finish[1]["choices"][0]["delta"]["content"], "");
    assert_eq!(after_finish[2], "[DONE]");
}

#[test]
fn document_text_is_capped_with_reason_length() {
    let cap = openai::MAX_TEXT;
    for (over, reason) in [(0, "stop"), (1, "length")] {
        let mut encoder = openai::DocumentEncoder::default();
        let mut out = Vec::new();
        encoder.thinking("因", &mut out);
        encoder.text(&"x".repeat(cap - 3), &mut out);
        encoder.text(&"y".repeat(over), &mut out);
        encoder.finish(FinishReason::Stop, &mut out);
        encoder.end(&mut out);
        let json: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(json["choices"][0]["finish_reason"], reason);
        assert_eq!(json["choices"][0]["message"]["content"].as_str().map(str::len), Some(cap - 3));
    }
}

/// Line buffers of proxies and clients hold 64 KiB.
#[test]
fn record_fits_one_line_in_every_dialect() {
    let many: Vec<Value> = (1..=1000).map(|n| citation(n, &[], &"题".repeat(300), true)).collect();
    let record = record(&many, &[]);
    for profile in [Profile::OpenAi, Profile::AiSdk, Profile::OpenWebUi] {
        let mut encoder = encoder(OutputFormat { profile, ..OutputFormat::default() }).unwrap();
        let mut out = Vec::new();
        encoder.citations(&record, &Positions::default(), &mut out);
        assert!(std::str::from_utf8(&out).unwrap().lines().all(|line| line.len() < native::MAX_LINE), "{profile:?}");
    }
}

//! Strict clients of all dialects. They fail on everything that a real client would stumble over.

use std::collections::HashSet;

use citetap::{citation::Record, profile::Profile, sse::Event};
use serde_json::Value;

use crate::net::frames;

/// The state of a client at the end of a stream.
#[derive(Debug, Default)]
pub struct Got {
    pub text: String,
    pub thinking: String,
    /// Titles and links of the sources that the client would show, in order.
    pub sources: Vec<(String, Option<String>)>,
    /// Annotations with their offsets in the text.
    pub annotations: Vec<(String, usize, usize)>,
    /// All records received, and the last one.
    pub records: Vec<Record>,
    pub record: Option<Record>,
    pub statuses: Vec<Value>,
    pub finishes: usize,
    pub reason: Option<String>,
    pub error: Option<String>,
    pub done: bool,
}

pub fn client(profile: Profile, stream: &[u8]) -> Got {
    let mut got = Got::default();
    let mut parts = Parts::default();
    for frame in frames(stream) {
        assert!(frame.ends_with(b"\n\n"), "a whole frame: {:?}", String::from_utf8_lossy(frame));
        let event = Event::read(frame);
        assert!(event.id.is_none());
        let Some(data) = event.data else {
            assert_eq!(frame, b": citetap\n\n", "a comment is a heartbeat");
            continue;
        };
        assert!(!got.done, "data after [DONE]: {data}");
        assert!(data.len() < 64 * 1024, "a line of {} bytes", data.len());
        if data == "[DONE]" {
            got.done = true;
            continue;
        }
        let json: Value = serde_json::from_str(&data).unwrap_or_else(|error| panic!("{error}: {data}"));
        match profile {
            Profile::OpenAi => chunk(&json, &event.name, &mut got),
            Profile::OpenWebUi if json.get("event").is_some() => page_event(&json, &mut got),
            Profile::OpenWebUi => {
                let annotations = &json["choices"][0]["delta"]["annotations"];
                assert!(annotations.is_null(), "the page would show each source twice");
                chunk(&json, &event.name, &mut got);
            }
            Profile::AiSdk => {
                assert!(event.name == "message" || event.name.is_empty(), "{}", event.name);
                parts.chunk(&json, &mut got);
            }
            Profile::Native => panic!("the upstream's clients are its own"),
        }
    }
    got.record = got.records.last().cloned();
    got
}

/// A naive client: reads the first choice's delta of every chunk.
fn chunk(json: &Value, name: &str, got: &mut Got) {
    if let Some(error) = json.get("error") {
        assert!(got.error.is_none() && got.finishes == 0, "one end");
        got.error = Some(error["message"].as_str().unwrap().to_owned());
        return;
    }
    assert!(got.error.is_none(), "data after an error");
    assert_eq!(json["object"], "chat.completion.chunk");
    assert!(json["id"].is_string() && json["model"].is_string() && json["created"].is_i64());
    assert!(json.get("citations").is_none() && json.get("event").is_none());
    let choices = json["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 1, "loops look at the first choice");
    let (choice, delta) = (&choices[0], choices[0]["delta"].as_object().unwrap());
    let text = delta.get("content").map_or("", |text| text.as_str().unwrap());
    assert!(got.finishes == 0 || text.is_empty(), "no text after the finish");
    got.text.push_str(text);
    got.thinking.push_str(delta.get("reasoning_content").map_or("", |text| text.as_str().unwrap()));
    for annotation in delta.get("annotations").and_then(Value::as_array).into_iter().flatten() {
        assert_eq!(annotation["type"], "url_citation");
        let citation = &annotation["url_citation"];
        let (url, title) = (citation["url"].as_str().unwrap(), citation["title"].as_str().unwrap());
        assert_ne!(url, title, "it would pass for a source without a title");
        let offset = |key: &str| usize::try_from(citation[key].as_u64().unwrap()).unwrap();
        got.annotations.push((url.to_owned(), offset("start_index"), offset("end_index")));
        got.sources.push((title.to_owned(), Some(url.to_owned())));
    }
    if let Some(record) = json.get("citetap") {
        assert_eq!(name, "citations");
        assert_eq!(got.finishes, 0, "before the finish");
        got.records.push(serde_json::from_value(record.clone()).unwrap());
    }
    if let Some(reason) = choice["finish_reason"].as_str() {
        got.finishes += 1;
        got.reason = Some(reason.to_owned());
    }
}

/// The state of Open WebUI's page: sources are appended to a list.
fn page_event(json: &Value, got: &mut Got) {
    assert_eq!(json.as_object().unwrap().len(), 1, "an event is alone: {json}");
    let event = &json["event"];
    let data = &event["data"];
    match event["type"].as_str().unwrap() {
        "status" => {
            assert!(data["description"].is_string() && data["done"].is_boolean());
            got.statuses.push(data.clone());
        }
        "source" => {
            assert_eq!(got.finishes, 0);
            let name = data["source"]["name"].as_str().unwrap();
            let excerpts = data["document"].as_array().unwrap();
            assert!(!excerpts.is_empty() && excerpts.iter().all(Value::is_string));
            let metadata = data["metadata"].as_array().unwrap();
            assert_eq!(metadata.len(), excerpts.len());
            assert!(metadata.iter().all(|of| of["name"] == name && of["source"] == name));
            let url = data["source"].get("url").map(|url| url.as_str().unwrap().to_owned());
            got.sources.push((name.to_owned(), url));
        }
        other => panic!("an event that the page does not know: {other}"),
    }
}

/// The state of the AI SDK, with the checks that make it throw.
#[derive(Default)]
struct Parts {
    begun: bool,
    open: Option<(String, String)>,
    used: HashSet<String>,
}

impl Parts {
    fn chunk(&mut self, json: &Value, got: &mut Got) {
        let kind = json["type"].as_str().unwrap();
        assert_eq!(std::mem::replace(&mut self.begun, true), kind != "start", "start is not first or repeated: {json}");
        assert!(got.finishes == 0 && got.error.is_none(), "data after the end: {json}");
        let text = |key: &str| json[key].as_str().unwrap_or_else(|| panic!("{key} in {json}")).to_owned();
        let only = |keys: &[&str]| {
            let unknown: Vec<_> = json.as_object().unwrap().keys().filter(|key| !keys.contains(&&***key)).collect();
            assert!(unknown.is_empty(), "older versions refuse {unknown:?} in {json}");
        };
        match kind.rsplit_once('-') {
            Some((part @ ("text" | "reasoning"), step)) => {
                let id = text("id");
                match step {
                    "start" => {
                        only(&["type", "id"]);
                        assert!(self.open.is_none(), "one part at a time: {json}");
                        assert!(self.used.insert(id.clone()), "ids are new: {json}");
                        self.open = Some((part.to_owned(), id));
                    }
                    "delta" => {
                        only(&["type", "id", "delta"]);
                        assert_eq!(self.open, Some((part.to_owned(), id)));
                        if part == "text" { &mut got.text } else { &mut got.thinking }.push_str(&text("delta"));
                    }
                    "end" => {
                        only(&["type", "id"]);
                        assert_eq!(self.open.take(), Some((part.to_owned(), id)));
                    }
                    _ => panic!("{json}"),
                }
            }
            _ => match kind {
                "start" => {
                    only(&["type", "messageId"]);
                    text("messageId");
                }
                "source-url" => {
                    only(&["type", "sourceId", "url", "title"]);
                    assert!(self.used.insert(text("sourceId")), "{json}");
                    got.sources.push((text("title"), Some(text("url"))));
                }
                "source-document" => {
                    only(&["type", "sourceId", "mediaType", "title"]);
                    assert!(self.used.insert(text("sourceId")) && text("mediaType").contains('/'), "{json}");
                    got.sources.push((text("title"), None));
                }
                "data-status" => {
                    only(&["type", "data", "transient"]);
                    assert_eq!(json["transient"], true);
                    got.statuses.push(json["data"].clone());
                }
                "data-citations" => {
                    only(&["type", "id", "data"]);
                    let record: Record = serde_json::from_value(json["data"].clone()).unwrap();
                    assert_eq!(text("id"), record.message_id);
                    got.records.push(record);
                }
                "error" => {
                    only(&["type", "errorText"]);
                    assert!(self.open.is_none());
                    got.error = Some(text("errorText"));
                }
                "finish" => {
                    only(&["type", "finishReason"]);
                    assert!(self.open.is_none(), "parts end before the message");
                    got.reason = Some(text("finishReason"));
                    got.finishes += 1;
                }
                other => panic!("the schema has no {other}"),
            },
        }
    }
}

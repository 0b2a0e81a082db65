//! Tencent Lexiang AI Q&A (`/cgi-bin/v1/ai/qa`): its stream, and its response without streaming.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

use super::{
    Adapter, Descriptor, Envelope, FinishReason, InputKind, JsonPath, ParseError, Payload, Provider, Signal, Sink,
    code,
    json::{self, Node},
    published,
};
use crate::{
    citation::{Record, ledger::Reference, record::CitationType, text},
    sse::Event,
};

pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "tencent",
    label: "Tencent Lexiang AI Q&A",
    docs: "https://lexiang.tencent.com/wiki/api/",
    input: InputKind::Streams,
    sniff: |_, data| is_lexiang(data).then_some(DESCRIPTOR.build),
    build: || Box::new(Lexiang::default()),
};
pub const PROVIDER: Provider = Provider::Fixed(&DESCRIPTOR);

/// Matches a frame, or a response that is not streamed.
fn is_lexiang(node: &Node<'_>) -> bool {
    const FRAME_KEYS: &[&str] = &["processes", "delta_content", "additional_content", "is_stop"];
    const RESPONSE_KEYS: &[&str] = &["additional_content", "answer_source", "session_id"];
    let is_frame = node.get("completion_id").is_some() && FRAME_KEYS.iter().any(|key| node.get(key).is_some());
    let is_response = node.get("code").is_some()
        && node.get("data").is_some_and(|data| RESPONSE_KEYS.iter().any(|key| data.get(key).is_some()));
    is_frame || is_response
}

/// Bytes of the stream's ids that our frame repeats. Longer ids are cut, which bounds the memory per stream.
const MAX_ID: usize = 256;

/// Our frame: has every field of the stream's frames, all empty.
#[derive(Serialize)]
struct OwnFrame<'a> {
    completion_id: &'a str,
    session_id: &'a str,
    processes: Processes,
    delta_content: &'static str,
    content: &'static str,
    finish_reason: &'static str,
    is_stop: bool,
    answer_source: &'static str,
    additional_content: Option<()>,
    citations: &'a Record,
}

#[derive(Serialize, Default)]
struct Processes {
    stage: &'static str,
    message: &'static str,
    delta_content: &'static str,
    content: &'static str,
    detail: Option<()>,
}

/// Adapter of a Lexiang stream.
#[derive(Default)]
pub struct Lexiang {
    /// Repeated in our frame, because every frame of the stream has both ids.
    completion_id: String,
    session_id: String,
}

impl Adapter for Lexiang {
    fn provider(&self) -> Option<&'static str> {
        Some(DESCRIPTOR.name)
    }

    fn frame(&mut self, event: &Event<'_>, sink: &mut dyn Sink) -> Result<(), ParseError> {
        let Some(data) = event.data.as_deref() else { return Ok(()) };
        let is_finish = event.name == "finish";
        let read = json::with_parsed(data, |node| self.read_frame(node, is_finish, sink));
        if read.is_none() && is_finish {
            sink.signal(Signal::Finish(FinishReason::Stop));
        }
        read.ok_or(ParseError)
    }

    fn envelope(&self, payload: &Payload<'_>) -> Envelope {
        Envelope::new(&OwnFrame {
            completion_id: &self.completion_id,
            session_id: &self.session_id,
            processes: Processes::default(),
            delta_content: "",
            content: "",
            finish_reason: "",
            is_stop: false,
            answer_source: "",
            additional_content: None,
            citations: payload.record,
        })
    }
}

impl Lexiang {
    /// Reads a response that is not streamed: `{"code":0,"request_id":…,"data":{…}}`.
    fn read_response(&mut self, node: &Node<'_>, data: &Node<'_>, sink: &mut dyn Sink) {
        if let Some(id) = node.id(&["request_id"]) {
            sink.signal(Signal::MessageId(&id));
        }
        if let Some(id) = data.id(&["session_id"]) {
            sink.signal(Signal::ConversationId(&id));
        }
        if let Some(text) = data.text(&["reasoning_content"]) {
            sink.signal(Signal::Thinking(text));
        }
        if let Some(text) = data.text(&["content"]) {
            sink.signal(Signal::Text(text, JsonPath::ROOT.key("data").key("content")));
        }
        if let Some(more) = data.get("additional_content") {
            emit_chunks(more, sink);
            emit_docs(more, sink);
        }
        sink.signal(Signal::Finish(FinishReason::Stop));
    }

    fn read_frame(&mut self, node: &Node<'_>, is_finish: bool, sink: &mut dyn Sink) {
        if let (Some(0), Some(data)) = (node.get("code").and_then(Node::as_number), node.get("data")) {
            return self.read_response(node, data, sink);
        }
        if let Some(id) = node.id_cow(&["completion_id"]) {
            sink.signal(Signal::MessageId(&id));
            remember(&mut self.completion_id, &id);
        }
        // Empty until the finish. The last id that is not empty counts.
        if let Some(id) = node.id_cow(&["session_id"]) {
            sink.signal(Signal::ConversationId(&id));
            remember(&mut self.session_id, &id);
        }
        if let Some(processes) = node.get("processes") {
            emit_stage(processes, sink);
        }
        if let Some(text) = node.get("delta_content").and_then(Node::as_str).filter(|text| !text.is_empty()) {
            sink.signal(Signal::Text(text, JsonPath::ROOT.key("delta_content")));
        }
        if let Some(more) = node.get("additional_content") {
            emit_chunks(more, sink);
            emit_docs(more, sink);
        }
        if is_finish || node.truthy("is_stop") {
            if let Some(answer) = node.text(&["content"]) {
                sink.signal(Signal::FullText(answer, JsonPath::ROOT.key("content")));
            }
            sink.signal(Signal::Finish(FinishReason::of(node.text(&["finish_reason"]).unwrap_or_default())));
        } else if node.get("completion_id").is_none()
            && node.get("code").and_then(Node::as_number).is_some_and(|c| c != 0)
        {
            sink.signal(Signal::Fault { code: node.id(&["code"]), message: node.text(&["message", "msg"]) });
        }
    }
}

/// Stores an id. Most frames repeat it and change nothing.
fn remember(known: &mut String, id: &str) {
    if known != id {
        *known = text::single_line(id, MAX_ID);
    }
}

fn emit_stage(processes: &Node<'_>, sink: &mut dyn Sink) {
    let name = processes.text(&["stage"]).unwrap_or_default();
    let text = processes.get("delta_content").and_then(Node::as_str).unwrap_or_default();
    if name == "thinking" {
        if !text.is_empty() {
            sink.signal(Signal::Thinking(text));
        }
    } else if !name.is_empty() {
        let detail = processes.get("detail");
        sink.signal(Signal::Stage {
            name,
            message: processes.text(&["message"]).unwrap_or_default(),
            detail: detail.and_then(|d| d.id(&["tool_name", "query", "space_name", "resource_count"])),
        });
    }
}

/// Reads the excerpts that the search found. Those of one document become one citation.
fn emit_chunks(more: &Node<'_>, sink: &mut dyn Sink) {
    let chunks = more.get("reference_chunks").map(Node::as_list).unwrap_or_default();
    if chunks.is_empty() {
        return;
    }
    sink.signal(Signal::SearchRound { key: "reference_chunks", summary: None, queries: Vec::new() });
    for (position, chunk) in (1..).zip(chunks) {
        emit_reference(chunk, None, position, sink);
    }
}

/// Reads the documents that the answer uses, in the order of their numbers. Their excerpts are in the chunks.
fn emit_docs(more: &Node<'_>, sink: &mut dyn Sink) {
    let docs = more.get("reference_docs").map(Node::as_list).unwrap_or_default();
    for (number, doc) in (1..).zip(docs) {
        emit_reference(doc, Some(number), number, sink);
    }
}

fn emit_reference(node: &Node<'_>, number: Option<u32>, position: u32, sink: &mut dyn Sink) {
    let target = node.id(&["target_id"]).or_else(|| node.get("file_info").and_then(|file| file.id(&["target_id"])));
    let block = node.id(&["block_id"]);
    let url = node.text(&["url"]);
    let title = node.text(&["title"]);
    if target.is_none() && url.is_none() && title.is_none() {
        return sink.signal(Signal::InvalidReference { id: None, position, code: code::MISSING_TITLE_URL_AND_ID });
    }
    let mut metadata = Vec::new();
    let mut add = |key: &'static str, value: Option<String>| {
        if let Some(value) = value {
            metadata.push((key, Value::String(value)));
        }
    };
    add("docId", target.clone());
    add("blockId", block.clone());
    add("targetType", node.id(&["target_type"]));
    add("fileType", node.id(&["file_type"]));
    let doc_id = target.map(|target| match block {
        Some(block) => format!("{target}#{block}"),
        None => target,
    });
    sink.signal(Signal::Reference(Reference {
        number,
        position: None,
        rank: None,
        score: None,
        url,
        title,
        snippet: node.text(&["content"]),
        site_name: node.get("space_info").and_then(|space| space.text(&["name"])),
        icon_url: node.get("owner").and_then(|owner| owner.text(&["avatar"])),
        published: node.get("updated_at").and_then(published),
        doc_id: doc_id.map(Cow::Owned),
        kind: CitationType::Knowledge,
        cited: false,
        metadata,
    }));
}

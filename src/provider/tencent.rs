//! Tencent Lexiang AI Q&A (`/cgi-bin/v1/ai/qa`).

use std::{borrow::Cow, sync::LazyLock};

use serde_json::Value;

use super::{
    Adapter, Ends, Envelope, Reason, Signal, Sink, Trail, Unread, code,
    ends::{self, ESCAPE, NEVER, Sign, Signs},
    json::{self, Node},
    published,
};
use crate::{
    citation::{ledger::Reference, record::CitationType, text},
    sse::Event,
};

/// Bytes of the stream's own ids that our frame repeats; longer ones are cut.
const MAX_NAME: usize = 256;

#[derive(Default)]
pub struct Lexiang {
    /// Repeated in our own frame, as every frame of the stream has them.
    completion_id: String,
    session_id: String,
    /// How often one of them was another.
    renamed: u64,
}

impl Adapter for Lexiang {
    fn provider(&self) -> Option<&'static str> {
        Some("tencent")
    }

    fn frame(&mut self, event: &Event<'_>, sink: &mut dyn Sink) -> Result<(), Unread> {
        let Some(data) = event.data.as_deref() else { return Ok(()) };
        let finish = event.name == "finish";
        let read = json::with_parsed(data, |node| self.message(node, finish, sink));
        if read.is_none() && finish {
            sink.signal(Signal::Finish(Reason::Stop));
        }
        read.ok_or(Unread)
    }

    fn ends(&self) -> Ends {
        Self::ends
    }

    fn epoch(&self) -> Option<u64> {
        Some(self.renamed)
    }

    fn envelope(&self) -> Envelope<'_> {
        Envelope::Lexiang { completion_id: &self.completion_id, session_id: &self.session_id }
    }
}

impl Lexiang {
    /// The finish by its event or its `is_stop`; the rest has a code.
    pub fn ends(frames: &[u8]) -> bool {
        const SIGNS: &[Sign] =
            &[(b"is_stop", |rest| ends::inner_value(rest).starts_with(b"false")), (b"\"code\"", NEVER), ESCAPE];
        static TOGETHER: LazyLock<Signs> = LazyLock::new(|| Signs::new(SIGNS));
        ends::named(frames, &[b"finish"]) || TOGETHER.are_in(frames)
    }

    /// An answer that was not streamed: `{"code":0,"request_id":…,"data":{…}}`.
    fn whole(&mut self, node: &Node<'_>, data: &Node<'_>, sink: &mut dyn Sink) {
        if let Some(id) = node.id(&["request_id"]) {
            sink.signal(Signal::Message(&id));
        }
        if let Some(id) = data.id(&["session_id"]) {
            sink.signal(Signal::Conversation(&id));
        }
        if let Some(text) = data.text(&["reasoning_content"]) {
            sink.signal(Signal::Thinking(text));
        }
        if let Some(text) = data.text(&["content"]) {
            sink.signal(Signal::Text(text, Trail::ROOT.key("data").key("content")));
        }
        if let Some(more) = data.get("additional_content") {
            chunks(more, sink);
            docs(more, sink);
        }
        sink.signal(Signal::Finish(Reason::Stop));
    }

    fn message(&mut self, node: &Node<'_>, finish: bool, sink: &mut dyn Sink) {
        if let (Some(0), Some(data)) = (node.get("code").and_then(Node::number), node.get("data")) {
            return self.whole(node, data, sink);
        }
        if let Some(id) = node.id_here(&["completion_id"]) {
            sink.signal(Signal::Message(&id));
            self.renamed += u64::from(repeat(&mut self.completion_id, &id));
        }
        // Empty until the finish; the last one that is not counts.
        if let Some(id) = node.id_here(&["session_id"]) {
            sink.signal(Signal::Conversation(&id));
            self.renamed += u64::from(repeat(&mut self.session_id, &id));
        }
        if let Some(processes) = node.get("processes") {
            stage(processes, sink);
        }
        if let Some(text) = node.get("delta_content").and_then(Node::str).filter(|text| !text.is_empty()) {
            sink.signal(Signal::Text(text, Trail::ROOT.key("delta_content")));
        }
        if let Some(more) = node.get("additional_content") {
            chunks(more, sink);
            docs(more, sink);
        }
        if finish || node.truthy("is_stop") {
            if let Some(answer) = node.text(&["content"]) {
                sink.signal(Signal::Answer(answer, Trail::ROOT.key("content")));
            }
            sink.signal(Signal::Finish(Reason::of(node.text(&["finish_reason"]).unwrap_or_default())));
        } else if node.get("completion_id").is_none() && node.get("code").and_then(Node::number).is_some_and(|c| c != 0)
        {
            sink.signal(Signal::Fault { code: node.id(&["code"]), message: node.text(&["message", "msg"]) });
        }
    }
}

/// Every frame has the same, so nothing is done for most. Says whether it is another.
fn repeat(known: &mut String, id: &str) -> bool {
    let is_new = known != id;
    if is_new {
        *known = text::line(id, MAX_NAME).0;
    }
    is_new
}

fn stage(processes: &Node<'_>, sink: &mut dyn Sink) {
    let name = processes.text(&["stage"]).unwrap_or_default();
    let text = processes.get("delta_content").and_then(Node::str).unwrap_or_default();
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

/// What the search found, in pieces: several of one document become one citation.
fn chunks(more: &Node<'_>, sink: &mut dyn Sink) {
    let chunks = more.get("reference_chunks").map(Node::list).unwrap_or_default();
    if chunks.is_empty() {
        return;
    }
    sink.signal(Signal::Round { key: "reference_chunks", summary: None, queries: Vec::new() });
    for (position, chunk) in (1..).zip(chunks) {
        reference(chunk, None, position, sink);
    }
}

/// What the answer rests on, in the order of its numbers: no excerpts here, the chunks have them.
fn docs(more: &Node<'_>, sink: &mut dyn Sink) {
    let docs = more.get("reference_docs").map(Node::list).unwrap_or_default();
    for (number, doc) in (1..).zip(docs) {
        reference(doc, Some(number), number, sink);
    }
}

fn reference(node: &Node<'_>, number: Option<u32>, position: u32, sink: &mut dyn Sink) {
    let target = node.id(&["target_id"]).or_else(|| node.get("file_info").and_then(|file| file.id(&["target_id"])));
    let block = node.id(&["block_id"]);
    let url = node.text(&["url"]);
    let title = node.text(&["title"]);
    if target.is_none() && url.is_none() && title.is_none() {
        return sink.signal(Signal::Failed { id: None, position, code: code::MISSING_TITLE_URL_AND_ID });
    }
    let mut metadata = Vec::new();
    let mut note = |key: &'static str, value: Option<String>| {
        if let Some(value) = value {
            metadata.push((key, Value::String(value)));
        }
    };
    note("docId", target.clone());
    note("blockId", block.clone());
    note("targetType", node.id(&["target_type"]));
    note("fileType", node.id(&["file_type"]));
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

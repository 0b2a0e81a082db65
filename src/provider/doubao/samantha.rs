//! The older protocol (`/samantha/chat/completion`): three layers of JSON in strings, frame > `event_data` >
//! `message.content`.

use serde::Serialize;

use super::{DESCRIPTOR, cards};
use crate::{
    citation::Record,
    provider::{
        Adapter, Envelope, FinishReason, JsonPath, ParseError, Payload, Signal, Sink,
        doubao::{emit_fault, emit_fault_of},
        json::{self, MAX_STRING_NESTING, Node},
    },
    sse::Event,
};

const CHUNK: u64 = 2001;
const END: u64 = 2003;
const ERROR: u64 = 2005;

/// Our frame: an event of a type that clients do not know.
#[derive(Serialize)]
struct OwnFrame<'a> {
    event_type: u32,
    event_data: &'static str,
    citations: &'a Record,
}

/// Adapter of the older protocol. Stateless.
pub struct Samantha;

impl Adapter for Samantha {
    fn provider(&self) -> Option<&'static str> {
        Some(DESCRIPTOR.name)
    }

    fn frame(&mut self, event: &Event<'_>, sink: &mut dyn Sink) -> Result<(), ParseError> {
        let Some(data) = event.data.as_deref() else { return Ok(()) };
        if event.name == "gateway-error" {
            emit_fault(data, sink);
            return Ok(());
        }
        json::with_parsed(data, |node| match node.get("event_type").and_then(Node::as_number) {
            Some(CHUNK) => {
                if let Some(inner) = node.get("event_data") {
                    let at = JsonPath::ROOT.key("event_data");
                    inner.with_decoded(MAX_STRING_NESTING, |inner, left| read_chunk(inner, left, &at, sink));
                }
            }
            Some(END) => sink.signal(Signal::Finish(FinishReason::Stop)),
            Some(ERROR) => match node.get("event_data") {
                Some(Node::Str(detail)) => emit_fault(detail, sink),
                Some(detail) => emit_fault_of(detail, sink),
                None => emit_fault_of(node, sink),
            },
            None if node.get("code").is_some() && node.get("message").is_some() => emit_fault_of(node, sink),
            _ => {}
        })
        .ok_or(ParseError)
    }

    fn envelope(&self, payload: &Payload<'_>) -> Envelope {
        Envelope::new(&OwnFrame { event_type: 0, event_data: "{}", citations: payload.record })
    }
}

fn read_chunk(inner: &Node<'_>, left: u8, at: &JsonPath<'_>, sink: &mut dyn Sink) {
    if let Some(id) = inner.id_cow(&["conversation_id"]).filter(|id| id != "0") {
        sink.signal(Signal::ConversationId(&id));
    }
    if let Some(message) = inner.get("message") {
        let at = at.key("message");
        message.with_decoded(left, |message, left| read_message(message, left, &at, sink));
    }
    // A stream may have this and event type 2003. The first one is the finish.
    if inner.truthy("is_finish") {
        sink.signal(Signal::Finish(FinishReason::Stop));
    }
}

fn read_message(message: &Node<'_>, left: u8, at: &JsonPath<'_>, sink: &mut dyn Sink) {
    let id = message.id_cow(&["id", "message_id"]);
    if let Some(id) = &id {
        sink.signal(Signal::MessageId(id));
    }
    let blocks = message.first(&["content_block", "contentBlock"]);
    if let Some(blocks) = blocks {
        blocks.with_decoded(left, |blocks, left| {
            for block in blocks.as_list() {
                let block_id = block.id_cow(&["block_id", "blockId"]).unwrap_or_default();
                if let Some(content) = block.get("content") {
                    content.with_decoded(left, |content, left| cards::read_search(content, left, &block_id, sink));
                }
            }
        });
    }
    let Some(content) = message.get("content") else { return };
    let kind = message.get("content_type").and_then(Node::as_number);
    content.with_decoded(left, |content, left| match kind {
        Some(2001 | 10_000) => {
            if let Some(text) = content.get("text").and_then(Node::as_str) {
                sink.signal(Signal::Text(text, at.key("content").key("text")));
            }
        }
        Some(2008) => {
            if let Some(text) = content.text(&["think", "text"]) {
                sink.signal(Signal::Thinking(text));
            }
        }
        _ => {
            // A search that is sent again with more results is the same round, so its key is the block's id.
            let block_id = message.id_cow(&["block_id"]).unwrap_or_default();
            cards::read_search(content, left, &block_id, sink);
        }
    });
}

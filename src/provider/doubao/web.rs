//! The current protocol (`/chat/completion`), which Dola, the overseas product, also uses. Frames are dispatched by the SSE
//! event's name; `patch_type` is unreliable and ignored.

use serde::Serialize;

use super::{DESCRIPTOR, cards};
use crate::{
    citation::Record,
    provider::{
        Adapter, Envelope, FinishReason, JsonPath, ParseError, Payload, Signal, Sink,
        doubao::emit_fault,
        json::{self, MAX_STRING_NESTING, Node},
    },
    sse::Event,
};

const TEXT: u64 = 10_000;
const THINKING: u64 = 10_040;
/// `patch_object` of the copy for speech output. Ignored, because it repeats the text.
const TTS: u64 = 111;
/// `patch_object` of text in older streams.
const LEGACY_TEXT: u64 = 102;
const USER: u64 = 1;
const ASSISTANT: u64 = 2;
/// Thinking blocks remembered per stream. The text of further ones counts as answer text.
const MAX_THINKING_BLOCKS: usize = 64;

/// Our frame: a patch without operations.
#[derive(Serialize)]
struct OwnFrame<'a> {
    message_id: &'a str,
    patch_op: [(); 0],
    citations: &'a Record,
}

/// Adapter of the current protocol.
#[derive(Default)]
pub struct Web {
    /// The text of a `CHUNK_DELTA`, which names no channel, is thinking and not answer.
    is_thinking: bool,
    /// Ids of the thinking blocks.
    thinking_blocks: Vec<String>,
}

impl Adapter for Web {
    fn provider(&self) -> Option<&'static str> {
        Some(DESCRIPTOR.name)
    }

    fn frame(&mut self, event: &Event<'_>, sink: &mut dyn Sink) -> Result<(), ParseError> {
        let Some(data) = event.data.as_deref() else { return Ok(()) };
        let read = match &*event.name {
            "SSE_HEARTBEAT" | "STREAM_TIMEOUT_CONTROL" => return Ok(()),
            // A stream has up to three of these, some streams only the third, so each one is a finish.
            "SSE_REPLY_END" => {
                json::with_parsed(data, |node| {
                    if let Some(id) = node.get("msg_finish_attr").and_then(|attr| attr.id(&["msgid"])) {
                        sink.signal(Signal::MessageId(&id));
                    }
                });
                sink.signal(Signal::Finish(FinishReason::Stop));
                return Ok(());
            }
            "STREAM_ERROR" | "gateway-error" => {
                emit_fault(data, sink);
                return Ok(());
            }
            "SSE_ACK" => json::with_parsed(data, |node| read_ack(node, sink)),
            "CHUNK_DELTA" => json::with_parsed(data, |node| {
                if let Some(text) = node.get("text").and_then(Node::as_str) {
                    self.emit_text(text, &JsonPath::ROOT.key("text"), sink);
                }
            }),
            "FULL_MSG_NOTIFY" => json::with_parsed(data, |node| self.read_full_message(node, sink)),
            _ => json::with_parsed(data, |node| self.read_chunk(node, sink)),
        };
        read.ok_or(ParseError)
    }

    fn envelope(&self, payload: &Payload<'_>) -> Envelope {
        let record = payload.record;
        Envelope::new(&OwnFrame { message_id: &record.message_id, patch_op: [], citations: record })
    }
}

/// `"0"` means that the conversation has no id yet.
fn emit_conversation_id(node: &Node<'_>, sink: &mut dyn Sink) {
    if let Some(id) = node.id_cow(&["conversation_id"]).filter(|id| id != "0") {
        sink.signal(Signal::ConversationId(&id));
    }
}

fn read_ack(node: &Node<'_>, sink: &mut dyn Sink) {
    if let Some(meta) = node.get("ack_client_meta") {
        emit_conversation_id(meta, sink);
        if let Some(info) = meta.get("conversation_info") {
            emit_conversation_id(info, sink);
        }
    }
}

fn user_type(node: &Node<'_>) -> Option<u64> {
    node.get("user_type").and_then(Node::as_number)
}

impl Web {
    fn emit_text(&self, text: &str, at: &JsonPath<'_>, sink: &mut dyn Sink) {
        sink.signal(if self.is_thinking { Signal::Thinking(text) } else { Signal::Text(text, *at) });
    }

    /// `FULL_MSG_NOTIFY` usually echoes the user's message, which may contain pasted citations. Reads only a message marked as
    /// the assistant's, and not its text, which the stream already had.
    fn read_full_message(&mut self, node: &Node<'_>, sink: &mut dyn Sink) {
        let Some(message) = node.get("message") else { return };
        message.with_decoded(MAX_STRING_NESTING, |message, left| {
            if user_type(message) == Some(ASSISTANT) {
                let mut references_only = ReferencesOnly(sink);
                self.read_message(message, left, &JsonPath::ROOT, &mut references_only);
            }
        });
    }

    /// Reads `STREAM_CHUNK`, `STREAM_MSG_NOTIFY`, snapshots and unknown events of the same shape.
    fn read_chunk(&mut self, node: &Node<'_>, sink: &mut dyn Sink) {
        // A message without a wrapper, as documents outside streams have it.
        if node.first(&["content_block", "contentBlock"]).is_some() {
            return self.read_message(node, MAX_STRING_NESTING, &JsonPath::ROOT, sink);
        }
        if let Some(meta) = node.get("meta") {
            if user_type(meta) == Some(USER) {
                return;
            }
            self.emit_ids(meta, sink);
        }
        self.emit_ids(node, sink);
        if let Some(content) = node.get("content") {
            let at = JsonPath::ROOT.key("content");
            content.with_decoded(MAX_STRING_NESTING, |content, left| self.read_blocks(content, left, &at, sink));
        }
        if let Some(message) = node.get("message") {
            let at = JsonPath::ROOT.key("message");
            message.with_decoded(MAX_STRING_NESTING, |message, left| self.read_message(message, left, &at, sink));
        }
        if let Some(ops) = node.get("patch_op") {
            let at = JsonPath::ROOT.key("patch_op");
            ops.with_decoded(MAX_STRING_NESTING, |ops, left| {
                for (index, op) in ops.as_list().iter().enumerate() {
                    self.read_patch(op, left, &at.index(index), sink);
                }
            });
        }
    }

    fn emit_ids(&self, node: &Node<'_>, sink: &mut dyn Sink) {
        if let Some(id) = node.id_cow(&["message_id"]) {
            sink.signal(Signal::MessageId(&id));
        }
        emit_conversation_id(node, sink);
    }

    fn read_message(&mut self, message: &Node<'_>, left: u8, at: &JsonPath<'_>, sink: &mut dyn Sink) {
        if user_type(message) == Some(USER) {
            return;
        }
        self.emit_ids(message, sink);
        self.read_blocks(message, left, at, sink);
        if let Some(content) = message.get("content") {
            let at = at.key("content");
            content.with_decoded(left, |content, left| self.read_blocks(content, left, &at, sink));
        }
    }

    fn read_patch(&mut self, op: &Node<'_>, left: u8, at: &JsonPath<'_>, sink: &mut dyn Sink) {
        let Some(value) = op.get("patch_value") else { return };
        let at = at.key("patch_value");
        match op.get("patch_object").and_then(Node::as_number) {
            Some(TTS) => {}
            Some(LEGACY_TEXT) => value.with_decoded(left, |value, left| self.read_legacy_text(value, left, &at, sink)),
            _ => value.with_decoded(left, |value, left| {
                self.read_blocks(value, left, &at, sink);
                if let Some(content) = value.get("content") {
                    let at = at.key("content");
                    content.with_decoded(left, |content, left| self.read_blocks(content, left, &at, sink));
                }
            }),
        }
    }

    /// `content` is a string that holds `{"text":…}`, or the text itself.
    fn read_legacy_text(&mut self, value: &Node<'_>, left: u8, at: &JsonPath<'_>, sink: &mut dyn Sink) {
        let Some(content) = value.get("content") else { return };
        let at = at.key("content");
        let is_decoded = content.with_decoded(left, |content, _| {
            let text = content.get("text").and_then(Node::as_str);
            if let Some(text) = text {
                sink.signal(Signal::Text(text, at.key("text")));
            }
            text.is_some()
        });
        if let (false, Some(text)) = (is_decoded, content.as_str()) {
            sink.signal(Signal::Text(text, at));
        }
    }

    /// `holder` is a list of blocks, or has one in `content_block`.
    fn read_blocks(&mut self, holder: &Node<'_>, left: u8, at: &JsonPath<'_>, sink: &mut dyn Sink) {
        let named = holder.first_with_key(&["content_block", "contentBlock"]);
        let (blocks, at) = named.map_or((holder, *at), |(key, blocks)| (blocks, at.key(key)));
        blocks.with_decoded(left, |blocks, left| {
            for (index, block) in blocks.as_list().iter().enumerate() {
                self.read_block(block, left, &at.index(index), sink);
            }
        });
    }

    /// True if an earlier frame had a thinking block with this id.
    fn is_thinking_block(&self, id: &str) -> bool {
        self.thinking_blocks.iter().any(|known| known == id)
    }

    fn read_block(&mut self, block: &Node<'_>, left: u8, at: &JsonPath<'_>, sink: &mut dyn Sink) {
        let kind = block.first(&["block_type", "blockType"]).and_then(Node::as_number);
        let id = block.id_cow(&["block_id", "blockId"]).unwrap_or_default();
        if kind == Some(THINKING) {
            // Thinking ends with the second block of the same id in some streams, with `is_finish` in others.
            let is_known = self.is_thinking_block(&id);
            self.is_thinking = !is_known && !block.truthy("is_finish");
            if !is_known && self.thinking_blocks.len() < MAX_THINKING_BLOCKS {
                self.thinking_blocks.push(id.into_owned());
            }
            return;
        }
        let Some(content) = block.get("content") else { return };
        let at = at.key("content");
        content.with_decoded(left, |content, left| {
            if cards::read_search(content, left, &id, sink) {
                return;
            }
            let Some((key, holder)) = content.first_with_key(&["text_block", "textBlock"]) else { return };
            if let (Some(TEXT), Some(text)) = (kind, holder.get("text").and_then(Node::as_str)) {
                let parent = block.id_cow(&["parent_id", "parentId"]);
                self.is_thinking = parent.is_some_and(|parent| self.is_thinking_block(&parent));
                self.emit_text(text, &at.key(key).key("text"), sink);
            }
        });
    }
}

/// Forwards all signals except text and thinking.
struct ReferencesOnly<'s>(&'s mut dyn Sink);

impl Sink for ReferencesOnly<'_> {
    fn signal(&mut self, signal: Signal<'_>) {
        if !matches!(signal, Signal::Text(..) | Signal::Thinking(_)) {
            self.0.signal(signal);
        }
    }
}

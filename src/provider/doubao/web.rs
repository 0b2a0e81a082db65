//! The current protocol (`/chat/completion`), which Dola, its overseas twin, speaks too.
//! Dispatched on the SSE event's name; `patch_type` means nothing reliable and is not looked at.

use serde::Serialize;

use super::{DESCRIPTOR, cards};
use crate::{
    citation::Record,
    provider::{
        Adapter, Envelope, FinishReason, JsonPath, ParseError, Payload, Signal, Sink,
        doubao::fault,
        json::{self, MAX_STRING_NESTING, Node},
    },
    sse::Event,
};

const TEXT: u64 = 10_000;
const THINKING: u64 = 10_040;
/// `patch_object` of the text's spoken copy: reading it would double the text.
const TTS: u64 = 111;
/// `patch_object` of text as older streams patch it.
const LEGACY_TEXT: u64 = 102;
const USER: u64 = 1;
const ASSISTANT: u64 = 2;
/// Thinking blocks remembered per message; further ones count as answer text.
const MAX_THINKING_BLOCKS: usize = 64;

/// A patch that changes nothing.
#[derive(Serialize)]
struct OwnFrame<'a> {
    message_id: &'a str,
    patch_op: [(); 0],
    citations: &'a Record,
}

#[derive(Default)]
pub struct Web {
    /// Which channel a `CHUNK_DELTA`, which names none, goes on with.
    thinking: bool,
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
            // Up to three of these come, in some streams only the third: each is a finish.
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
                fault(data, sink);
                return Ok(());
            }
            "SSE_ACK" => json::with_parsed(data, |node| ack(node, sink)),
            "CHUNK_DELTA" => json::with_parsed(data, |node| {
                if let Some(text) = node.get("text").and_then(Node::as_str) {
                    self.text(text, &JsonPath::ROOT.key("text"), sink);
                }
            }),
            "FULL_MSG_NOTIFY" => json::with_parsed(data, |node| self.full_message(node, sink)),
            _ => json::with_parsed(data, |node| self.chunk(node, sink)),
        };
        read.ok_or(ParseError)
    }

    fn envelope(&self, payload: &Payload<'_>) -> Envelope {
        let record = payload.record;
        Envelope::new(&OwnFrame { message_id: &record.message_id, patch_op: [], citations: record })
    }
}

/// `"0"` means that no conversation is assigned yet.
fn conversation(node: &Node<'_>, sink: &mut dyn Sink) {
    if let Some(id) = node.id_cow(&["conversation_id"]).filter(|id| id != "0") {
        sink.signal(Signal::ConversationId(&id));
    }
}

fn ack(node: &Node<'_>, sink: &mut dyn Sink) {
    if let Some(meta) = node.get("ack_client_meta") {
        conversation(meta, sink);
        if let Some(info) = meta.get("conversation_info") {
            conversation(info, sink);
        }
    }
}

fn user_type(node: &Node<'_>) -> Option<u64> {
    node.get("user_type").and_then(Node::as_number)
}

impl Web {
    fn text(&self, text: &str, at: &JsonPath<'_>, sink: &mut dyn Sink) {
        sink.signal(if self.thinking { Signal::Thinking(text) } else { Signal::Text(text, *at) });
    }

    /// Mostly the echo of the user's own message, which may hold pasted citations: only one that
    /// says it is the assistant's is read, and only for its references, as its text came already.
    fn full_message(&mut self, node: &Node<'_>, sink: &mut dyn Sink) {
        let Some(message) = node.get("message") else { return };
        message.with_decoded(MAX_STRING_NESTING, |message, left| {
            if user_type(message) == Some(ASSISTANT) {
                let mut references_only = ReferencesOnly(sink);
                self.message(message, left, &JsonPath::ROOT, &mut references_only);
            }
        });
    }

    /// `STREAM_CHUNK`, `STREAM_MSG_NOTIFY`, snapshots, and whatever else looks like them.
    fn chunk(&mut self, node: &Node<'_>, sink: &mut dyn Sink) {
        // The message itself, as it is kept outside streams.
        if node.first(&["content_block", "contentBlock"]).is_some() {
            return self.message(node, MAX_STRING_NESTING, &JsonPath::ROOT, sink);
        }
        if let Some(meta) = node.get("meta") {
            if user_type(meta) == Some(USER) {
                return;
            }
            self.ids(meta, sink);
        }
        self.ids(node, sink);
        if let Some(content) = node.get("content") {
            let at = JsonPath::ROOT.key("content");
            content.with_decoded(MAX_STRING_NESTING, |content, left| self.blocks_of(content, left, &at, sink));
        }
        if let Some(message) = node.get("message") {
            let at = JsonPath::ROOT.key("message");
            message.with_decoded(MAX_STRING_NESTING, |message, left| self.message(message, left, &at, sink));
        }
        if let Some(ops) = node.get("patch_op") {
            let at = JsonPath::ROOT.key("patch_op");
            ops.with_decoded(MAX_STRING_NESTING, |ops, left| {
                for (index, op) in ops.as_list().iter().enumerate() {
                    self.patch(op, left, &at.index(index), sink);
                }
            });
        }
    }

    fn ids(&self, node: &Node<'_>, sink: &mut dyn Sink) {
        if let Some(id) = node.id_cow(&["message_id"]) {
            sink.signal(Signal::MessageId(&id));
        }
        conversation(node, sink);
    }

    fn message(&mut self, message: &Node<'_>, left: u8, at: &JsonPath<'_>, sink: &mut dyn Sink) {
        if user_type(message) == Some(USER) {
            return;
        }
        self.ids(message, sink);
        self.blocks_of(message, left, at, sink);
        if let Some(content) = message.get("content") {
            let at = at.key("content");
            content.with_decoded(left, |content, left| self.blocks_of(content, left, &at, sink));
        }
    }

    fn patch(&mut self, op: &Node<'_>, left: u8, at: &JsonPath<'_>, sink: &mut dyn Sink) {
        let Some(value) = op.get("patch_value") else { return };
        let at = at.key("patch_value");
        match op.get("patch_object").and_then(Node::as_number) {
            Some(TTS) => {}
            Some(LEGACY_TEXT) => value.with_decoded(left, |value, left| self.legacy_text(value, left, &at, sink)),
            _ => value.with_decoded(left, |value, left| {
                self.blocks_of(value, left, &at, sink);
                if let Some(content) = value.get("content") {
                    let at = at.key("content");
                    content.with_decoded(left, |content, left| self.blocks_of(content, left, &at, sink));
                }
            }),
        }
    }

    /// `content` is a JSON string `{"text":…}`, or the text itself.
    fn legacy_text(&mut self, value: &Node<'_>, left: u8, at: &JsonPath<'_>, sink: &mut dyn Sink) {
        let Some(content) = value.get("content") else { return };
        let at = at.key("content");
        let opened = content.with_decoded(left, |content, _| {
            let text = content.get("text").and_then(Node::as_str);
            if let Some(text) = text {
                sink.signal(Signal::Text(text, at.key("text")));
            }
            text.is_some()
        });
        if let (false, Some(text)) = (opened, content.as_str()) {
            sink.signal(Signal::Text(text, at));
        }
    }

    /// `holder` is a list of blocks, or has one in `content_block`.
    fn blocks_of(&mut self, holder: &Node<'_>, left: u8, at: &JsonPath<'_>, sink: &mut dyn Sink) {
        let named = holder.first_with_key(&["content_block", "contentBlock"]);
        let (blocks, at) = named.map_or((holder, *at), |(key, blocks)| (blocks, at.key(key)));
        blocks.with_decoded(left, |blocks, left| {
            for (index, block) in blocks.as_list().iter().enumerate() {
                self.block(block, left, &at.index(index), sink);
            }
        });
    }

    /// Is it a thinking block that came before?
    fn thinks(&self, id: &str) -> bool {
        self.thinking_blocks.iter().any(|known| known == id)
    }

    fn block(&mut self, block: &Node<'_>, left: u8, at: &JsonPath<'_>, sink: &mut dyn Sink) {
        let kind = block.first(&["block_type", "blockType"]).and_then(Node::as_number);
        let id = block.id_cow(&["block_id", "blockId"]).unwrap_or_default();
        if kind == Some(THINKING) {
            // Seen as "first enters, second leaves" and as "is_finish leaves": both are honoured.
            let known = self.thinks(&id);
            self.thinking = !known && !block.truthy("is_finish");
            if !known && self.thinking_blocks.len() < MAX_THINKING_BLOCKS {
                self.thinking_blocks.push(id.into_owned());
            }
            return;
        }
        let Some(content) = block.get("content") else { return };
        let at = at.key("content");
        content.with_decoded(left, |content, left| {
            if cards::search(content, left, &id, sink) {
                return;
            }
            let Some((key, holder)) = content.first_with_key(&["text_block", "textBlock"]) else { return };
            if let (Some(TEXT), Some(text)) = (kind, holder.get("text").and_then(Node::as_str)) {
                let parent = block.id_cow(&["parent_id", "parentId"]);
                self.thinking = parent.is_some_and(|parent| self.thinks(&parent));
                self.text(text, &at.key(key).key("text"), sink);
            }
        });
    }
}

/// Lets ids and references through, not text.
struct ReferencesOnly<'s>(&'s mut dyn Sink);

impl Sink for ReferencesOnly<'_> {
    fn signal(&mut self, signal: Signal<'_>) {
        if !matches!(signal, Signal::Text(..) | Signal::Thinking(_)) {
            self.0.signal(signal);
        }
    }
}

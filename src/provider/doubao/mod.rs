//! Doubao's web chat: the current protocol (`web`) and the older one (`samantha`), which share their search blocks
//! (`cards`).

pub(super) mod cards;
mod samantha;
mod web;

use samantha::Samantha;
use web::Web;

use super::{
    Build, Descriptor, Detector, InputKind, Provider, Signal, Sink,
    json::{self, MAX_STRING_NESTING, Node},
};

pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "doubao",
    label: "Doubao web chat (also Dola)",
    docs: "https://www.doubao.com/chat/",
    input: InputKind::Streams,
    sniff,
    // The frames decide which of the two protocols it is.
    build: || Box::new(Detector::new(CANDIDATES, None)),
};
pub const PROVIDER: Provider = Provider::Fixed(&DESCRIPTOR);
static CANDIDATES: &[&Descriptor] = &[&DESCRIPTOR];

fn sniff(event: &str, data: &Node<'_>) -> Option<Build> {
    const EVENTS: &[&str] = &[
        "SSE_HEARTBEAT",
        "SSE_ACK",
        "FULL_MSG_NOTIFY",
        "STREAM_MSG_NOTIFY",
        "STREAM_CHUNK",
        "CHUNK_DELTA",
        "SSE_REPLY_END",
        "STREAM_ERROR",
        "STREAM_TIMEOUT_CONTROL",
        "ASYNC_CHUNK_SNAPSHOT",
        "gateway-error",
    ];
    if EVENTS.contains(&event) {
        Some(|| Box::new(Web::default()))
    } else if data.get("event_type").is_some() && data.get("event_data").is_some() {
        Some(|| Box::new(Samantha))
    } else if data.get("patch_op").is_some() || is_message(data) {
        Some(|| Box::new(Web::default()))
    } else {
        None
    }
}

/// Matches a Doubao message or its wrapper. Other formats also have a `content_block`, but no list of typed blocks in it.
fn is_message(node: &Node<'_>) -> bool {
    let has_blocks = |holder: &Node<'_>, left: u8| {
        let blocks = holder.first(&["content_block", "contentBlock"]);
        blocks.is_some_and(|blocks| {
            blocks.with_decoded(left, |blocks, _| {
                blocks.as_list().iter().any(|block| block.first(&["block_type", "blockType"]).is_some())
            })
        })
    };
    has_blocks(node, MAX_STRING_NESTING)
        || ["message", "content"]
            .iter()
            .filter_map(|key| node.get(key))
            .any(|inner| inner.with_decoded(MAX_STRING_NESTING, |inner, left| has_blocks(inner, left)))
}

/// Reads an error event: `{"error_code":…,"error_msg":…}`, the gateway's `{"code":…,"message":…}`, or any other text.
fn emit_fault(data: &str, sink: &mut dyn Sink) {
    if json::with_parsed(data, |node| emit_fault_of(node, sink)).is_none() {
        sink.signal(Signal::Fault { code: None, message: None });
    }
}

fn emit_fault_of(node: &Node<'_>, sink: &mut dyn Sink) {
    sink.signal(Signal::Fault {
        code: node.id(&["error_code", "code"]),
        message: node.text(&["error_msg", "message", "msg"]),
    });
}

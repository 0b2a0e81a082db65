//! Which wire format is it? Decided by the first frame that only one of them sends.

use super::{
    Adapter, Dialect, Ends, Envelope, Sink, Unread, any_ends,
    json::{self, MAX_NESTED, Node},
    of_dialect, openai, results,
};
use crate::sse::Event;

/// Frames with data that may pass undecided before we stop looking.
const MAX_UNDECIDED: u32 = 64;

pub struct Detect {
    among: &'static [Dialect],
    chosen: Option<Box<dyn Adapter>>,
    /// Frames left to look at; `None` looks for ever (the route named the provider).
    left: Option<u32>,
}

impl Detect {
    pub fn among(among: &'static [Dialect]) -> Self {
        Self { among, chosen: None, left: None }
    }

    /// Any chat stream. Search responses are no streams, so they are not looked for.
    pub fn any() -> Self {
        Self {
            among: &[Dialect::DoubaoWeb, Dialect::Samantha, Dialect::Lexiang, Dialect::OpenAi],
            chosen: None,
            left: Some(MAX_UNDECIDED),
        }
    }
}

impl Adapter for Detect {
    fn provider(&self) -> Option<&'static str> {
        self.chosen.as_ref()?.provider()
    }

    fn frame(&mut self, event: &Event<'_>, sink: &mut dyn Sink) -> Result<(), Unread> {
        if let Some(adapter) = &mut self.chosen {
            return adapter.frame(event, sink);
        }
        let Some(data) = event.data.as_deref() else { return Ok(()) };
        if let Some(dialect) = sniff(&event.name, data).filter(|d| self.among.contains(d)) {
            return self.chosen.insert(of_dialect(dialect)).frame(event, sink);
        }
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(1);
        }
        Ok(())
    }

    fn ends(&self) -> Ends {
        self.chosen.as_ref().map_or(any_ends, |adapter| adapter.ends())
    }

    fn epoch(&self) -> Option<u64> {
        self.chosen.as_ref()?.epoch()
    }

    fn envelope(&self) -> Envelope<'_> {
        self.chosen.as_ref().map_or(Envelope::Bare, |adapter| adapter.envelope())
    }

    fn gave_up(&self) -> bool {
        self.chosen.is_none() && self.left == Some(0)
    }
}

pub fn sniff(name: &str, data: &str) -> Option<Dialect> {
    match name {
        "SSE_HEARTBEAT"
        | "SSE_ACK"
        | "FULL_MSG_NOTIFY"
        | "STREAM_MSG_NOTIFY"
        | "STREAM_CHUNK"
        | "CHUNK_DELTA"
        | "SSE_REPLY_END"
        | "STREAM_ERROR"
        | "STREAM_TIMEOUT_CONTROL"
        | "ASYNC_CHUNK_SNAPSHOT"
        | "gateway-error" => {
            return Some(Dialect::DoubaoWeb);
        }
        _ => {}
    }
    json::with_parsed(data, |node| {
        if node.get("event_type").is_some() && node.get("event_data").is_some() {
            Some(Dialect::Samantha)
        } else if node.get("patch_op").is_some() || is_message(node) {
            Some(Dialect::DoubaoWeb)
        } else if is_lexiang(node) {
            Some(Dialect::Lexiang)
        } else if openai::is_chat(node) {
            Some(Dialect::OpenAi)
        } else if results::is_tavily(node) {
            Some(Dialect::Tavily)
        } else if results::is_mcp(node) {
            Some(Dialect::Mcp)
        } else {
            None
        }
    })
    .flatten()
}

/// A Doubao message, or what wraps one. Others have a `content_block` too, but no list of typed blocks in it.
fn is_message(node: &Node<'_>) -> bool {
    let has_blocks = |holder: &Node<'_>, left: u8| {
        let blocks = holder.any(&["content_block", "contentBlock"]);
        blocks.is_some_and(|blocks| {
            blocks.opened(left, |blocks, _| {
                blocks.list().iter().any(|block| block.any(&["block_type", "blockType"]).is_some())
            })
        })
    };
    has_blocks(node, MAX_NESTED)
        || ["message", "content"]
            .iter()
            .filter_map(|key| node.get(key))
            .any(|inner| inner.opened(MAX_NESTED, |inner, left| has_blocks(inner, left)))
}

/// A frame, or an answer that was not streamed.
fn is_lexiang(node: &Node<'_>) -> bool {
    const OF_FRAMES: &[&str] = &["processes", "delta_content", "additional_content", "is_stop"];
    const OF_ANSWERS: &[&str] = &["additional_content", "answer_source", "session_id"];
    let frame = node.get("completion_id").is_some() && OF_FRAMES.iter().any(|key| node.get(key).is_some());
    let answer = node.get("code").is_some()
        && node.get("data").is_some_and(|data| OF_ANSWERS.iter().any(|key| data.get(key).is_some()));
    frame || answer
}

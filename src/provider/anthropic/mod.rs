//! Anthropic's Messages API: its stream, and its response without streaming. Services that offer the same API are read too.

mod citation;
mod pages;
mod results;

use serde::Serialize;

use super::{
    Adapter, Descriptor, Envelope, FinishReason, InputKind, JsonPath, ParseError, Payload, Provider, Signal, Sink,
    Usage,
    json::{self, Node},
};
use crate::{
    citation::{Record, text},
    sse::Event,
};
use citation::CitedSource;
use pages::FetchedPages;

pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "anthropic",
    label: "Anthropic Messages API",
    docs: "https://platform.claude.com/docs/en/build-with-claude/streaming",
    input: InputKind::Streams,
    sniff: |_, data| is_messages(data).then_some(DESCRIPTOR.build),
    build: || Box::new(Messages::default()),
};
pub const PROVIDER: Provider = Provider::Fixed(&DESCRIPTOR);

/// Bytes kept of a message id or a tool call's id. Longer ids are cut, which bounds the memory per stream.
const MAX_ID: usize = 256;
/// Bytes kept of a search's streamed input. The search has no query if its input is longer.
const MAX_INPUT: usize = 16 * 1024;
/// Sources of one text block whose span is reported. Further ones are cited without a span.
const MAX_BLOCK_SOURCES: usize = 64;

/// Matches an event of the stream, a response that is not streamed, or an error.
fn is_messages(node: &Node<'_>) -> bool {
    let has_map = |key: &str| node.get(key).is_some_and(Node::is_map);
    match node.text(&["type"]) {
        Some("message_start") => has_map("message"),
        Some("content_block_start") => has_map("content_block"),
        Some("content_block_delta" | "message_delta") => has_map("delta"),
        Some("message_stop") => true,
        Some("message") => {
            matches!(node.get("content"), Some(Node::List(_)))
                && node.text(&["role"]) == Some("assistant")
                && node.get("stop_reason").is_some()
        }
        Some("error") => node.get("error").is_some_and(|error| error.text(&["type"]).is_some()),
        _ => false,
    }
}

/// Our frame. Clients ignore a ping.
#[derive(Serialize)]
struct OwnFrame<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    citations: &'a Record,
}

/// Adapter of one message.
#[derive(Default)]
pub struct Messages {
    /// Part of the id of a document that has no name of its own.
    message_id: String,
    usage: Usage,
    /// Length of the answer's text so far, in code points.
    length: u64,
    block: Block,
    pages: FetchedPages,
}

/// The content block that is being streamed. Blocks do not overlap.
#[derive(Default)]
enum Block {
    #[default]
    Other,
    /// A call of the server's web search. Its input is JSON in pieces.
    Search { id: String, input: String },
    /// A text from `start`, and the sources that it cites.
    Text { start: u64, cited: Vec<CitedSource> },
}

impl Adapter for Messages {
    fn provider(&self) -> Option<&'static str> {
        Some(DESCRIPTOR.name)
    }

    fn frame(&mut self, event: &Event<'_>, sink: &mut dyn Sink) -> Result<(), ParseError> {
        let data = event.data.as_deref().map(str::trim).unwrap_or_default();
        if data.is_empty() {
            return Ok(());
        }
        let read = json::with_parsed(data, |node| self.read(node, sink));
        if read.is_none() {
            match &*event.name {
                "message_stop" => sink.signal(Signal::Finish(FinishReason::Stop)),
                "error" => sink.signal(Signal::Fault { code: None, message: None }),
                _ => {}
            }
        }
        read.ok_or(ParseError)
    }

    fn envelope(&self, payload: &Payload<'_>) -> Envelope {
        let frame = OwnFrame { kind: "ping", citations: payload.record };
        Envelope { event: "ping", ..Envelope::new(&frame) }
    }
}

impl Messages {
    /// Reads by `type`: gateways drop the event's name.
    fn read(&mut self, node: &Node<'_>, sink: &mut dyn Sink) {
        match node.text(&["type"]).unwrap_or_default() {
            "message_start" => {
                if let Some(message) = node.get("message") {
                    self.read_header(message, sink);
                }
            }
            "content_block_start" => {
                if let Some(block) = node.get("content_block") {
                    self.start_block(block, &JsonPath::ROOT.key("content_block"), sink);
                }
            }
            "content_block_delta" => {
                if let Some(delta) = node.get("delta") {
                    self.read_delta(delta, &JsonPath::ROOT.key("delta"), sink);
                }
            }
            "content_block_stop" => self.end_block(sink),
            "message_delta" => {
                self.read_usage(node, sink);
                if let Some(reason) = node.get("delta").and_then(|delta| delta.text(&["stop_reason"])) {
                    self.finish(reason, sink);
                }
            }
            "message_stop" => self.finish("", sink),
            "message" => self.read_response(node, sink),
            "error" => {
                let error = node.get("error");
                let code = error.and_then(|error| error.id(&["type"]));
                let message = error.and_then(|error| error.text(&["message"]));
                sink.signal(Signal::Fault { code, message });
            }
            _ => {}
        }
    }

    /// Reads a response that is not streamed.
    fn read_response(&mut self, message: &Node<'_>, sink: &mut dyn Sink) {
        self.read_header(message, sink);
        let at = JsonPath::ROOT.key("content");
        let blocks = message.get("content").map(Node::as_list).unwrap_or_default();
        for (position, block) in blocks.iter().enumerate() {
            self.start_block(block, &at.index(position), sink);
        }
        self.finish(message.text(&["stop_reason"]).unwrap_or_default(), sink);
    }

    fn read_header(&mut self, message: &Node<'_>, sink: &mut dyn Sink) {
        if let Some(id) = message.id(&["id"]) {
            sink.signal(Signal::MessageId(&id));
            self.message_id = text::single_line(&id, MAX_ID);
        }
        if let Some(model) = message.text(&["model"]) {
            sink.signal(Signal::Model(model));
        }
        self.read_usage(message, sink);
    }

    /// Reads `usage`, whose counts are cumulative. A count that is missing keeps its last value.
    fn read_usage(&mut self, holder: &Node<'_>, sink: &mut dyn Sink) {
        let Some(usage) = holder.get("usage") else { return };
        let count = |key: &str| usage.get(key).and_then(Node::as_number);
        if let Some(input) = count("input_tokens") {
            // `input_tokens` are only those that were neither written to the cache nor read from it.
            let cached = ["cache_creation_input_tokens", "cache_read_input_tokens"].into_iter().filter_map(count);
            self.usage.input = cached.fold(input, u64::saturating_add);
        }
        if let Some(output) = count("output_tokens") {
            self.usage.output = output;
        }
        self.usage.total = self.usage.input.saturating_add(self.usage.output);
        if self.usage != Usage::default() {
            sink.signal(Signal::Usage(self.usage));
        }
    }

    /// Starts a content block, which is complete in a response that is not streamed.
    fn start_block(&mut self, block: &Node<'_>, at: &JsonPath<'_>, sink: &mut dyn Sink) {
        self.end_block(sink);
        match block.text(&["type"]).unwrap_or_default() {
            "text" => {
                self.block = Block::Text { start: self.length, cited: Vec::new() };
                for citation in block.get("citations").map(Node::as_list).unwrap_or_default() {
                    self.read_citation(citation, sink);
                }
                self.read_text(block, at, sink);
            }
            "thinking" => read_thinking(block, sink),
            "server_tool_use" if block.text(&["name"]) == Some("web_search") => {
                let id = block.id(&["id"]).unwrap_or_default();
                match block.get("input").and_then(|input| input.text(&["query"])) {
                    Some(query) => results::emit_search(&id, Some(query), sink),
                    None => {
                        let id = text::first_bytes(&id, MAX_ID).to_owned();
                        self.block = Block::Search { id, input: String::new() };
                    }
                }
            }
            "web_search_tool_result" => results::emit_results(block, sink),
            "web_fetch_tool_result" => {
                if let Some(page) = results::emit_page(block, sink) {
                    self.pages.add(page);
                }
            }
            _ => {}
        }
    }

    fn read_delta(&mut self, delta: &Node<'_>, at: &JsonPath<'_>, sink: &mut dyn Sink) {
        match delta.text(&["type"]).unwrap_or_default() {
            "text_delta" => self.read_text(delta, at, sink),
            "thinking_delta" => read_thinking(delta, sink),
            "citations_delta" => {
                if let Some(citation) = delta.get("citation") {
                    self.read_citation(citation, sink);
                }
            }
            "input_json_delta" => {
                let piece = delta.get("partial_json").and_then(Node::as_str).unwrap_or_default();
                if let Block::Search { input, .. } = &mut self.block {
                    if input.len() + piece.len() <= MAX_INPUT {
                        input.push_str(piece);
                    } else {
                        self.block = Block::Other;
                    }
                }
            }
            _ => {}
        }
    }

    fn end_block(&mut self, sink: &mut dyn Sink) {
        match std::mem::take(&mut self.block) {
            Block::Other => {}
            Block::Search { id, input } => {
                json::with_parsed(&input, |input| results::emit_search(&id, input.text(&["query"]), sink));
            }
            Block::Text { start, cited } => {
                if self.length > start {
                    cited.iter().for_each(|source| source.emit_span(start, self.length, sink));
                }
            }
        }
    }

    fn read_text(&mut self, holder: &Node<'_>, at: &JsonPath<'_>, sink: &mut dyn Sink) {
        if let Some(text) = holder.get("text").and_then(Node::as_str).filter(|text| !text.is_empty()) {
            self.length += text.chars().count() as u64;
            sink.signal(Signal::Text(text, at.key("text")));
        }
    }

    fn read_citation(&mut self, citation: &Node<'_>, sink: &mut dyn Sink) {
        let source = citation::emit(citation, &self.pages, &self.message_id, sink);
        if let (Some(source), Block::Text { cited, .. }) = (source, &mut self.block)
            && cited.len() < MAX_BLOCK_SOURCES
            && !cited.contains(&source)
        {
            cited.push(source);
        }
    }

    /// Ends the answer. A reason that is empty is unknown.
    fn finish(&mut self, reason: &str, sink: &mut dyn Sink) {
        self.end_block(sink);
        sink.signal(Signal::Finish(match reason {
            "model_context_window_exceeded" => FinishReason::Length,
            reason => FinishReason::of(reason),
        }));
    }
}

fn read_thinking(holder: &Node<'_>, sink: &mut dyn Sink) {
    if let Some(text) = holder.get("thinking").and_then(Node::as_str).filter(|text| !text.is_empty()) {
        sink.signal(Signal::Thinking(text));
    }
}

#[cfg(test)]
mod tests;

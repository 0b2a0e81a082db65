//! OpenAI-like chat completions: OpenAI, Ark bots, Perplexity, OpenRouter, Hunyuan, xAI, Qianfan, Zhipu, MiniMax,
//! DashScope's compatible mode, RAGFlow and others whose chunks have `choices`. They share the format of the text but not
//! of references, so the adapter checks every known place in every chunk.

mod envelope;
mod fault;
mod item;
pub mod shapes;
mod sources;

use super::{
    Adapter, Descriptor, Envelope, FinishReason, InputKind, JsonPath, ParseError, Payload, Provider, Signal, Sink,
    Usage,
    json::{self, Node},
};
use crate::{citation::text, sse::Event};
pub use envelope::ChunkHeader;
use fault::read_fault;
use sources::Sources;

pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "openai",
    label: "OpenAI-like chat completions",
    docs: "https://platform.openai.com/docs/api-reference/chat-streaming",
    input: InputKind::Streams,
    sniff: |_, data| is_chat(data).then_some(DESCRIPTOR.build),
    build: || Box::new(ChatCompletions::default()),
};
pub const PROVIDER: Provider = Provider::Fixed(&DESCRIPTOR);

/// Bytes of the stream's id and model that our frame repeats. Longer ones are cut, which bounds the memory per stream.
const MAX_NAME: usize = 256;

/// Adapter of an OpenAI-like stream.
#[derive(Default)]
pub struct ChatCompletions {
    /// The stream's first id, model and time. Repeated in our frame, because every chunk has them.
    id: String,
    model: String,
    created: i64,
    /// Deltas had text: a complete message that follows repeats it.
    has_text: bool,
    /// Deltas had thinking, which a complete message also repeats.
    has_thinking: bool,
    sources: Sources,
}

/// Which signal a text becomes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TextKind {
    /// A delta of the answer: [`Signal::Text`].
    Delta,
    /// The complete answer, after its deltas: [`Signal::FullText`].
    Full,
}

impl Adapter for ChatCompletions {
    fn provider(&self) -> Option<&'static str> {
        Some(DESCRIPTOR.name)
    }

    fn frame(&mut self, event: &Event<'_>, sink: &mut dyn Sink) -> Result<(), ParseError> {
        let data = event.data.as_deref().map(str::trim).unwrap_or_default();
        if data.is_empty() {
            return Ok(());
        }
        // Compare the whole line: other streams have lines such as `[TRACEID:…]`.
        if data == "[DONE]" {
            sink.signal(Signal::Finish(FinishReason::Stop));
            return Ok(());
        }
        let is_error_event = event.name == "error";
        let read = json::with_parsed(data, |node| self.read_chunk(node, is_error_event, sink));
        if read.is_none() && is_error_event {
            sink.signal(Signal::Fault { code: None, message: None });
        }
        read.ok_or(ParseError)
    }

    fn envelope(&self, payload: &Payload<'_>) -> Envelope {
        let header = ChunkHeader { id: &self.id, model: &self.model, created: self.created };
        header.envelope(payload, self.sources.has_annotations())
    }
}

/// Detects a chunk by its `object`, or by choices with a delta or messages.
fn is_chat(node: &Node<'_>) -> bool {
    const OBJECTS: &[&str] =
        &["chat.completion.chunk", "chat.completion.done", "chat.completion", "chat.reasoning", "chat.reasoning.done"];
    let choices = node.get("choices").map(Node::as_list).unwrap_or_default();
    let is_choice = |choice: &Node<'_>| {
        ["delta", "message", "messages"].iter().any(|key| matches!(choice.get(key), Some(Node::Map(_) | Node::List(_))))
    };
    node.get("object").and_then(Node::as_str).is_some_and(|object| OBJECTS.contains(&object))
        || choices.iter().any(is_choice)
}

impl ChatCompletions {
    fn read_chunk(&mut self, node: &Node<'_>, is_error_event: bool, sink: &mut dyn Sink) {
        let fault = read_fault(node, is_error_event);
        if !matches!(node.get("choices"), Some(Node::List(_))) && fault.is_some() {
            return fault.into_iter().for_each(|fault| sink.signal(fault));
        }
        self.read_header(node, sink);
        self.sources.read_lists(node, sink);
        let finish = self.read_choice(node, sink);
        if let Some(usage) = node.get("usage").and_then(read_usage) {
            sink.signal(Signal::Usage(usage));
        }
        // Send the fault instead of the finish: after a finish, a fault would be ignored.
        if let Some(signal) = fault.or(finish) {
            sink.signal(signal);
        }
    }

    /// Keeps the first id, model and time of the stream.
    fn read_header(&mut self, node: &Node<'_>, sink: &mut dyn Sink) {
        if self.id.is_empty()
            && let Some(id) = node.id(&["id"])
        {
            sink.signal(Signal::MessageId(&id));
            self.id = text::single_line(&id, MAX_NAME);
        }
        if self.model.is_empty()
            && let Some(model) = node.text(&["model"])
        {
            sink.signal(Signal::Model(model));
            self.model = text::single_line(model, MAX_NAME);
        }
        if self.created == 0 {
            self.created = node
                .get("created")
                .and_then(Node::as_number)
                .and_then(|time| i64::try_from(time).ok())
                .unwrap_or_default();
        }
    }

    /// Reads the choice with index 0, which is the answer. Returns the signal that ends the answer, if it ends here.
    fn read_choice(&mut self, node: &Node<'_>, sink: &mut dyn Sink) -> Option<Signal<'static>> {
        let object = node.text(&["object"]).unwrap_or_default();
        let choices = node.get("choices").map(Node::as_list).unwrap_or_default();
        let is_answer = |choice: &Node<'_>| choice.get("index").and_then(Node::as_number).unwrap_or_default() == 0;
        let Some((position, choice)) = choices.iter().enumerate().find(|(_, choice)| is_answer(choice)) else {
            // The only frame that ends an answer without a choice.
            return (object == "chat.completion.done").then_some(Signal::Finish(FinishReason::Stop));
        };
        let delta = choice.get("delta").filter(|delta| delta.is_map());
        let at = JsonPath::ROOT.key("choices");
        let at = at.index(position);
        // A server-side search adds turns to the stream. Their finish does not end the answer.
        let finish = read_finish(choice, object, delta).filter(|finish| {
            let is_search_call = *finish == Signal::Finish(FinishReason::Tools) && delta.is_some_and(calls_search);
            !is_search_call && !delta.is_some_and(is_tool) && !object.starts_with("chat.reasoning")
        });
        if let Some(delta) = delta {
            if is_tool(delta) {
                self.sources.read_tool_results(delta, sink);
            } else {
                self.read_thinking(delta, sink);
                self.read_text(delta, &at.key("delta"), TextKind::Delta, sink);
                self.sources.read_delta(delta, sink);
            }
        }
        let messages = choice.get("messages").map(Node::as_list).unwrap_or_default();
        for message in messages {
            self.sources.read_queries(message, sink);
            if is_tool(message) {
                self.sources.read_tool_results(message, sink);
            }
        }
        let message = choice.get("message").filter(|message| message.is_map());
        if let Some(message) = message {
            self.read_message(message, &at.key("message"), finish.is_some() || delta.is_none(), sink);
        } else if let Some(last) = messages.last() {
            let at = at.key("messages");
            self.read_message(last, &at.index(messages.len() - 1), true, sink);
        }
        finish
    }

    /// Reads a complete message. Next to deltas it grows with every chunk, so its text is read only if `is_last`.
    fn read_message(&mut self, message: &Node<'_>, at: &JsonPath<'_>, is_last: bool, sink: &mut dyn Sink) {
        self.sources.read_message(message, sink);
        if !is_last {
            return;
        }
        if !self.has_thinking {
            self.read_thinking(message, sink);
        }
        let kind = if self.has_text { TextKind::Full } else { TextKind::Delta };
        self.read_text(message, at, kind, sink);
    }

    fn read_thinking(&mut self, holder: &Node<'_>, sink: &mut dyn Sink) {
        const KEYS: [&str; 3] = ["reasoning_content", "reasoning", "reasoning_text"];
        let texts = KEYS.iter().filter_map(|key| holder.get(key)?.as_str());
        if let Some(text) = texts.into_iter().find(|text| !text.is_empty()) {
            self.has_thinking = true;
            sink.signal(Signal::Thinking(text));
        }
    }

    /// Reads `content`: a string, or a list of parts.
    fn read_text(&mut self, holder: &Node<'_>, at: &JsonPath<'_>, kind: TextKind, sink: &mut dyn Sink) {
        let at = at.key("content");
        match holder.get("content") {
            Some(Node::Str(text)) => self.emit_text(text, at, kind, sink),
            Some(Node::List(parts)) => {
                for (position, part) in parts.iter().enumerate() {
                    let at = at.index(position);
                    match (part, part.text(&["type"])) {
                        (Node::Str(text), _) => self.emit_text(text, at, kind, sink),
                        (_, Some("thinking")) => {
                            let thoughts = part.get("thinking").map(Node::as_list).unwrap_or_default();
                            for text in thoughts.iter().filter_map(|thought| thought.text(&["text"])) {
                                self.has_thinking = true;
                                sink.signal(Signal::Thinking(text));
                            }
                        }
                        (_, None | Some("text" | "output_text")) => {
                            if let Some(text) = part.get("text").and_then(Node::as_str) {
                                self.emit_text(text, at.key("text"), kind, sink);
                            }
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }

    fn emit_text(&mut self, text: &str, at: JsonPath<'_>, kind: TextKind, sink: &mut dyn Sink) {
        if text.is_empty() {
            return;
        }
        self.has_text = true;
        sink.signal(match kind {
            TextKind::Delta => Signal::Text(text, at),
            TextKind::Full => Signal::FullText(text, at),
        });
    }
}

/// True if the delta calls the server's own search, as MiniMax's does before the answer.
fn calls_search(delta: &Node<'_>) -> bool {
    let calls = delta.get("tool_calls").map(Node::as_list).unwrap_or_default();
    calls.iter().any(|call| call.text(&["type"]) == Some("web_search"))
}

/// True if the message has the results of a tool.
fn is_tool(message: &Node<'_>) -> bool {
    message.text(&["role"]) == Some("tool")
}

/// Reads the finish reason of a choice. Null, blank and the text "null" mean that the answer continues.
fn read_finish(choice: &Node<'_>, object: &str, delta: Option<&Node<'_>>) -> Option<Signal<'static>> {
    let reason = choice.get("finish_reason").and_then(Node::as_str).map(str::trim);
    match reason.filter(|reason| !reason.is_empty() && *reason != "null") {
        Some("error") => Some(Signal::Fault { code: None, message: None }),
        // MiniMax reports the search that it ran itself; the client has no tool to call.
        Some("tool_calls") if choice.get("messages").is_some() => Some(Signal::Finish(FinishReason::Stop)),
        Some(reason) => Some(Signal::Finish(FinishReason::of(reason))),
        None if object == "chat.completion.done" => Some(Signal::Finish(FinishReason::Stop)),
        // A response that is not streamed is always finished.
        None if object == "chat.completion" && delta.is_none() => Some(Signal::Finish(FinishReason::Stop)),
        None => None,
    }
}

/// Reads token counts. `None`: all are zero.
fn read_usage(node: &Node<'_>) -> Option<Usage> {
    let tokens = |keys: &[&str]| node.first(keys).and_then(Node::as_number).unwrap_or_default();
    let usage = Usage {
        input: tokens(&["prompt_tokens", "input_tokens"]),
        output: tokens(&["completion_tokens", "output_tokens"]),
        total: tokens(&["total_tokens"]),
    };
    (usage != Usage::default()).then_some(usage)
}

#[cfg(test)]
mod tests;

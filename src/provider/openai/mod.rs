//! OpenAI-like chat completions: OpenAI, Ark bots, Perplexity, OpenRouter, Hunyuan, xAI, Qianfan, Zhipu, MiniMax,
//! DashScope's compatible mode, RAGFlow and whoever else speaks chunks with `choices`. They agree on the text and
//! on nothing about references, so every known place is looked at in every chunk.

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

/// Bytes of the stream's own id and model that our frame repeats; longer ones are cut.
const MAX_NAME: usize = 256;

#[derive(Default)]
pub struct ChatCompletions {
    /// Repeated in our own frame, as every chunk of the stream has them. The first ones count.
    id: String,
    model: String,
    created: i64,
    /// The answer, or its thinking, came in pieces: a whole message that follows repeats it.
    texted: bool,
    thought: bool,
    sources: Sources,
}

/// Where a piece of text goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TextKind {
    Piece,
    /// The whole answer once more.
    Again,
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
        // Exactly this: other streams have lines such as `[TRACEID:…]`.
        if data == "[DONE]" {
            sink.signal(Signal::Finish(FinishReason::Stop));
            return Ok(());
        }
        let is_error = event.name == "error";
        let read = json::with_parsed(data, |node| self.chunk(node, is_error, sink));
        if read.is_none() && is_error {
            sink.signal(Signal::Fault { code: None, message: None });
        }
        read.ok_or(ParseError)
    }

    fn envelope(&self, payload: &Payload<'_>) -> Envelope {
        let head = ChunkHeader { id: &self.id, model: &self.model, created: self.created };
        head.envelope(payload, self.sources.annotated())
    }
}

/// Is it one of ours? Told by its `object`, or by choices that have what choices have.
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
    fn chunk(&mut self, node: &Node<'_>, is_error: bool, sink: &mut dyn Sink) {
        let fault = fault::of(node, is_error);
        if !matches!(node.get("choices"), Some(Node::List(_))) && fault.is_some() {
            return fault.into_iter().for_each(|fault| sink.signal(fault));
        }
        self.names(node, sink);
        self.sources.lists(node, sink);
        let finish = self.choice(node, sink);
        if let Some(usage) = node.get("usage").and_then(usage) {
            sink.signal(Signal::Usage(usage));
        }
        // A fault is none any more once a finish was told.
        if let Some(signal) = fault.or(finish) {
            sink.signal(signal);
        }
    }

    fn names(&mut self, node: &Node<'_>, sink: &mut dyn Sink) {
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

    /// Reads the answer's choice; says whether the answer ends with it.
    fn choice(&mut self, node: &Node<'_>, sink: &mut dyn Sink) -> Option<Signal<'static>> {
        let object = node.text(&["object"]).unwrap_or_default();
        let choices = node.get("choices").map(Node::as_list).unwrap_or_default();
        let is_answer = |choice: &Node<'_>| choice.get("index").and_then(Node::as_number).unwrap_or_default() == 0;
        let Some((place, choice)) = choices.iter().enumerate().find(|(_, choice)| is_answer(choice)) else {
            // The one frame that ends without a choice.
            return (object == "chat.completion.done").then_some(Signal::Finish(FinishReason::Stop));
        };
        let delta = choice.get("delta").filter(|delta| delta.is_map());
        let at = JsonPath::ROOT.key("choices");
        let at = at.index(place);
        // What a server-side search did stands in the stream as turns of their own, with a finish of their own.
        let finish = finish(choice, object, delta).filter(|finish| {
            let calls_search = *finish == Signal::Finish(FinishReason::Tools) && delta.is_some_and(calls_search);
            !calls_search && !delta.is_some_and(is_tool) && !object.starts_with("chat.reasoning")
        });
        if let Some(delta) = delta {
            if is_tool(delta) {
                self.sources.tool(delta, sink);
            } else {
                self.thinking(delta, sink);
                self.text(delta, &at.key("delta"), TextKind::Piece, sink);
                self.sources.delta(delta, sink);
            }
        }
        let messages = choice.get("messages").map(Node::as_list).unwrap_or_default();
        for message in messages {
            self.sources.queries(message, sink);
            if is_tool(message) {
                self.sources.tool(message, sink);
            }
        }
        let whole = choice.get("message").filter(|message| message.is_map());
        if let Some(message) = whole {
            self.whole(message, &at.key("message"), finish.is_some() || delta.is_none(), sink);
        } else if let Some(last) = messages.last() {
            let at = at.key("messages");
            self.whole(last, &at.index(messages.len() - 1), true, sink);
        }
        finish
    }

    /// A message that is not a piece of one. Beside a delta it grows with every chunk: only its last state is read.
    fn whole(&mut self, message: &Node<'_>, at: &JsonPath<'_>, is_last: bool, sink: &mut dyn Sink) {
        self.sources.message(message, sink);
        if !is_last {
            return;
        }
        if !self.thought {
            self.thinking(message, sink);
        }
        let kind = if self.texted { TextKind::Again } else { TextKind::Piece };
        self.text(message, at, kind, sink);
    }

    fn thinking(&mut self, holder: &Node<'_>, sink: &mut dyn Sink) {
        const KEYS: [&str; 3] = ["reasoning_content", "reasoning", "reasoning_text"];
        let texts = KEYS.iter().filter_map(|key| holder.get(key)?.as_str());
        if let Some(text) = texts.into_iter().find(|text| !text.is_empty()) {
            self.thought = true;
            sink.signal(Signal::Thinking(text));
        }
    }

    /// `content` is a string, or a list of parts.
    fn text(&mut self, holder: &Node<'_>, at: &JsonPath<'_>, kind: TextKind, sink: &mut dyn Sink) {
        let at = at.key("content");
        match holder.get("content") {
            Some(Node::Str(text)) => self.say(text, at, kind, sink),
            Some(Node::List(parts)) => {
                for (place, part) in parts.iter().enumerate() {
                    let at = at.index(place);
                    match (part, part.text(&["type"])) {
                        (Node::Str(text), _) => self.say(text, at, kind, sink),
                        (_, Some("thinking")) => {
                            let thoughts = part.get("thinking").map(Node::as_list).unwrap_or_default();
                            for text in thoughts.iter().filter_map(|thought| thought.text(&["text"])) {
                                self.thought = true;
                                sink.signal(Signal::Thinking(text));
                            }
                        }
                        (_, None | Some("text" | "output_text")) => {
                            if let Some(text) = part.get("text").and_then(Node::as_str) {
                                self.say(text, at.key("text"), kind, sink);
                            }
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }

    fn say(&mut self, text: &str, at: JsonPath<'_>, kind: TextKind, sink: &mut dyn Sink) {
        if text.is_empty() {
            return;
        }
        self.texted = true;
        sink.signal(match kind {
            TextKind::Piece => Signal::Text(text, at),
            TextKind::Again => Signal::FullText(text, at),
        });
    }
}

/// MiniMax streams the call of its own search before the answer,
fn calls_search(delta: &Node<'_>) -> bool {
    let calls = delta.get("tool_calls").map(Node::as_list).unwrap_or_default();
    calls.iter().any(|call| call.text(&["type"]) == Some("web_search"))
}

/// and what the search said.
fn is_tool(message: &Node<'_>) -> bool {
    message.text(&["role"]) == Some("tool")
}

/// Null, nothing, and the text "null" are no reason to end.
fn finish(choice: &Node<'_>, object: &str, delta: Option<&Node<'_>>) -> Option<Signal<'static>> {
    let reason = choice.get("finish_reason").and_then(Node::as_str).map(str::trim);
    match reason.filter(|reason| !reason.is_empty() && *reason != "null") {
        Some("error") => Some(Signal::Fault { code: None, message: None }),
        // MiniMax names the search that it did itself; nobody is asked to call anything.
        Some("tool_calls") if choice.get("messages").is_some() => Some(Signal::Finish(FinishReason::Stop)),
        Some(reason) => Some(Signal::Finish(FinishReason::of(reason))),
        None if object == "chat.completion.done" => Some(Signal::Finish(FinishReason::Stop)),
        // An answer that was not streamed is finished, whatever it says.
        None if object == "chat.completion" && delta.is_none() => Some(Signal::Finish(FinishReason::Stop)),
        None => None,
    }
}

fn usage(node: &Node<'_>) -> Option<Usage> {
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

//! OpenAI's Responses API and services with the same events: OpenAI, xAI, Ark with its tools, Perplexity's Agent API.
//! Reads their streams, and their responses that are not streamed.
//!
//! The end of a part, of an item and of the response each repeats what the frames before it had. `Sent` decides whether a
//! text is new or a repetition.

mod envelope;
mod item;
mod reference;
mod target;

use super::{
    Adapter, Descriptor, Envelope, FinishReason, InputKind, JsonPath, ParseError, Payload, Provider, Signal, Sink,
    Usage,
    json::{self, Node},
};
use crate::sse::Event;
use item::{Repeats, emit_pages, emit_results};
use target::Target;

pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "openai-responses",
    label: "OpenAI-like Responses API",
    docs: "https://platform.openai.com/docs/api-reference/responses-streaming",
    input: InputKind::Streams,
    sniff: |_, data| is_responses(data).then_some(DESCRIPTOR.build),
    build: || Box::new(Responses::default()),
};
pub const PROVIDER: Provider = Provider::Fixed(&DESCRIPTOR);

/// Detects an event by its type and a member that every event of that kind has, or a response by its `object`.
fn is_responses(node: &Node<'_>) -> bool {
    const MEMBERS: &[&str] = &["response", "item", "item_id", "output_index", "part", "sequence_number"];
    let is_event = match node.text(&["type"]) {
        Some("error") => node.get("sequence_number").is_some(),
        Some(kind) => kind.starts_with("response.") && MEMBERS.iter().any(|key| node.get(key).is_some()),
        None => false,
    };
    is_event || is_document(node)
}

/// True for a response that is not streamed.
fn is_document(node: &Node<'_>) -> bool {
    node.text(&["object"]) == Some("response") && node.get("type").is_none()
}

/// Output index of an item, and the index of a part in it.
type Place = (u64, u64);

/// What was sent of the answer, to recognise its repetitions.
#[derive(Default)]
struct Sent {
    /// Place of the last text.
    text: Option<Place>,
    /// Output index of the last thinking.
    thinking: Option<u64>,
}

/// Adapter of a Responses stream.
#[derive(Default)]
pub struct Responses {
    sent: Sent,
    target: Target,
    /// The number of the last frame before the finish. Our frame repeats it, so that a client that resumes the stream after
    /// our frame gets the finish.
    sequence_number: u64,
}

impl Adapter for Responses {
    fn provider(&self) -> Option<&'static str> {
        Some(DESCRIPTOR.name)
    }

    fn frame(&mut self, event: &Event<'_>, sink: &mut dyn Sink) -> Result<(), ParseError> {
        let data = event.data.as_deref().map(str::trim).unwrap_or_default();
        if data.is_empty() {
            return Ok(());
        }
        // OpenAI sends none, xAI and Ark do.
        if data == "[DONE]" {
            sink.signal(Signal::Finish(FinishReason::Stop));
            return Ok(());
        }
        let read = json::with_parsed(data, |node| {
            let kind = node.text(&["type"]).unwrap_or(&event.name);
            self.read_event(kind, node, sink);
        });
        if read.is_none() && event.name == "error" {
            sink.signal(Signal::Fault { code: None, message: None });
        }
        read.ok_or(ParseError)
    }

    fn envelope(&self, payload: &Payload<'_>) -> Envelope {
        self.target.envelope(payload, self.sequence_number)
    }
}

impl Responses {
    fn read_event(&mut self, kind: &str, node: &Node<'_>, sink: &mut dyn Sink) {
        if is_document(node) {
            let status = node.text(&["status"]).unwrap_or("completed");
            return self.read_response(node, &JsonPath::ROOT, Some(status), sink);
        }
        if let Some(response) = node.get("response").filter(|response| response.is_map()) {
            const ENDS: &[&str] = &["completed", "incomplete", "failed", "cancelled"];
            let status = kind.strip_prefix("response.").filter(|status| ENDS.contains(status));
            if status.is_none() {
                self.note_number(node);
            }
            return self.read_response(response, &JsonPath::ROOT.key("response"), status, sink);
        }
        if matches!(kind, "error" | "response.error") || has_error(node) {
            return sink.signal(fault(node));
        }
        self.note_number(node);
        let place = place(node);
        match kind {
            "response.output_text.delta" => {
                self.target.enter(node.text(&["item_id"]), place);
                self.emit_text(node, "delta", &JsonPath::ROOT, place, false, sink);
            }
            "response.refusal.delta" => self.emit_text(node, "delta", &JsonPath::ROOT, place, false, sink),
            "response.output_text.done" => {
                self.emit_text(node, "text", &JsonPath::ROOT, place, self.sent.text == Some(place), sink);
            }
            "response.refusal.done" => {
                self.emit_text(node, "refusal", &JsonPath::ROOT, place, self.sent.text == Some(place), sink);
            }
            "response.output_text.annotation.added" => self.read_annotation(node, place, sink),
            "response.content_part.added" | "response.content_part.done" => {
                if let Some(part) = node.get("part") {
                    self.target.enter_part(node.text(&["item_id"]), place, part);
                    self.read_part(part, &JsonPath::ROOT.key("part"), place, self.sent.text == Some(place), sink);
                }
            }
            "response.output_item.done" => {
                if let Some(item) = node.get("item") {
                    let repeats = Repeats {
                        text: self.sent.text.is_some_and(|(output, _)| output == place.0),
                        thinking: self.sent.thinking == Some(place.0),
                    };
                    self.target.enter_item(item, place.0);
                    self.read_item(item, &JsonPath::ROOT.key("item"), place.0, repeats, sink);
                }
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.emit_thinking(node.get("delta"), place.0, sink);
            }
            "response.reasoning.search_results" => {
                self.emit_thinking(node.get("thought"), place.0, sink);
                emit_results(node, sink);
            }
            "response.reasoning.fetch_url_results" => {
                self.emit_thinking(node.get("thought"), place.0, sink);
                emit_pages(node, sink);
            }
            "response.reasoning.search_queries" => {
                self.emit_thinking(node.get("thought"), place.0, sink);
                emit_results(node, sink);
            }
            "response.reasoning.started" | "response.reasoning.fetch_url_queries" | "response.reasoning.stopped" => {
                self.emit_thinking(node.get("thought"), place.0, sink);
            }
            _ => {
                if let Some(rest) = kind.strip_prefix("response.doubao_app_call") {
                    self.read_doubao_event(rest, node, sink);
                }
            }
        }
    }

    fn note_number(&mut self, node: &Node<'_>) {
        if let Some(number) = node.get("sequence_number").and_then(Node::as_number) {
            self.sequence_number = number;
        }
    }

    /// Reads a response object. `status` is `None` for one that is in progress: its output is read from the frames.
    fn read_response(&mut self, node: &Node<'_>, at: &JsonPath<'_>, status: Option<&str>, sink: &mut dyn Sink) {
        if let Some(id) = node.id_cow(&["id"]) {
            sink.signal(Signal::MessageId(&id));
        }
        let conversation = node.get("conversation");
        if let Some(id) = conversation.and_then(|node| node.as_str().or_else(|| node.text(&["id"]))) {
            sink.signal(Signal::ConversationId(id));
        }
        if let Some(model) = node.text(&["model"]) {
            sink.signal(Signal::Model(model));
        }
        let Some(status) = status else { return };
        let repeats = Repeats { text: self.sent.text.is_some(), thinking: self.sent.thinking.is_some() };
        let at = at.key("output");
        for (position, item) in node.get("output").map(Node::as_list).unwrap_or_default().iter().enumerate() {
            self.read_item(item, &at.index(position), position as u64, repeats, sink);
        }
        if let Some(usage) = node.get("usage").and_then(read_usage) {
            sink.signal(Signal::Usage(usage));
        }
        if let Some(end) = read_end(node, status) {
            sink.signal(end);
        }
    }

    fn read_annotation(&mut self, node: &Node<'_>, place: Place, sink: &mut dyn Sink) {
        let index = node.get("annotation_index").and_then(Node::as_number);
        self.target.enter(node.text(&["item_id"]), place);
        self.target.count_annotation(index);
        if let Some(annotation) = node.get("annotation") {
            self.emit_annotation(annotation, place, index.unwrap_or_default(), sink);
        }
    }

    /// Reads an event of Ark's Doubao tool. Its types are spelled with a dot or an underscore after the prefix, and those of
    /// the two searches are swapped in one SDK.
    fn read_doubao_event(&mut self, kind: &str, node: &Node<'_>, sink: &mut dyn Sink) {
        let place = (place(node).0, index(node, "block_index"));
        match kind.trim_start_matches(['_', '.']) {
            "output_text.delta" => self.emit_text(node, "delta", &JsonPath::ROOT, place, false, sink),
            "output_text.done" => {
                self.emit_text(node, "text", &JsonPath::ROOT, place, self.sent.text == Some(place), sink);
            }
            "reasoning_text.delta" => self.emit_thinking(node.get("delta"), place.0, sink),
            "search.completed" | "reasoning_search.completed" => {
                item::emit_doubao_search(node, node.text(&["item_id"]), place.1, sink);
            }
            _ => {}
        }
    }

    /// Sends the text in `key`, as a repetition of an earlier text if `repeats`.
    fn emit_text(
        &mut self,
        holder: &Node<'_>,
        key: &'static str,
        at: &JsonPath<'_>,
        place: Place,
        repeats: bool,
        sink: &mut dyn Sink,
    ) {
        let Some(text) = holder.get(key).and_then(Node::as_str).filter(|text| !text.is_empty()) else { return };
        if repeats {
            return sink.signal(Signal::FullText(text, at.key(key)));
        }
        self.sent.text = Some(place);
        sink.signal(Signal::Text(text, at.key(key)));
    }

    fn emit_thinking(&mut self, text: Option<&Node<'_>>, output_index: u64, sink: &mut dyn Sink) {
        if let Some(text) = text.and_then(Node::as_str).filter(|text| !text.is_empty()) {
            self.sent.thinking = Some(output_index);
            sink.signal(Signal::Thinking(text));
        }
    }
}

fn index(node: &Node<'_>, key: &str) -> u64 {
    node.get(key).and_then(Node::as_number).unwrap_or_default()
}

fn place(node: &Node<'_>) -> Place {
    (index(node, "output_index"), index(node, "content_index"))
}

/// True if the frame is an error object as gateways send it instead of an event.
fn has_error(node: &Node<'_>) -> bool {
    match node.get("error") {
        Some(Node::Map(pairs)) => !pairs.is_empty(),
        Some(Node::Str(text)) => !text.is_empty(),
        _ => false,
    }
}

/// Reads an error event, whose fields are in `error` or in the event itself, or a response that has failed.
fn fault<'n>(node: &'n Node<'_>) -> Signal<'n> {
    match node.get("error") {
        Some(error @ Node::Map(_)) => {
            Signal::Fault { code: error.id(&["code", "type"]), message: error.text(&["message", "msg"]) }
        }
        Some(Node::Str(message)) if !message.is_empty() => {
            Signal::Fault { code: node.id(&["code"]), message: Some(message) }
        }
        // Here `type` is that of the event.
        _ => Signal::Fault { code: node.id(&["code"]), message: node.text(&["message", "msg"]) },
    }
}

/// The signal that ends the answer. `None`: the response is queued or in progress.
fn read_end<'n>(response: &'n Node<'_>, status: &str) -> Option<Signal<'n>> {
    match status {
        "completed" => {
            let output = response.get("output").map(Node::as_list).unwrap_or_default();
            let reason = if output.iter().any(item::is_client_call) { FinishReason::Tools } else { FinishReason::Stop };
            Some(Signal::Finish(reason))
        }
        "incomplete" => {
            let details = response.get("incomplete_details");
            let reason = details.and_then(|details| details.text(&["reason"])).map(FinishReason::of);
            // The answer is cut, whatever the reason is called.
            let reason = reason.filter(|reason| *reason != FinishReason::Stop).unwrap_or(FinishReason::Length);
            Some(Signal::Finish(reason))
        }
        "failed" => Some(fault(response)),
        "cancelled" => Some(Signal::Fault { code: Some("cancelled".to_owned()), message: None }),
        _ => None,
    }
}

/// Reads token counts. `None`: all are zero.
fn read_usage(node: &Node<'_>) -> Option<Usage> {
    let usage = Usage {
        input: index(node, "input_tokens"),
        output: index(node, "output_tokens"),
        total: index(node, "total_tokens"),
    };
    (usage != Usage::default()).then_some(usage)
}

#[cfg(test)]
mod tests;

//! Google's `generateContent` and `streamGenerateContent`: the Gemini API and Vertex AI. A stream's frames and a whole
//! response have one shape. Without `alt=sse`, a stream is one JSON list of them.

mod envelope;
mod grounding;
mod offsets;

use super::{
    Adapter, Descriptor, Envelope, FinishReason, InputKind, JsonPath, ParseError, Payload, Provider, Signal, Sink,
    Usage,
    json::{self, Node},
};
use crate::{citation::text, sse::Event};
use grounding::Sources;

pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "gemini",
    label: "Google Gemini and Vertex AI",
    docs: "https://ai.google.dev/api/generate-content",
    input: InputKind::Streams,
    sniff: |_, data| is_gemini(data).then_some(DESCRIPTOR.build),
    build: || Box::new(GenerateContent::default()),
};
pub const PROVIDER: Provider = Provider::Fixed(&DESCRIPTOR);

/// Bytes of the stream's id and model that our frame repeats. Longer ones are cut, which bounds the memory per stream.
const MAX_NAME: usize = 256;

/// Adapter of a `generateContent` response, streamed or whole.
#[derive(Default)]
pub struct GenerateContent {
    /// The first id and model, which every chunk repeats, and so does our frame.
    response_id: String,
    model_version: String,
    /// The model called a function of the client, so its stop is a request for the result.
    has_function_call: bool,
    sources: Sources,
}

impl Adapter for GenerateContent {
    fn provider(&self) -> Option<&'static str> {
        Some(DESCRIPTOR.name)
    }

    fn frame(&mut self, event: &Event<'_>, sink: &mut dyn Sink) -> Result<(), ParseError> {
        let data = event.data.as_deref().map(str::trim).unwrap_or_default();
        if data.is_empty() {
            return Ok(());
        }
        // Google sends no terminator. Gateways that translate other formats do.
        if data == "[DONE]" {
            sink.signal(Signal::Finish(FinishReason::Stop));
            return Ok(());
        }
        json::with_parsed(data, |node| self.read(node, sink)).ok_or(ParseError)
    }

    fn envelope(&self, payload: &Payload<'_>) -> Envelope {
        envelope::chunk(&self.response_id, &self.model_version, payload.record)
    }

    /// python-genai and go-genai fail on a comment: they expect `data:` at the start of every line.
    fn clients_accept_comments(&self) -> bool {
        false
    }
}

/// Detects a chunk, or a list that starts with one.
fn is_gemini(node: &Node<'_>) -> bool {
    const METADATA: &[&str] = &["finishReason", "groundingMetadata", "citationMetadata", "urlContextMetadata"];
    let chunk = node.as_list().first().unwrap_or(node);
    let is_candidate = |candidate: &Node<'_>| {
        candidate.get("content").is_some_and(Node::is_map) || METADATA.iter().any(|key| candidate.get(key).is_some())
    };
    chunk.get("candidates").map(Node::as_list).unwrap_or_default().iter().any(is_candidate)
        || chunk.get("promptFeedback").is_some_and(Node::is_map)
        || chunk.get("usageMetadata").is_some_and(|usage| usage.get("promptTokenCount").is_some())
}

impl GenerateContent {
    /// Reads a chunk, or a list of all chunks of an answer.
    fn read(&mut self, node: &Node<'_>, sink: &mut dyn Sink) {
        let end = match node {
            Node::List(chunks) => {
                let mut end = None;
                for (index, chunk) in chunks.iter().enumerate() {
                    let next = self.read_chunk(chunk, &JsonPath::ROOT.index(index), sink);
                    if !matches!(end, Some(Signal::Fault { .. })) {
                        end = next.or(end);
                    }
                }
                end
            }
            chunk => self.read_chunk(chunk, &JsonPath::ROOT, sink),
        };
        end.into_iter().for_each(|signal| sink.signal(signal));
    }

    /// Returns the signal that ends the answer, if it ends here. A fault comes before a finish, after which it would be
    /// ignored.
    fn read_chunk<'n>(&mut self, chunk: &'n Node<'_>, at: &JsonPath<'_>, sink: &mut dyn Sink) -> Option<Signal<'n>> {
        self.read_header(chunk, sink);
        let finish = self.read_candidate(chunk, at, sink);
        if let Some(usage) = chunk.get("usageMetadata").and_then(read_usage) {
            sink.signal(Signal::Usage(usage));
        }
        read_fault(chunk).or(finish).or_else(|| read_block(chunk))
    }

    /// Keeps the first id and model of the stream.
    fn read_header(&mut self, chunk: &Node<'_>, sink: &mut dyn Sink) {
        if self.response_id.is_empty()
            && let Some(id) = chunk.id_cow(&["responseId"])
        {
            sink.signal(Signal::MessageId(&id));
            self.response_id = text::single_line(&id, MAX_NAME);
        }
        if self.model_version.is_empty()
            && let Some(model) = chunk.text(&["modelVersion"])
        {
            sink.signal(Signal::Model(model));
            self.model_version = text::single_line(model, MAX_NAME);
        }
    }

    /// Reads the candidate with index 0, which is the answer. An index of 0 is often left out.
    fn read_candidate(&mut self, chunk: &Node<'_>, at: &JsonPath<'_>, sink: &mut dyn Sink) -> Option<Signal<'static>> {
        let candidates = chunk.get("candidates").map(Node::as_list).unwrap_or_default();
        let is_answer = |candidate: &Node<'_>| {
            candidate.is_map() && candidate.get("index").and_then(Node::as_number).unwrap_or_default() == 0
        };
        let (position, candidate) = candidates.iter().enumerate().find(|(_, candidate)| is_answer(candidate))?;
        if let Some(content) = candidate.get("content") {
            let at = at.key("candidates");
            let at = at.index(position);
            self.read_parts(content, &at.key("content"), sink);
        }
        // After the text, because offsets may point into the text of this chunk.
        self.sources.read(candidate, sink);
        let reason = candidate.text(&["finishReason"]).and_then(finish_reason)?;
        let calls = reason == FinishReason::Stop && self.has_function_call;
        Some(Signal::Finish(if calls { FinishReason::Tools } else { reason }))
    }

    /// Reads text and thoughts. Code, its results, function calls and media are neither.
    fn read_parts(&mut self, content: &Node<'_>, at: &JsonPath<'_>, sink: &mut dyn Sink) {
        let at = at.key("parts");
        for (position, part) in content.get("parts").map(Node::as_list).unwrap_or_default().iter().enumerate() {
            self.has_function_call |= part.get("functionCall").is_some_and(Node::is_map);
            let Some(text) = part.get("text").and_then(Node::as_str).filter(|text| !text.is_empty()) else { continue };
            if part.truthy("thought") {
                sink.signal(Signal::Thinking(text));
            } else {
                self.sources.add_text(text);
                let at = at.index(position);
                sink.signal(Signal::Text(text, at.key("text")));
            }
        }
    }
}

/// Maps Google's reasons. `None`: the answer goes on.
fn finish_reason(name: &str) -> Option<FinishReason> {
    Some(match name {
        "FINISH_REASON_UNSPECIFIED" => return None,
        "MAX_TOKENS" => FinishReason::Length,
        "SAFETY"
        | "RECITATION"
        | "LANGUAGE"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "MODEL_ARMOR"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION" => FinishReason::Filter,
        _ => FinishReason::Stop,
    })
}

/// Reads the error that takes the place of a chunk.
fn read_fault<'n>(chunk: &'n Node<'_>) -> Option<Signal<'n>> {
    match chunk.get("error")? {
        error @ Node::Map(pairs) if !pairs.is_empty() => {
            Some(Signal::Fault { code: error.id(&["code", "status"]), message: error.text(&["message"]) })
        }
        Node::Str(message) if !message.is_empty() => Some(Signal::Fault { code: None, message: Some(message) }),
        _ => None,
    }
}

/// Reads why a prompt was refused. Such a response has no candidate.
fn read_block(chunk: &Node<'_>) -> Option<Signal<'static>> {
    let reason = chunk.get("promptFeedback")?.text(&["blockReason"])?;
    (reason != "BLOCK_REASON_UNSPECIFIED").then_some(Signal::Finish(FinishReason::Filter))
}

/// Reads token counts. Prompts of tools are input, and thoughts are output, so that both add up to the total. `None`: all
/// are zero.
fn read_usage(node: &Node<'_>) -> Option<Usage> {
    let tokens = |key| node.get(key).and_then(Node::as_number).unwrap_or_default();
    let usage = Usage {
        input: tokens("promptTokenCount").saturating_add(tokens("toolUsePromptTokenCount")),
        output: tokens("candidatesTokenCount").saturating_add(tokens("thoughtsTokenCount")),
        total: tokens("totalTokenCount"),
    };
    (usage != Usage::default()).then_some(usage)
}

#[cfg(test)]
mod tests;

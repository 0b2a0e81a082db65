//! Tavily: one search response as a JSON document.

use super::{
    Descriptor, InputKind, JsonPath, Provider, Signal, Sink,
    json::Node,
    results::{Results, emit_results, has_results},
};

pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "tavily",
    label: "Tavily search",
    docs: "https://docs.tavily.com/documentation/api-reference/endpoint/search",
    input: InputKind::Documents,
    sniff: |_, data| is_tavily(data).then_some(DESCRIPTOR.build),
    build: || Box::new(Results { provider: DESCRIPTOR.name, read }),
};
pub const PROVIDER: Provider = Provider::Fixed(&DESCRIPTOR);

/// Matches `{"query":…,"results":[…],"response_time":…,"request_id":…}`.
fn is_tavily(node: &Node<'_>) -> bool {
    const TAVILY_KEYS: &[&str] = &["query", "response_time", "request_id", "follow_up_questions"];
    has_results(node) && TAVILY_KEYS.iter().any(|key| node.get(key).is_some())
}

fn read(node: &Node<'_>, sink: &mut dyn Sink) -> bool {
    if !has_results(node) {
        return false;
    }
    if let Some(id) = node.id(&["request_id"]) {
        sink.signal(Signal::MessageId(&id));
    }
    if let Some(answer) = node.text(&["answer"]) {
        sink.signal(Signal::Text(answer, JsonPath::ROOT.key("answer")));
    }
    emit_results(node, node.text(&["query"]), &["content", "snippet"], sink);
    true
}

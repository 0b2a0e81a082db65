//! MCP search tools: one tool response as a JSON document.

use super::{
    Descriptor, InputKind, Provider, Signal, Sink,
    json::{MAX_STRING_NESTING, Node},
    results::{Results, emit_results, has_results},
};

pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "mcp",
    label: "MCP search tools",
    docs: "https://modelcontextprotocol.io/specification/2025-06-18/server/tools",
    input: InputKind::Documents,
    sniff: |_, data| is_mcp(data).then_some(DESCRIPTOR.build),
    build: || Box::new(Results { provider: DESCRIPTOR.name, read }),
};
pub const PROVIDER: Provider = Provider::Fixed(&DESCRIPTOR);

/// Keys that wrap the results, outermost first: a chat client's message block, the response in it, the JSON-RPC envelope
/// and the search result.
const WRAPPERS: &[&str] =
    &["metadata", "rawMcpToolResponse", "response", "webSearchResult", "result", "structuredContent"];
/// Wrappers that are unwrapped: more than any known format has, and few enough to bound the work on a hostile document.
const MAX_WRAPPERS: u8 = 8;

/// Matches `{"response":{"webSearchResult":{"results":[…]}}}` and its variants.
fn is_mcp(node: &Node<'_>) -> bool {
    with_holder(node, MAX_STRING_NESTING, MAX_WRAPPERS, &mut |_| ())
}

fn read(node: &Node<'_>, sink: &mut dyn Sink) -> bool {
    // A chat client adds the id of the message that called the tool.
    if let Some(id) = node.id(&["messageId", "message_id"]) {
        sink.signal(Signal::MessageId(&id));
    }
    with_holder(node, MAX_STRING_NESTING, MAX_WRAPPERS, &mut |holder| {
        emit_results(holder, holder.text(&["query"]), &["snippet", "content"], sink);
    })
}

/// Calls `read` with the object that has `results`, however it is wrapped. Returns whether there is one.
fn with_holder(node: &Node<'_>, left: u8, wrappers_left: u8, read: &mut dyn FnMut(&Node<'_>)) -> bool {
    node.with_decoded(left, |node, left| {
        if has_results(node) {
            read(node);
            return true;
        }
        let Some(wrappers_left) = wrappers_left.checked_sub(1) else { return false };
        let wrapped = WRAPPERS.iter().filter_map(|key| node.get(key));
        // MCP's own form: a list of parts, one of which has a text that holds JSON.
        let parts = node.get("content").map(Node::as_list).unwrap_or_default();
        let texts = parts.iter().filter_map(|part| part.get("text"));
        wrapped.chain(texts).any(|inner| with_holder(inner, left, wrappers_left, read))
    })
}

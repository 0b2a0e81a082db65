//! The response of an MCP search tool.

use super::{
    Descriptor, InputKind, Provider, Signal, Sink,
    json::{MAX_STRING_NESTING, Node},
    results::{Results, has_results, results},
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

/// Where an MCP tool's results hide, outermost first: the message block of a chat client, the response in
/// it, JSON-RPC's own envelope, and the search result itself.
const WRAPPERS: &[&str] =
    &["metadata", "rawMcpToolResponse", "response", "webSearchResult", "result", "structuredContent"];
/// More wrappers than there are, fewer than a hostile document could nest.
const MAX_WRAPPED: u8 = 8;

/// `{"response":{"webSearchResult":{"results":[…]}}}` and its kin.
fn is_mcp(node: &Node<'_>) -> bool {
    with_holder(node, MAX_STRING_NESTING, MAX_WRAPPED, &mut |_| ())
}

fn read(node: &Node<'_>, sink: &mut dyn Sink) -> bool {
    // The chat client's own id of the message that the tool was called for.
    if let Some(id) = node.id(&["messageId", "message_id"]) {
        sink.signal(Signal::MessageId(&id));
    }
    with_holder(node, MAX_STRING_NESTING, MAX_WRAPPED, &mut |holder| {
        results(holder, holder.text(&["query"]), &["snippet", "content"], sink);
    })
}

/// Calls `read` with the object that has the `results`, wherever it is wrapped; says whether there is one.
fn with_holder(node: &Node<'_>, left: u8, deeper: u8, read: &mut dyn FnMut(&Node<'_>)) -> bool {
    node.with_decoded(left, |node, left| {
        if has_results(node) {
            read(node);
            return true;
        }
        let Some(deeper) = deeper.checked_sub(1) else { return false };
        let wrapped = WRAPPERS.iter().filter_map(|key| node.get(key));
        // MCP's own form: a list of parts, one of which is a text that holds JSON.
        let parts = node.get("content").map(Node::as_list).unwrap_or_default();
        let texts = parts.iter().filter_map(|part| part.get("text"));
        wrapped.chain(texts).any(|inner| with_holder(inner, left, deeper, read))
    })
}

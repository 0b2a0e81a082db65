//! Reads an error that an upstream reports inside a stream, after a successful HTTP status.

use crate::provider::{Signal, json::Node};

const MESSAGE: &[&str] = &["message", "msg", "error_msg", "status_msg"];

/// Reads `{"error":{…}}`, with or without choices; `{"code":…,"message":…}` instead of a chunk; MiniMax's `base_resp`; or
/// any frame if `is_error_event` (its event is named `error`).
pub fn read_fault<'n>(node: &'n Node<'_>, is_error_event: bool) -> Option<Signal<'n>> {
    match node.get("error") {
        Some(error @ Node::Map(pairs)) if !pairs.is_empty() => {
            let code = error.id(&["code", "type", "status"]);
            return Some(Signal::Fault { code, message: error.text(MESSAGE) });
        }
        Some(Node::Str(message)) if !message.is_empty() => {
            return Some(Signal::Fault { code: node.id(&["code", "error_code", "status"]), message: Some(message) });
        }
        _ => {}
    }
    // MiniMax sends `base_resp` with code 0 and a text on success.
    if let Some(base) = node.get("base_resp")
        && let Some(code) = error_code(base, &["status_code"])
    {
        return Some(Signal::Fault { code: Some(code), message: base.text(MESSAGE) });
    }
    if matches!(node.get("choices"), Some(Node::List(_))) {
        return None;
    }
    let (code, message) = (error_code(node, &["code", "error_code"]), node.text(MESSAGE));
    let is_fault = code.is_some() && message.is_some();
    (is_fault || is_error_event).then_some(Signal::Fault { code, message })
}

/// The code, unless it stands for success.
fn error_code(node: &Node<'_>, keys: &[&str]) -> Option<String> {
    node.id(keys).filter(|code| !matches!(code.as_str(), "0" | "200"))
}

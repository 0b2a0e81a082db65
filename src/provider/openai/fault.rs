//! How an upstream says that it failed, in a stream that began well.

use crate::provider::{Signal, json::Node};

const MESSAGE: &[&str] = &["message", "msg", "error_msg", "status_msg"];

/// `{"error":{…}}`, also beside choices; `{"code":…,"message":…}` in place of a chunk; MiniMax's `base_resp`; or
/// anything in an event named `error`.
pub fn of<'n>(node: &'n Node<'_>, is_error: bool) -> Option<Signal<'n>> {
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
    // It says 0 when all is well, with a text all the same.
    if let Some(base) = node.get("base_resp")
        && let Some(code) = failing(base, &["status_code"])
    {
        return Some(Signal::Fault { code: Some(code), message: base.text(MESSAGE) });
    }
    if matches!(node.get("choices"), Some(Node::List(_))) {
        return None;
    }
    let (code, message) = (failing(node, &["code", "error_code"]), node.text(MESSAGE));
    let told = code.is_some() && message.is_some();
    (told || is_error).then_some(Signal::Fault { code, message })
}

/// A code that is not one of success.
fn failing(node: &Node<'_>, keys: &[&str]) -> Option<String> {
    node.id(keys).filter(|code| !matches!(code.as_str(), "0" | "200"))
}

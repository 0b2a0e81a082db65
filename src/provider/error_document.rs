//! Parses an upstream's error response that is one JSON document. Called by `pipeline` and `relay` for responses that are
//! not streamed; adapters read the errors inside streams.

use super::json::{self, Node};

/// The error code and message of a JSON document.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ErrorDocument {
    pub code: Option<String>,
    pub message: Option<String>,
    /// True if the document itself reports an error, whatever the HTTP status.
    pub is_error: bool,
}

const CODE: &[&str] = &["code", "error_code", "errcode"];
const MESSAGE: &[&str] = &["message", "msg", "error_msg", "errmsg"];
/// Message keys that other documents have too, so they do not make a document an error.
const AMBIGUOUS_MESSAGE: &[&str] = &["detail", "title"];

impl ErrorDocument {
    /// Parses the document. `None`: it is not a JSON object.
    pub fn parse(document: &str) -> Option<Self> {
        json::with_parsed(document, |node| {
            let error = node.get("error").filter(|error| **error != Node::Null);
            let inner = error.filter(|error| error.is_map());
            let holders = || inner.into_iter().chain([node]);
            let code = holders().find_map(|holder| holder.id(CODE));
            let error_text = error.and_then(Node::as_str).filter(|text| !text.is_empty());
            let message = holders().find_map(|holder| holder.text(MESSAGE)).or(error_text);
            let has_error_code =
                code.as_deref().is_some_and(|code| !matches!(code, "0" | "200" | "ok" | "OK" | "success"));
            node.is_map().then(|| Self {
                is_error: error.is_some() || (has_error_code && message.is_some()),
                message: message.or_else(|| node.text(AMBIGUOUS_MESSAGE)).map(ToOwned::to_owned),
                code,
            })
        })
        .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(document: &str) -> (Option<String>, Option<String>, bool) {
        let ErrorDocument { code, message, is_error } = ErrorDocument::parse(document).unwrap();
        (code, message, is_error)
    }

    #[test]
    fn error_is_read_in_every_spelling() {
        let error = |code: &str, message: &str| (Some(code.to_owned()), Some(message.to_owned()), true);
        assert_eq!(read(r#"{"code":710022004,"msg":"rate limited","data":null}"#), error("710022004", "rate limited"));
        assert_eq!(read(r#"{"error_code":7,"error_msg":"no"}"#), error("7", "no"));
        assert_eq!(read(r#"{"error":{"code":"bad","message":"no"}}"#), error("bad", "no"));
        assert_eq!(read(r#"{"error":"no"}"#), (None, Some("no".to_owned()), true));
        assert_eq!(read(r#"{"error":{"type":"x"}}"#), (None, None, true));
    }

    #[test]
    fn document_without_error_is_not_an_error() {
        for document in [
            r#"{"code":0,"message":"ok","data":{}}"#,
            r#"{"code":"success","msg":"ok"}"#,
            r#"{"models":[]}"#,
            r#"{"title":"a page","code":17}"#,
            r#"{"detail":"of a page","code":"x1"}"#,
            r#"{"error":null,"code":200,"msg":"fine"}"#,
        ] {
            assert!(!ErrorDocument::parse(document).unwrap().is_error, "{document}");
        }
        assert_eq!(ErrorDocument::parse("[1]"), None);
        assert_eq!(ErrorDocument::parse("<html>"), None);
    }
}

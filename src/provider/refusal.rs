//! Errors that come as one JSON document, in whatever spelling.

use super::json::{self, Node};

/// What an upstream said of its error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub code: Option<String>,
    pub message: Option<String>,
    /// It says itself that it is an error, whatever the status.
    pub certain: bool,
}

const CODE: &[&str] = &["code", "error_code", "errcode"];
const MESSAGE: &[&str] = &["message", "msg", "error_msg", "errmsg"];
/// Words that a document may have which is no error.
const WORDS: &[&str] = &["detail", "title"];

/// Reads the document as an error; `None`: it is no JSON object.
pub fn refusal(document: &str) -> Option<Refusal> {
    json::with_parsed(document, |node| {
        let error = node.get("error").filter(|error| **error != Node::Null);
        let inner = error.filter(|error| error.is_map());
        let places = || inner.into_iter().chain([node]);
        let code = places().find_map(|place| place.id(CODE));
        let words = error.and_then(Node::str).filter(|words| !words.is_empty());
        let message = places().find_map(|place| place.text(MESSAGE)).or(words);
        let telling = message.is_some();
        let message = message.or_else(|| node.text(WORDS));
        let refused = code.as_deref().is_some_and(|code| !matches!(code, "0" | "200" | "ok" | "OK" | "success"));
        node.is_map().then(|| Refusal {
            certain: error.is_some() || (refused && telling),
            message: message.map(ToOwned::to_owned),
            code,
        })
    })
    .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(document: &str) -> (Option<String>, Option<String>, bool) {
        let Refusal { code, message, certain } = refusal(document).unwrap();
        (code, message, certain)
    }

    #[test]
    fn errors_in_every_spelling() {
        let said = |code: &str, message: &str| (Some(code.to_owned()), Some(message.to_owned()), true);
        assert_eq!(read(r#"{"code":710022004,"msg":"rate limited","data":null}"#), said("710022004", "rate limited"));
        assert_eq!(read(r#"{"error_code":7,"error_msg":"no"}"#), said("7", "no"));
        assert_eq!(read(r#"{"error":{"code":"bad","message":"no"}}"#), said("bad", "no"));
        assert_eq!(read(r#"{"error":"no"}"#), (None, Some("no".to_owned()), true));
        assert_eq!(read(r#"{"error":{"type":"x"}}"#), (None, None, true));
    }

    #[test]
    fn what_is_no_error_is_not_taken_for_one() {
        for document in [
            r#"{"code":0,"message":"ok","data":{}}"#,
            r#"{"code":"success","msg":"ok"}"#,
            r#"{"models":[]}"#,
            r#"{"title":"a page","code":17}"#,
            r#"{"detail":"of a page","code":"x1"}"#,
            r#"{"error":null,"code":200,"msg":"fine"}"#,
        ] {
            assert!(!refusal(document).unwrap().certain, "{document}");
        }
        assert_eq!(refusal("[1]"), None);
        assert_eq!(refusal("<html>"), None);
    }
}

//! The upstream's errors, in the dialect of a client that does not know the upstream.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::Value;

use super::AnyBody;
use crate::profile::openai;

/// Of an upstream's error, so much is read.
const MAX_ERROR: usize = 64 * 1024;
/// So long is waited for it.
const ERROR_WAIT: Duration = Duration::from_secs(10);
/// What is said of an error where the upstream says nothing.
const SILENT: &str = "the upstream answered with an error";

/// An error answer, as OpenAI's API has it; its status, and whatever headers say when to come back, stay.
pub async fn error(answer: Response<Incoming>) -> Response<AnyBody> {
    let (head, body) = answer.into_parts();
    let body = tokio::time::timeout(ERROR_WAIT, Limited::new(body, MAX_ERROR).collect()).await;
    let body = body.ok().and_then(Result::ok).map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let mut response = Response::new(AnyBody::from(translated(head.status, body)));
    *response.status_mut() = head.status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for name in [header::RETRY_AFTER, header::WWW_AUTHENTICATE] {
        if let Some(value) = head.headers.get(&name) {
            headers.insert(name, value.clone());
        }
    }
    response
}

fn translated(status: StatusCode, body: Bytes) -> Bytes {
    let json: Value = serde_json::from_slice(&body).unwrap_or_default();
    if json.pointer("/error/message").is_some() {
        return body;
    }
    let text = |keys: &[&str]| {
        keys.iter().filter_map(|key| json.get(key)).find_map(|value| match value {
            Value::String(text) if !text.is_empty() => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        })
    };
    let message =
        text(&["message", "msg", "error_msg", "detail", "error", "title"]).unwrap_or_else(|| SILENT.to_owned());
    let code = text(&["code", "error_code"]).unwrap_or_else(|| status.as_u16().to_string());
    serde_json::to_vec(&openai::failure(Some(&code), &message)).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(body: &str) -> Value {
        serde_json::from_slice(&translated(StatusCode::BAD_GATEWAY, Bytes::from(body.to_owned()))).unwrap_or_default()
    }

    #[test]
    fn an_upstreams_error_keeps_its_words() {
        let error = of(r#"{"code":710022004,"msg":"rate limited"}"#);
        assert_eq!(error["error"]["message"], "rate limited");
        assert_eq!(error["error"]["code"], "710022004");
        assert_eq!(error["error"]["type"], "upstream_error");
        let own = r#"{"error":{"message":"no","type":"invalid_request_error"}}"#;
        assert_eq!(of(own), serde_json::from_str::<Value>(own).unwrap_or_default());
        assert_eq!(of("<html>")["error"]["message"], SILENT);
        assert_eq!(of("<html>")["error"]["code"], "502");
    }
}

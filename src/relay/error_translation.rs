//! Responses in another dialect whose head depends on the body: errors, which are translated to OpenAI's format, and
//! documents, which turn out to be errors only once they are encoded. Called by `relay` and `api::facade`.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Limited};

use crate::{profile::openai, provider::error_document::ErrorDocument, transport::headers::drop_headers};

/// Bytes of an upstream's error that are read. A larger error is replaced by a generic one.
const MAX_ERROR: usize = 64 * 1024;
/// How long an upstream may take to send its error.
const ERROR_WAIT: Duration = Duration::from_secs(10);
/// Message of an upstream's error that has none.
const NO_MESSAGE: &str = "the upstream answered with an error";
/// Message of a document that broke off.
const BROKEN: &str = "the upstream's answer broke off";
/// Headers that describe the upstream's bytes and are wrong for other bytes.
pub const REPRESENTATION_HEADERS: [&str; 6] =
    ["content-length", "content-md5", "digest", "content-digest", "repr-digest", "etag"];

/// Translates an upstream's error to OpenAI's format. The status stays, as do headers that do not describe the bytes.
pub async fn error(response: Response<Body>) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    let body = tokio::time::timeout(ERROR_WAIT, Limited::new(body, MAX_ERROR).collect()).await;
    let body = body.ok().and_then(Result::ok).map(http_body_util::Collected::to_bytes).unwrap_or_default();
    set_json_headers(&mut head.headers);
    let body = translate(head.status, body);
    Response::from_parts(head, Body::from(body))
}

/// Waits for the first frame of a document. The status becomes 502 if the document is an error or breaks off.
pub async fn document(response: Response<Body>) -> Response<Body> {
    let (mut head, mut body) = response.into_parts();
    let first = match body.frame().await {
        Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
        Some(Err(_)) => {
            set_json_headers(&mut head.headers);
            head.status = StatusCode::BAD_GATEWAY;
            return Response::from_parts(head, Body::from(error_json(None, BROKEN)));
        }
        None => Bytes::new(),
    };
    if openai::is_error(&first) {
        head.status = StatusCode::BAD_GATEWAY;
    }
    Response::from_parts(head, prefixed(first, body))
}

/// Puts the first frame's data back before the rest of its body.
pub fn prefixed(first: Bytes, rest: Body) -> Body {
    Body::new(Prefixed { first: Some(first).filter(|first| !first.is_empty()), rest })
}

struct Prefixed {
    first: Option<Bytes>,
    rest: Body,
}

impl http_body::Body for Prefixed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        match this.first.take() {
            Some(first) => Poll::Ready(Some(Ok(Frame::data(first)))),
            None => Pin::new(&mut this.rest).poll_frame(task),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.is_end_stream()
    }
}

/// Describes a JSON body that replaces the upstream's.
fn set_json_headers(headers: &mut HeaderMap) {
    drop_headers(headers, |name| REPRESENTATION_HEADERS.contains(&name));
    headers.remove(header::CONTENT_ENCODING);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
}

/// An error in OpenAI's format. One that has this format already stays unchanged.
fn translate(status: StatusCode, body: Bytes) -> Bytes {
    let text = std::str::from_utf8(&body).unwrap_or_default();
    let is_openai = serde_json::from_str(text)
        .is_ok_and(|json: serde_json::Value| json.pointer("/error/message").is_some_and(serde_json::Value::is_string));
    if is_openai {
        return body;
    }
    let ErrorDocument { code, message, .. } = ErrorDocument::parse(text).unwrap_or_default();
    let code = code.unwrap_or_else(|| status.as_u16().to_string());
    error_json(Some(&code), message.as_deref().unwrap_or(NO_MESSAGE))
}

fn error_json(code: Option<&str>, message: &str) -> Bytes {
    let mut out = Vec::new();
    openai::write_json(&openai::upstream_error(code, message), &mut out);
    Bytes::from(out)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn translated(body: &str) -> Value {
        serde_json::from_slice(&translate(StatusCode::BAD_GATEWAY, Bytes::from(body.to_owned()))).unwrap()
    }

    #[test]
    fn translated_error_keeps_code_and_message() {
        let error = translated(r#"{"code":710022004,"msg":"rate limited"}"#);
        assert_eq!(error["error"]["message"], "rate limited");
        assert_eq!(error["error"]["code"], "710022004");
        assert_eq!(error["error"]["type"], "upstream_error");
        let own = r#"{"error":{"message":"no","type":"invalid_request_error"}}"#;
        assert_eq!(translated(own), serde_json::from_str::<Value>(own).unwrap());
        assert_eq!(translated(r#"{"error":{"code":7}}"#)["error"]["message"], NO_MESSAGE);
        assert_eq!(translated(r#"{"detail":"no such path"}"#)["error"]["message"], "no such path");
        assert_eq!(translated("<html>")["error"]["message"], NO_MESSAGE);
        assert_eq!(translated("<html>")["error"]["code"], "502");
    }
}

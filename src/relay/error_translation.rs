//! Answers whose beginning waits for the body, for clients that do not know the upstream: its errors, in their
//! dialect, and documents, of which only the body tells whether they are errors.

use std::time::Duration;

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Limited};

use crate::{profile::openai, provider::error_document::ErrorDocument, transport::headers::drop_headers};

/// Of an upstream's error, so much is read.
const MAX_ERROR: usize = 64 * 1024;
/// So long is waited for it.
const ERROR_WAIT: Duration = Duration::from_secs(10);
/// What is said of an error where the upstream says nothing.
const SILENT: &str = "the upstream answered with an error";
/// What is said of a document that did not come whole.
const BROKEN: &str = "the upstream's answer broke off";
/// Said of the upstream's bytes, and untrue of others.
pub const OF_THE_BYTES: [&str; 6] =
    ["content-length", "content-md5", "digest", "content-digest", "repr-digest", "etag"];

/// An error answer, as OpenAI's API has it. Its status stays, and so do the headers that are not about its bytes.
pub async fn error(answer: Response<Body>) -> Response<Body> {
    let (mut head, body) = answer.into_parts();
    let body = tokio::time::timeout(ERROR_WAIT, Limited::new(body, MAX_ERROR).collect()).await;
    let body = body.ok().and_then(Result::ok).map(http_body_util::Collected::to_bytes).unwrap_or_default();
    of_our_own(&mut head.headers);
    let body = translated(head.status, body);
    Response::from_parts(head, Body::from(body))
}

/// A document, once it has begun to come. One that is an error, or never comes, is the upstream's fault.
pub async fn document(answer: Response<Body>) -> Response<Body> {
    let (mut head, mut body) = answer.into_parts();
    let first = match body.frame().await {
        Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
        Some(Err(_)) => {
            of_our_own(&mut head.headers);
            head.status = StatusCode::BAD_GATEWAY;
            return Response::from_parts(head, Body::from(said(None, BROKEN)));
        }
        None => Bytes::new(),
    };
    if openai::is_error(&first) {
        head.status = StatusCode::BAD_GATEWAY;
    }
    Response::from_parts(head, prefixed(first, body))
}

/// A body whose first piece was taken from it.
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

fn of_our_own(headers: &mut HeaderMap) {
    drop_headers(headers, |name| OF_THE_BYTES.contains(&name));
    headers.remove(header::CONTENT_ENCODING);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
}

/// An error that OpenAI's clients can read already stays as it is.
fn translated(status: StatusCode, body: Bytes) -> Bytes {
    let text = std::str::from_utf8(&body).unwrap_or_default();
    let own = serde_json::from_str(text)
        .is_ok_and(|json: serde_json::Value| json.pointer("/error/message").is_some_and(serde_json::Value::is_string));
    if own {
        return body;
    }
    let ErrorDocument { code, message, .. } = ErrorDocument::parse(text).unwrap_or_default();
    let code = code.unwrap_or_else(|| status.as_u16().to_string());
    said(Some(&code), message.as_deref().unwrap_or(SILENT))
}

fn said(code: Option<&str>, message: &str) -> Bytes {
    let mut out = Vec::new();
    openai::write_json(&openai::upstream_error(code, message), &mut out);
    Bytes::from(out)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn of(body: &str) -> Value {
        serde_json::from_slice(&translated(StatusCode::BAD_GATEWAY, Bytes::from(body.to_owned()))).unwrap()
    }

    #[test]
    fn an_upstreams_error_keeps_its_words() {
        let error = of(r#"{"code":710022004,"msg":"rate limited"}"#);
        assert_eq!(error["error"]["message"], "rate limited");
        assert_eq!(error["error"]["code"], "710022004");
        assert_eq!(error["error"]["type"], "upstream_error");
        let own = r#"{"error":{"message":"no","type":"invalid_request_error"}}"#;
        assert_eq!(of(own), serde_json::from_str::<Value>(own).unwrap());
        assert_eq!(of(r#"{"error":{"code":7}}"#)["error"]["message"], SILENT);
        assert_eq!(of(r#"{"detail":"no such path"}"#)["error"]["message"], "no such path");
        assert_eq!(of("<html>")["error"]["message"], SILENT);
        assert_eq!(of("<html>")["error"]["code"], "502");
    }
}

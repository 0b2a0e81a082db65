//! Errors as RFC 9457 problem documents: what is wrong, and how to fix it. The only place where an error gets its
//! status code. Used by `relay`, `api`, `ops` and `server`.

use axum::body::Body;
use http::{HeaderValue, Response, StatusCode, header};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::{
    citation::task_reader::SearchReadCursor, config::Rate, mapping::InvalidRequest, pipeline::Outcome, profile::openai,
};

/// An error response. [`Problem::response`] renders it.
#[derive(Debug)]
pub struct Problem {
    pub status: StatusCode,
    /// Stable last part of the `type` URN.
    kind: &'static str,
    title: &'static str,
    detail: String,
    retry_after: Option<u32>,
    /// Closes the connection, because the rest of its input cannot be trusted.
    closes: bool,
    /// The consumer's committed cursor, in a cursor conflict.
    current: Option<Value>,
    /// The request field that is wrong, for OpenAI's `param`.
    param: Option<&'static str>,
}

/// The type of a problem, as a response extension, so that `server` can record faults.
#[derive(Debug, Clone, Copy)]
pub struct ProblemType(pub &'static str);

/// RFC 9457
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub struct ProblemJson<'a> {
    /// Stable: `urn:citetap:problem:` and a word.
    #[schema(pattern = "^urn:citetap:problem:[a-z-]+$")]
    r#type: String,
    title: &'a str,
    status: u16,
    #[doc = "What is wrong, and how to mend it."] // word-ok: the text is part of the OpenAPI document
    detail: &'a str,
    /// Where a consumer stands, in a conflict of cursors; null where it has committed nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<SearchReadCursor>)]
    current: Option<&'a Value>,
}

impl Problem {
    fn new(status: StatusCode, kind: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status,
            kind,
            title,
            detail: detail.into(),
            retry_after: None,
            closes: false,
            current: None,
            param: None,
        }
    }

    pub fn no_route(path_hint: &str) -> Self {
        let detail = format!("no route has a prefix of this path; routes: {path_hint}");
        Self::new(StatusCode::NOT_FOUND, "no-route", "No route", detail)
    }

    pub fn not_found() -> Self {
        let detail = "there is no record of this message; it may be unknown, expired or forgotten";
        Self::new(StatusCode::NOT_FOUND, "unknown-message", "Unknown message", detail)
    }

    pub fn no_such_endpoint() -> Self {
        let detail = "GET /openapi.json lists the endpoints";
        Self::new(StatusCode::NOT_FOUND, "no-such-endpoint", "No such endpoint", detail)
    }

    pub fn unknown_model(model: &str, known: &str) -> Self {
        let detail = format!("there is no model {model:?}; models: {known}");
        let problem = Self::new(StatusCode::NOT_FOUND, "model-not-found", "Unknown model", detail);
        Self { param: Some("model"), ..problem }
    }

    pub fn no_models() -> Self {
        let detail = "no route answers OpenAI requests; give one a table [routes.openai] with models = [\"…\"]";
        Self::new(StatusCode::NOT_FOUND, "no-models", "No models", detail)
    }

    pub fn not_of_the_facade() -> Self {
        let detail = "OpenAI requests are answered at POST /v1/chat/completions and GET /v1/models; \
                      others go on to a route with prefix \"/\", and there is none";
        Self::new(StatusCode::NOT_FOUND, "no-such-endpoint", "No such endpoint", detail)
    }

    pub fn invalid_chat_request(error: InvalidRequest) -> Self {
        let problem = Self::bad_request(error.message);
        Self { param: error.param, ..problem }
    }

    pub fn encoded() -> Self {
        let detail = "send the body without content-encoding";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "encoded-body", "Encoded body", detail)
    }

    pub fn method_not_allowed() -> Self {
        let detail = "this endpoint does not take this method";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "Method not allowed", detail)
    }

    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", "Bad request", detail)
    }

    pub fn bad_id() -> Self {
        let detail = "a message id is 1 to 128 characters of A-Z a-z 0-9 . _ : -";
        Self::new(StatusCode::BAD_REQUEST, "bad-id", "Not a message id", detail)
    }

    /// As [`bad_id`](Self::bad_id), for the id of a task or consumer.
    pub fn bad_path_id(what: &str) -> Self {
        let detail = format!("a {what} id is 1 to 128 characters of A-Z a-z 0-9 . _ : -");
        Self::new(StatusCode::BAD_REQUEST, "bad-id", "Not an id", detail)
    }

    pub fn unknown_task() -> Self {
        let detail = "there is no record of this task; it may be unknown, expired or forgotten";
        Self::new(StatusCode::NOT_FOUND, "unknown-task", "Unknown task", detail)
    }

    pub fn unknown_cursor() -> Self {
        let detail = "this consumer has committed nothing of this task";
        Self::new(StatusCode::NOT_FOUND, "unknown-cursor", "No cursor yet", detail)
    }

    /// Contains the committed cursor, or `null` if the consumer has committed nothing.
    pub fn cursor_conflict(detail: &str, current: Option<&SearchReadCursor>) -> Self {
        let problem = Self::new(StatusCode::CONFLICT, "cursor-conflict", "The cursor is elsewhere", detail);
        Self { current: Some(serde_json::to_value(current).unwrap_or_default()), ..problem }
    }

    pub fn too_many_consumers(limit: usize) -> Self {
        let detail = format!("{limit} consumers have a cursor in this task already");
        Self::new(StatusCode::CONFLICT, "too-many-consumers", "Too many consumers", detail)
    }

    pub fn refused(what: &str) -> Self {
        let detail = format!("{what} is not relayed");
        Self::new(StatusCode::NOT_IMPLEMENTED, "not-relayed", "Not relayed", detail)
    }

    pub fn unauthorized() -> Self {
        let detail = "send a configured key as x-citetap-key, or as Authorization: Bearer";
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", "A key is needed", detail)
    }

    pub fn cross_site() -> Self {
        let detail = "a page of another site sent this; to allow it, add its origin to [cors] origins";
        Self::new(StatusCode::FORBIDDEN, "cross-site", "Request of another site", detail)
    }

    pub fn unknown_host() -> Self {
        let detail = "citetap is called by a name that it does not know; add the name to allowed_hosts \
                      (CITETAP_ALLOWED_HOSTS=name), or call it by localhost or an IP address";
        Self::new(StatusCode::MISDIRECTED_REQUEST, "unknown-host", "Unknown host", detail)
    }

    pub fn body_too_large(limit: u64) -> Self {
        let detail = format!("the request body is over {limit} bytes (limits.request_body)");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", "Request body too large", detail)
    }

    pub fn too_many_requests(limit: Rate, after: u32) -> Self {
        let detail = format!("more requests than {limit} (limits.requests, or requests of the tenant)");
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "too-many-requests", "Too many requests", detail);
        Self { retry_after: Some(after), ..problem }
    }

    pub fn overloaded(limit: usize) -> Self {
        let detail = format!("{limit} streams are open already (limits.streams)");
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", "Too many streams", detail);
        Self { retry_after: Some(1), ..problem }
    }

    pub fn crowded() -> Self {
        let detail = "nearly all files that citetap may have open are in use (ulimit -n)";
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", "Too many connections", detail);
        Self { retry_after: Some(1), ..problem }
    }

    pub fn busy(detail: impl Into<String>) -> Self {
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "Busy", detail);
        Self { retry_after: Some(1), ..problem }
    }

    pub fn search_not_configured() -> Self {
        let detail = crate::search::NO_KEY;
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "search-not-configured", "No search configured", detail)
    }

    /// A failed search, whether the client, the service or its key caused it.
    pub fn search(status: StatusCode, kind: &'static str, detail: impl Into<String>) -> Self {
        Self::new(status, kind, "Search failed", detail)
    }

    pub fn retry_after(self, seconds: u32) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }

    /// Closes the connection after the response.
    pub fn closing(self) -> Self {
        Self { closes: true, ..self }
    }

    pub fn unreadable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "unreadable", "Not readable as citations", detail)
    }

    pub fn draining() -> Self {
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "draining", "Shutting down", "ask another replica");
        Self { retry_after: Some(5), ..problem }
    }

    pub fn store(detail: impl Into<String>) -> Self {
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "store-unavailable", "Store unavailable", detail);
        Self { retry_after: Some(1), ..problem }
    }

    pub fn upstream_unreachable(host: &str, why: impl std::fmt::Display) -> Self {
        let detail = format!("upstream {host}: {why}");
        Self::new(StatusCode::BAD_GATEWAY, "upstream-unreachable", "Upstream unreachable", detail)
    }

    pub fn upstream_timeout(host: &str, after: std::time::Duration) -> Self {
        let detail = format!("upstream {host} sent nothing within {} s (timeouts.first_byte)", after.as_secs_f64());
        Self::new(StatusCode::GATEWAY_TIMEOUT, "upstream-timeout", "Upstream timed out", detail)
    }

    /// The upstream's response does not contain an answer.
    pub fn upstream_answer(host: &str, what: &str) -> Self {
        let detail = format!("upstream {host} answered with {what}");
        Self::new(StatusCode::BAD_GATEWAY, "upstream-answer", "Not an answer", detail)
    }

    /// The upstream began its answer and did not finish it.
    pub fn upstream_ended(host: &str, outcome: Outcome) -> Self {
        let (status, what) = match outcome {
            Outcome::Shutdown => return Self::draining(),
            Outcome::UpstreamIdle => (StatusCode::GATEWAY_TIMEOUT, "fell silent (timeouts.upstream_idle)"),
            Outcome::TotalTimeout => (StatusCode::GATEWAY_TIMEOUT, "took too long (timeouts.total)"),
            Outcome::UpstreamCut | Outcome::Complete | Outcome::ClientGone => {
                (StatusCode::BAD_GATEWAY, "broke off in the middle of its answer")
            }
        };
        Self::new(status, "upstream-ended", "Upstream did not finish", format!("upstream {host} {what}"))
    }

    pub fn kind(&self) -> &'static str {
        self.kind
    }

    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Renders the problem as `application/problem+json`.
    pub fn response(self) -> Response<Body> {
        let json = ProblemJson {
            r#type: format!("urn:citetap:problem:{}", self.kind),
            title: self.title,
            status: self.status.as_u16(),
            detail: &self.detail,
            current: self.current.as_ref(),
        };
        let json = serde_json::to_vec(&json).unwrap_or_default();
        self.with_body("application/problem+json", json)
    }

    /// Renders the problem as an OpenAI error.
    pub fn openai(self) -> Response<Body> {
        let code = match self.kind {
            "unauthorized" => "invalid_api_key".to_owned(),
            "too-many-requests" => "rate_limit_exceeded".to_owned(),
            kind => kind.replace('-', "_"),
        };
        let kind = match self.status.as_u16() {
            429 => "requests",
            ..500 => "invalid_request_error",
            502 | 504 => openai::UPSTREAM_ERROR,
            _ => "server_error",
        };
        let json = openai::error(kind, self.param, Some(&code), &self.detail);
        let json = serde_json::to_vec(&json).unwrap_or_default();
        self.with_body("application/json", json)
    }

    fn with_body(self, content_type: &'static str, body: Vec<u8>) -> Response<Body> {
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status;
        response.extensions_mut().insert(ProblemType(self.kind));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.closes {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// A parser's error message without the values that it quotes, because an error must not repeat text of users.
pub fn unquoted(error: &serde_json::Error) -> String {
    let message = error.to_string();
    for (before, end, instead) in [
        ("invalid type: string ", ", expected ", "invalid type: a string"),
        ("invalid value: string ", ", expected ", "invalid value: a string"),
        ("unknown variant ", ", expected ", "unknown variant"),
    ] {
        // The value may contain `end` too; the last one is the parser's.
        if message.starts_with(before)
            && let Some(at) = message.rfind(end)
        {
            return format!("{instead}{}", &message[at..]);
        }
    }
    message
}

impl axum::response::IntoResponse for Problem {
    fn into_response(self) -> axum::response::Response {
        self.response()
    }
}

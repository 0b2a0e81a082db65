//! The client of Tavily's search API: `POST {base}/search`. It follows no redirect and decompresses nothing. The key must
//! not leave its header.

use std::time::Duration;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER},
};
use http_body_util::{BodyExt, Limited};
use reqwest::{Body, Client, Response};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};
use url::Url;

use super::{Query, SearchError};
use crate::{
    citation::text,
    config::Search,
    provider::json::{self, Node},
    transport::service_client,
};

/// Bytes of the largest response that is read.
const MAX_RESPONSE: usize = 4 * 1024 * 1024;
/// Bytes of the largest error response that is read.
const MAX_ERROR: usize = 64 * 1024;
/// Bytes of the service's error message that are repeated.
const MAX_MESSAGE: usize = 200;
/// Pause before the one retry if the response has no `Retry-After`.
const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// Longest `Retry-After` that is waited for. After a longer one the search fails, and the error says how long it is.
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(5);

const AGENT: &str = concat!("citetap/", env!("CARGO_PKG_VERSION"));

/// The client, with a key.
pub struct Tavily {
    client: Client,
    endpoint: Url,
    /// `Bearer …`, marked sensitive.
    authorization: HeaderValue,
    timeout: Duration,
}

impl Tavily {
    /// `None` without a key.
    pub fn new(search: &Search, connect: Duration) -> Option<Self> {
        let authorization = search.authorization.clone()?;
        let client = service_client::builder(connect).user_agent(AGENT).build().ok()?;
        let mut endpoint = search.base_url.clone();
        endpoint.path_segments_mut().ok()?.pop_if_empty().push("search");
        Some(Self { client, endpoint, authorization, timeout: search.timeout })
    }

    /// Sends a query and returns the search response. Retries once on 429 and 5xx, after `Retry-After`, within the timeout.
    pub async fn search(&self, query: &Query) -> Result<Bytes, SearchError> {
        let body = Bytes::from(serde_json::to_vec(query).unwrap_or_default());
        let deadline = Instant::now() + self.timeout;
        let result = timeout_at(deadline, self.send_with_retry(body, deadline)).await;
        result.unwrap_or(Err(SearchError::Timeout(self.timeout)))
    }

    async fn send_with_retry(&self, body: Bytes, deadline: Instant) -> Result<Bytes, SearchError> {
        let error = match self.send(body.clone()).await {
            Err(error) => error,
            response => return response,
        };
        let pause = match &error {
            SearchError::RateLimited(wait) | SearchError::Status(500.., wait) => wait.unwrap_or(RETRY_PAUSE),
            _ => return Err(error),
        };
        // A retry after the deadline would be useless.
        if pause > MAX_RETRY_PAUSE || Instant::now().checked_add(pause).is_none_or(|retry_at| retry_at >= deadline) {
            return Err(error);
        }
        sleep(pause).await;
        self.send(body).await
    }

    async fn send(&self, body: Bytes) -> Result<Bytes, SearchError> {
        let request = self
            .client
            .post(self.endpoint.clone())
            .header(AUTHORIZATION, self.authorization.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json")
            .header(ACCEPT_ENCODING, "identity")
            .body(body);
        let response = request.send().await.map_err(|error| SearchError::Unreachable(service_client::why(&error)))?;
        match response.status() {
            StatusCode::OK => read(response).await,
            status => Err(self.error(status, response).await),
        }
    }

    async fn error(&self, status: StatusCode, response: Response) -> SearchError {
        match status.as_u16() {
            401 | 403 => SearchError::KeyRefused,
            429 => SearchError::RateLimited(retry_after(response.headers())),
            432 | 433 => SearchError::QuotaUsedUp,
            400 | 422 => {
                let body = Limited::new(Body::from(response), MAX_ERROR).collect().await;
                let body = body.map(|body| body.to_bytes()).unwrap_or_default();
                SearchError::Refused(self.message(&body))
            }
            other => SearchError::Status(other, retry_after(response.headers())),
        }
    }

    /// The service's error message on one line. The key is masked, in case the service repeats it.
    fn message(&self, body: &[u8]) -> String {
        let json: Value = serde_json::from_slice(body).unwrap_or_default();
        let pointers = ["/detail/error", "/detail/0/msg", "/detail", "/error", "/message"];
        let message =
            pointers.iter().find_map(|pointer| json.pointer(pointer)?.as_str()).unwrap_or("it did not say why");
        let key = self.authorization.to_str().ok().and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
        let message = if key.is_empty() { message.to_owned() } else { message.replace(key, "•••") };
        text::single_line(&message, MAX_MESSAGE)
    }
}

/// Reads and checks the body of a 200 response.
async fn read(response: Response) -> Result<Bytes, SearchError> {
    let mut codings = response.headers().get_all(CONTENT_ENCODING).iter();
    if codings.any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(SearchError::Unreadable("it is compressed, which was not asked for"));
    }
    let body = Limited::new(Body::from(response), MAX_RESPONSE).collect().await.map_err(|error| {
        if error.is::<http_body_util::LengthLimitError>() {
            SearchError::Unreadable("it is larger than 4 MiB")
        } else {
            SearchError::Unreachable("the connection broke".to_owned())
        }
    })?;
    let body = body.to_bytes();
    let has_results =
        |text| json::with_parsed(text, |node| matches!(node.get("results"), Some(Node::List(_)))).unwrap_or(false);
    match std::str::from_utf8(&body) {
        Ok(text) if has_results(text) => Ok(body),
        _ => Err(SearchError::Unreadable("it is no search response")),
    }
}

/// The pause in `Retry-After`: seconds or a date (RFC 9110 10.2.3).
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    let wait = at.as_millisecond().saturating_sub(jiff::Timestamp::now().as_millisecond());
    Some(Duration::from_millis(u64::try_from(wait).unwrap_or_default()))
}

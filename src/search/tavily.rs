//! Tavily's search API: `POST {base}/search`. Redirects are not followed, nothing is decompressed, and the key
//! goes into one header and nowhere else.

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

/// A larger answer is not read.
pub const MAX_ANSWER: usize = 4 * 1024 * 1024;
/// Of an error's answer so much is read.
const MAX_ERROR: usize = 64 * 1024;
/// Of the service's own words so much is repeated.
const MAX_WORDS: usize = 200;
/// Before the one retry, where the service does not say how long.
const REST: Duration = Duration::from_millis(250);
/// Who wants to be left alone for longer is not asked again: the error says for how long.
const MAX_REST: Duration = Duration::from_secs(5);

const AGENT: &str = concat!("citetap/", env!("CARGO_PKG_VERSION"));

/// The service, with a key.
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

    /// The service's answer, which is a search response. One retry on 429 and 5xx, after the rest that the service
    /// wants, all within the timeout.
    pub async fn search(&self, query: &Query) -> Result<Bytes, SearchError> {
        let body = Bytes::from(serde_json::to_vec(query).unwrap_or_default());
        let deadline = Instant::now() + self.timeout;
        let answer = timeout_at(deadline, self.twice(body, deadline)).await;
        answer.unwrap_or(Err(SearchError::Timeout(self.timeout)))
    }

    async fn twice(&self, body: Bytes, deadline: Instant) -> Result<Bytes, SearchError> {
        let error = match self.once(body.clone()).await {
            Err(error) => error,
            answer => return answer,
        };
        let rest = match &error {
            SearchError::RateLimited(rest) | SearchError::Status(500.., rest) => rest.unwrap_or(REST),
            _ => return Err(error),
        };
        // Whoever would wake up too late need not sleep.
        if rest > MAX_REST || Instant::now().checked_add(rest).is_none_or(|awake| awake >= deadline) {
            return Err(error);
        }
        sleep(rest).await;
        self.once(body).await
    }

    async fn once(&self, body: Bytes) -> Result<Bytes, SearchError> {
        let request = self
            .client
            .post(self.endpoint.clone())
            .header(AUTHORIZATION, self.authorization.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json")
            .header(ACCEPT_ENCODING, "identity")
            .body(body);
        let answer = request.send().await.map_err(|error| SearchError::Unreachable(service_client::why(&error)))?;
        match answer.status() {
            StatusCode::OK => read(answer).await,
            status => Err(self.error(status, answer).await),
        }
    }

    async fn error(&self, status: StatusCode, answer: Response) -> SearchError {
        match status.as_u16() {
            401 | 403 => SearchError::KeyRefused,
            429 => SearchError::RateLimited(retry_after(answer.headers())),
            432 | 433 => SearchError::QuotaUsedUp,
            400 | 422 => {
                let body = Limited::new(Body::from(answer), MAX_ERROR).collect().await;
                let body = body.map(|body| body.to_bytes()).unwrap_or_default();
                SearchError::Refused(self.words(&body))
            }
            other => SearchError::Status(other, retry_after(answer.headers())),
        }
    }

    /// The service's own words, on one line, without the key should it repeat that.
    fn words(&self, body: &[u8]) -> String {
        let json: Value = serde_json::from_slice(body).unwrap_or_default();
        let places = ["/detail/error", "/detail/0/msg", "/detail", "/error", "/message"];
        let said = places.iter().find_map(|place| json.pointer(place)?.as_str()).unwrap_or("it did not say why");
        let key = self.authorization.to_str().ok().and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
        let said = if key.is_empty() { said.to_owned() } else { said.replace(key, "•••") };
        text::single_line(&said, MAX_WORDS)
    }
}

async fn read(answer: Response) -> Result<Bytes, SearchError> {
    let mut codings = answer.headers().get_all(CONTENT_ENCODING).iter();
    if codings.any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(SearchError::Unreadable("it is compressed, which was not asked for"));
    }
    let body = Limited::new(Body::from(answer), MAX_ANSWER).collect().await.map_err(|error| {
        if error.is::<http_body_util::LengthLimitError>() {
            SearchError::Unreadable("it is larger than 4 MiB")
        } else {
            SearchError::Unreachable("the connection broke".to_owned())
        }
    })?;
    let body = body.to_bytes();
    let is_response =
        |text| json::with_parsed(text, |node| matches!(node.get("results"), Some(Node::List(_)))).unwrap_or(false);
    match std::str::from_utf8(&body) {
        Ok(text) if is_response(text) => Ok(body),
        _ => Err(SearchError::Unreadable("it is no search response")),
    }
}

/// Seconds, or a date (RFC 9110 10.2.3).
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    let wait = at.as_millisecond().saturating_sub(jiff::Timestamp::now().as_millisecond());
    Some(Duration::from_millis(u64::try_from(wait).unwrap_or_default()))
}

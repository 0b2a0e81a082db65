//! The HTTP client for OTLP, running on our own runtime.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use http_body_util::{BodyExt, Limited};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use reqwest::Client;
use tokio::{runtime::Handle, time::timeout};

use crate::transport::service_client;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Limit for the collector's response body (only its status matters).
const RESPONSE_BYTES_MAX: usize = 64 * 1024;

pub struct OtlpClient {
    /// `traces` or `metrics`, for log lines.
    signal: &'static str,
    client: Client,
    runtime: Handle,
    timeout: Duration,
    /// True if the last request failed: an outage is logged as two lines, however long it lasts.
    failing: AtomicBool,
}

impl fmt::Debug for OtlpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collector").finish_non_exhaustive()
    }
}

impl OtlpClient {
    pub fn new(signal: &'static str, runtime: Handle, timeout: Duration) -> reqwest::Result<Self> {
        let client = service_client::builder(CONNECT_TIMEOUT.min(timeout)).build()?;
        Ok(Self { signal, client, runtime, timeout, failing: AtomicBool::new(false) })
    }

    /// Logs the start and the end of an outage.
    fn log_outage(&self, result: &Result<Response<Bytes>, String>) {
        let why = match result {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("status {}", response.status().as_u16())),
            Err(why) => Some(why.clone()),
        };
        match (why, self.failing.load(Relaxed)) {
            (Some(why), false) => {
                self.failing.store(true, Relaxed);
                tracing::warn!(
                    signal = self.signal,
                    why,
                    "the collector takes no telemetry; chats go on, and what it misses is dropped"
                );
            }
            (None, true) => {
                self.failing.store(false, Relaxed);
                tracing::warn!(signal = self.signal, "the collector takes telemetry again");
            }
            _ => {}
        }
    }
}

async fn send(client: Client, request: Request<Bytes>) -> Result<Response<Bytes>, String> {
    let response = async { client.execute(request.try_into()?).await };
    let response = response.await.map_err(|error| service_client::why(&error))?;
    let (head, body) = Response::<reqwest::Body>::from(response).into_parts();
    let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await;
    let body = body.map_err(|_| "its answer broke off, or is no answer to this".to_owned())?;
    Ok(Response::from_parts(head, body.to_bytes()))
}

impl HttpClient for OtlpClient {
    /// Called from the SDK's threads, which have no runtime.
    fn send_bytes<'s, 'a>(
        &'s self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'a>>
    where
        's: 'a,
        Self: 'a,
    {
        let (client, limit) = (self.client.clone(), self.timeout);
        let sent = self.runtime.spawn(async move {
            let result = timeout(limit, send(client, request)).await;
            result.unwrap_or_else(|_| Err("no answer in time".to_owned()))
        });
        Box::pin(async move {
            let result = sent.await.unwrap_or_else(|_| Err("citetap is stopping".to_owned()));
            self.log_outage(&result);
            result.map_err(HttpError::from)
        })
    }
}

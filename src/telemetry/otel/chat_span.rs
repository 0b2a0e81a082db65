//! The span and measurements of one upstream request, from sending it to the last byte of the response.

use std::{
    borrow::Cow,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use http::Method;
use opentelemetry::{
    Array, KeyValue, StringValue, Value,
    trace::{Span as _, Status},
};
use opentelemetry_sdk::trace::Span;

use super::Otel;
use crate::{
    pipeline::tap::Tap,
    provider::{FinishReason, Provider},
};

pub const OPERATION: &str = "chat";
/// `error.type` of a request that is dropped before it finished: the client left.
const CLIENT_GONE: &str = "client_gone";

/// What is known of a request when it is sent upstream.
pub struct UpstreamRequest {
    pub route: String,
    pub provider: Provider,
    pub method: Method,
    /// Host of the upstream.
    pub host: String,
    pub port: Option<u16>,
}

/// What is known of a response when it has ended.
pub struct ChatEnd<'a> {
    pub tap: Option<&'a Tap>,
    /// Kind of failure; `None` if the status alone describes it.
    pub error: Option<&'static str>,
    pub citations: usize,
}

/// Span and metrics of one request; recorded on drop with what is known by then.
pub struct ChatSpan {
    otel: Arc<Otel>,
    request: UpstreamRequest,
    /// Model named in the request; set while the request body is still being sent.
    model: Arc<OnceLock<String>>,
    span: Option<Span>,
    began: Instant,
    streamed: bool,
    first_chunk: Option<Duration>,
    last_chunk: Instant,
    /// Attributes of the per-chunk metric, built once.
    chunk_attributes: Vec<KeyValue>,
    status: Option<u16>,
    error: Option<Cow<'static, str>>,
    /// Provider detected by the tap; `None` if the response was not a chat.
    tapped_provider: Option<&'static str>,
    response_attributes: Vec<KeyValue>,
    response_model: Option<String>,
    tokens: [u64; 2],
}

impl ChatSpan {
    pub(super) fn new(otel: Arc<Otel>, request: UpstreamRequest, span: Option<Span>) -> Self {
        let began = Instant::now();
        Self {
            otel,
            request,
            model: Arc::default(),
            span,
            began,
            streamed: false,
            first_chunk: None,
            last_chunk: began,
            chunk_attributes: Vec::new(),
            status: None,
            error: Some(Cow::Borrowed(CLIENT_GONE)),
            tapped_provider: None,
            response_attributes: Vec::new(),
            response_model: None,
            tokens: [0; 2],
        }
    }

    /// Cell to be set when the request body names its model.
    pub fn model(&self) -> Arc<OnceLock<String>> {
        Arc::clone(&self.model)
    }

    /// Records why there is no response.
    pub fn failed(&mut self, kind: &'static str) {
        self.error = Some(Cow::Borrowed(kind));
    }

    pub fn response_status(&mut self, status: u16) {
        self.status = Some(status);
    }

    /// The response is an event stream: measure its chunks.
    pub fn mark_streamed(&mut self) {
        self.streamed = true;
    }

    /// Records the arrival of a chunk.
    pub fn chunk(&mut self, tap: &Tap) {
        if !self.streamed {
            return;
        }
        let now = Instant::now();
        if self.first_chunk.is_none() {
            self.first_chunk = Some(now - self.began);
        } else if let Some(metrics) = &self.otel.metrics {
            if self.chunk_attributes.is_empty() {
                self.chunk_attributes = self.metric_attributes(tap.provider(), tap.model());
            }
            metrics.per_chunk.record((now - self.last_chunk).as_secs_f64(), &self.chunk_attributes);
        }
        self.last_chunk = now;
    }

    /// Records the end of the response and, by dropping the span, exports it.
    pub fn finish(mut self: Box<Self>, end: &ChatEnd<'_>) {
        self.error = match (end.error, self.status) {
            (Some(error), _) => Some(Cow::Borrowed(error)),
            (None, Some(status @ 400..)) => Some(Cow::Owned(status.to_string())),
            _ => None,
        };
        let Some(tap) = end.tap else { return };
        self.tapped_provider = tap.provider();
        self.response_model = tap.model().map(str::to_owned);
        let state = tap.state();
        self.response_attributes.extend(tap.message_id().map(|id| KeyValue::new("gen_ai.response.id", id)));
        self.response_attributes.extend(state.reason.map(|reason| {
            let reasons = Array::String(vec![StringValue::from(finish_reason(reason))]);
            KeyValue::new("gen_ai.response.finish_reasons", Value::Array(reasons))
        }));
        if let Some(usage) = state.usage {
            self.tokens = [usage.input, usage.output];
        }
        self.response_attributes.push(KeyValue::new("citetap.citations.count", number(end.citations)));
    }

    /// True if this was a chat: other requests are relayed too, and get a plain HTTP span.
    fn is_chat(&self) -> bool {
        let is_chat_request = self.request.method == Method::POST && self.request.provider != Provider::AUTO;
        self.tapped_provider.is_some() || self.model.get().is_some() || is_chat_request
    }

    fn server_attributes(&self) -> impl Iterator<Item = KeyValue> {
        let port = self.request.port.map(|port| KeyValue::new("server.port", i64::from(port)));
        [KeyValue::new("server.address", self.request.host.clone())].into_iter().chain(port)
    }

    /// Attributes shared by the metrics and the span.
    fn metric_attributes(&self, provider: Option<&'static str>, response_model: Option<&str>) -> Vec<KeyValue> {
        let provider = provider.unwrap_or(self.request.provider.as_str());
        let mut all =
            vec![KeyValue::new("gen_ai.operation.name", OPERATION), KeyValue::new("gen_ai.provider.name", provider)];
        all.extend(self.model.get().map(|model| KeyValue::new("gen_ai.request.model", model.clone())));
        all.extend(response_model.map(|model| KeyValue::new("gen_ai.response.model", model.to_owned())));
        all.extend(self.server_attributes());
        all
    }
}

impl Drop for ChatSpan {
    fn drop(&mut self) {
        let chat = self.is_chat();
        let mut attributes = if chat {
            self.metric_attributes(self.tapped_provider, self.response_model.as_deref())
        } else {
            self.server_attributes().collect()
        };
        if chat && let Some(metrics) = &self.otel.metrics {
            if let Some(first) = self.first_chunk {
                metrics.first_chunk.record(first.as_secs_f64(), &attributes);
            }
            for (kind, count) in ["input", "output"].into_iter().zip(self.tokens).filter(|(_, count)| *count > 0) {
                let mut attributes = attributes.clone();
                attributes.push(KeyValue::new("gen_ai.token.type", kind));
                metrics.tokens.record(count, &attributes);
            }
            let error = self.error.clone().map(|error| KeyValue::new("error.type", error));
            let attributes: Vec<_> = attributes.iter().cloned().chain(error).collect();
            metrics.duration.record(self.began.elapsed().as_secs_f64(), &attributes);
        }
        let Some(mut span) = self.span.take().filter(|span| span.is_recording()) else { return };
        let name = self.model.get().or(self.response_model.as_ref());
        span.update_name(match name {
            _ if !chat => self.request.method.as_str().to_owned(),
            Some(model) => format!("{OPERATION} {model}"),
            None => OPERATION.to_owned(),
        });
        attributes.push(KeyValue::new("citetap.route", self.request.route.clone()));
        attributes.push(KeyValue::new("http.request.method", self.request.method.to_string()));
        attributes.extend(self.status.map(|status| KeyValue::new("http.response.status_code", i64::from(status))));
        let first = self.first_chunk.map(|first| first.as_secs_f64());
        attributes.extend(first.map(|first| KeyValue::new("gen_ai.response.time_to_first_chunk", first)));
        let names = ["gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"];
        let tokens = names.into_iter().zip(self.tokens).filter(|(_, count)| *count > 0);
        attributes.extend(tokens.map(|(name, count)| KeyValue::new(name, number(count))));
        attributes.append(&mut self.response_attributes);
        if let Some(error) = self.error.take() {
            attributes.push(KeyValue::new("error.type", error));
            span.set_status(Status::error(""));
        }
        span.set_attributes(attributes);
        span.end();
    }
}

fn number(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

/// Spelling of the semantic conventions.
const fn finish_reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
        FinishReason::Filter => "content_filter",
        FinishReason::Tools => "tool_calls",
    }
}

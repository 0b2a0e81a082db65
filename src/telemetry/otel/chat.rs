//! One request to an upstream: a span that ends with the answer's last byte, and what is measured of it.

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
    provider::{Provider, Reason},
};

pub const OPERATION: &str = "chat";
/// What became of a request that is dropped without a word: whoever asked has left.
const GONE: &str = "client_gone";

/// What is known of a request when it is sent on.
pub struct Asked {
    pub route: String,
    pub provider: Provider,
    pub method: Method,
    /// The upstream's.
    pub host: String,
    pub port: Option<u16>,
}

/// What is known of an answer when it is over.
pub struct Ending<'a> {
    pub tap: Option<&'a Tap>,
    /// How it failed, if it did; a status says that by itself.
    pub error: Option<&'static str>,
    pub citations: usize,
}

/// Ends when dropped, whatever it was told until then.
pub struct Chat {
    otel: Arc<Otel>,
    asked: Asked,
    /// Of the request; it may become known while that is still being sent.
    model: Arc<OnceLock<String>>,
    span: Option<Span>,
    began: Instant,
    streamed: bool,
    first_chunk: Option<Duration>,
    last_chunk: Instant,
    /// Of each chunk; made once.
    of_chunks: Vec<KeyValue>,
    status: Option<u16>,
    error: Option<Cow<'static, str>>,
    /// Was the answer a chat's?
    tapped: Option<&'static str>,
    answer: Vec<KeyValue>,
    answer_model: Option<String>,
    tokens: [u64; 2],
}

impl Chat {
    pub(super) fn new(otel: Arc<Otel>, asked: Asked, span: Option<Span>) -> Self {
        let began = Instant::now();
        Self {
            otel,
            asked,
            model: Arc::default(),
            span,
            began,
            streamed: false,
            first_chunk: None,
            last_chunk: began,
            of_chunks: Vec::new(),
            status: None,
            error: Some(Cow::Borrowed(GONE)),
            tapped: None,
            answer: Vec::new(),
            answer_model: None,
            tokens: [0; 2],
        }
    }

    /// To be set when the request names its model.
    pub fn model(&self) -> Arc<OnceLock<String>> {
        Arc::clone(&self.model)
    }

    /// There is no answer, and why.
    pub fn failed(&mut self, kind: &'static str) {
        self.error = Some(Cow::Borrowed(kind));
    }

    pub fn answered(&mut self, status: u16) {
        self.status = Some(status);
    }

    /// The answer comes in events.
    pub fn streams(&mut self) {
        self.streamed = true;
    }

    /// A piece of the answer has come.
    pub fn chunk(&mut self, tap: &Tap) {
        if !self.streamed {
            return;
        }
        let now = Instant::now();
        if self.first_chunk.is_none() {
            self.first_chunk = Some(now - self.began);
        } else if let Some(metrics) = &self.otel.metrics {
            if self.of_chunks.is_empty() {
                self.of_chunks = self.measured(tap.provider(), tap.model());
            }
            metrics.per_chunk.record((now - self.last_chunk).as_secs_f64(), &self.of_chunks);
        }
        self.last_chunk = now;
    }

    /// The answer is over.
    pub fn ended(mut self: Box<Self>, ending: &Ending<'_>) {
        self.error = match (ending.error, self.status) {
            (Some(error), _) => Some(Cow::Borrowed(error)),
            (None, Some(status @ 400..)) => Some(Cow::Owned(status.to_string())),
            _ => None,
        };
        let Some(tap) = ending.tap else { return };
        self.tapped = tap.provider();
        self.answer_model = tap.model().map(str::to_owned);
        let seen = tap.seen();
        self.answer.extend(tap.message_id().map(|id| KeyValue::new("gen_ai.response.id", id)));
        self.answer.extend(seen.reason.map(|reason| {
            let reasons = Array::String(vec![StringValue::from(name_of(reason))]);
            KeyValue::new("gen_ai.response.finish_reasons", Value::Array(reasons))
        }));
        if let Some(usage) = seen.usage {
            self.tokens = [usage.input, usage.output];
        }
        self.answer.push(KeyValue::new("citetap.citations.count", number(ending.citations)));
    }

    /// Requests for other things go through as well.
    fn is_chat(&self) -> bool {
        let asks = self.asked.method == Method::POST && self.asked.provider != Provider::AUTO;
        self.tapped.is_some() || self.model.get().is_some() || asks
    }

    fn server(&self) -> impl Iterator<Item = KeyValue> {
        let port = self.asked.port.map(|port| KeyValue::new("server.port", i64::from(port)));
        [KeyValue::new("server.address", self.asked.host.clone())].into_iter().chain(port)
    }

    /// Attributes of measurements.
    fn measured(&self, provider: Option<&'static str>, answer_model: Option<&str>) -> Vec<KeyValue> {
        let provider = provider.unwrap_or(self.asked.provider.as_str());
        let mut all =
            vec![KeyValue::new("gen_ai.operation.name", OPERATION), KeyValue::new("gen_ai.provider.name", provider)];
        all.extend(self.model.get().map(|model| KeyValue::new("gen_ai.request.model", model.clone())));
        all.extend(answer_model.map(|model| KeyValue::new("gen_ai.response.model", model.to_owned())));
        all.extend(self.server());
        all
    }
}

impl Drop for Chat {
    fn drop(&mut self) {
        let chat = self.is_chat();
        let mut attributes =
            if chat { self.measured(self.tapped, self.answer_model.as_deref()) } else { self.server().collect() };
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
        let name = self.model.get().or(self.answer_model.as_ref());
        span.update_name(match name {
            _ if !chat => self.asked.method.as_str().to_owned(),
            Some(model) => format!("{OPERATION} {model}"),
            None => OPERATION.to_owned(),
        });
        attributes.push(KeyValue::new("citetap.route", self.asked.route.clone()));
        attributes.push(KeyValue::new("http.request.method", self.asked.method.to_string()));
        attributes.extend(self.status.map(|status| KeyValue::new("http.response.status_code", i64::from(status))));
        let first = self.first_chunk.map(|first| first.as_secs_f64());
        attributes.extend(first.map(|first| KeyValue::new("gen_ai.response.time_to_first_chunk", first)));
        let names = ["gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"];
        let tokens = names.into_iter().zip(self.tokens).filter(|(_, count)| *count > 0);
        attributes.extend(tokens.map(|(name, count)| KeyValue::new(name, number(count))));
        attributes.append(&mut self.answer);
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

/// As the conventions spell it.
const fn name_of(reason: Reason) -> &'static str {
    match reason {
        Reason::Stop => "stop",
        Reason::Length => "length",
        Reason::Filter => "content_filter",
        Reason::Tools => "tool_calls",
    }
}

//! Stand-in for [`otel`](super::otel) in builds without the feature: the same interface over types that cannot be
//! constructed.

use std::{
    convert::Infallible,
    sync::{Arc, OnceLock},
    time::Duration,
};

use http::{HeaderMap, Method};

use crate::{pipeline::tap::Tap, provider::Provider};

pub struct UpstreamRequest {
    pub route: String,
    pub provider: Provider,
    pub method: Method,
    pub host: String,
    pub port: Option<u16>,
}

pub struct ChatEnd<'a> {
    pub tap: Option<&'a Tap>,
    pub error: Option<&'static str>,
    pub citations: usize,
}

pub struct Otel(Infallible);

pub struct ChatSpan(Infallible);

impl Otel {
    pub fn from_env() -> Option<Arc<Self>> {
        None
    }

    pub fn start_span(self: &Arc<Self>, _: UpstreamRequest, _: &mut HeaderMap) -> Box<ChatSpan> {
        match self.0 {}
    }

    #[expect(clippy::unused_async, reason = "the other one waits")]
    pub async fn shutdown(&self, _: Duration) {
        match self.0 {}
    }
}

impl ChatSpan {
    pub fn model(&self) -> Arc<OnceLock<String>> {
        match self.0 {}
    }

    pub fn failed(&mut self, _: &'static str) {
        match self.0 {}
    }

    pub fn response_status(&mut self, _: u16) {
        match self.0 {}
    }

    pub fn mark_streamed(&mut self) {
        match self.0 {}
    }

    pub fn chunk(&mut self, _: &Tap) {
        match self.0 {}
    }

    pub fn finish(self: Box<Self>, _: &ChatEnd<'_>) {
        match self.0 {}
    }
}

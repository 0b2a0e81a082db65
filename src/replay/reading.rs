//! What was handed in, through the pipeline: every stream of a capture, or one JSON document.

use std::sync::Arc;

use bytes::Bytes;
use url::Url;

use super::capture::{Captured, Format};
use crate::{
    citation::{Record, Rules},
    pipeline::Supplement,
    pipeline::{
        Budget, Context, End, Inject, Settings,
        whole::{self, Passed},
    },
    profile::Manner,
    provider::{Provider, json},
};

/// How many keys of an unknown document an error names, and how much of each.
const SHOWN_KEYS: usize = 8;
const SHOWN_KEY: usize = 32;

/// How what is handed in is read.
pub struct Reading {
    /// Stands for the route in records.
    pub route: &'static str,
    pub kind: Provider,
    pub link_base: Option<Url>,
    pub inject: Inject,
    pub manner: Manner,
    /// A larger frame is not read.
    pub frame_cap: usize,
    pub rules: Arc<Rules>,
}

impl Reading {
    /// What came of each stream, or of the document. The error says what was seen in its place.
    pub fn pass(&self, captured: Captured) -> Result<Vec<Passed>, String> {
        match captured {
            Captured::Document(text) => self.document(&text).map(|passed| vec![passed]),
            Captured::Streams(streams) => Ok(streams.into_iter().map(|capture| self.stream(capture.sse)).collect()),
        }
    }

    fn stream(&self, sse: Bytes) -> Passed {
        let settings = Settings {
            inject: self.inject,
            emit_empty: false,
            manner: self.manner,
            supplement: Supplement::Off,
            whole: false,
            frame_cap: self.frame_cap,
            budget: Budget::new(sse.len().max(self.frame_cap)),
        };
        // Nothing is stored here, and the events say so.
        let mut passed = whole::pass(self.context(self.kind), settings, [sse], End::Clean, false);
        if let Some(record) = &mut passed.record {
            record.stored = false;
        }
        passed
    }

    fn document(&self, text: &str) -> Result<Passed, String> {
        let kind = match self.kind {
            Provider::Auto(registry) => registry.of_document(text).ok_or_else(|| shown(text))?,
            named => named,
        };
        let passed = whole::pass_document(self.context(kind), Bytes::copy_from_slice(text.as_bytes()));
        match passed.record {
            Some(_) => Ok(passed),
            None => Err(format!("{}, and nothing of {} in it", shown(text), kind.as_str())),
        }
    }

    fn context(&self, provider: Provider) -> Context {
        Context {
            route: self.route.to_owned(),
            provider,
            link_base: self.link_base.clone(),
            nonce: uuid::Uuid::new_v4().simple().to_string(),
            created: jiff::Timestamp::now(),
            fallback_id: uuid::Uuid::now_v7().to_string(),
            task: None,
            rules: Arc::clone(&self.rules),
        }
    }

    /// What is wrong with streams of which none has a message.
    pub fn no_message(&self, passed: &[Passed]) -> String {
        let frames: u64 = passed.iter().map(|passed| passed.tally.frames).sum();
        let whose = match self.kind {
            Provider::Auto(_) => "a known provider",
            named => named.as_str(),
        };
        format!("a capture of {frames} frames, and no message of {whose} in it")
    }
}

/// Records of a HAR file, which may hold several streams: their answer has another shape than that of one.
#[derive(serde::Serialize)]
pub struct Records<'a> {
    pub records: Vec<&'a Record>,
    /// Event streams in which there is no message.
    pub skipped: usize,
}

impl<'a> Records<'a> {
    pub fn of(passed: &'a [Passed]) -> Self {
        let records: Vec<&Record> = passed.iter().filter_map(|passed| passed.record.as_deref()).collect();
        Self { skipped: passed.len() - records.len(), records }
    }
}

impl Captured {
    /// Only these may hold more than one stream.
    pub fn is_har(&self) -> bool {
        matches!(self, Self::Streams(streams) if streams.iter().any(|capture| capture.format == Format::Har))
    }

    /// The stream of that number, from 1, and nothing else. The error says which there are.
    pub fn only(self, entry: usize) -> Result<Self, String> {
        let len = match &self {
            Self::Document(_) => 1,
            Self::Streams(streams) => streams.len(),
        };
        if !(1..=len).contains(&entry) {
            return Err(format!("a number from 1 to {len}: so many streams are in the capture"));
        }
        Ok(match self {
            Self::Document(text) => Self::Document(text),
            Self::Streams(streams) => Self::Streams(streams.into_iter().skip(entry - 1).take(1).collect()),
        })
    }
}

fn shown(text: &str) -> String {
    let keys = json::with_parsed(text, |node| match node {
        json::Node::Map(pairs) => pairs.iter().map(|(key, _)| key.chars().take(SHOWN_KEY).collect()).collect(),
        _ => Vec::new(),
    });
    let keys: Vec<String> = keys.unwrap_or_default();
    if keys.is_empty() {
        return "one JSON document without keys".to_owned();
    }
    let more = if keys.len() > SHOWN_KEYS { ", …" } else { "" };
    let shown = keys.get(..SHOWN_KEYS.min(keys.len())).unwrap_or_default();
    format!("one JSON document with the keys {}{more}", shown.join(", "))
}

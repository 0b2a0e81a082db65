//! Runs captured streams or documents through the pipeline, for `citetap replay`, `/normalize` and the demo's history.

use std::sync::Arc;

use bytes::Bytes;
use url::Url;

use super::capture::{CaptureFile, Format};
use crate::{
    citation::{Record, Rules},
    pipeline::{
        Budget, Context, End, Inject, Settings, Supplement,
        offline::{self, OfflineOutput},
    },
    profile::OutputFormat,
    provider::{Provider, json},
};

/// Limits for the keys of an unknown document that an error quotes: their number, and characters each.
const KEYS_SHOWN_MAX: usize = 8;
const KEY_CHARS_MAX: usize = 32;

/// Pipeline settings for reading captures.
pub struct CaptureReader {
    /// Route name in the records.
    pub route: &'static str,
    pub provider: Provider,
    pub link_base: Option<Url>,
    pub inject: Inject,
    pub output_format: OutputFormat,
    /// Larger frames are passed through without being parsed.
    pub frame_cap: usize,
    pub rules: Arc<Rules>,
}

impl CaptureReader {
    /// Processes each stream, or the document. The error describes what the input contains instead.
    pub fn read(&self, captured: CaptureFile) -> Result<Vec<OfflineOutput>, String> {
        match captured {
            CaptureFile::Document(text) => self.document(&text).map(|output| vec![output]),
            CaptureFile::Streams(streams) => Ok(streams.into_iter().map(|capture| self.stream(capture.sse)).collect()),
        }
    }

    fn stream(&self, sse: Bytes) -> OfflineOutput {
        let settings = Settings {
            inject: self.inject,
            emit_empty: false,
            output_format: self.output_format,
            supplement: Supplement::Off,
            single_document: false,
            frame_cap: self.frame_cap,
            budget: Budget::new(sse.len().max(self.frame_cap)),
        };
        let mut output = offline::run(self.context(self.provider), settings, [sse], End::Clean, false);
        // This pipeline has no store, but a record sent to one has `stored: true`.
        if let Some(record) = &mut output.record {
            record.stored = false;
        }
        output
    }

    fn document(&self, text: &str) -> Result<OfflineOutput, String> {
        let provider = match self.provider {
            Provider::Auto(registry) => registry.detect_document(text).ok_or_else(|| describe_document(text))?,
            named => named,
        };
        let output = offline::run_document(self.context(provider), Bytes::copy_from_slice(text.as_bytes()));
        match output.record {
            Some(_) => Ok(output),
            None => Err(format!("{}, and nothing of {} in it", describe_document(text), provider.as_str())),
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

    /// Error text for streams in which no message was found.
    pub fn no_message(&self, outputs: &[OfflineOutput]) -> String {
        let frames: u64 = outputs.iter().map(|output| output.stream_stats.frames).sum();
        let expected = match self.provider {
            Provider::Auto(_) => "a known provider",
            named => named.as_str(),
        };
        format!("a capture of {frames} frames, and no message of {expected} in it")
    }
}

/// The records of a HAR file. It may hold several streams, so the output differs from that of a single one.
#[derive(serde::Serialize)]
pub struct HarRecords<'a> {
    pub records: Vec<&'a Record>,
    /// Event streams without a message.
    pub skipped: usize,
}

impl<'a> HarRecords<'a> {
    pub fn of(outputs: &'a [OfflineOutput]) -> Self {
        let records: Vec<&Record> = outputs.iter().filter_map(|output| output.record.as_deref()).collect();
        Self { skipped: outputs.len() - records.len(), records }
    }
}

impl CaptureFile {
    /// True for a HAR file, the only format with several streams.
    pub fn is_har(&self) -> bool {
        matches!(self, Self::Streams(streams) if streams.iter().any(|capture| capture.format == Format::Har))
    }

    /// Selects one stream by its number, counted from 1. The error says which exist.
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

fn describe_document(text: &str) -> String {
    let keys = json::with_parsed(text, |node| match node {
        json::Node::Map(pairs) => pairs.iter().map(|(key, _)| key.chars().take(KEY_CHARS_MAX).collect()).collect(),
        _ => Vec::new(),
    });
    let keys: Vec<String> = keys.unwrap_or_default();
    if keys.is_empty() {
        return "one JSON document without keys".to_owned();
    }
    let more = if keys.len() > KEYS_SHOWN_MAX { ", …" } else { "" };
    let listed = keys.get(..KEYS_SHOWN_MAX.min(keys.len())).unwrap_or_default();
    format!("one JSON document with the keys {}{more}", listed.join(", "))
}

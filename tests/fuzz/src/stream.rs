//! Shared by the stream targets: settings, and the answer of a stream as its adapter alone reads it.

use std::sync::Arc;

use bytes::Bytes;
use citetap::{
    marker::Scanner,
    pipeline::{Budget, Context, Inject, Settings, Supplement},
    profile::OutputFormat,
    provider::{Provider, Signal, Sink, json},
    sse::{Cut, Event, Splitter},
};

pub const NONCE: &str = "0011223344556677";
pub const FRAME_CAP: usize = 4 << 20;

pub fn context(provider: Provider) -> Context {
    Context {
        route: "test".to_owned(),
        provider,
        link_base: url::Url::parse("https://lexiangla.com/").ok(),
        nonce: NONCE.to_owned(),
        created: "2026-01-13T09:18:07.049Z".parse().unwrap(),
        fallback_id: "018f0000-0000-7000-8000-000000000000".to_owned(),
        task: None,
        rules: citetap::config::default_rules(),
    }
}

pub fn settings(inject: Inject, output_format: OutputFormat, budget: &Arc<Budget>) -> Settings {
    Settings {
        inject,
        emit_empty: false,
        output_format,
        supplement: Supplement::Off,
        single_document: false,
        frame_cap: FRAME_CAP,
        budget: Arc::clone(budget),
    }
}

pub fn one(stream: &[u8]) -> [Bytes; 1] {
    [Bytes::copy_from_slice(stream)]
}

/// The frames and separators of a stream, and the bytes after the last one.
pub fn pieces(stream: &[u8]) -> Vec<&[u8]> {
    let (mut splitter, mut at, mut all) = (Splitter::default(), 0, Vec::new());
    while let Some(Cut::Frame(len) | Cut::Separator(len)) = splitter.advance(&stream[at..]) {
        all.push(&stream[at..at + len]);
        at += len;
    }
    if at < stream.len() {
        all.push(&stream[at..]);
    }
    all
}

/// The upstream's answer, read by its adapter without ledger and pipeline.
#[derive(Default)]
pub struct UpstreamAnswer {
    /// The text up to the end of the answer, as clients of another dialect receive it.
    pub text: String,
    pub thinking: String,
    pub ended: bool,
    /// Offset of the frame that ended the answer.
    pub ended_at: Option<usize>,
    /// Numbers of markers within the answer.
    pub marker_numbers: Vec<u32>,
    /// Numbers of markers in all text, including text after the end.
    pub all_marker_numbers: Vec<u32>,
    /// Text followed the end. It may complete or invalidate a marker before the end.
    pub has_late_text: bool,
    pub references: usize,
    /// The upstream itself reports a source as cited.
    pub has_cited_reference: bool,
    full_text: String,
    all_text: String,
    /// Full texts, and whether each came after the end.
    full_texts: Vec<(bool, String)>,
}

impl Sink for UpstreamAnswer {
    fn signal(&mut self, signal: Signal<'_>) {
        match signal {
            Signal::Text(text, _) => {
                self.all_text.push_str(text);
                if self.ended_at.is_none() {
                    self.text.push_str(text);
                }
            }
            Signal::FullText(text, _) => {
                self.full_texts.push((self.ended_at.is_some(), text.to_owned()));
                if self.ended_at.is_none() {
                    self.full_text = text.to_owned();
                }
            }
            Signal::Thinking(text) if self.ended_at.is_none() => self.thinking.push_str(text),
            Signal::Finish(_) | Signal::Fault { .. } => self.ended = true,
            Signal::Reference(reference) => {
                self.references += 1;
                self.has_cited_reference |= reference.cited;
            }
            _ => {}
        }
    }
}

impl UpstreamAnswer {
    /// Reads a stream. If `clean`, a last frame without its blank line counts.
    pub fn read(kind: Provider, stream: &[u8], clean: bool, frame_cap: usize) -> Self {
        let mut answer = Self::default();
        let mut adapter = kind.adapter();
        let (mut splitter, mut at) = (Splitter::default(), 0);
        while at < stream.len() {
            let cut = splitter.advance(&stream[at..]);
            let (len, read) = match cut {
                Some(Cut::Frame(len)) => (len, true),
                Some(Cut::Separator(len)) => (len, false),
                None => (stream.len() - at, clean && !is_cut(&stream[at..])),
            };
            let event = Event::read(&stream[at..at + len]);
            if read && len <= frame_cap && event.data.is_some() && !adapter.gave_up() {
                let _ = adapter.frame(&event, &mut answer);
                if answer.ended && answer.ended_at.is_none() {
                    answer.ended_at = Some(at);
                }
            }
            at += len;
        }
        answer.marker_numbers = numbers(&answer.text);
        answer.all_marker_numbers = numbers(&answer.all_text);
        answer.has_late_text = answer.all_text != answer.text;
        for (is_late, text) in std::mem::take(&mut answer.full_texts) {
            let to = if is_late { &mut answer.all_marker_numbers } else { &mut answer.marker_numbers };
            to.extend(numbers(&text));
        }
        if answer.text.is_empty() {
            answer.text = std::mem::take(&mut answer.full_text);
        }
        answer
    }
}

fn numbers(text: &str) -> Vec<u32> {
    let mut scanner = Scanner::default();
    scanner.feed(text);
    scanner.numbers().collect()
}

/// A last frame that is cut within its data is not parsed.
fn is_cut(frame: &[u8]) -> bool {
    let data = Event::read(frame).data.unwrap_or_default();
    let data = data.trim();
    let is_partial = data.is_empty() || (data.starts_with('{') && json::with_parsed(data, |_| ()).is_none());
    is_partial && !frame.ends_with(b"\n") && !frame.ends_with(b"\r")
}

//! What the targets of streams have in common: settings, and a second reading of what a stream says.

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

/// All cuts of a stream and what follows the last.
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

/// What the upstream said, told by its adapter alone.
#[derive(Default)]
pub struct Said {
    /// Up to the end of the answer, as clients of another dialect get it.
    pub text: String,
    pub thinking: String,
    pub ended: bool,
    /// Where the frame stands that ended it.
    pub ended_at: Option<usize>,
    /// Numbers that a marker names: in the answer, and also after its end.
    pub named: Vec<u32>,
    pub named_late: Vec<u32>,
    /// Text came after the end: it may make something else of what stood there.
    pub goes_on: bool,
    pub references: usize,
    /// The upstream says itself that its answer uses something.
    pub cites: bool,
    answer: String,
    late: String,
    answers: Vec<(bool, String)>,
}

impl Sink for Said {
    fn signal(&mut self, signal: Signal<'_>) {
        match signal {
            Signal::Text(text, _) => {
                self.late.push_str(text);
                if self.ended_at.is_none() {
                    self.text.push_str(text);
                }
            }
            Signal::FullText(text, _) => {
                self.answers.push((self.ended_at.is_some(), text.to_owned()));
                if self.ended_at.is_none() {
                    self.answer = text.to_owned();
                }
            }
            Signal::Thinking(text) if self.ended_at.is_none() => self.thinking.push_str(text),
            Signal::Finish(_) | Signal::Fault { .. } => self.ended = true,
            Signal::Reference(reference) => {
                self.references += 1;
                self.cites |= reference.cited;
            }
            _ => {}
        }
    }
}

impl Said {
    /// `clean`: a last frame without its blank line counts.
    pub fn read(kind: Provider, stream: &[u8], clean: bool, frame_cap: usize) -> Self {
        let mut said = Self::default();
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
                let _ = adapter.frame(&event, &mut said);
                if said.ended && said.ended_at.is_none() {
                    said.ended_at = Some(at);
                }
            }
            at += len;
        }
        said.named = numbers(&said.text);
        said.named_late = numbers(&said.late);
        said.goes_on = said.late != said.text;
        for (late, answer) in std::mem::take(&mut said.answers) {
            let to = if late { &mut said.named_late } else { &mut said.named };
            to.extend(numbers(&answer));
        }
        if said.text.is_empty() {
            said.text = std::mem::take(&mut said.answer);
        }
        said
    }
}

fn numbers(text: &str) -> Vec<u32> {
    let mut scanner = Scanner::default();
    scanner.feed(text);
    scanner.numbers().collect()
}

/// A last frame that was broken off in the midst of its data says nothing.
fn is_cut(frame: &[u8]) -> bool {
    let data = Event::read(frame).data.unwrap_or_default();
    let data = data.trim();
    let torn = data.is_empty() || (data.starts_with('{') && json::with_parsed(data, |_| ()).is_none());
    torn && !frame.ends_with(b"\n") && !frame.ends_with(b"\r")
}

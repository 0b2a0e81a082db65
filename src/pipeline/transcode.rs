//! Encodes the answer in another dialect than the upstream's.

use super::{Tap, frame_signals::FrameSignal};
use crate::{
    citation::{Record, text},
    marker::{Mark, Rewriter, Source, Sources, Style},
    profile::{Encoder, Positions},
    provider::FinishReason,
};

/// Error text for an upstream error without a message.
const NO_MESSAGE: &str = "the upstream reported an error";
/// Characters of an upstream's error message and of its code; longer ones are cut.
const MAX_FAULT: usize = 1000;

/// Replaces the ledger after a panic.
struct NoSources;

impl Sources for NoSources {
    fn find(&self, _: u32) -> Option<Source<'_>> {
        None
    }
}

/// Encodes one answer for a client of another dialect.
pub struct Transcoder {
    encoder: Box<dyn Encoder>,
    rewriter: Rewriter,
    style: Style,
    positions: Positions,
    open: bool,
    /// Pieces of the answer came, so a whole answer at the end repeats them.
    has_text: bool,
    /// The queries encoded last.
    queries: Vec<String>,
    /// Rewritten markers.
    pub rewritten: u64,
    /// The error that the client was sent.
    pub failure: Option<Failure>,
}

/// An error that ends an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub code: Option<String>,
    pub message: String,
}

impl Transcoder {
    pub fn new(encoder: Box<dyn Encoder>, style: Style) -> Self {
        Self {
            encoder,
            rewriter: Rewriter::new(style),
            style,
            positions: Positions::of_style(style),
            open: false,
            has_text: false,
            queries: Vec::new(),
            rewritten: 0,
            failure: None,
        }
    }

    /// Encodes the signals of a frame, except how the answer ended.
    pub fn encode(&mut self, signals: &[FrameSignal], tap: &Tap, out: &mut Vec<u8>) {
        for signal in signals {
            match signal {
                FrameSignal::Text { text, .. } => self.text(text, tap, out),
                FrameSignal::FullText { text, .. } if !self.has_text => self.text(text, tap, out),
                FrameSignal::Thinking(text) => self.started_encoder(tap, out).thinking(text, out),
                FrameSignal::Stage { name, message, detail } => {
                    self.started_encoder(tap, out).stage(name, message, detail.as_deref(), out);
                }
                // The upstream repeats a search whenever it has found more.
                FrameSignal::Searching(queries) if queries.is_empty() || *queries == self.queries => {}
                FrameSignal::Searching(queries) => {
                    self.queries.clone_from(queries);
                    self.started_encoder(tap, out).searching(queries, out);
                }
                FrameSignal::Usage(usage) => self.started_encoder(tap, out).usage(*usage, out),
                FrameSignal::FullText { .. } | FrameSignal::Finish(_) | FrameSignal::Fault { .. } => {}
            }
        }
    }

    /// Encodes the signals of a frame after the answer's end: only usage.
    pub fn encode_late(&mut self, signals: &[FrameSignal], tap: &Tap, out: &mut Vec<u8>) {
        for signal in signals {
            if let FrameSignal::Usage(usage) = signal {
                self.started_encoder(tap, out).usage(*usage, out);
            }
        }
    }

    /// Encodes text that was held back for an open marker. No more text follows.
    pub fn flush(&mut self, tap: &Tap, out: &mut Vec<u8>) {
        let (mut text, mut marks) = (String::new(), Vec::new());
        self.rewriter.finish(&tap.sources(), &mut text, &mut marks);
        self.encode_text(&text, &marks, tap, out);
        let definitions = self.rewriter.definitions(&tap.sources());
        if !definitions.is_empty() {
            self.started_encoder(tap, out).text(&definitions, out);
        }
    }

    pub fn live(&mut self, record: &Record, tap: &Tap, out: &mut Vec<u8>) {
        self.started_encoder(tap, out).live(record, out);
    }

    pub fn citations(&mut self, record: &Record, tap: &Tap, out: &mut Vec<u8>) {
        self.started_encoder(tap, out);
        self.positions.length = self.rewriter.length();
        self.encoder.citations(record, &self.positions, out);
    }

    /// Encodes how the answer ended. An `incomplete` answer, which lacks an oversized frame, never ends with
    /// [`FinishReason::Stop`].
    pub fn close(&mut self, signals: &[FrameSignal], incomplete: bool, tap: &Tap, out: &mut Vec<u8>) {
        let encoder = self.started_encoder(tap, out);
        let cut = |text| text::first_chars(text, MAX_FAULT);
        let fault = signals.iter().find_map(|signal| match signal {
            FrameSignal::Fault { code, message } => Some((code.as_deref().map(cut), message.as_deref().map(cut))),
            _ => None,
        });
        let reason = signals.iter().find_map(|signal| match signal {
            FrameSignal::Finish(reason) => Some(*reason),
            _ => None,
        });
        match (fault, reason) {
            (Some((code, message)), None) => {
                let message = message.unwrap_or(NO_MESSAGE);
                encoder.fault(code, message, out);
                self.failure = Some(Failure { code: code.map(ToOwned::to_owned), message: message.to_owned() });
            }
            (_, None | Some(FinishReason::Stop)) if incomplete => encoder.finish(FinishReason::Length, out),
            (_, reason) => encoder.finish(reason.unwrap_or_default(), out),
        }
    }

    /// Encodes the text that was held back and an error, when the upstream's stream cannot be read.
    pub fn fail(&mut self, message: &str, tap: &Tap, out: &mut Vec<u8>) {
        let mut text = String::new();
        self.rewriter.finish(&NoSources, &mut text, &mut Vec::new());
        self.encode_text(&text, &[], tap, out);
        self.started_encoder(tap, out).fault(None, message, out);
        self.failure = Some(Failure { code: None, message: message.to_owned() });
    }

    pub fn end(&mut self, out: &mut Vec<u8>) {
        self.encoder.end(out);
    }

    fn text(&mut self, piece: &str, tap: &Tap, out: &mut Vec<u8>) {
        self.has_text = true;
        let (mut text, mut marks) = (String::new(), Vec::new());
        self.rewriter.push(piece, &tap.sources(), &mut text, &mut marks);
        self.encode_text(&text, &marks, tap, out);
    }

    fn encode_text(&mut self, text: &str, marks: &[Mark], tap: &Tap, out: &mut Vec<u8>) {
        marks.iter().for_each(|mark| self.positions.note(mark));
        if self.style != Style::Keep {
            self.rewritten += marks.len() as u64;
        }
        if !text.is_empty() {
            self.started_encoder(tap, out).text(text, out);
        }
    }

    fn started_encoder(&mut self, tap: &Tap, out: &mut Vec<u8>) -> &mut dyn Encoder {
        if !std::mem::replace(&mut self.open, true) {
            tap.with_message_start(|start| self.encoder.open(start, out));
        }
        &mut *self.encoder
    }
}

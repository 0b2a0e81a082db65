//! The answer in another dialect than the upstream's.

use super::{Tap, frame_signals::FrameSignal};
use crate::{
    citation::{Record, text},
    marker::{Mark, Rewriter, Source, Sources, Style},
    profile::{Encoder, Positions},
    provider::FinishReason,
};

/// What is said where the upstream failed without a word.
const NO_WORDS: &str = "the upstream reported an error";
/// Characters of its words, and of its code; what is beyond is left out.
const MAX_FAULT: usize = 1000;

/// After a panic the ledger is not asked any more.
struct NoSources;

impl Sources for NoSources {
    fn find(&self, _: u32) -> Option<Source<'_>> {
        None
    }
}

pub struct Transcode {
    encoder: Box<dyn Encoder>,
    rewriter: Rewriter,
    style: Style,
    positions: Positions,
    open: bool,
    /// A piece of the answer came: the whole answer, sent once more at the end, is nothing new.
    texted: bool,
    /// What was last said to be searched for.
    searching: Vec<String>,
    pub rewritten: u64,
    /// What the client was told of a failure.
    pub failure: Option<Failure>,
}

/// Why there is no answer, or no more of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub code: Option<String>,
    pub message: String,
}

impl Transcode {
    pub fn new(encoder: Box<dyn Encoder>, style: Style) -> Self {
        Self {
            encoder,
            rewriter: Rewriter::new(style),
            style,
            positions: Positions::of_style(style),
            open: false,
            texted: false,
            searching: Vec::new(),
            rewritten: 0,
            failure: None,
        }
    }

    /// What a frame said, up to the answer's end.
    pub fn hear(&mut self, heard: &[FrameSignal], tap: &Tap, out: &mut Vec<u8>) {
        for heard in heard {
            match heard {
                FrameSignal::Text { text, .. } => self.text(text, tap, out),
                FrameSignal::FullText { text, .. } if !self.texted => self.text(text, tap, out),
                FrameSignal::Thinking(text) => self.opened(tap, out).thinking(text, out),
                FrameSignal::Stage { name, message, detail } => {
                    self.opened(tap, out).stage(name, message, detail.as_deref(), out);
                }
                // A search is sent again whenever it has found more.
                FrameSignal::Searching(queries) if queries.is_empty() || *queries == self.searching => {}
                FrameSignal::Searching(queries) => {
                    self.searching.clone_from(queries);
                    self.opened(tap, out).searching(queries, out);
                }
                FrameSignal::Usage(usage) => self.opened(tap, out).usage(*usage, out),
                FrameSignal::FullText { .. } | FrameSignal::Finish(_) | FrameSignal::Fault { .. } => {}
            }
        }
    }

    /// What a frame said after the answer's end: what it cost, no more.
    pub fn hear_late(&mut self, heard: &[FrameSignal], tap: &Tap, out: &mut Vec<u8>) {
        for heard in heard {
            if let FrameSignal::Usage(usage) = heard {
                self.opened(tap, out).usage(*usage, out);
            }
        }
    }

    /// No more text comes.
    pub fn flush(&mut self, tap: &Tap, out: &mut Vec<u8>) {
        let (mut text, mut marks) = (String::new(), Vec::new());
        self.rewriter.finish(&tap.sources(), &mut text, &mut marks);
        self.said(&text, &marks, tap, out);
        let definitions = self.rewriter.definitions(&tap.sources());
        if !definitions.is_empty() {
            self.opened(tap, out).text(&definitions, out);
        }
    }

    pub fn live(&mut self, record: &Record, tap: &Tap, out: &mut Vec<u8>) {
        self.opened(tap, out).live(record, out);
    }

    pub fn citations(&mut self, record: &Record, tap: &Tap, out: &mut Vec<u8>) {
        self.opened(tap, out);
        self.positions.length = self.rewriter.length();
        self.encoder.citations(record, &self.positions, out);
    }

    /// How the answer ended, as the frame that ended it said. Of an answer that is `short` of a part, nobody says
    /// that it came to its end.
    pub fn close(&mut self, heard: &[FrameSignal], short: bool, tap: &Tap, out: &mut Vec<u8>) {
        let encoder = self.opened(tap, out);
        let cut = |words| text::first_chars(words, MAX_FAULT);
        let fault = heard.iter().find_map(|heard| match heard {
            FrameSignal::Fault { code, message } => Some((code.as_deref().map(cut), message.as_deref().map(cut))),
            _ => None,
        });
        let reason = heard.iter().find_map(|heard| match heard {
            FrameSignal::Finish(reason) => Some(*reason),
            _ => None,
        });
        match (fault, reason) {
            (Some((code, message)), None) => {
                let message = message.unwrap_or(NO_WORDS);
                encoder.fault(code, message, out);
                self.failure = Some(Failure { code: code.map(ToOwned::to_owned), message: message.to_owned() });
            }
            (_, None | Some(FinishReason::Stop)) if short => encoder.finish(FinishReason::Length, out),
            (_, reason) => encoder.finish(reason.unwrap_or_default(), out),
        }
    }

    /// The upstream cannot be understood: there is nothing to say but that, and what was held back of the text.
    pub fn fail(&mut self, message: &str, tap: &Tap, out: &mut Vec<u8>) {
        let mut text = String::new();
        self.rewriter.finish(&NoSources, &mut text, &mut Vec::new());
        self.said(&text, &[], tap, out);
        self.opened(tap, out).fault(None, message, out);
        self.failure = Some(Failure { code: None, message: message.to_owned() });
    }

    pub fn end(&mut self, out: &mut Vec<u8>) {
        self.encoder.end(out);
    }

    fn text(&mut self, piece: &str, tap: &Tap, out: &mut Vec<u8>) {
        self.texted = true;
        let (mut text, mut marks) = (String::new(), Vec::new());
        self.rewriter.push(piece, &tap.sources(), &mut text, &mut marks);
        self.said(&text, &marks, tap, out);
    }

    fn said(&mut self, text: &str, marks: &[Mark], tap: &Tap, out: &mut Vec<u8>) {
        for mark in marks {
            self.positions.note(mark);
        }
        if self.style != Style::Keep {
            self.rewritten += marks.len() as u64;
        }
        if !text.is_empty() {
            self.opened(tap, out).text(text, out);
        }
    }

    fn opened(&mut self, tap: &Tap, out: &mut Vec<u8>) -> &mut dyn Encoder {
        if !std::mem::replace(&mut self.open, true) {
            tap.open(|opening| self.encoder.open(opening, out));
        }
        &mut *self.encoder
    }
}

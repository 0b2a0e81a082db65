//! The way of a chunk where the client does not get the upstream's bytes as they are: frame by frame.

use bytes::Bytes;

use super::{
    Cut, End, Form, Output, OutputMode, Phase, Pipeline, UNFINISHED, UNREADABLE, budget::counted,
    frame_signals::FrameSignal,
};
use crate::provider::error_document::ErrorDocument;

impl Pipeline {
    /// Works through the chunk until it is used up or a commit is awaited.
    pub(super) fn run_framed(&mut self) {
        while !self.relays() {
            let Some((cut, end)) = self.input.next_cut() else { return self.keep_rest() };
            let carried = self.carried(end);
            let piece = carried.unwrap_or_else(|| self.input.chunk.slice(self.input.at..end));
            self.input.at = end;
            self.input.unsent = end;
            let skipped = std::mem::take(&mut self.input.partial.skipping);
            let tapped = matches!(cut, Cut::Frame(_)) && !skipped && self.fits(counted(&piece)) && self.tap.is_some();
            if tapped {
                self.heard.clear();
                let ends = self.read(&piece) && self.message.phase == Phase::Due;
                self.frame(piece, ends);
                if self.waits() {
                    return;
                }
            } else {
                self.emit(piece);
            }
            // The upstream's line ends are no matter of another dialect.
            if matches!(self.mode, OutputMode::Transcode(_)) || !self.input.splitter.awaits_lf() {
                self.live();
            }
        }
        // The tap was lost in the midst of the chunk.
        self.pass_all();
    }

    /// The stream ended, and `rest` is what is left of it. It was read, if it was whole.
    pub(super) fn finish_framed(&mut self, end: End, rest: Bytes) {
        // In the midst of a frame that passed in part there is no boundary; another dialect has its own frames.
        let due = self.message.phase == Phase::Due
            && (!self.input.partial.skipping || matches!(self.mode, OutputMode::Transcode(_)));
        if self.settings.single_document && end == End::Clean {
            self.document(rest);
        } else if end == End::Clean && self.message.phase == Phase::Due && !due {
            // What waits for an open marker goes out all the same.
            self.flush();
            self.ends(rest, Some(Vec::new()), false);
        } else if end == End::Clean {
            self.frame(rest, due);
        } else {
            // What was held back of the text goes out; then the stream breaks off as the upstream's did. An answer that
            // has ended has said all.
            self.heard.clear();
            if self.message.phase == Phase::Due {
                self.flush();
            }
            self.ends(rest, None, due);
        }
        if self.waits() {
            return;
        }
        // What came after the answer's end joins the record.
        self.store_rest();
        if end == End::Clean {
            self.end_speech();
        }
    }

    /// Nothing more is said.
    pub(super) fn end_speech(&mut self) {
        if let OutputMode::Transcode(speak) = &mut self.mode {
            let mut out = Vec::new();
            speak.end(&mut out);
            self.say(out);
        }
    }

    /// Says how the answer ended, where that waited for our event.
    pub(super) fn say_end(&mut self) {
        let Some(closing) = self.message.closing.take() else { return };
        if let (OutputMode::Transcode(speak), Some(tap)) = (&mut self.mode, &self.tap) {
            let mut out = Vec::new();
            speak.close(&closing, self.stream_stats.oversized > 0, tap, &mut out);
            self.say(out);
        }
    }

    /// What has waited long enough goes out.
    pub(super) fn drain(&mut self) {
        if let OutputMode::Rewrite(rewrite) = &mut self.mode {
            self.out.extend(std::iter::from_fn(|| rewrite.take()));
        }
    }

    pub(super) fn say(&mut self, out: Vec<u8>) {
        if !out.is_empty() {
            self.out.push_back(Output::Bytes(Bytes::from(out)));
        }
    }

    /// A frame that was read, and whether the answer ends with it.
    fn frame(&mut self, frame: Bytes, ends: bool) {
        let heard = std::mem::take(&mut self.heard);
        let closing = if ends { self.closing_of(&heard) } else { Vec::new() };
        let Some(tap) = &self.tap else { return self.emit(frame) };
        match &mut self.mode {
            OutputMode::Relay => return self.emit(frame),
            OutputMode::Rewrite(rewrite) if self.message.phase == Phase::Due => {
                rewrite.frame(frame, heard, &tap.sources())
            }
            // After its end an answer is not rewritten.
            OutputMode::Rewrite(rewrite) => rewrite.pass(Output::Bytes(frame)),
            OutputMode::Transcode(speak) => {
                let mut out = Vec::new();
                if self.message.phase == Phase::Due {
                    speak.hear(&heard, tap, &mut out);
                } else {
                    speak.hear_late(&heard, tap, &mut out);
                }
                self.say(out);
            }
        }
        if !ends {
            return self.drain();
        }
        self.flush();
        let resume = match &self.mode {
            // The frame that ends the answer comes after our event.
            OutputMode::Rewrite(_) => match self.out.pop_back() {
                Some(Output::Bytes(last)) => last,
                other => {
                    self.out.extend(other);
                    Bytes::new()
                }
            },
            _ => Bytes::new(),
        };
        self.ends(resume, Some(closing), true);
    }

    /// What a frame says of the answer's end, or what is to be said of an end that nobody announced.
    fn closing_of(&self, heard: &[FrameSignal]) -> Vec<FrameSignal> {
        let ends = |heard: &&FrameSignal| matches!(heard, FrameSignal::Finish(_) | FrameSignal::Fault { .. });
        let closing: Vec<FrameSignal> = heard.iter().filter(ends).cloned().collect();
        if !closing.is_empty() {
            return closing;
        }
        let message = if self.understood() { UNFINISHED } else { UNREADABLE };
        vec![FrameSignal::Fault { code: None, message: Some(message.to_owned()) }]
    }

    /// Something of an answer was seen, or there was nothing to see.
    fn understood(&self) -> bool {
        let silent = self.stream_stats.frames == 0 && self.stream_stats.oversized == 0;
        silent || self.tap.as_ref().is_some_and(|tap| tap.state().any)
    }

    /// All text has come.
    fn flush(&mut self) {
        let Some(tap) = &self.tap else { return };
        match &mut self.mode {
            OutputMode::Relay => {}
            OutputMode::Rewrite(rewrite) => {
                rewrite.finish(&tap.sources());
                self.drain();
            }
            OutputMode::Transcode(speak) => {
                let mut out = Vec::new();
                speak.flush(tap, &mut out);
                self.say(out);
            }
        }
    }

    /// The answer ends: our event where it is due, then `resume`, then how it ended.
    fn ends(&mut self, resume: Bytes, closing: Option<Vec<FrameSignal>>, due: bool) {
        let clean = closing.is_some();
        self.message.closing = closing;
        if due && clean && self.awaits_supplement() {
            return self.close(resume);
        }
        if due && self.wants_event() {
            return self.commit(resume);
        }
        if clean {
            self.supplement_aside();
        }
        self.message.phase = Phase::Done;
        self.store_rest();
        self.emit(resume);
        self.say_end();
    }

    /// An answer that was not streamed.
    fn document(&mut self, json: Bytes) {
        let heard = std::mem::take(&mut self.heard);
        let Some(tap) = &self.tap else { return self.emit(json) };
        match &mut self.mode {
            OutputMode::Relay => self.emit(json),
            OutputMode::Rewrite(rewrite) => {
                let json = rewrite.document(json, heard, &tap.sources());
                let whole = self.message.ended == Some(End::Clean);
                self.ends(json, whole.then(Vec::new), true);
            }
            OutputMode::Transcode(_) => {
                let said = heard.iter().any(|heard| {
                    matches!(
                        heard,
                        FrameSignal::Text { .. }
                            | FrameSignal::FullText { .. }
                            | FrameSignal::Thinking(_)
                            | FrameSignal::Fault { .. }
                    )
                });
                self.heard = heard;
                if !said && tap.citable() == 0 {
                    return self.foreign_document(json);
                }
                self.frame(Bytes::new(), true);
            }
        }
    }

    /// A document that is no answer: an error, or something else that the upstream serves, which passes as it is
    /// where a document is what the client gets.
    fn foreign_document(&mut self, json: Bytes) {
        let error = std::str::from_utf8(&json).ok().and_then(ErrorDocument::parse).filter(|error| error.is_error);
        if error.is_none() && self.settings.output_format.form == Form::Document {
            self.mode = OutputMode::Relay;
            self.message.phase = Phase::Done;
            self.store_rest();
            return self.emit(json);
        }
        if let Some(error) = error {
            self.heard = vec![FrameSignal::Fault { code: error.code, message: error.message }];
        }
        self.frame(Bytes::new(), true);
    }
}

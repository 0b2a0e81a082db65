//! The way of a chunk where the client does not get the upstream's bytes as they are: frame by frame.

use bytes::Bytes;

use super::{Cut, End, Out, Phase, Pipeline, UNFINISHED, Voice, heard::Heard};

impl Pipeline {
    /// Works through the chunk until it is used up or a commit is awaited.
    pub(super) fn run_framed(&mut self) {
        while !self.relays() {
            let Some(cut) = self.splitter.advance(self.chunk.get(self.at..).unwrap_or_default()) else {
                return self.keep_rest();
            };
            let (Cut::Frame(len) | Cut::Glue(len)) = cut;
            let end = self.at + len;
            let carried = self.carried(end);
            let piece = carried.unwrap_or_else(|| self.chunk.slice(self.at..end));
            self.at = end;
            self.unsent = end;
            let skipped = std::mem::take(&mut self.skipping);
            let tapped = matches!(cut, Cut::Frame(_)) && !skipped && self.fits(piece.len()) && self.tap.is_some();
            if !tapped {
                self.emit(piece);
                continue;
            }
            self.heard.clear();
            let ends = self.read(&piece) && self.phase == Phase::Due;
            self.frame(piece, ends);
            if self.waits() {
                return;
            }
            if !self.splitter.awaits_lf() {
                self.live();
            }
        }
        // The tap was lost in the midst of the chunk.
        self.pass_all();
    }

    /// The stream ended, and `rest` is what is left of it. It was read, if it was whole.
    pub(super) fn finish_framed(&mut self, end: End, rest: Bytes) {
        let due = self.phase == Phase::Due && !self.skipping;
        if self.settings.whole {
            self.document(rest);
        } else if end == End::Clean {
            self.frame(rest, due);
        } else {
            // What was held back of the text goes out; then the stream breaks off as the upstream's did.
            self.heard.clear();
            self.flush();
            self.ends(rest, None, due);
        }
        if end == End::Clean && !self.waits() {
            self.end_speech();
        }
    }

    /// Nothing more is said.
    pub(super) fn end_speech(&mut self) {
        if let Voice::Speak(speak) = &mut self.voice {
            let mut out = Vec::new();
            speak.end(&mut out);
            self.say(out);
        }
    }

    /// Says how the answer ended, where that waited for our event.
    pub(super) fn say_end(&mut self) {
        let Some(closing) = self.closing.take() else { return };
        if let (Voice::Speak(speak), Some(tap)) = (&mut self.voice, &self.tap) {
            let mut out = Vec::new();
            speak.close(&closing, tap, &mut out);
            self.say(out);
        }
    }

    /// What has waited long enough goes out.
    pub(super) fn drain(&mut self) {
        if let Voice::Rewrite(rewrite) = &mut self.voice {
            self.out.extend(std::iter::from_fn(|| rewrite.take()));
        }
    }

    pub(super) fn say(&mut self, out: Vec<u8>) {
        if !out.is_empty() {
            self.out.push_back(Out::Bytes(Bytes::from(out)));
        }
    }

    /// A frame that was read, and whether the answer ends with it.
    fn frame(&mut self, frame: Bytes, ends: bool) {
        let heard = std::mem::take(&mut self.heard);
        let closing = heard.iter().filter(|heard| matches!(heard, Heard::Finish(_) | Heard::Fault { .. })).cloned();
        let mut closing: Vec<Heard> = closing.collect();
        if closing.is_empty() {
            closing.push(Heard::Fault { code: None, message: Some(UNFINISHED.to_owned()) });
        }
        let Some(tap) = &self.tap else { return self.emit(frame) };
        match &mut self.voice {
            Voice::Relay => return self.emit(frame),
            Voice::Rewrite(rewrite) if self.phase == Phase::Due => rewrite.frame(frame, heard, &tap.sources()),
            // After its end an answer is not rewritten.
            Voice::Rewrite(rewrite) => rewrite.pass(Out::Bytes(frame)),
            Voice::Speak(speak) => {
                let mut out = Vec::new();
                if self.phase == Phase::Due {
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
        let resume = match &self.voice {
            // The frame that ends the answer comes after our event.
            Voice::Rewrite(_) => match self.out.pop_back() {
                Some(Out::Bytes(last)) => last,
                other => {
                    self.out.extend(other);
                    Bytes::new()
                }
            },
            _ => Bytes::new(),
        };
        self.ends(resume, Some(closing), true);
    }

    /// All text has come.
    fn flush(&mut self) {
        let Some(tap) = &self.tap else { return };
        match &mut self.voice {
            Voice::Relay => {}
            Voice::Rewrite(rewrite) => {
                rewrite.finish(&tap.sources());
                self.drain();
            }
            Voice::Speak(speak) => {
                let mut out = Vec::new();
                speak.flush(tap, &mut out);
                self.say(out);
            }
        }
    }

    /// The answer ends: our event where it is due, then `resume`, then how it ended.
    fn ends(&mut self, resume: Bytes, closing: Option<Vec<Heard>>, due: bool) {
        let clean = closing.is_some();
        self.closing = closing;
        if due && clean && self.awaits_supplement() {
            return self.close(resume);
        }
        if due && self.wants_event() {
            return self.commit(resume);
        }
        if clean {
            self.supplement_aside();
        }
        self.phase = Phase::Done;
        self.store_rest();
        self.emit(resume);
        self.say_end();
    }

    /// An answer that was not streamed.
    fn document(&mut self, json: Bytes) {
        let heard = std::mem::take(&mut self.heard);
        let Some(tap) = &self.tap else { return self.emit(json) };
        match &mut self.voice {
            Voice::Relay => self.emit(json),
            Voice::Rewrite(rewrite) => {
                let json = rewrite.document(json, heard, &tap.sources());
                let whole = self.ended == Some(End::Clean);
                self.ends(json, whole.then(Vec::new), true);
            }
            Voice::Speak(_) => {
                self.heard = heard;
                self.frame(Bytes::new(), true);
            }
        }
    }
}

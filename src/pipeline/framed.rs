//! Chunk processing of [`OutputMode::Rewrite`] and [`OutputMode::Transcode`]: each frame is read and emitted on its own.

use bytes::Bytes;

use super::{
    Cut, End, Form, Output, OutputMode, Phase, Pipeline, UNFINISHED, UNREADABLE, budget::capped_len,
    frame_signals::FrameSignal, tap::Tap, transcode::Transcoder,
};
use crate::provider::error_document::ErrorDocument;

impl Pipeline {
    /// Processes the chunk until it is used up or a reply is awaited.
    pub(super) fn run_framed(&mut self) {
        while !self.is_relaying() {
            let Some((cut, end)) = self.input.next_cut() else { return self.hold_rest() };
            let completed = self.complete_partial_frame(end);
            let piece = completed.unwrap_or_else(|| self.input.chunk.slice(self.input.frame_start..end));
            self.input.frame_start = end;
            self.input.unsent_start = end;
            let skipped = std::mem::take(&mut self.input.partial.skipping);
            let readable = matches!(cut, Cut::Frame(_)) && !skipped && self.is_within_cap(capped_len(&piece));
            if readable && self.tap.is_some() {
                self.frame_signals.clear();
                let ends = self.read(&piece) && self.progress.phase == Phase::Streaming;
                self.process_frame(piece, ends);
                if self.is_waiting() {
                    return;
                }
            } else {
                self.emit(piece);
            }
            // The upstream's line ends do not matter in another dialect.
            if matches!(self.mode, OutputMode::Transcode(_)) || !self.input.splitter.awaits_lf() {
                self.emit_live_event();
            }
        }
        // The tap was dropped within the chunk.
        self.emit_all();
    }

    /// Ends the stream. `rest` is what is left of it, already read if it is complete.
    pub(super) fn finish_framed(&mut self, end: End, rest: Bytes) {
        // Inside a frame that was partly relayed there is no boundary. A transcoded stream has its own frames.
        let streaming = self.progress.phase == Phase::Streaming;
        let due = streaming && (!self.input.partial.skipping || matches!(self.mode, OutputMode::Transcode(_)));
        if self.settings.single_document && end == End::Clean {
            self.process_document(rest);
        } else if end == End::Clean && (due || !streaming) {
            self.process_frame(rest, due);
        } else {
            // Emit the text that was held back for an open marker. After a cut the stream then breaks off as the
            // upstream's did.
            self.frame_signals.clear();
            if streaming {
                self.flush();
            }
            self.end_message(rest, (end == End::Clean).then(Vec::new), due);
        }
        if self.is_waiting() {
            return;
        }
        // Store references that came after the end of the answer.
        self.store_unsaved();
        if end == End::Clean {
            self.emit_end();
        }
    }

    /// Ends a transcoded stream.
    pub(super) fn emit_end(&mut self) {
        if let OutputMode::Transcode(transcoder) = &mut self.mode {
            let mut out = Vec::new();
            transcoder.end(&mut out);
            self.emit_transcoded(out);
        }
    }

    /// Emits how the answer ended, which a transcoded client gets after our event.
    pub(super) fn emit_closing(&mut self) {
        let Some(closing_signals) = self.progress.closing_signals.take() else { return };
        let incomplete = self.stream_stats.oversized > 0;
        self.transcode(|transcoder, tap, out| transcoder.close(&closing_signals, incomplete, tap, out));
    }

    /// Emits the frames that no longer wait for a marker.
    pub(super) fn drain_rewriter(&mut self) {
        if let OutputMode::Rewrite(rewriter) = &mut self.mode {
            self.outputs.extend(std::iter::from_fn(|| rewriter.take()));
        }
    }

    fn transcode(&mut self, encode: impl FnOnce(&mut Transcoder, &Tap, &mut Vec<u8>)) {
        if let (OutputMode::Transcode(transcoder), Some(tap)) = (&mut self.mode, &self.tap) {
            let mut out = Vec::new();
            encode(transcoder, tap, &mut out);
            self.emit_transcoded(out);
        }
    }

    pub(super) fn emit_transcoded(&mut self, out: Vec<u8>) {
        if !out.is_empty() {
            self.outputs.push_back(Output::Bytes(Bytes::from(out)));
        }
    }

    /// Emits a frame that was read. If it ends the answer, our event precedes it.
    fn process_frame(&mut self, frame: Bytes, ends: bool) {
        let signals = std::mem::take(&mut self.frame_signals);
        let closing_signals = if ends { self.closing_signals(&signals) } else { Vec::new() };
        let streaming = self.progress.phase == Phase::Streaming;
        let Some(tap) = &self.tap else { return self.emit(frame) };
        match &mut self.mode {
            OutputMode::Relay => return self.emit(frame),
            OutputMode::Rewrite(rewriter) if streaming => rewriter.frame(frame, signals, &tap.sources()),
            // Text after the end of the answer is not rewritten.
            OutputMode::Rewrite(rewriter) => rewriter.pass(Output::Bytes(frame)),
            OutputMode::Transcode(_) => self.transcode(|transcoder, tap, out| {
                if streaming {
                    transcoder.encode(&signals, tap, out);
                } else {
                    transcoder.encode_late(&signals, tap, out);
                }
            }),
        }
        if !ends {
            return self.drain_rewriter();
        }
        self.flush();
        let after_event = match &self.mode {
            // Hold back the frame that ends the answer.
            OutputMode::Rewrite(_) => match self.outputs.pop_back() {
                Some(Output::Bytes(last)) => last,
                other => {
                    self.outputs.extend(other);
                    Bytes::new()
                }
            },
            _ => Bytes::new(),
        };
        self.end_message(after_event, Some(closing_signals), true);
    }

    /// The signals of a frame that end the answer, or an error if the stream ended without any.
    fn closing_signals(&self, signals: &[FrameSignal]) -> Vec<FrameSignal> {
        let ends = |signal: &&FrameSignal| matches!(signal, FrameSignal::Finish(_) | FrameSignal::Fault { .. });
        let closing_signals: Vec<FrameSignal> = signals.iter().filter(ends).cloned().collect();
        if !closing_signals.is_empty() {
            return closing_signals;
        }
        let message = if self.is_recognized() { UNFINISHED } else { UNREADABLE };
        vec![FrameSignal::Fault { code: None, message: Some(message.to_owned()) }]
    }

    /// Whether part of an answer was read, or there was nothing to read.
    fn is_recognized(&self) -> bool {
        let empty = self.stream_stats.frames == 0 && self.stream_stats.oversized == 0;
        empty || self.tap.as_ref().is_some_and(|tap| tap.state().has_content)
    }

    /// Emits text that was held back for an open marker. No more text follows.
    fn flush(&mut self) {
        if let (OutputMode::Rewrite(rewriter), Some(tap)) = (&mut self.mode, &self.tap) {
            rewriter.finish(&tap.sources());
        }
        self.drain_rewriter();
        self.transcode(Transcoder::flush);
    }

    /// Ends the answer: emits our event if it is `due`, then `after_event`, then how the answer ended. `closing_signals`
    /// is `None` if the stream did not end cleanly.
    pub(super) fn end_message(&mut self, after_event: Bytes, closing_signals: Option<Vec<FrameSignal>>, due: bool) {
        let clean = closing_signals.is_some();
        self.progress.closing_signals = closing_signals;
        if due && clean && self.awaits_supplement() {
            return self.close_message(after_event);
        }
        if due && self.needs_event() {
            return self.commit(after_event);
        }
        if clean {
            self.mark_supplement_pending();
        }
        self.progress.phase = Phase::Done;
        self.store_unsaved();
        self.emit(after_event);
        self.emit_closing();
    }

    /// Emits an answer that was not streamed.
    fn process_document(&mut self, json: Bytes) {
        let Some(tap) = &self.tap else { return self.emit(json) };
        match &mut self.mode {
            OutputMode::Relay => self.emit(json),
            OutputMode::Rewrite(rewriter) => {
                let signals = std::mem::take(&mut self.frame_signals);
                let json = rewriter.document(json, signals, &tap.sources());
                let clean = self.progress.end == Some(End::Clean);
                self.end_message(json, clean.then(Vec::new), true);
            }
            OutputMode::Transcode(_) => {
                let is_answer = self.frame_signals.iter().any(|signal| {
                    matches!(
                        signal,
                        FrameSignal::Text { .. }
                            | FrameSignal::FullText { .. }
                            | FrameSignal::Thinking(_)
                            | FrameSignal::Fault { .. }
                    )
                });
                if !is_answer && tap.citable_count() == 0 {
                    return self.process_other_document(json);
                }
                self.process_frame(Bytes::new(), true);
            }
        }
    }

    /// Emits a document that is no answer. An error is transcoded; anything else is relayed if the client gets a document.
    fn process_other_document(&mut self, json: Bytes) {
        let error = std::str::from_utf8(&json).ok().and_then(ErrorDocument::parse).filter(|error| error.is_error);
        if let Some(error) = error {
            self.frame_signals = vec![FrameSignal::Fault { code: error.code, message: error.message }];
        } else if self.settings.output_format.form == Form::Document {
            self.mode = OutputMode::Relay;
            self.progress.phase = Phase::Done;
            self.store_unsaved();
            return self.emit(json);
        }
        self.process_frame(Bytes::new(), true);
    }
}

//! The stream processor of one message: takes the upstream's bytes, returns those bytes and our citation event ("our
//! event" below). The relay's response body drives it. It has no clock, no task and no socket.
//!
//! A frame is emitted as soon as it is complete. An incomplete last frame is held only while our event may still follow,
//! and only up to a cap: a larger frame is emitted unread, and the next frame is read again. The finish frame is read
//! before our event is written, because it often carries references, and is emitted after it.
//!
//! [`OutputMode::Relay`] ([`relayed`]) cuts frames for the tap alone. To rewrite markers ([`rewrite`]) or to encode
//! another dialect ([`transcode`]), frames are processed one by one ([`framed`]).

pub mod budget;
pub mod frame_signals;
mod framed;
pub mod inject;
mod input;
pub mod offline;
mod outcome;
mod relayed;
mod rewrite;
mod state;
pub mod supplement;
pub mod tap;
mod transcode;

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;

use crate::{
    citation::Record,
    marker::Style,
    profile::{self, Form, OutputFormat},
    provider::json,
    sse::{Cut, Eol, Event, encode},
};
pub use budget::Budget;
use frame_signals::FrameSignal;
pub use inject::{End, Inject, MAX_LIVE_EVENTS};
use input::Input;
pub use outcome::Outcome;
use rewrite::FrameRewriter;
pub use state::StreamStats;
use state::{Phase, Progress};
pub use supplement::Supplement;
pub use tap::Context;
use tap::{ReadResult, Tap};
pub use transcode::Failure;
use transcode::Transcoder;

/// Settings of one stream.
#[derive(Debug, Clone)]
pub struct Settings {
    pub inject: Inject,
    /// Whether an answer without sources gets an event too.
    pub emit_empty: bool,
    pub output_format: OutputFormat,
    pub supplement: Supplement,
    /// The body is one JSON document, not a stream of frames. It is read at its end.
    pub single_document: bool,
    /// Bytes of the largest frame that is read.
    pub frame_cap: usize,
    pub budget: Arc<Budget>,
}

/// What the driver does next, in order.
#[derive(Debug, PartialEq)]
pub enum Output {
    /// Send bytes of the upstream's answer, relayed or transcoded.
    Bytes(Bytes),
    /// Send our event.
    Event(Bytes),
    /// Wait for our own search and call [`Pipeline::supplemented`]. No output follows until then.
    AwaitSearch,
    /// Store the record and call [`Pipeline::committed`]. No output follows until then.
    Commit(Box<Record>),
    /// Store the record without waiting.
    Store(Box<Record>),
}

impl Output {
    /// Number of bytes for the client.
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) | Self::Event(bytes) => bytes.len(),
            Self::AwaitSearch | Self::Commit(_) | Self::Store(_) => 0,
        }
    }
}

/// What the client gets.
enum OutputMode {
    /// The upstream's bytes unchanged.
    Relay,
    /// The upstream's frames with rewritten markers.
    Rewrite(Box<FrameRewriter>),
    /// Frames of another dialect.
    Transcode(Box<Transcoder>),
}

/// Error text for a transcoded client when the upstream's stream cannot be read.
const UNREADABLE: &str = "the upstream's answer is in no format that citetap can read";
/// Error text for a transcoded client when the stream ends without a finish or an error.
const UNFINISHED: &str = "the upstream ended before it had finished";

/// The state of one message's stream.
pub struct Pipeline {
    settings: Settings,
    mode: OutputMode,
    /// `None` for a passthrough. Boxed because most bodies have no tap.
    tap: Option<Box<Tap>>,
    input: Input,
    progress: Progress,
    /// Signals of the current frame, recorded in [`OutputMode::Rewrite`] and [`OutputMode::Transcode`].
    frame_signals: Vec<FrameSignal>,
    outputs: VecDeque<Output>,
    stream_stats: StreamStats,
}

impl Pipeline {
    /// Creates a pipeline; without a context it is a passthrough.
    pub fn new(context: Option<Context>, settings: Settings) -> Self {
        Self::with_tap(context.map(|context| Box::new(Tap::new(context))), settings)
    }

    /// Creates a pipeline around an existing tap.
    pub fn with_tap(tap: Option<Box<Tap>>, settings: Settings) -> Self {
        let annotates = settings.single_document && settings.output_format.annotates();
        let mode = match (&tap, profile::encoder(settings.output_format), settings.output_format.markers) {
            (None, ..) => OutputMode::Relay,
            (_, None, Style::Keep) if !annotates => OutputMode::Relay,
            (_, Some(encoder), style) => OutputMode::Transcode(Box::new(Transcoder::new(encoder, style))),
            (_, None, style) => OutputMode::Rewrite(Box::new(FrameRewriter::new(style))),
        };
        Self {
            input: Input::new(&settings),
            progress: Progress::default(),
            settings,
            mode,
            tap,
            frame_signals: Vec::new(),
            outputs: VecDeque::new(),
            stream_stats: StreamStats::default(),
        }
    }

    /// Takes the next output, if there is one.
    pub fn take(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Takes the next output if it is [`Output::Bytes`] of at most `max_len` bytes.
    pub fn take_bytes(&mut self, max_len: usize) -> Option<Bytes> {
        match self.outputs.pop_front_if(|output| matches!(output, Output::Bytes(bytes) if bytes.len() <= max_len))? {
            Output::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Whether the outputs contain bytes for the client.
    pub fn has_bytes(&self) -> bool {
        self.outputs.iter().any(|output| matches!(output, Output::Bytes(_) | Output::Event(_)))
    }

    pub fn stream_stats(&self) -> StreamStats {
        let markers = match &self.mode {
            OutputMode::Relay => 0,
            OutputMode::Rewrite(rewriter) => rewriter.rewritten,
            OutputMode::Transcode(transcoder) => transcoder.rewritten,
        };
        StreamStats { markers, ..self.stream_stats }
    }

    /// The tap, unless this is a passthrough.
    pub fn tap(&self) -> Option<&Tap> {
        self.tap.as_deref()
    }

    /// Sets the model name that is used until the upstream sends one.
    pub fn set_default_model(&mut self, name: &str) {
        if let Some(tap) = &mut self.tap {
            tap.set_default_model(name);
        }
    }

    /// Whether the client gets another dialect. False again once a document that is no answer is relayed.
    pub fn is_transcoding(&self) -> bool {
        matches!(self.mode, OutputMode::Transcode(_))
    }

    /// The error that a transcoded client was sent.
    pub fn failure(&self) -> Option<&Failure> {
        match &self.mode {
            OutputMode::Transcode(transcoder) => transcoder.failure.as_ref(),
            OutputMode::Relay | OutputMode::Rewrite(_) => None,
        }
    }

    /// Whether the output may be longer than the input.
    pub fn may_add_bytes(&self) -> bool {
        !self.is_relaying()
            || (self.tap.is_some() && self.settings.inject != Inject::Off && !self.settings.single_document)
    }

    fn is_relaying(&self) -> bool {
        matches!(self.mode, OutputMode::Relay)
    }

    /// Processes the upstream's next bytes. Must not be called between [`Output::Commit`] or [`Output::AwaitSearch`] and
    /// its reply.
    pub fn push(&mut self, chunk: Bytes) {
        if self.is_passthrough() {
            return self.emit(chunk);
        }
        self.input.set_chunk(chunk);
        self.run();
    }

    /// Whether chunks are emitted unread.
    fn is_passthrough(&self) -> bool {
        self.tap.is_none() && self.is_relaying() && self.input.partial.held.is_empty()
    }

    /// Handles the store's reply to [`Output::Commit`].
    pub fn committed(&mut self, stored: bool) {
        let Some(mut record) = self.progress.committing.take() else { return };
        record.stored = stored;
        self.progress.phase = Phase::Done;
        self.emit_event(*record);
        self.stream_stats.injected = true;
        self.resume();
    }

    /// Continues after a wait: emits the frame that ended the answer and processes what follows it.
    fn resume(&mut self) {
        let after_event = std::mem::take(&mut self.progress.after_event);
        self.emit(after_event);
        self.emit_closing();
        match self.progress.end {
            None => self.run(),
            Some(End::Clean) => self.emit_end(),
            Some(End::Cut | End::Shutdown) => {}
        }
    }

    /// Whether a reply of the store or of our own search is outstanding.
    fn is_waiting(&self) -> bool {
        matches!(self.progress.phase, Phase::AwaitingSearch | Phase::Committing)
    }

    /// Ends the stream and emits what is left, our event included. Must not be called between [`Output::Commit`] or
    /// [`Output::AwaitSearch`] and its reply.
    pub fn finish(&mut self, end: End) {
        if self.progress.end.replace(end).is_some() {
            return;
        }
        let tail = self.input.partial.held.take();
        let sent = std::mem::take(&mut self.input.partial.sent);
        self.frame_signals.clear();
        if end == End::Clean && !tail.is_empty() {
            if self.settings.single_document {
                let data = Some(String::from_utf8_lossy(&tail));
                self.read_event(&Event { data, ..Event::default() });
            } else if !is_truncated(&tail) {
                // The last frame may lack its blank line.
                self.read(&tail);
            }
        }
        let rest = if end == End::Shutdown { Bytes::new() } else { tail.slice(sent..) };
        if !self.is_relaying() {
            return self.finish_framed(end, rest);
        }
        // Inside a frame that was partly sent there is no boundary for our event.
        let at_boundary = sent == 0 && !self.input.partial.skipping;
        let due = self.progress.phase == Phase::Streaming && at_boundary;
        self.end_message(rest, (end == End::Clean).then(Vec::new), due);
    }

    /// Returns the record to store when the client has disconnected, if it is not stored yet.
    pub fn abandon(&mut self) -> Option<Box<Record>> {
        if self.progress.phase == Phase::AwaitingSearch {
            self.mark_supplement_pending();
        }
        self.store_unsaved();
        let records = self.outputs.drain(..).filter_map(|output| match output {
            Output::Store(record) | Output::Commit(record) => Some(record),
            Output::Bytes(_) | Output::Event(_) | Output::AwaitSearch => None,
        });
        records.last()
    }

    /// Returns a comment that keeps an idle connection open, where one is allowed: between frames and before our event.
    /// Not after an `id:`, where openai-python fails on a comment, and not before the first byte, because a BOM counts only
    /// at the start of the stream. Not where clients of the dialect fail on comments.
    pub fn heartbeat(&mut self) -> Option<Bytes> {
        if let OutputMode::Transcode(_) = self.mode {
            let streaming = self.settings.output_format.form == Form::Stream
                && self.progress.end.is_none()
                && self.outputs.is_empty();
            return streaming.then(|| encode::heartbeat(Eol::Lf));
        }
        let between_frames = self.input.splitter.has_started()
            && self.input.partial.sent == 0
            && !self.input.partial.skipping
            && self.outputs.is_empty();
        let accepted = self.tap.as_ref().is_some_and(|tap| tap.clients_accept_comments());
        let allowed = self.can_inject() && accepted && !self.input.id_seen && self.progress.end.is_none();
        (between_frames && allowed).then(|| encode::heartbeat(self.input.eol.unwrap_or_default()))
    }

    /// Reads a frame with the tap. Returns true if the frame ends the answer.
    fn read(&mut self, frame: &[u8]) -> bool {
        let event = Event::read(frame);
        self.input.id_seen |= event.id.is_some();
        if self.input.eol.is_none() {
            self.input.eol = Eol::of(frame);
        }
        if event.data.is_none() && event.has_unknown_field {
            // Clients dispatch nothing, but the line may be JSON that lacks its `data:`.
            self.stream_stats.frames += 1;
            self.stream_stats.unparsed += 1;
        }
        event.data.is_some() && self.read_event(&event)
    }

    /// Reads the frame that ends at `end` in the chunk, without copying it.
    fn read_chunk_to(&mut self, end: usize) -> bool {
        let chunk = std::mem::take(&mut self.input.chunk);
        let ends = self.read(chunk.get(self.input.frame_start..end).unwrap_or_default());
        self.input.chunk = chunk;
        ends
    }

    fn read_event(&mut self, event: &Event<'_>) -> bool {
        let Some(tap) = &mut self.tap else { return false };
        self.stream_stats.frames += 1;
        let frame_signals = (!matches!(self.mode, OutputMode::Relay)).then_some(&mut self.frame_signals);
        match tap.read(event, frame_signals) {
            ReadResult::Ok => {}
            ReadResult::Unparsed => self.stream_stats.unparsed += 1,
            ReadResult::Panicked => {
                self.stream_stats.panicked = true;
                self.drop_tap();
                return false;
            }
        }
        let state = tap.state();
        self.stream_stats.finished |= state.finished;
        self.stream_stats.fault |= state.fault;
        let ends = state.finished || state.fault;
        if tap.gave_up() {
            self.drop_tap();
        }
        ends
    }

    /// Stops reading this stream. Its own bytes are relayed; a transcoded client gets an error.
    fn drop_tap(&mut self) {
        let due = std::mem::replace(&mut self.progress.phase, Phase::Done) == Phase::Streaming;
        let Some(tap) = self.tap.take() else { return };
        match std::mem::replace(&mut self.mode, OutputMode::Relay) {
            OutputMode::Relay => {}
            OutputMode::Rewrite(mut rewriter) => {
                rewriter.finish(&tap.sources());
                self.outputs.extend(std::iter::from_fn(|| rewriter.take()));
            }
            OutputMode::Transcode(mut transcoder) => {
                // An answer that has ended cannot fail any more.
                if due {
                    let mut out = Vec::new();
                    transcoder.fail(UNREADABLE, &tap, &mut out);
                    self.emit_transcoded(out);
                }
                self.mode = OutputMode::Transcode(transcoder);
            }
        }
    }

    /// Emits bytes of the upstream, except to a transcoded client.
    fn emit(&mut self, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        match &mut self.mode {
            OutputMode::Relay => self.outputs.push_back(Output::Bytes(bytes)),
            OutputMode::Rewrite(rewriter) => {
                rewriter.pass(Output::Bytes(bytes));
                self.drain_rewriter();
            }
            OutputMode::Transcode(_) => {}
        }
    }
}

/// Whether the last frame breaks off inside its data. Its event name alone must not count as a finish.
fn is_truncated(frame: &[u8]) -> bool {
    if frame.ends_with(b"\n") || frame.ends_with(b"\r") {
        return false;
    }
    let event = Event::read(frame);
    let data = event.data.as_deref().unwrap_or_default().trim();
    data.is_empty() || (data.starts_with('{') && json::with_parsed(data, |_| ()).is_none())
}

#[cfg(test)]
mod document_tests;
#[cfg(test)]
mod tests;

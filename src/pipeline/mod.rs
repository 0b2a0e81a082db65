//! Bytes in, the same bytes and our event out. A function of its input: no clock, no task, no
//! socket; the relay's body drives it.
//!
//! A frame is passed on when it is whole. Only an incomplete last frame is held, only while our
//! event is still due, and only under its cap: a larger one passes untapped, and the next frame is
//! tapped again. The finish frame is read before our event is written, as it often carries
//! references itself, and passed on after it.
//!
//! That is the [`OutputMode::Relay`] ([`relayed`]). Where markers are rewritten ([`rewrite`]) or the client wants another dialect
//! ([`transcode`]), frames go through one by one, and an incomplete one is held to the end.

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
use rewrite::Rewrite;
pub use state::StreamStats;
use state::{Message, Phase};
pub use supplement::Supplement;
pub use tap::Context;
use tap::{Read, Tap};
pub use transcode::Failure;
use transcode::Transcode;

/// What a stream is run by.
#[derive(Debug, Clone)]
pub struct Settings {
    pub inject: Inject,
    pub emit_empty: bool,
    pub output_format: OutputFormat,
    pub supplement: Supplement,
    /// The body is one JSON document, not a stream of frames: it passes at once, and is tapped at its end.
    pub single_document: bool,
    /// The largest frame that is tapped.
    pub frame_cap: usize,
    pub budget: Arc<Budget>,
}

/// What comes out, in order.
#[derive(Debug, PartialEq)]
pub enum Output {
    /// The upstream's own.
    Bytes(Bytes),
    /// Ours.
    Event(Bytes),
    /// Say with [`Pipeline::supplemented`] what a search of our own found; until then nothing more comes out.
    AwaitSearch,
    /// Store this, then say with [`Pipeline::committed`] whether it is stored; until then nothing
    /// more comes out.
    Commit(Box<Record>),
    /// Store this, without waiting.
    Store(Box<Record>),
}

impl Output {
    /// Bytes for the client.
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) | Self::Event(bytes) => bytes.len(),
            Self::AwaitSearch | Self::Commit(_) | Self::Store(_) => 0,
        }
    }
}

/// How the client is spoken to.
enum OutputMode {
    /// The upstream's own bytes.
    Relay,
    /// The upstream's own frames, their markers rewritten.
    Rewrite(Box<Rewrite>),
    /// Another dialect.
    Transcode(Box<Transcode>),
}

/// What a client of another dialect is told when the upstream's stream cannot be read.
const UNREADABLE: &str = "the upstream's answer is in no format that citetap can read";
/// What it is told when the stream ends too early, without an error.
const UNFINISHED: &str = "the upstream ended before it had finished";

pub struct Pipeline {
    settings: Settings,
    mode: OutputMode,
    /// `None`: a passthrough. Boxed, as most of what comes is passed on without a look at it.
    tap: Option<Box<Tap>>,
    input: Input,
    message: Message,
    /// What the current frame said. Kept by the modes that need it.
    heard: Vec<FrameSignal>,
    out: VecDeque<Output>,
    stream_stats: StreamStats,
}

impl Pipeline {
    /// Without a context it is a passthrough.
    pub fn new(context: Option<Context>, settings: Settings) -> Self {
        Self::with_tap(context.map(|context| Box::new(Tap::new(context))), settings)
    }

    /// The same with a tap that was made before.
    pub fn with_tap(tap: Option<Box<Tap>>, settings: Settings) -> Self {
        let annotates = settings.single_document && settings.output_format.annotates();
        let mode = match (&tap, profile::encoder(settings.output_format), settings.output_format.markers) {
            (None, ..) => OutputMode::Relay,
            (_, None, Style::Keep) if !annotates => OutputMode::Relay,
            (_, Some(encoder), style) => OutputMode::Transcode(Box::new(Transcode::new(encoder, style))),
            (_, None, style) => OutputMode::Rewrite(Box::new(Rewrite::new(style))),
        };
        Self {
            input: Input::new(&settings),
            message: Message::default(),
            settings,
            mode,
            tap,
            heard: Vec::new(),
            out: VecDeque::new(),
            stream_stats: StreamStats::default(),
        }
    }

    /// The next output, if there is one now.
    pub fn take(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// The same, of the upstream's bytes alone, and not more than so many.
    pub fn take_bytes(&mut self, most: usize) -> Option<Bytes> {
        match self.out.front() {
            Some(Output::Bytes(bytes)) if bytes.len() <= most => {}
            _ => return None,
        }
        self.out.pop_front().and_then(|out| match out {
            Output::Bytes(bytes) => Some(bytes),
            _ => None,
        })
    }

    /// Is something on its way to the client?
    pub fn has_bytes(&self) -> bool {
        self.out.iter().any(|out| matches!(out, Output::Bytes(_) | Output::Event(_)))
    }

    pub fn stream_stats(&self) -> StreamStats {
        let markers = match &self.mode {
            OutputMode::Relay => 0,
            OutputMode::Rewrite(rewrite) => rewrite.rewritten,
            OutputMode::Transcode(speak) => speak.rewritten,
        };
        StreamStats { markers, ..self.stream_stats }
    }

    /// What is known of the message so far.
    pub fn tap(&self) -> Option<&Tap> {
        self.tap.as_deref()
    }

    /// What the model is called until the upstream names it.
    pub fn set_default_model(&mut self, name: &str) {
        if let Some(tap) = &mut self.tap {
            tap.set_default_model(name);
        }
    }

    /// Is the client spoken to in another dialect? A document that is no answer passes as it is.
    pub fn is_transcoding(&self) -> bool {
        matches!(self.mode, OutputMode::Transcode(_))
    }

    /// What a client of another dialect was told in the place of an answer, or of its end.
    pub fn failure(&self) -> Option<&Failure> {
        match &self.mode {
            OutputMode::Transcode(speak) => speak.failure.as_ref(),
            OutputMode::Relay | OutputMode::Rewrite(_) => None,
        }
    }

    /// May what comes out be more than what goes in?
    pub fn may_add_bytes(&self) -> bool {
        !self.relays() || (self.tap.is_some() && self.settings.inject != Inject::Off && !self.settings.single_document)
    }

    fn relays(&self) -> bool {
        matches!(self.mode, OutputMode::Relay)
    }

    /// Takes the upstream's next bytes. Must not be called while a commit or a supplement is awaited.
    pub fn push(&mut self, chunk: Bytes) {
        if self.is_open() {
            return self.emit(chunk);
        }
        self.input.begin(chunk);
        self.run();
    }

    /// Is whatever comes passed on as it is?
    fn is_open(&self) -> bool {
        self.tap.is_none() && self.relays() && self.input.partial.hold.is_empty()
    }

    /// The store's answer to [`Output::Commit`].
    pub fn committed(&mut self, stored: bool) {
        let Some(mut record) = self.message.committing.take() else { return };
        record.stored = stored;
        self.message.phase = Phase::Done;
        self.emit_event(*record);
        self.stream_stats.injected = true;
        let resume = std::mem::take(&mut self.message.resume);
        self.go_on(resume);
    }

    /// After what was waited for: the frame that ended the answer, and whatever follows it.
    fn go_on(&mut self, resume: Bytes) {
        self.emit(resume);
        self.say_end();
        match self.message.ended {
            None => self.run(),
            Some(End::Clean) => self.end_speech(),
            Some(End::Cut | End::Shutdown) => {}
        }
    }

    /// Nothing goes on until the store, or a search of our own, has answered.
    fn waits(&self) -> bool {
        matches!(self.message.phase, Phase::Awaiting | Phase::Committing)
    }

    /// The stream ended. Everything that is left comes out, ours where it is due. Must not be called
    /// while a commit or a supplement is awaited.
    pub fn finish(&mut self, end: End) {
        if self.message.ended.replace(end).is_some() {
            return;
        }
        let tail = self.input.partial.hold.take();
        let sent = std::mem::take(&mut self.input.partial.sent);
        self.heard.clear();
        if end == End::Clean && !tail.is_empty() {
            if self.settings.single_document {
                let data = Some(String::from_utf8_lossy(&tail));
                self.read_event(&Event { data, ..Event::default() });
            } else if !is_cut(&tail) {
                // The last frame may lack its blank line.
                self.read(&tail);
            }
        }
        let rest = if end == End::Shutdown { Bytes::new() } else { tail.slice(sent..) };
        if !self.relays() {
            return self.finish_framed(end, rest);
        }
        // In the midst of a frame that was passed on in part, there is no boundary for our event.
        let at_boundary = sent == 0 && !self.input.partial.skipping;
        let due = self.message.phase == Phase::Due && at_boundary;
        if due && end == End::Clean && self.awaits_supplement() {
            self.close(rest);
        } else if due && self.wants_event() {
            self.commit(rest);
        } else {
            if end == End::Clean {
                self.supplement_aside();
            }
            self.message.phase = Phase::Done;
            self.store_rest();
            self.emit(rest);
        }
    }

    /// What to store when the client has left, if there is something that is not stored yet.
    pub fn abandon(&mut self) -> Option<Box<Record>> {
        if self.message.phase == Phase::Awaiting {
            self.supplement_aside();
        }
        self.store_rest();
        std::iter::from_fn(|| self.out.pop_front())
            .filter_map(|out| match out {
                Output::Store(record) | Output::Commit(record) => Some(record),
                Output::Bytes(_) | Output::Event(_) | Output::AwaitSearch => None,
            })
            .last()
    }

    /// A comment for an idle connection, where one may stand: between frames, before our event, not
    /// after an `id:` (openai-python fails on a comment then), and not before the first byte, which may
    /// be a BOM and is one only at the very start.
    pub fn heartbeat(&mut self) -> Option<Bytes> {
        if let OutputMode::Transcode(_) = self.mode {
            let speaking =
                self.settings.output_format.form == Form::Stream && self.message.ended.is_none() && self.out.is_empty();
            return speaking.then(|| encode::heartbeat(Eol::Lf));
        }
        let between = self.input.splitter.begun()
            && self.input.partial.sent == 0
            && !self.input.partial.skipping
            && self.out.is_empty();
        let allowed = self.injecting() && self.tap.is_some() && !self.input.id_seen && self.message.ended.is_none();
        (between && allowed).then(|| encode::heartbeat(self.input.eol.unwrap_or_default()))
    }

    /// Lets the tap look at a frame; says whether the answer ends with it.
    fn read(&mut self, frame: &[u8]) -> bool {
        let event = Event::read(frame);
        self.input.id_seen |= event.id.is_some();
        if self.input.eol.is_none() {
            self.input.eol = Eol::of(frame);
        }
        if event.data.is_none() && event.foreign {
            // Clients dispatch nothing, and yet something was said: JSON without `data:`, say.
            self.stream_stats.frames += 1;
            self.stream_stats.unparsed += 1;
        }
        event.data.is_some() && self.read_event(&event)
    }

    /// The same of a frame of the chunk, which is not copied nor shared for that.
    fn read_chunk_to(&mut self, end: usize) -> bool {
        let chunk = std::mem::take(&mut self.input.chunk);
        let ends = self.read(chunk.get(self.input.at..end).unwrap_or_default());
        self.input.chunk = chunk;
        ends
    }

    fn read_event(&mut self, event: &Event<'_>) -> bool {
        let Some(tap) = &mut self.tap else { return false };
        self.stream_stats.frames += 1;
        let heard = if matches!(self.mode, OutputMode::Relay) { None } else { Some(&mut self.heard) };
        match tap.read(event, heard) {
            Read::Ok => {}
            Read::Unread => self.stream_stats.unparsed += 1,
            Read::Panicked => {
                self.lose_tap_to_panic();
                return false;
            }
        }
        let seen = tap.state();
        self.stream_stats.finished |= seen.finish;
        self.stream_stats.fault |= seen.fault;
        let ends = seen.finish || seen.fault;
        if tap.gave_up() {
            self.lose_tap();
        }
        ends
    }

    fn lose_tap_to_panic(&mut self) {
        self.stream_stats.panicked = true;
        self.lose_tap();
    }

    /// This stream is tapped no more. Its own bytes go on; in another dialect there is nothing left to say.
    fn lose_tap(&mut self) {
        let due = std::mem::replace(&mut self.message.phase, Phase::Done) == Phase::Due;
        let Some(tap) = self.tap.take() else { return };
        match std::mem::replace(&mut self.mode, OutputMode::Relay) {
            OutputMode::Relay => {}
            OutputMode::Rewrite(mut rewrite) => {
                rewrite.finish(&tap.sources());
                self.out.extend(std::iter::from_fn(|| rewrite.take()));
            }
            OutputMode::Transcode(mut speak) => {
                // After its end an answer cannot fail any more.
                if due {
                    let mut out = Vec::new();
                    speak.fail(UNREADABLE, &tap, &mut out);
                    self.say(out);
                }
                self.mode = OutputMode::Transcode(speak);
            }
        }
    }

    /// The upstream's own bytes, which only a encoder of another dialect leaves out.
    fn emit(&mut self, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        match &mut self.mode {
            OutputMode::Relay => self.out.push_back(Output::Bytes(bytes)),
            OutputMode::Rewrite(rewrite) => {
                rewrite.pass(Output::Bytes(bytes));
                self.drain();
            }
            OutputMode::Transcode(_) => {}
        }
    }
}

/// Was this last frame broken off in the midst of its data? Its name alone must not make it a finish.
fn is_cut(frame: &[u8]) -> bool {
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

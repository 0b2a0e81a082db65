//! Bytes in, the same bytes and our event out. A function of its input: no clock, no task, no
//! socket; [`body`] drives it.
//!
//! A frame is passed on when it is whole. Only an incomplete last frame is held, only while our
//! event is still due, and only under its cap: a larger one passes untapped, and the next frame is
//! tapped again. The finish frame is read before our event is written, as it often carries
//! references itself, and passed on after it. Frames that cannot be one are passed on first and read [`later`].
//!
//! That is the [`Voice::Relay`] ([`relayed`]). Where markers are rewritten ([`rewrite`]) or the client wants another dialect
//! ([`speak`]), frames go through one by one, and an incomplete one is held to the end.

pub mod body;
mod framed;
pub mod heard;
pub mod hold;
pub mod inject;
pub mod later;
mod outs;
mod relayed;
mod rewrite;
mod speak;
pub mod supplement;
pub mod tap;
pub mod trailers;
pub mod whole;

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    citation::Record,
    marker::Style,
    profile::{self, Form, Manner},
    provider::{json, sight::Sights},
    sse::{Cut, Eol, Event, Splitter, encode},
};
use heard::Heard;
pub use hold::Budget;
use hold::Hold;
pub use inject::{End, Inject, MAX_LIVE_EVENTS};
use later::Behind;
use outs::Outs;
use rewrite::Rewrite;
pub use speak::Failure;
use speak::Speak;
pub use supplement::Supplement;
pub use tap::Context;
use tap::{Read, Tap};

/// What a stream is run by.
#[derive(Debug, Clone)]
pub struct Settings {
    pub inject: Inject,
    pub emit_empty: bool,
    pub manner: Manner,
    pub supplement: Supplement,
    /// The body is one JSON document, not a stream of frames: it passes at once, and is tapped at its end.
    pub whole: bool,
    /// The largest frame that is tapped.
    pub frame_cap: usize,
    pub budget: Arc<Budget>,
}

/// What comes out, in order.
#[derive(Debug, PartialEq)]
pub enum Out {
    /// The upstream's own.
    Bytes(Bytes),
    /// Ours.
    Event(Bytes),
    /// Say with [`Pipeline::supplemented`] what a search of our own found; until then nothing more comes out.
    Await,
    /// Store this, then say with [`Pipeline::committed`] whether it is stored; until then nothing
    /// more comes out.
    Commit(Box<Record>),
    /// Store this, without waiting.
    Store(Box<Record>),
}

impl Out {
    /// Bytes for the client.
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) | Self::Event(bytes) => bytes.len(),
            Self::Await | Self::Commit(_) | Self::Store(_) => 0,
        }
    }
}

/// How the client is spoken to.
enum Voice {
    /// The upstream's own bytes.
    Relay,
    /// The upstream's own frames, their markers rewritten.
    Rewrite(Box<Rewrite>),
    /// Another dialect.
    Speak(Box<Speak>),
}

/// What a client of another dialect is told when the upstream's stream cannot be read.
const UNREADABLE: &str = "the upstream's answer is in no format that citetap can read";
/// What it is told when the stream ends too early, without an error.
const UNFINISHED: &str = "the upstream ended before it had finished";

/// What happened, for the log line and the metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub frames: u64,
    pub unread: u64,
    pub oversized: u64,
    pub live_events: u32,
    /// Markers that were rewritten.
    pub markers: u64,
    pub panicked: bool,
    pub injected: bool,
    pub finished: bool,
    pub fault: bool,
}

/// Where the message stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It has not finished.
    Due,
    /// It has finished; what a search of our own found is awaited, and our event follows it.
    Awaiting,
    /// The record of a finished message is with the store; our event follows its answer.
    Committing,
    /// It has finished: nothing of ours comes any more.
    Done,
}

/// In this order: what every chunk touches comes first, and lies together.
#[repr(C)]
pub struct Pipeline {
    voice: Voice,
    /// `None`: a passthrough. Boxed, as most of what comes is passed on without a look at it.
    tap: Option<Box<Tap>>,
    out: Outs,
    hold: Hold,
    /// `None`: nothing is.
    behind: Option<Box<Behind>>,
    splitter: Splitter,
    /// The current frame is too large: it passes untapped.
    skipping: bool,
    phase: Phase,
    ended: Option<End>,
    /// Nothing is put off.
    hurried: bool,
    id_seen: bool,
    eol: Option<Eol>,
    tally: Tally,
    /// What the next frames may be known by.
    sights: Sights,
    settings: Settings,
    /// The chunk that is being worked through, where its unsent part begins, and where the next frame does.
    chunk: Bytes,
    unsent: usize,
    at: usize,
    /// How much of the held frame was passed on already.
    sent: usize,
    /// From how many bytes on a chunk may be read later.
    later_from: usize,
    /// What the current frame said. Kept by the voices that need it.
    heard: Vec<Heard>,
    /// How the answer ended, said after our event.
    closing: Option<Vec<Heard>>,
    /// What follows our event: a frame that was held, or a tail.
    resume: Bytes,
    /// The record that is with the store.
    committing: Option<Box<Record>>,
    /// Sources in the last live event.
    announced: usize,
    /// The ledger's revision in the last record that went to the store.
    stored_revision: Option<u64>,
}

impl Pipeline {
    /// Without a context it is a passthrough.
    pub fn new(context: Option<Context>, settings: Settings) -> Self {
        Self::with_tap(context.map(|context| Box::new(Tap::new(context))), settings)
    }

    /// The same with a tap that was made before.
    pub fn with_tap(tap: Option<Box<Tap>>, settings: Settings) -> Self {
        let hold = Hold::new(Arc::clone(&settings.budget), settings.frame_cap);
        let annotates = settings.whole && settings.manner.annotates();
        let voice = match (&tap, profile::speaker(settings.manner), settings.manner.markers) {
            (None, ..) => Voice::Relay,
            (_, None, Style::Keep) if !annotates => Voice::Relay,
            (_, Some(speaker), style) => Voice::Speak(Box::new(Speak::new(speaker, style))),
            (_, None, style) => Voice::Rewrite(Box::new(Rewrite::new(style))),
        };
        Self {
            phase: Phase::Due,
            settings,
            tap,
            voice,
            heard: Vec::new(),
            closing: None,
            splitter: Splitter::default(),
            hold,
            sights: Sights::default(),
            hurried: false,
            behind: None,
            later_from: later::FROM,
            sent: 0,
            skipping: false,
            chunk: Bytes::new(),
            unsent: 0,
            at: 0,
            resume: Bytes::new(),
            committing: None,
            ended: None,
            out: Outs::default(),
            eol: None,
            id_seen: false,
            announced: 0,
            stored_revision: None,
            tally: Tally::default(),
        }
    }

    /// The next output, if there is one now.
    pub fn take(&mut self) -> Option<Out> {
        if self.out.is_empty() && self.is_halfway() {
            self.catch_up();
        }
        self.out.pop_front()
    }

    /// The same, of the upstream's bytes alone, and not more than so many.
    pub fn take_bytes(&mut self, most: usize) -> Option<Bytes> {
        self.out.pop_bytes(most)
    }

    /// Is something on its way to the client?
    pub fn has_bytes(&self) -> bool {
        self.out.iter().any(|out| matches!(out, Out::Bytes(_) | Out::Event(_)))
    }

    pub fn tally(&self) -> Tally {
        let markers = match &self.voice {
            Voice::Relay => 0,
            Voice::Rewrite(rewrite) => rewrite.rewritten,
            Voice::Speak(speak) => speak.rewritten,
        };
        Tally { markers, ..self.tally }
    }

    /// What is known of the message so far: for those who ask while it streams, and let it [`Self::catch_up`] first.
    pub fn tap(&self) -> Option<&Tap> {
        self.tap.as_deref()
    }

    /// What the model is called until the upstream names it.
    pub fn name_model(&mut self, name: &str) {
        if let Some(tap) = &mut self.tap {
            tap.name_model(name);
        }
    }

    /// Is the client spoken to in another dialect? A document that is no answer passes as it is.
    pub fn speaks(&self) -> bool {
        matches!(self.voice, Voice::Speak(_))
    }

    /// What a client of another dialect was told in the place of an answer, or of its end.
    pub fn failure(&self) -> Option<&Failure> {
        match &self.voice {
            Voice::Speak(speak) => speak.failure.as_ref(),
            Voice::Relay | Voice::Rewrite(_) => None,
        }
    }

    /// May what comes out be more than what goes in?
    pub fn adds(&self) -> bool {
        !self.relays() || (self.tap.is_some() && self.settings.inject != Inject::Off && !self.settings.whole)
    }

    fn relays(&self) -> bool {
        matches!(self.voice, Voice::Relay)
    }

    /// Takes the upstream's next bytes. Must not be called while a commit or a supplement is awaited.
    pub fn push(&mut self, chunk: Bytes) {
        if self.is_open() || self.knows(&chunk) {
            return self.emit(chunk);
        }
        self.catch_up();
        self.chunk = chunk;
        self.unsent = 0;
        self.at = 0;
        self.run();
        self.show();
    }

    /// Is whatever comes passed on as it is?
    fn is_open(&self) -> bool {
        self.tap.is_none() && self.relays() && self.hold.is_empty() && self.behind.is_none()
    }

    /// The store's answer to [`Out::Commit`].
    pub fn committed(&mut self, stored: bool) {
        let Some(mut record) = self.committing.take() else { return };
        record.stored = stored;
        self.phase = Phase::Done;
        self.emit_event(*record);
        self.tally.injected = true;
        let resume = std::mem::take(&mut self.resume);
        self.go_on(resume);
    }

    /// After what was waited for: the frame that ended the answer, and whatever follows it.
    fn go_on(&mut self, resume: Bytes) {
        self.emit(resume);
        self.say_end();
        match self.ended {
            None => self.run(),
            Some(End::Clean) => self.end_speech(),
            Some(End::Cut | End::Shutdown) => {}
        }
    }

    /// Nothing goes on until the store, or a search of our own, has answered.
    fn waits(&self) -> bool {
        matches!(self.phase, Phase::Awaiting | Phase::Committing)
    }

    /// The stream ended. Everything that is left comes out, ours where it is due. Must not be called
    /// while a commit or a supplement is awaited.
    pub fn finish(&mut self, end: End) {
        if self.ended.replace(end).is_some() {
            return;
        }
        self.catch_up();
        let tail = self.hold.take();
        let sent = std::mem::take(&mut self.sent);
        self.heard.clear();
        if end == End::Clean && !tail.is_empty() {
            if self.settings.whole {
                let data = Some(String::from_utf8_lossy(&tail));
                self.read_event(&[], &Event { data, ..Event::default() });
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
        let at_boundary = sent == 0 && !self.skipping;
        let due = self.phase == Phase::Due && at_boundary;
        if due && end == End::Clean && self.awaits_supplement() {
            self.close(rest);
        } else if due && self.wants_event() {
            self.commit(rest);
        } else {
            if end == End::Clean {
                self.supplement_aside();
            }
            self.phase = Phase::Done;
            self.store_rest();
            self.emit(rest);
        }
    }

    /// What to store when the client has left, if there is something that is not stored yet.
    pub fn abandon(&mut self) -> Option<Box<Record>> {
        self.catch_up();
        if self.phase == Phase::Awaiting {
            self.supplement_aside();
        }
        self.store_rest();
        std::iter::from_fn(|| self.out.pop_front())
            .filter_map(|out| match out {
                Out::Store(record) | Out::Commit(record) => Some(record),
                Out::Bytes(_) | Out::Event(_) | Out::Await => None,
            })
            .last()
    }

    /// A comment for an idle connection, where one may stand: between frames, before our event, not
    /// after an `id:` (openai-python fails on a comment then), and not before the first byte, which may
    /// be a BOM and is one only at the very start.
    pub fn heartbeat(&mut self) -> Option<Bytes> {
        self.catch_up();
        if let Voice::Speak(_) = self.voice {
            let speaking = self.settings.manner.form == Form::Stream && self.ended.is_none() && self.out.is_empty();
            return speaking.then(|| encode::heartbeat(Eol::Lf));
        }
        let between = self.splitter.begun() && self.sent == 0 && !self.skipping && self.out.is_empty();
        let allowed = self.injecting() && self.tap.is_some() && !self.id_seen && self.ended.is_none();
        (between && allowed).then(|| encode::heartbeat(self.eol.unwrap_or_default()))
    }

    /// Lets the tap look at a frame; says whether the answer ends with it.
    fn read(&mut self, frame: &[u8]) -> bool {
        let event = Event::read(frame);
        self.id_seen |= event.id.is_some();
        if self.eol.is_none() {
            self.eol = Eol::of(frame);
        }
        if event.data.is_none() && event.foreign {
            // Clients dispatch nothing, and yet something was said: JSON without `data:`, say.
            self.tally.frames += 1;
            self.tally.unread += 1;
        }
        event.data.is_some() && self.read_event(frame, &event)
    }

    /// The same of a frame of the chunk, which is not copied nor shared for that.
    fn read_chunk_to(&mut self, end: usize) -> bool {
        let chunk = std::mem::take(&mut self.chunk);
        let ends = self.read(chunk.get(self.at..end).unwrap_or_default());
        self.chunk = chunk;
        ends
    }

    fn read_event(&mut self, frame: &[u8], event: &Event<'_>) -> bool {
        let Some(tap) = &mut self.tap else { return false };
        self.sights.hide();
        self.tally.frames += 1;
        let heard = if matches!(self.voice, Voice::Relay) { None } else { Some(&mut self.heard) };
        match tap.read(frame, event, heard) {
            Read::Ok => {}
            Read::Unread => self.tally.unread += 1,
            Read::Panicked => {
                self.lose_tap_to_panic();
                return false;
            }
        }
        let seen = tap.seen();
        self.tally.finished |= seen.finish;
        self.tally.fault |= seen.fault;
        let ends = seen.finish || seen.fault;
        if tap.gave_up() {
            self.lose_tap();
        }
        ends
    }

    fn lose_tap_to_panic(&mut self) {
        self.tally.panicked = true;
        self.lose_tap();
    }

    /// This stream is tapped no more. Its own bytes go on; in another dialect there is nothing left to say.
    fn lose_tap(&mut self) {
        let due = std::mem::replace(&mut self.phase, Phase::Done) == Phase::Due;
        let Some(tap) = self.tap.take() else { return };
        self.sights.hide();
        match std::mem::replace(&mut self.voice, Voice::Relay) {
            Voice::Relay => {}
            Voice::Rewrite(mut rewrite) => {
                rewrite.finish(&tap.sources());
                self.out.extend(std::iter::from_fn(|| rewrite.take()));
            }
            Voice::Speak(mut speak) => {
                // After its end an answer cannot fail any more.
                if due {
                    let mut out = Vec::new();
                    speak.fail(UNREADABLE, &tap, &mut out);
                    self.say(out);
                }
                self.voice = Voice::Speak(speak);
            }
        }
    }

    /// The upstream's own bytes, which only a speaker of another dialect leaves out.
    fn emit(&mut self, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        match &mut self.voice {
            Voice::Relay => self.out.push_back(Out::Bytes(bytes)),
            Voice::Rewrite(rewrite) => {
                rewrite.pass(Out::Bytes(bytes));
                self.drain();
            }
            Voice::Speak(_) => {}
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
mod alike_tests;
#[cfg(test)]
mod document_tests;
#[cfg(test)]
mod later_tests;
#[cfg(test)]
mod tests;

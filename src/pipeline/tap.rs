//! The tap: one adapter and one ledger. It looks and does not touch; its failure is a change of mode.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, OnceLock},
};

use jiff::Timestamp;
use serde_json::{Map, Value};
use url::Url;

use super::frame_signals::{FrameSignal, Recorder};
use crate::{
    citation::{
        Ledger, Record, Rules,
        record::{CitationStatus, RecordType, path_id},
        supplement::{self, SearchOutcome},
        text,
    },
    marker::{Source, Sources},
    profile::{MessageStart, Positions},
    provider::{Adapter, Envelope, FinishReason, Payload, Provider, Signal, Sink, Usage},
    sse::Event,
};

/// What is known of a message before its first byte.
#[derive(Debug, Clone)]
pub struct Context {
    pub route: String,
    pub provider: Provider,
    pub link_base: Option<Url>,
    pub nonce: String,
    /// Also the clock by which sources are fresh or old.
    pub created: Timestamp,
    /// The id of a message that names none.
    pub fallback_id: String,
    /// The task that the client says it belongs to.
    pub task: Option<String>,
    pub rules: Arc<Rules>,
}

pub struct Tap {
    adapter: Box<dyn Adapter>,
    seen: MessageState,
    /// What a search of our own found.
    pub(super) supply: SearchOutcome,
    context: Context,
    /// The id that a client was told in another dialect. It counts from then on, also where the upstream's comes later.
    told: OnceLock<String>,
}

/// What the frames said so far.
#[derive(Default)]
pub struct MessageState {
    pub ledger: Ledger,
    message: Option<String>,
    conversation: Option<String>,
    model: Option<String>,
    /// Something of an assistant's message was seen.
    pub any: bool,
    pub finish: bool,
    /// Why the answer ended.
    pub reason: Option<FinishReason>,
    /// What it cost, as said last.
    pub usage: Option<Usage>,
    pub fault: bool,
}

/// How a frame fared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    Ok,
    /// Not understood; the next one is read all the same.
    Unread,
    /// The adapter panicked: this stream is tapped no more.
    Panicked,
}

impl Tap {
    pub fn new(context: Context) -> Self {
        let adapter = context.provider.adapter();
        Self::with(adapter, context)
    }

    pub(super) fn with(adapter: Box<dyn Adapter>, context: Context) -> Self {
        let seen = MessageState { ledger: Ledger::new(context.link_base.clone()), ..MessageState::default() };
        Self { adapter, seen, supply: SearchOutcome::None, context, told: OnceLock::new() }
    }

    /// Reads a frame; `heard` gets what it said.
    pub fn read(&mut self, event: &Event<'_>, heard: Option<&mut Vec<FrameSignal>>) -> Read {
        let Self { adapter, seen, .. } = self;
        let read = || match heard {
            None => adapter.frame(event, seen),
            Some(heard) => adapter.frame(event, &mut Recorder { to: seen, heard }),
        };
        // The adapter and the ledger are not looked at again after a panic.
        match catch_unwind(AssertUnwindSafe(read)) {
            Ok(result) => {
                if let Some(provider) = adapter.provider() {
                    seen.ledger.set_provider(provider);
                }
                if result.is_ok() { Read::Ok } else { Read::Unread }
            }
            Err(_) => Read::Panicked,
        }
    }

    pub fn state(&self) -> &MessageState {
        &self.seen
    }

    pub fn gave_up(&self) -> bool {
        self.adapter.gave_up()
    }

    pub fn provider(&self) -> Option<&'static str> {
        self.adapter.provider()
    }

    pub fn envelope(&self, payload: &Payload<'_>) -> Envelope {
        self.adapter.envelope(payload)
    }

    /// The id under which the message is found; `None` until it is known.
    pub fn message_id(&self) -> Option<String> {
        self.told.get().cloned().or_else(|| self.seen.message.as_deref().map(|id| path_id(id).0))
    }

    pub fn model(&self) -> Option<&str> {
        self.seen.model.as_deref()
    }

    /// What the model is called until the upstream names it.
    pub fn set_default_model(&mut self, name: &str) {
        self.seen.model.get_or_insert_with(|| text::single_line(name, 256));
    }

    /// Where the markers stand in the text as it came.
    pub fn positions(&self) -> Positions {
        let (marks, length) = self.seen.ledger.marks();
        let mut positions = Positions::of_length(length);
        marks.for_each(|mark| positions.note(&mark));
        positions
    }

    /// The sources that a marker may lead to, now.
    pub fn sources(&self) -> Known<'_> {
        Known { ledger: &self.seen.ledger, rules: &self.context.rules, now: self.context.created }
    }

    /// Calls `say` with what is known of the message.
    pub fn open(&self, say: impl FnOnce(&MessageStart<'_>)) {
        let id = self.message_id().unwrap_or_else(|| self.context.fallback_id.clone());
        say(&MessageStart {
            id: self.told.get_or_init(|| id),
            model: self.seen.model.as_deref().unwrap_or(&self.context.route),
            created: self.context.created.as_second(),
        });
    }

    /// How many sources an event would name.
    pub fn citable(&self) -> usize {
        if let SearchOutcome::Found(_) = self.supply {
            return self
                .record(false)
                .citations
                .iter()
                .filter(|citation| citation.status == CitationStatus::Ok)
                .count();
        }
        self.seen.ledger.kept_count(&self.context.rules.scores, self.context.created)
    }

    /// The record as it stands. It is complete when the upstream said that the answer is, and did not fail.
    pub fn record(&self, stored: bool) -> Record {
        let rules = &self.context.rules;
        let view = self.seen.ledger.snapshot(&rules.scores, self.context.created);
        let mut metadata = Map::new();
        let message_id = self.message_id().unwrap_or_else(|| self.context.fallback_id.clone());
        if let Some(original) = self.seen.message.as_deref().filter(|original| **original != *message_id) {
            metadata.insert("originalMessageId".to_owned(), Value::String(text::single_line(original, 1024)));
        }
        let task_id = self.context.task.as_deref().map(|id| {
            let (id, original) = path_id(id);
            if let Some(original) = original {
                metadata.insert("originalTaskId".to_owned(), Value::String(original));
            }
            id
        });
        let mut record = Record {
            kind: RecordType::Citations,
            version: 1,
            message_id,
            conversation_id: self.seen.conversation.clone(),
            task_id,
            provider: self.adapter.provider().unwrap_or("unknown").to_owned(),
            route: self.context.route.clone(),
            source: "default".to_owned(),
            model: self.seen.model.clone(),
            complete: self.seen.finish && !self.seen.fault,
            stored,
            truncated: view.truncated,
            late: false,
            nonce: self.context.nonce.clone(),
            created_at: format!("{:.3}", self.context.created),
            summary: view.summary,
            queries: view.queries,
            corroboration: rules.corroboration.corroborate(&view.citations),
            rounds: view.rounds,
            citations: view.citations,
            stats: view.stats,
            metadata,
        };
        supplement::merge(&mut record, &self.supply, &rules.corroboration);
        record
    }
}

/// What a marker can be resolved with: sources that no filter removes.
pub struct Known<'t> {
    ledger: &'t Ledger,
    rules: &'t Rules,
    now: Timestamp,
}

impl Sources for Known<'_> {
    fn find(&self, number: u32) -> Option<Source<'_>> {
        let citation = self.ledger.kept_entry(number, &self.rules.scores, self.now)?;
        Some(Source {
            number: citation.number,
            url: citation.url.as_deref(),
            title: citation.title.as_deref(),
            content: citation.content.as_deref(),
        })
    }
}

impl Sink for MessageState {
    fn signal(&mut self, signal: Signal<'_>) {
        let short = |id: &str| text::first_bytes(id, 1024).to_owned();
        match signal {
            // The first id counts: one that changes in mid-stream does not move the record.
            Signal::MessageId(id) => {
                self.any = true;
                if self.message.is_none() {
                    self.message = Some(short(id));
                }
            }
            Signal::ConversationId(id) => {
                let (id, _) = text::clean_line(id, 256);
                // Most frames name it, and it is the same.
                if self.conversation.as_deref() != Some(&*id) {
                    self.conversation = Some(id.into_owned());
                }
            }
            Signal::Model(name) => self.model = Some(text::single_line(name, 256)),
            Signal::Text(piece, _) => {
                self.any = true;
                self.ledger.add_text(piece);
            }
            Signal::FullText(whole, _) => self.ledger.add_full_text(whole),
            Signal::Thinking(_) | Signal::Stage { .. } => self.any = true,
            Signal::SearchRound { key, summary, queries } => {
                self.any = true;
                self.ledger.add_round(key, summary, &queries);
            }
            Signal::Reference(reference) => {
                self.any = true;
                self.ledger.add_reference(&reference);
            }
            Signal::Usage(usage) => self.usage = Some(usage),
            Signal::Finish(reason) => {
                self.finish = true;
                self.reason.get_or_insert(reason);
            }
            Signal::InvalidReference { id, position, code } => self.ledger.add_failure(id.as_deref(), position, code),
            // What fails after the finish does not unfinish the answer.
            Signal::Fault { .. } => self.fault |= !self.finish,
        }
    }
}

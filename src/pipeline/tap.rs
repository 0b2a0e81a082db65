//! The tap: reads frames with the provider's adapter and collects their references in a ledger. It never changes a frame,
//! and its failure changes the pipeline's mode only.

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

/// Properties of a message that are known before its first byte.
#[derive(Debug, Clone)]
pub struct Context {
    pub route: String,
    pub provider: Provider,
    pub link_base: Option<Url>,
    pub nonce: String,
    /// Creation time, against which the freshness of sources is scored.
    pub created: Timestamp,
    /// Message id used if the upstream sends none.
    pub fallback_id: String,
    /// Task id from the request.
    pub task: Option<String>,
    pub rules: Arc<Rules>,
}

/// Reads the frames of one message.
pub struct Tap {
    adapter: Box<dyn Adapter>,
    state: MessageState,
    /// Outcome of our own search.
    pub(super) search_outcome: SearchOutcome,
    context: Context,
    /// The message id that a transcoded client was sent. It overrides an id that the upstream sends later.
    sent_id: OnceLock<String>,
}

/// The message as read so far.
#[derive(Default)]
pub struct MessageState {
    pub ledger: Ledger,
    message: Option<String>,
    conversation: Option<String>,
    model: Option<String>,
    /// Part of an assistant's message was read.
    pub has_content: bool,
    pub finished: bool,
    /// Why the answer ended.
    pub reason: Option<FinishReason>,
    /// Token usage as sent last.
    pub usage: Option<Usage>,
    /// The upstream reported an error before the finish.
    pub fault: bool,
}

/// Result of reading a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadResult {
    Ok,
    /// The adapter could not parse the frame. Later frames are read.
    Unparsed,
    /// The adapter panicked. No later frame may be read.
    Panicked,
}

impl Tap {
    pub fn new(context: Context) -> Self {
        let adapter = context.provider.adapter();
        Self::with_adapter(adapter, context)
    }

    pub(super) fn with_adapter(adapter: Box<dyn Adapter>, context: Context) -> Self {
        let state = MessageState { ledger: Ledger::new(context.link_base.clone()), ..MessageState::default() };
        Self { adapter, state, search_outcome: SearchOutcome::None, context, sent_id: OnceLock::new() }
    }

    /// Reads a frame and appends its signals to `recorded`, if given.
    pub fn read(&mut self, event: &Event<'_>, recorded: Option<&mut Vec<FrameSignal>>) -> ReadResult {
        let Self { adapter, state, .. } = self;
        let read = || match recorded {
            None => adapter.frame(event, state),
            Some(recorded) => adapter.frame(event, &mut Recorder { sink: state, recorded }),
        };
        // Unwind safe because the adapter and the ledger are not used after a panic.
        match catch_unwind(AssertUnwindSafe(read)) {
            Ok(result) => {
                if let Some(provider) = adapter.provider() {
                    state.ledger.set_provider(provider);
                }
                if result.is_ok() { ReadResult::Ok } else { ReadResult::Unparsed }
            }
            Err(_) => ReadResult::Panicked,
        }
    }

    pub fn state(&self) -> &MessageState {
        &self.state
    }

    pub fn gave_up(&self) -> bool {
        self.adapter.gave_up()
    }

    pub fn provider(&self) -> Option<&'static str> {
        self.adapter.provider()
    }

    pub fn clients_accept_comments(&self) -> bool {
        self.adapter.clients_accept_comments()
    }

    pub fn envelope(&self, payload: &Payload<'_>) -> Envelope {
        self.adapter.envelope(payload)
    }

    /// The id of the record; `None` until it is known.
    pub fn message_id(&self) -> Option<String> {
        self.sent_id.get().cloned().or_else(|| self.state.message.as_deref().map(|id| path_id(id).0))
    }

    pub fn model(&self) -> Option<&str> {
        self.state.model.as_deref()
    }

    /// Sets the model name that is used until the upstream sends one.
    pub fn set_default_model(&mut self, name: &str) {
        self.state.model.get_or_insert_with(|| text::single_line(name, 256));
    }

    /// The positions of the markers in the upstream's text.
    pub fn positions(&self) -> Positions {
        let (marks, length) = self.state.ledger.marks();
        let mut positions = Positions::of_length(length);
        marks.for_each(|mark| positions.note(&mark));
        positions
    }

    /// The sources that markers can resolve to at this point.
    pub fn sources(&self) -> CitableSources<'_> {
        CitableSources { ledger: &self.state.ledger, rules: &self.context.rules, now: self.context.created }
    }

    /// Calls `encode` with the start of the message, which fixes the message id.
    pub fn with_message_start(&self, encode: impl FnOnce(&MessageStart<'_>)) {
        encode(&MessageStart {
            id: self.sent_id.get_or_init(|| self.record_id()),
            model: self.state.model.as_deref().unwrap_or(&self.context.route),
            created: self.context.created.as_second(),
        });
    }

    fn record_id(&self) -> String {
        self.message_id().unwrap_or_else(|| self.context.fallback_id.clone())
    }

    /// Number of sources that an event would list.
    pub fn citable_count(&self) -> usize {
        if let SearchOutcome::Found(_) = self.search_outcome {
            return self
                .record(false)
                .citations
                .iter()
                .filter(|citation| citation.status == CitationStatus::Ok)
                .count();
        }
        self.state.ledger.kept_count(&self.context.rules.scores, self.context.created)
    }

    /// Builds the current record. It is complete if the upstream sent a finish and no error before it.
    pub fn record(&self, stored: bool) -> Record {
        let rules = &self.context.rules;
        let view = self.state.ledger.snapshot(&rules.scores, self.context.created);
        let mut metadata = Map::new();
        let message_id = self.record_id();
        if let Some(original) = self.state.message.as_deref().filter(|original| **original != *message_id) {
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
            conversation_id: self.state.conversation.clone(),
            task_id,
            provider: self.adapter.provider().unwrap_or("unknown").to_owned(),
            route: self.context.route.clone(),
            source: "default".to_owned(),
            model: self.state.model.clone(),
            complete: self.state.finished && !self.state.fault,
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
        supplement::merge(&mut record, &self.search_outcome, &rules.corroboration);
        record
    }
}

/// The sources that markers resolve to: those that no filter removes.
pub struct CitableSources<'t> {
    ledger: &'t Ledger,
    rules: &'t Rules,
    now: Timestamp,
}

impl Sources for CitableSources<'_> {
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
            // The first id wins, so that a change within the stream does not move the record.
            Signal::MessageId(id) => {
                self.has_content = true;
                if self.message.is_none() {
                    self.message = Some(short(id));
                }
            }
            Signal::ConversationId(id) => {
                let (id, _) = text::clean_line(id, 256);
                // Most frames repeat the same id.
                if self.conversation.as_deref() != Some(&*id) {
                    self.conversation = Some(id.into_owned());
                }
            }
            Signal::Model(name) => self.model = Some(text::single_line(name, 256)),
            Signal::Text(piece, _) => {
                self.has_content = true;
                self.ledger.add_text(piece);
            }
            Signal::FullText(whole, _) => self.ledger.add_full_text(whole),
            Signal::Thinking(_) | Signal::Stage { .. } => self.has_content = true,
            Signal::SearchRound { key, summary, queries } => {
                self.has_content = true;
                self.ledger.add_round(key, summary, &queries);
            }
            Signal::Reference(reference) => {
                self.has_content = true;
                self.ledger.add_reference(&reference);
            }
            Signal::Usage(usage) => self.usage = Some(usage),
            Signal::Finish(reason) => {
                self.finished = true;
                self.reason.get_or_insert(reason);
            }
            Signal::InvalidReference { id, position, code } => self.ledger.add_failure(id.as_deref(), position, code),
            // An error after the finish does not make the answer incomplete.
            Signal::Fault { .. } => self.fault |= !self.finished,
        }
    }
}

//! Owned copies of one frame's signals. They are encoded once the whole frame is read, because its references apply to its
//! own text.

use crate::provider::{FinishReason, Signal, Sink, Usage, json_path::Step};

/// A signal that can be encoded for the client.
#[derive(Debug, Clone, PartialEq)]
pub enum FrameSignal {
    Text { text: String, path: Vec<Step> },
    FullText { text: String, path: Vec<Step> },
    Thinking(String),
    Stage { name: String, message: String, detail: Option<String> },
    Searching(Vec<String>),
    Usage(Usage),
    Finish(FinishReason),
    Fault { code: Option<String>, message: Option<String> },
}

/// Records signals while forwarding them to `sink`.
pub struct Recorder<'s> {
    pub sink: &'s mut dyn Sink,
    pub recorded: &'s mut Vec<FrameSignal>,
}

impl Sink for Recorder<'_> {
    fn signal(&mut self, signal: Signal<'_>) {
        self.recorded.extend(FrameSignal::from_signal(&signal));
        self.sink.signal(signal);
    }
}

impl FrameSignal {
    fn from_signal(signal: &Signal<'_>) -> Option<Self> {
        Some(match signal {
            Signal::Text(text, path) => Self::Text { text: (*text).to_owned(), path: path.steps() },
            Signal::FullText(text, path) => Self::FullText { text: (*text).to_owned(), path: path.steps() },
            Signal::Thinking(text) => Self::Thinking((*text).to_owned()),
            Signal::Stage { name, message, detail } => {
                Self::Stage { name: (*name).to_owned(), message: (*message).to_owned(), detail: detail.clone() }
            }
            Signal::SearchRound { queries, .. } => {
                Self::Searching(queries.iter().map(|query| query.clone().into_owned()).collect())
            }
            Signal::Usage(usage) => Self::Usage(*usage),
            Signal::Finish(reason) => Self::Finish(*reason),
            Signal::Fault { code, message } => {
                Self::Fault { code: code.clone(), message: message.map(ToOwned::to_owned) }
            }
            Signal::MessageId(_)
            | Signal::ConversationId(_)
            | Signal::Model(_)
            | Signal::Reference(_)
            | Signal::InvalidReference { .. } => return None,
        })
    }
}

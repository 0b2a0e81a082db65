//! What one frame said, kept until the frame is read whole: its references count for its own text.

use crate::provider::{FinishReason, Signal, Sink, Usage, json_path::Step};

/// A signal that a client may be told of in other words.
#[derive(Debug, Clone, PartialEq)]
pub enum FrameSignal {
    Text { text: String, at: Vec<Step> },
    FullText { text: String, at: Vec<Step> },
    Thinking(String),
    Stage { name: String, message: String, detail: Option<String> },
    Searching(Vec<String>),
    Usage(Usage),
    Finish(FinishReason),
    Fault { code: Option<String>, message: Option<String> },
}

/// Lets signals through and keeps what was heard of them.
pub struct Recorder<'s> {
    pub to: &'s mut dyn Sink,
    pub heard: &'s mut Vec<FrameSignal>,
}

impl Sink for Recorder<'_> {
    fn signal(&mut self, signal: Signal<'_>) {
        self.heard.extend(FrameSignal::of(&signal));
        self.to.signal(signal);
    }
}

impl FrameSignal {
    fn of(signal: &Signal<'_>) -> Option<Self> {
        Some(match signal {
            Signal::Text(text, at) => Self::Text { text: (*text).to_owned(), at: at.steps() },
            Signal::FullText(text, at) => Self::FullText { text: (*text).to_owned(), at: at.steps() },
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

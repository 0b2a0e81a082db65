//! Encodes records and answers for the client: in the upstream's own dialect ([`native`]), or in one that frontends already
//! read. Also renders answers as HTML ([`html`], [`partial_html`]). Called by [`crate::pipeline`] and [`crate::api`].

pub mod ai_sdk;
pub mod annotate;
pub mod html;
pub mod native;
pub mod open_webui;
pub mod openai;
pub mod partial_html;

use std::{collections::BTreeMap, str::FromStr};

use crate::{
    citation::{Citation, Record},
    marker::{Mark, Style},
    provider::{FinishReason, Usage},
};

/// Dialect of the client's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Profile {
    /// The upstream's dialect, byte for byte.
    #[default]
    Native,
    /// OpenAI chat completions.
    OpenAi,
    /// The AI SDK's UI message stream, version 1.
    AiSdk,
    /// OpenAI chat completions with Open WebUI's events.
    OpenWebUi,
}

impl Profile {
    pub const NAMES: &[&str] = &["native", "openai", "ai-sdk", "open-webui"];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::OpenAi => "openai",
            Self::AiSdk => "ai-sdk",
            Self::OpenWebUi => "open-webui",
        }
    }

    /// The form of an answer that the upstream did not stream. The AI SDK reads streams only.
    pub const fn document_form(self) -> Form {
        match self {
            Self::AiSdk => Form::Stream,
            Self::Native | Self::OpenAi | Self::OpenWebUi => Form::Document,
        }
    }

    /// Response headers that clients of the dialect expect.
    pub const fn headers(self, form: Form) -> &'static [(&'static str, &'static str)] {
        const STREAM: (&str, &str) = ("content-type", "text/event-stream; charset=utf-8");
        match (self, form) {
            (Self::Native, _) => &[],
            (Self::AiSdk, _) => &[STREAM, ("x-vercel-ai-ui-message-stream", "v1")],
            (Self::OpenAi | Self::OpenWebUi, Form::Stream) => &[STREAM],
            (Self::OpenAi | Self::OpenWebUi, Form::Document) => &[("content-type", "application/json")],
        }
    }
}

impl FromStr for Profile {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        let profiles = [Self::Native, Self::OpenAi, Self::AiSdk, Self::OpenWebUi];
        profiles.into_iter().find(|profile| profile.as_str() == name).ok_or(())
    }
}

/// Whether an answer is a stream of events or one JSON document at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    #[default]
    Stream,
    Document,
}

/// Format of the client's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputFormat {
    pub profile: Profile,
    /// Form of a dialect other than the upstream's. With [`Profile::Native`], [`Form::Document`] adds sources to an answer
    /// that was not streamed.
    pub form: Form,
    pub markers: Style,
}

impl OutputFormat {
    /// Whether sources are added to a native answer that was not streamed.
    pub fn annotates(self) -> bool {
        self.profile == Profile::Native && self.form == Form::Document
    }

    /// Whether an answer that was not streamed is changed.
    pub fn changes_documents(self) -> bool {
        self.profile != Profile::Native || self.form == Form::Document
    }
}

/// Properties of a message when its encoding begins.
#[derive(Debug, Clone, Copy)]
pub struct MessageStart<'a> {
    /// Id of the record in `/citations`.
    pub id: &'a str,
    /// Name of the model, or of the route if the upstream sends none.
    pub model: &'a str,
    /// Seconds since the epoch.
    pub created: i64,
}

/// Positions of the first marker of each number in the client's text, in code points.
#[derive(Debug, Clone, Default)]
pub struct Positions {
    first: BTreeMap<u32, (u64, u64)>,
    /// Length of the text.
    pub length: u64,
    /// The text was rewritten, so the upstream's own offsets are invalid.
    pub moved: bool,
}

/// Numbers whose position is recorded; further ones have none.
const MAX_POSITIONS: usize = 1000;

impl Positions {
    /// For the upstream's unchanged text.
    pub fn of_length(length: u64) -> Self {
        Self { length, ..Self::default() }
    }

    /// For a text whose markers are rewritten in `style`.
    pub fn of_style(style: Style) -> Self {
        Self { moved: style != Style::Keep, ..Self::default() }
    }

    /// Records a marker, unless its number has one already.
    pub fn note(&mut self, mark: &Mark) {
        if self.first.len() < MAX_POSITIONS {
            self.first.entry(mark.number).or_insert((mark.start, mark.end));
        }
    }

    /// Start and end of a citation: the upstream's offsets, else its first marker, else 0 and 0.
    pub fn span(&self, citation: &Citation) -> (u64, u64) {
        let index = |key| citation.metadata.get(key)?.as_u64();
        let upstream = index("startIndex").zip(index("endIndex")).filter(|(_, end)| !self.moved && *end <= self.length);
        let numbers = std::iter::once(citation.number).chain(citation.aliases.iter().copied());
        upstream.or_else(|| self.first_of(numbers)).unwrap_or_default()
    }

    /// Start and end of the first marker with one of the numbers.
    pub fn first_of(&self, numbers: impl IntoIterator<Item = u32>) -> Option<(u64, u64)> {
        numbers.into_iter().filter_map(|number| self.first.get(&number).copied()).min()
    }
}

/// Creates the encoder of a format; `None` for the upstream's own dialect.
pub fn encoder(output_format: OutputFormat) -> Option<Box<dyn Encoder>> {
    Some(match (output_format.profile, output_format.form) {
        (Profile::Native, _) => return None,
        (Profile::OpenAi, Form::Stream) => Box::new(openai::ChunkEncoder::default()),
        (Profile::OpenAi, Form::Document) => Box::new(openai::DocumentEncoder::default()),
        (Profile::AiSdk, _) => Box::new(ai_sdk::PartEncoder::default()),
        (Profile::OpenWebUi, Form::Stream) => Box::new(open_webui::EventEncoder::default()),
        (Profile::OpenWebUi, Form::Document) => Box::new(openai::DocumentEncoder::for_open_webui()),
    })
}

/// Encodes an answer in another dialect. One instance per answer. Complete frames are appended to `out`; an encoder of
/// documents appends everything in [`Encoder::end`].
pub trait Encoder: Send {
    /// Starts the message. Called first, and once.
    fn open(&mut self, start: &MessageStart<'_>, out: &mut Vec<u8>);
    fn text(&mut self, text: &str, out: &mut Vec<u8>);
    fn thinking(&mut self, text: &str, out: &mut Vec<u8>);
    /// A progress stage, as named by the upstream.
    fn stage(&mut self, _name: &str, _message: &str, _detail: Option<&str>, _out: &mut Vec<u8>) {}
    /// All queries of the upstream's current search.
    fn searching(&mut self, _queries: &[String], _out: &mut Vec<u8>) {}
    /// The list of sources has grown during the answer. Called only if live events are configured.
    fn live(&mut self, _record: &Record, _out: &mut Vec<u8>) {}
    /// The sources of the answer, whose text is complete.
    fn citations(&mut self, record: &Record, positions: &Positions, out: &mut Vec<u8>);
    fn usage(&mut self, usage: Usage, out: &mut Vec<u8>);
    /// The answer is finished. Usage may still follow.
    fn finish(&mut self, reason: FinishReason, out: &mut Vec<u8>);
    /// The upstream failed.
    fn fault(&mut self, code: Option<&str>, message: &str, out: &mut Vec<u8>);
    /// Nothing follows. Not called after a stream that broke off.
    fn end(&mut self, out: &mut Vec<u8>);
}

#[cfg(test)]
mod tests;

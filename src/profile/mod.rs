//! How a record and an answer are put on the wire: in the upstream's own dialect ([`native`]), or in one
//! that frontends already speak.

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

/// The dialect that a client gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Profile {
    /// The upstream's own, byte for byte.
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
}

impl Profile {
    /// What an answer that was not streamed becomes: the AI SDK's dialect knows streams only.
    pub const fn document_form(self) -> Form {
        match self {
            Self::AiSdk => Form::Stream,
            Self::Native | Self::OpenAi | Self::OpenWebUi => Form::Document,
        }
    }

    /// Headers that clients of the dialect expect.
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

    fn from_str(s: &str) -> Result<Self, ()> {
        match s {
            "native" => Ok(Self::Native),
            "openai" => Ok(Self::OpenAi),
            "ai-sdk" => Ok(Self::AiSdk),
            "open-webui" => Ok(Self::OpenWebUi),
            _ => Err(()),
        }
    }
}

/// As a stream of events, or as one JSON document at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    #[default]
    Stream,
    Document,
}

/// How a client is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputFormat {
    pub profile: Profile,
    /// Of a dialect that is not the upstream's. In its own dialect [`Form::Document`] means that sources are added to an
    /// answer that was not streamed.
    pub form: Form,
    pub markers: Style,
}

impl OutputFormat {
    /// Are sources added to an answer that was not streamed?
    pub fn annotates(self) -> bool {
        self.profile == Profile::Native && self.form == Form::Document
    }

    /// Does an answer that was not streamed become another?
    pub fn changes_documents(self) -> bool {
        self.profile != Profile::Native || self.form == Form::Document
    }
}

/// What a encoder knows of the message when it begins.
#[derive(Debug, Clone, Copy)]
pub struct MessageStart<'a> {
    /// The id under which `/citations` has the record.
    pub id: &'a str,
    /// The model's name, or the route's where the upstream names none.
    pub model: &'a str,
    /// Seconds since the epoch.
    pub created: i64,
}

/// Where the markers of the answer stand in what the client got: of each number, the first, in code points.
#[derive(Debug, Clone, Default)]
pub struct Positions {
    first: BTreeMap<u32, (u64, u64)>,
    /// Of the whole text.
    pub length: u64,
    /// The text is not as the upstream wrote it, and its own offsets mean nothing in it.
    pub moved: bool,
}

/// Numbers whose place is remembered; further ones have none.
const MAX_POSITIONS: usize = 1000;

impl Positions {
    /// For a text that is there, as the upstream wrote it.
    pub fn of_length(length: u64) -> Self {
        Self { length, ..Self::default() }
    }

    /// For a text whose markers become this.
    pub fn of_style(style: Style) -> Self {
        Self { moved: style != Style::Keep, ..Self::default() }
    }

    pub fn note(&mut self, mark: &Mark) {
        if self.first.len() < MAX_POSITIONS {
            self.first.entry(mark.number).or_insert((mark.start, mark.end));
        }
    }

    /// Where a citation is used: what the upstream says, else its first marker, else 0 and 0.
    pub fn span(&self, citation: &Citation) -> (u64, u64) {
        let index = |key| citation.metadata.get(key)?.as_u64();
        let told = index("startIndex").zip(index("endIndex")).filter(|(_, end)| !self.moved && *end <= self.length);
        let numbers = std::iter::once(citation.number).chain(citation.aliases.iter().copied());
        told.or_else(|| self.of(numbers)).unwrap_or_default()
    }

    /// Start and end of the first marker that names one of the numbers.
    pub fn of(&self, numbers: impl IntoIterator<Item = u32>) -> Option<(u64, u64)> {
        numbers.into_iter().filter_map(|number| self.first.get(&number).copied()).min()
    }
}

/// Who speaks a profile; `None` for the upstream's own dialect, which needs nobody.
pub fn encoder(output_format: OutputFormat) -> Option<Box<dyn Encoder>> {
    Some(match (output_format.profile, output_format.form) {
        (Profile::Native, _) => return None,
        (Profile::OpenAi, Form::Stream) => Box::new(openai::Chunks::default()),
        (Profile::OpenAi, Form::Document) => Box::new(openai::Whole::default()),
        (Profile::AiSdk, _) => Box::new(ai_sdk::Parts::default()),
        (Profile::OpenWebUi, Form::Stream) => Box::new(open_webui::Events::default()),
        (Profile::OpenWebUi, Form::Document) => Box::new(open_webui::Whole::default()),
    })
}

/// Says in another dialect what the upstream said. One instance per answer; what is to be sent is appended to
/// `out`, whole frames only. A encoder of whole documents keeps all to itself until [`Encoder::end`].
pub trait Encoder: Send {
    /// First, and once.
    fn open(&mut self, opening: &MessageStart<'_>, out: &mut Vec<u8>);
    fn text(&mut self, text: &str, out: &mut Vec<u8>);
    fn thinking(&mut self, text: &str, out: &mut Vec<u8>);
    /// What the upstream is doing, in its own words.
    fn stage(&mut self, _name: &str, _message: &str, _detail: Option<&str>, _out: &mut Vec<u8>) {}
    /// What it searches for: all queries of the search at hand.
    fn searching(&mut self, _queries: &[String], _out: &mut Vec<u8>) {}
    /// The list has grown, and the answer goes on. Only where live events are asked for.
    fn live(&mut self, _record: &Record, _out: &mut Vec<u8>) {}
    /// All text has come; these are its sources.
    fn citations(&mut self, record: &Record, positions: &Positions, out: &mut Vec<u8>);
    fn usage(&mut self, usage: Usage, out: &mut Vec<u8>);
    /// The answer is finished. What it cost may still come.
    fn finish(&mut self, reason: FinishReason, out: &mut Vec<u8>);
    /// The upstream failed, in its own words where it had some.
    fn fault(&mut self, code: Option<&str>, message: &str, out: &mut Vec<u8>);
    /// Nothing more comes. After a stream that broke off it is not called.
    fn end(&mut self, out: &mut Vec<u8>);
}

#[cfg(test)]
mod tests;

//! What upstreams mean: a frame in, signals out. One file per wire format; a new one touches its
//! own file, the match in [`adapter`], and its fixtures.

mod detect;
mod doubao;
mod ends;
pub mod json;
mod openai;
pub mod refusal;
mod results;
pub mod sight;
pub mod splice;
pub mod stencil;
mod tencent;
pub mod trail;

use std::{borrow::Cow, str::FromStr};

use crate::{
    citation::{
        ledger::{Published, Reference},
        record::CitationType,
    },
    sse::Event,
};
pub use trail::Trail;

/// What a route says about its upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Doubao web, both its protocols, told apart by the frames.
    Doubao,
    /// Tencent Lexiang.
    Tencent,
    /// OpenAI-like chat completions, whoever sends them.
    OpenAi,
    /// A Tavily search response. Read where it is handed in, not on a route.
    Tavily,
    /// The response of an MCP search tool. Read where it is handed in, not on a route.
    Mcp,
    /// Decided by the first frames.
    Auto,
}

impl Kind {
    /// What a route may name.
    pub const NAMES: &[&str] = &["doubao", "tencent", "openai", "auto"];
    /// What may be named for a capture or a JSON body that is handed in.
    pub const READ_NAMES: &[&str] = &["doubao", "tencent", "openai", "tavily", "mcp", "auto"];

    /// One of [`Self::READ_NAMES`].
    pub fn read_as(name: &str) -> Option<Self> {
        match name {
            "tavily" => Some(Self::Tavily),
            "mcp" => Some(Self::Mcp),
            _ => name.parse().ok(),
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Doubao => "doubao",
            Self::Tencent => "tencent",
            Self::OpenAi => "openai",
            Self::Tavily => "tavily",
            Self::Mcp => "mcp",
            Self::Auto => "auto",
        }
    }
}

impl FromStr for Kind {
    type Err = ();

    fn from_str(s: &str) -> Result<Self, ()> {
        match s {
            "doubao" => Ok(Self::Doubao),
            "tencent" => Ok(Self::Tencent),
            "openai" => Ok(Self::OpenAi),
            "auto" => Ok(Self::Auto),
            _ => Err(()),
        }
    }
}

/// A wire format that we read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    DoubaoWeb,
    Samantha,
    Lexiang,
    OpenAi,
    Tavily,
    Mcp,
}

/// One instance per stream; reads frames and says what they mean.
pub trait Adapter: Send {
    /// The provider's name in records; `None` until it is known.
    fn provider(&self) -> Option<&'static str>;

    /// Reads one frame. `Unread` means that the frame was not understood where it should have
    /// been; the next one is read all the same.
    fn frame(&mut self, event: &Event<'_>, sink: &mut dyn Sink) -> Result<(), Unread>;

    /// Tells whether one of some whole frames could be a [`Signal::Finish`] or a [`Signal::Fault`]. If not, they may be
    /// passed on before they are read.
    fn ends(&self) -> Ends {
        |_| true
    }

    /// Another one whenever a frame could be read otherwise than before, as something else was read meanwhile. `None`: that
    /// is not known.
    fn epoch(&self) -> Option<u64> {
        None
    }

    /// The neutral frame of this stream's dialect that our record travels in.
    fn envelope(&self) -> Envelope<'_>;

    /// It will never understand this stream: stop asking.
    fn gave_up(&self) -> bool {
        false
    }
}

/// Could one of these whole frames end an answer?
pub type Ends = fn(&[u8]) -> bool;

/// Takes what an adapter reads, as it reads it.
pub trait Sink {
    fn signal(&mut self, signal: Signal<'_>);
}

/// What a frame meant.
#[derive(Debug, Clone, PartialEq)]
pub enum Signal<'a> {
    /// The assistant message's id.
    Message(&'a str),
    Conversation(&'a str),
    Model(&'a str),
    /// A piece of the answer, and where in the frame it stands.
    Text(&'a str, Trail<'a>),
    /// A piece of the model's thinking.
    Thinking(&'a str),
    /// The whole answer once more, and where in the frame it stands.
    Answer(&'a str, Trail<'a>),
    /// What the upstream is doing, in its own words.
    Stage {
        name: &'a str,
        message: &'a str,
        detail: Option<String>,
    },
    /// A search: its block, and what is known of it. References that follow belong to it.
    Round {
        key: &'a str,
        summary: Option<&'a str>,
        queries: Vec<Cow<'a, str>>,
    },
    Reference(Reference<'a>),
    /// A reference that cannot be one: what tells it from others where it has that, its place, and one of [`code`].
    Failed {
        id: Option<String>,
        position: u32,
        code: &'static str,
    },
    /// What the answer cost.
    Usage(Usage),
    /// The upstream says that the answer is finished. The frame that says so was read whole.
    Finish(Reason),
    /// The upstream says that it failed, with its own code and words where it has them.
    Fault {
        code: Option<String>,
        message: Option<&'a str>,
    },
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reason {
    #[default]
    Stop,
    Length,
    /// What was to be said was held back.
    Filter,
    /// The model wants tools called.
    Tools,
}

impl Reason {
    /// As upstreams spell it; what is not known is a plain stop.
    pub fn of(name: &str) -> Self {
        match name {
            "length" | "max_tokens" | "max_output_tokens" => Self::Length,
            "content_filter" | "sensitive" | "safety" | "refusal" => Self::Filter,
            "tool_calls" | "function_call" | "tool_use" => Self::Tools,
            _ => Self::Stop,
        }
    }
}

/// Tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    pub input: u64,
    pub output: u64,
    pub total: u64,
}

/// Why a reference cannot be one, as records and bundles say it. Others rely on these: add, never change.
pub mod code {
    pub const NOT_AN_OBJECT: &str = "not_an_object";
    pub const MISSING_TITLE_AND_URL: &str = "missing_title_and_url";
    pub const MISSING_TITLE_URL_AND_ID: &str = "missing_title_url_and_id";
}

/// A frame that should have been readable and was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unread;

/// How our record is dressed so that clients of the dialect take it for a frame without effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Envelope<'a> {
    DoubaoWeb,
    Samantha,
    Lexiang {
        completion_id: &'a str,
        session_id: &'a str,
    },
    OpenAi {
        id: &'a str,
        model: &'a str,
        created: i64,
        /// The stream has annotations of its own.
        annotated: bool,
    },
    /// No dialect: the record itself.
    Bare,
}

/// The one place that builds adapters.
pub fn adapter(kind: Kind) -> Box<dyn Adapter> {
    match kind {
        Kind::Doubao => Box::new(detect::Detect::among(&[Dialect::DoubaoWeb, Dialect::Samantha])),
        Kind::Tencent => Box::new(tencent::Lexiang::default()),
        Kind::OpenAi => of_dialect(Dialect::OpenAi),
        Kind::Tavily => of_dialect(Dialect::Tavily),
        Kind::Mcp => of_dialect(Dialect::Mcp),
        Kind::Auto => Box::new(detect::Detect::any()),
    }
}

fn of_dialect(dialect: Dialect) -> Box<dyn Adapter> {
    match dialect {
        Dialect::DoubaoWeb => Box::new(doubao::Web::default()),
        Dialect::Samantha => Box::new(doubao::Samantha),
        Dialect::Lexiang => Box::new(tencent::Lexiang::default()),
        Dialect::OpenAi => Box::new(openai::Chat::default()),
        Dialect::Tavily => Box::new(results::Results::tavily()),
        Dialect::Mcp => Box::new(results::Results::mcp()),
    }
}

/// Whichever of them a stream turns out to be.
fn any_ends(frames: &[u8]) -> bool {
    let each: [Ends; 4] = [doubao::Web::ends, doubao::Samantha::ends, tencent::Lexiang::ends, openai::Chat::ends];
    each.iter().any(|ends| ends(frames))
}

/// Whose JSON document is it? `None` where it could be anybody's.
pub fn of_document(json: &str) -> Option<Kind> {
    detect::sniff("", json).map(|dialect| match dialect {
        Dialect::DoubaoWeb | Dialect::Samantha => Kind::Doubao,
        Dialect::Lexiang => Kind::Tencent,
        Dialect::OpenAi => Kind::OpenAi,
        Dialect::Tavily => Kind::Tavily,
        Dialect::Mcp => Kind::Mcp,
    })
}

/// The type that references of a web search have.
const WEB: CitationType = CitationType::Websearch;

/// A time as upstreams write it: text, or seconds since the epoch.
fn published<'a>(node: &'a json::Node<'_>) -> Option<Published<'a>> {
    match node {
        json::Node::Str(text) if !text.trim().is_empty() => Some(Published::Text(text)),
        json::Node::Unsigned(n) => i64::try_from(*n).ok().map(Published::Epoch),
        _ => None,
    }
}

#[cfg(test)]
mod ends_tests;
#[cfg(test)]
mod tests;

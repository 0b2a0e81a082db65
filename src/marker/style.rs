//! The styles that markers are written in.

use std::str::FromStr;

/// How markers are written in the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Style {
    /// Unchanged.
    #[default]
    Keep,
    /// `[[1]](url)`, a link in every Markdown renderer.
    Link,
    /// `[<sup data-citation='{json}'>1</sup>](url)`.
    Sup,
    /// `[^1]`, with a definition at the end of the answer.
    Footnote,
    /// Removed.
    Strip,
}

impl Style {
    pub const NAMES: &[&str] = &["keep", "link", "sup", "footnote", "strip"];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Link => "link",
            Self::Sup => "sup",
            Self::Footnote => "footnote",
            Self::Strip => "strip",
        }
    }
}

impl FromStr for Style {
    type Err = ();

    fn from_str(s: &str) -> Result<Self, ()> {
        match s {
            "keep" => Ok(Self::Keep),
            "link" => Ok(Self::Link),
            "sup" => Ok(Self::Sup),
            "footnote" => Ok(Self::Footnote),
            "strip" => Ok(Self::Strip),
            _ => Err(()),
        }
    }
}

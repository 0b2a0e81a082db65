//! Inline markers.

mod block;
mod context;
mod grammar;
mod html;
mod look;
mod reader;
mod rewrite;
mod scan;
mod span;
mod style;
mod walk;
mod write;

pub use grammar::MAX_LINKED;
pub use look::HOLD;
pub use rewrite::{Rewriter, Swap, rewrite, rewritten, swaps};
pub use scan::Scanner;
pub use style::Style;

/// What a marker can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Source<'a> {
    pub number: u32,
    pub url: Option<&'a str>,
    pub title: Option<&'a str>,
    pub content: Option<&'a str>,
}

/// The sources of a message.
pub trait Sources {
    /// The one with this number, or with this number among its aliases.
    fn find(&self, number: u32) -> Option<Source<'_>>;
}

/// A marker that went out with its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// As the text has it: an alias stays one.
    pub number: u32,
    /// Where it stands in the text that went out, in code points. A stripped one is empty; those of `[1,2]` have
    /// one place each, or the same one where it was kept.
    pub start: u64,
    pub end: u64,
}

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod property_tests;

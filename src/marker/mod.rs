//! Inline markers: one grammar, read as the text streams; [`Rewriter`] writes them anew, [`Scanner`] notes their numbers.
//!
//! # Forms
//!
//! `[1]` `[1][2]` `[1, 2]` (also `，` and `、`) `[3,6](@ref)` `[citation:1]` `[ref_1]` `[ID:1]` `[^1]` `^[1]^` `^[1][2]^`
//! `[[1]]` `[[1]](url)` `【1】` `【1、2】` `【1†source】` (any words after the dagger) `【8:1†source】` (source 1)
//! `<span id="ai-qa-ref">1</span>`, and U+E200 `cite` U+E202 `turn0search0` U+E201. Numbers have at most three digits, for
//! `[2024]` is a year; 0 is one only after `ID:` and before a dagger, where services count from it. A number is looked up
//! as it is written, and one that no source has stays as it is, also in a list whose other numbers have one. The cite
//! token names no number: it stays, and goes in [`Style::Strip`] alone. `[1-3]`, `[reference:0]` (no index into the
//! sources) and `[](@mark_underline=1)` are text.
//!
//! # Where they count
//!
//! In prose, as CommonMark has it, with tables and math. Not in code (spans, fences, indented), HTML blocks, tags,
//! comments, the text of `<a>` and `<code>`, link texts, URLs, autolinks, definitions of links, `$…$`, `$$…$$`, `\(…\)`,
//! `\[…\]`; not after a backslash. Besides, of the forms in single brackets:
//!
//! - `[1](…)` and `[text][1]` are links, whether or not they lead anywhere. `[1]:` at the beginning of a line is a definition.
//! - A word right before the bracket makes an index of it, if the word has a `_` or is a name that is no word (`arr`,
//!   `argv`, …), or if after the brackets comes what comes after an index: `=` or `+=` (one space before it at most),
//!   `.` and a small letter, `]`, `++`. All other words take markers: `the capital[1].` is one.
//! - In a URL that stands in the text as it is, brackets belong to the URL if it goes on after them.
//!
//! # How far it looks
//!
//! A decision looks at most [`HOLD`] code points ahead, and text is held back only from a possible marker on: never more
//! than that, but for `[[1]](url)`, up to [`MAX_LINKED`]. So the output does not depend on how the text was cut. Where a
//! reader of the whole document knows more, the rule is:
//!
//! - Backticks, `$$`, `\(`, `\[`, tags and URLs of links whose end is out of sight last until their end or the
//!   paragraph's, whichever comes first. If the end never comes, markers in between stay text.
//! - A single `$` whose partner is out of sight is money.
//! - In a bracket that opened out of sight, a marker is held back until the bracket shows to be a link's text or not; if
//!   its end is out of sight from the marker too, it is not.
//! - Definitions of links count where they stand, not for what refers to them: `[1]` is a marker though `[1]: url` follows.
//! - A line that begins with `|` is a row of a table, before the line after it tells.
//!
//! All else is what CommonMark says; `property_tests` holds it against a parser of whole documents.

mod block;
mod context;
mod cursor;
mod grammar;
mod html;
mod link;
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
mod form_tests;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod write_tests;

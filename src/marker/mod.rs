//! Inline markers of sources: their grammar, and their detection and rewriting while an answer streams. [`Rewriter`]
//! writes them in another [`Style`] for `pipeline`, `profile` and `api`; [`Scanner`] records their numbers for `citation`.
//!
//! # Forms
//!
//! `[1]` `[1][2]` `[1, 2]` (also `，` and `、`) `[3,6](@ref)` `[citation:1]` `[ref_1]` `[ID:1]` `[^1]` `^[1]^` `^[1][2]^`
//! `[[1]]` `[[1]](url)` `【1】` `【1、2】` `【1†source】` (any words after the dagger) `【8:1†source】` (source 1)
//! `<span id="ai-qa-ref">1</span>`, and U+E200 `cite` U+E202 `turn0search0` U+E201.
//!
//! Numbers have at most three digits, because `[2024]` is a year. 0 is a number only after `ID:` and before a dagger, where
//! services count from 0. Numbers are looked up as written. A number without a source is kept, also in a list with other
//! numbers that have one. The cite token has no number: only [`Style::Strip`] removes it, every other style keeps it.
//! `[1-3]`, `[reference:0]` (no index into the sources) and `[](@mark_underline=1)` are text.
//!
//! # Where markers are recognized
//!
//! In prose as defined by CommonMark with tables and math. Not in code (spans, fences, indented), HTML blocks, tags,
//! comments, the text of `<a>` and `<code>`, link texts, URLs, autolinks, link reference definitions, `$…$`, `$$…$$`,
//! `\(…\)`, `\[…\]`; not after a backslash. Forms in single brackets have more rules:
//!
//! - `[1](…)` and `[text][1]` are links, valid or not. `[1]:` at the beginning of a line is a definition.
//! - A bracket right after a word is an array index if the word contains `_` or is a common array name (`arr`, `argv`, …),
//!   or if the brackets are followed by what follows an index: `=` or `+=` (after at most one space), `.` and a lowercase
//!   letter, `]`, `++`. After all other words it is a marker: `the capital[1].`
//! - A bracket in a bare URL belongs to the URL if the URL continues after it.
//!
//! # Lookahead
//!
//! A decision reads at most [`MAX_LOOKAHEAD`] code points ahead, and text is held back only from a possible marker on: at
//! most that many code points, except for `[[1]](url)`, up to [`MAX_LINKED`]. So the output does not depend on how the text
//! was split. Where a parser of the whole document would know more, these rules apply:
//!
//! - Backticks, `$$`, `\(`, `\[`, tags and URLs of links whose end is beyond the lookahead last until their end or the
//!   end of the paragraph, whichever comes first. Without an end, markers in between stay text.
//! - A single `$` whose partner is beyond the lookahead is a currency sign.
//! - In a bracket that opened before the lookahead, a marker is held back until the bracket is known to be a link text or
//!   not. If its end is beyond the lookahead from the marker as well, it is not.
//! - Link reference definitions apply where they are, not to their references: `[1]` is a marker even if `[1]: url` follows.
//! - A line that begins with `|` is a table row, before the next line shows whether there is a table.
//!
//! Everything else follows CommonMark; `property_tests` compares it with a parser of whole documents.

mod block;
mod context;
mod cursor;
mod grammar;
mod html;
mod link;
mod lookahead;
mod reader;
mod rewrite;
mod scan;
mod span;
mod style;
mod walk;
mod write;

pub use grammar::MAX_LINKED;
pub use lookahead::MAX_LOOKAHEAD;
pub use rewrite::{Rewriter, Swap, rewrite, rewritten, swaps};
pub use scan::Scanner;
pub use style::Style;

/// A source that a marker refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Source<'a> {
    pub number: u32,
    pub url: Option<&'a str>,
    pub title: Option<&'a str>,
    pub content: Option<&'a str>,
}

/// The sources of a message.
pub trait Sources {
    /// Returns the source that has this number, or has it as an alias.
    fn find(&self, number: u32) -> Option<Source<'_>>;
}

/// A number of a marker in the output that has a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// As written in the text: an alias is not resolved.
    pub number: u32,
    /// Range in the output text, in code points. Empty if the marker was stripped. The numbers of `[1,2]` have a range
    /// each, or the same range if the marker was kept.
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

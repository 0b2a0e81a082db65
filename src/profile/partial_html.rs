//! An answer that is still being written, as HTML: what no further text can change, and what it can.
//!
//! Markdown is read line by line, and only the last block of a document is open: a further line goes on with that one, or
//! closes it and begins another. So everything before the last block is settled, but for what a definition of a link
//! changes later; and a line that is not at its end yet may become anything (`2` a paragraph, `2.` an item of the
//! list above it), so it settles nothing.

use pulldown_cmark::{Event, Parser, Tag};

use super::html::{OPTIONS, html, place, tokens, with_marks};
use crate::marker::{Rewriter, Source, Sources, Style};

/// The text is [`settled_len`](Self::settled_len) bytes that are settled, and the rest.
#[derive(Debug, PartialEq, Eq)]
pub struct PartialHtml {
    pub settled: String,
    /// To be replaced by what comes of the rest and of the text that follows it.
    pub open: String,
    pub settled_len: usize,
}

/// Markers have their sources where these are known, and numbers to be filled in where they are not.
pub fn partial_html(answer: &str, sources: &dyn Sources) -> PartialHtml {
    let sources = &Awaited(sources);
    let mut rewriter = Rewriter::in_parts(Style::Link);
    rewriter.push(answer, sources, &mut String::new(), &mut Vec::new());
    // Whether there is a marker may depend on what comes, also in a block that is over; and who reads for markers does
    // not look far, and may hold a block for open that is over.
    let seams = rewriter.seams();
    rewriter.finish(sources, &mut String::new(), &mut Vec::new());
    let mut marks = rewriter.swaps();

    let ends = ends(&tokens(answer, &marks));
    let is_seam = |end: &usize| seams.binary_search(&(*end as u64)).is_ok();
    let settled_len = ends.into_iter().rev().map(|end| place(answer, &marks, end)).find(is_seam).unwrap_or_default();
    let (settled, rest) = answer.split_at_checked(settled_len).unwrap_or(("", answer));
    marks.retain(|mark| mark.input.end <= settled.len() as u64);
    PartialHtml { settled: with_marks(settled, &marks, sources), open: html(rest, sources), settled_len: settled.len() }
}

/// Where blocks end for good, ascending.
fn ends(text: &str) -> Vec<usize> {
    let lines = text.rfind('\n').map_or("", |end| text.get(..=end).unwrap_or_default());
    let (mut depth, mut ends, mut closed) = (0_usize, Vec::new(), false);
    for (event, range) in Parser::new_ext(lines, OPTIONS).into_offset_iter() {
        if depth == 0 {
            // Before the blanks that the next one is indented by, which may be what it is.
            let begin = lines.get(..range.start).and_then(|before| before.rfind('\n')).map_or(0, |end| end + 1);
            ends.push(begin);
            closed = ends_at_a_blank(&event);
        }
        match event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    let blank = lines.lines().next_back().is_some_and(|line| line.trim_matches([' ', '\t', '\r']).is_empty());
    if blank && closed {
        ends.push(lines.len());
    }
    ends
}

/// Does a blank line end the block, whatever follows?
fn ends_at_a_blank(begin: &Event<'_>) -> bool {
    matches!(
        begin,
        Event::Rule | Event::Start(Tag::Paragraph | Tag::Heading { .. } | Tag::Table(_) | Tag::BlockQuote(_))
    )
}

/// Every number has a source, some only later.
struct Awaited<'a>(&'a dyn Sources);

impl Sources for Awaited<'_> {
    fn find(&self, number: u32) -> Option<Source<'_>> {
        Some(self.0.find(number).unwrap_or(Source { number, ..Source::default() }))
    }
}

#[cfg(test)]
#[path = "partial_html_tests.rs"]
mod tests;

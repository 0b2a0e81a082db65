//! Renders an answer that is still streaming as HTML in two parts: a settled one, which no further text can change, and an
//! open one. Called by [`crate::api`].
//!
//! Markdown is parsed line by line, and only the last block of a document is open: the next line continues it, or closes it
//! and starts another. So everything before the last block is settled, except for links whose definition comes later. An
//! incomplete line settles nothing, because its block is not known yet (`2` starts a paragraph, `2.` a list item).

use pulldown_cmark::{Event, Parser, Tag};

use super::html::{MARKDOWN_OPTIONS, answer_offset, html, insert_placeholders, render_marks};
use crate::marker::{Rewriter, Source, Sources, Style};

/// HTML of an incomplete answer.
#[derive(Debug, PartialEq, Eq)]
pub struct PartialHtml {
    /// HTML of the settled text.
    pub settled: String,
    /// HTML of the remaining text. The caller replaces it when more text arrives.
    pub open: String,
    /// Bytes of the settled text.
    pub settled_len: usize,
}

/// Renders an incomplete answer. Markers whose source is not known yet become empty numbers that the page can fill in.
pub fn partial_html(answer: &str, sources: &dyn Sources) -> PartialHtml {
    let sources = &PendingSources(sources);
    let mut rewriter = Rewriter::with_split_points(Style::Link);
    rewriter.push(answer, sources, &mut String::new(), &mut Vec::new());
    // Whether text is a marker can depend on later text, even in a closed block. Also, the marker reader looks ahead less
    // far than the Markdown parser, so it may treat a closed block as open.
    let split_points = rewriter.split_points();
    rewriter.finish(sources, &mut String::new(), &mut Vec::new());
    let mut marks = rewriter.swaps();

    let ends = block_ends(&insert_placeholders(answer, &marks));
    let is_split_point = |end: &usize| split_points.binary_search(&(*end as u64)).is_ok();
    let settled_len =
        ends.into_iter().rev().map(|end| answer_offset(answer, &marks, end)).find(is_split_point).unwrap_or_default();
    let (settled, rest) = answer.split_at_checked(settled_len).unwrap_or(("", answer));
    marks.retain(|mark| mark.input.end <= settled.len() as u64);
    PartialHtml {
        settled: render_marks(settled, &marks, sources),
        open: html(rest, sources),
        settled_len: settled.len(),
    }
}

/// Offsets at which a block has ended, whatever text follows, in ascending order.
fn block_ends(text: &str) -> Vec<usize> {
    let lines = text.rfind('\n').map_or("", |end| text.get(..=end).unwrap_or_default());
    let (mut depth, mut ends, mut closed) = (0_usize, Vec::new(), false);
    for (event, range) in Parser::new_ext(lines, MARKDOWN_OPTIONS).into_offset_iter() {
        if depth == 0 {
            // Includes the next block's indentation, because it can decide the kind of block.
            let line_start = lines.get(..range.start).and_then(|before| before.rfind('\n')).map_or(0, |end| end + 1);
            ends.push(line_start);
            closed = ends_at_blank_line(&event);
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

/// Whether a blank line ends the block that starts with this event, whatever text follows.
fn ends_at_blank_line(start: &Event<'_>) -> bool {
    matches!(
        start,
        Event::Rule | Event::Start(Tag::Paragraph | Tag::Heading { .. } | Tag::Table(_) | Tag::BlockQuote(_))
    )
}

/// Gives a number without a source an empty one, because the source may still follow.
struct PendingSources<'a>(&'a dyn Sources);

impl Sources for PendingSources<'_> {
    fn find(&self, number: u32) -> Option<Source<'_>> {
        Some(self.0.find(number).unwrap_or(Source { number, ..Source::default() }))
    }
}

#[cfg(test)]
#[path = "partial_html_tests.rs"]
mod tests;

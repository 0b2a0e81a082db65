//! Renders an answer's Markdown as HTML that is safe to insert into a page. Markers become links that carry the data of
//! their source for a hover card. A browser that shows the HTML fetches nothing. Called by [`crate::api`].
//!
//! The text and the titles are untrusted. Markers are replaced by placeholders before the Markdown is parsed, the HTML is
//! sanitized, and only then the links are inserted, so no text can forge one.

use std::{borrow::Cow, sync::LazyLock};

use ammonia::{Builder, UrlRelative};
use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, TextMergeStream};
use serde::Serialize;

use crate::{
    citation::{export::escaped, text, url::is_absolute_http},
    marker::{self, Sources, Style, Swap},
};

/// Placeholder of the first marker: a private-use character. Each further marker has the next character.
const FIRST_PLACEHOLDER: u32 = 0xF_0000;
/// Markers that get a placeholder: the private-use characters of that plane. Further markers stay text.
const MAX_PLACEHOLDERS: u32 = 0xFFFD;
/// Brackets around a placeholder. They are punctuation like a marker's own, because Markdown treats text next to
/// punctuation differently; but unlike `[` before `(` or `:` they have no meaning in Markdown.
const BRACKETS: [char; 2] = ['⟦', '⟧'];
/// Bytes of a placeholder with its brackets.
const PLACEHOLDER_LEN: usize = BRACKETS[0].len_utf8() + 4 + BRACKETS[1].len_utf8();
/// Markdown extensions beyond CommonMark.
pub(super) const MARKDOWN_OPTIONS: Options = Options::ENABLE_TABLES
    .union(Options::ENABLE_STRIKETHROUGH)
    .union(Options::ENABLE_TASKLISTS)
    .union(Options::ENABLE_MATH);
/// Depth of nested elements. Deeper elements are left out and their content is kept: the sanitizer's time grows with the
/// square of the depth.
const MAX_NESTING: usize = 64;
/// Tags in the answer's own HTML, for the same reason. Further ones become text.
const MAX_TAGS: usize = 1000;
/// Characters of an excerpt in a link's data; longer ones are cut.
const SNIPPET: usize = 200;

/// Allowed tags, both those that the Markdown renderer writes and those in the answer.
#[rustfmt::skip]
const ALLOWED_TAGS: &[&str] = &[
    "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "b", "kbd", "li",
    "ol", "p", "pre", "s", "strong", "sub", "sup", "table", "tbody", "td", "th", "thead", "tr", "u", "ul",
];
static SANITIZER: LazyLock<Builder<'static>> = LazyLock::new(|| {
    let mut builder = Builder::empty();
    builder
        .add_tags(ALLOWED_TAGS.iter().copied())
        .add_clean_content_tags(["script", "style", "template", "title", "iframe", "noscript", "textarea"])
        .add_tag_attributes("a", ["href", "title"])
        .add_tag_attributes("ol", ["start"])
        .add_url_schemes(["http", "https"])
        .url_relative(UrlRelative::Deny)
        .attribute_filter(|_, name, value| (name != "href" || is_absolute_http(value)).then_some(Cow::Borrowed(value)))
        .set_tag_attribute_value("a", "target", "_blank")
        .set_tag_attribute_value("a", "referrerpolicy", "no-referrer")
        .link_rel(Some(REL));
    builder
});
const REL: &str = "noopener noreferrer nofollow";

/// Data of a link's source, encoded as JSON in an attribute.
#[derive(Serialize)]
struct LinkData<'a> {
    id: u32,
    url: &'a str,
    title: &'a str,
    content: &'a str,
}

/// Renders the answer as HTML, with links for the markers that have a source.
pub fn html(answer: &str, sources: &dyn Sources) -> String {
    render_marks(answer, &marker::swaps(answer, Style::Link, sources), sources)
}

/// Renders the answer as HTML, with links for the given markers.
pub(super) fn render_marks(answer: &str, marks: &[Swap], sources: &dyn Sources) -> String {
    let marked = insert_placeholders(answer, marks);
    let mut rendered = String::with_capacity(marked.len() * 2);
    let mut filter = EventFilter::default();
    let events =
        TextMergeStream::new(Parser::new_ext(&marked, MARKDOWN_OPTIONS)).filter_map(|event| filter.apply(event));
    pulldown_cmark::html::push_html(&mut rendered, events);
    let clean = SANITIZER.clean(&rendered).to_string();
    insert_links(&clean, answer, marks, sources)
}

/// Replaces each marker by its placeholder in brackets.
pub(super) fn insert_placeholders(answer: &str, marks: &[Swap]) -> String {
    let mut out = String::with_capacity(answer.len());
    let mut from = 0;
    for (index, mark) in (0..MAX_PLACEHOLDERS).zip(marks) {
        let (Ok(start), Ok(end)) = (usize::try_from(mark.input.start), usize::try_from(mark.input.end)) else { break };
        out.extend(answer.get(from..start).unwrap_or_default().chars().map(without_placeholder));
        out.push(BRACKETS[0]);
        out.extend(char::from_u32(FIRST_PLACEHOLDER + index));
        out.push(BRACKETS[1]);
        from = end;
    }
    out.extend(answer.get(from..).unwrap_or_default().chars().map(without_placeholder));
    out
}

/// Converts an offset in the output of [`insert_placeholders`] to the offset in the answer.
pub(super) fn answer_offset(answer: &str, marks: &[Swap], at: usize) -> usize {
    let (mut output_len, mut from) = (0, 0);
    let ends = (0..MAX_PLACEHOLDERS)
        .zip(marks)
        .filter_map(|(_, mark)| Some((usize::try_from(mark.input.start).ok()?, usize::try_from(mark.input.end).ok()?)));
    for (start, end) in ends.chain([(answer.len(), answer.len())]) {
        for (offset, c) in answer.get(from..start).unwrap_or_default().char_indices() {
            if output_len >= at {
                return from + offset;
            }
            output_len += without_placeholder(c).len_utf8();
        }
        if output_len >= at {
            return start;
        }
        output_len += PLACEHOLDER_LEN;
        from = end;
    }
    answer.len()
}

/// Replaces a character of the answer that looks like a placeholder.
fn without_placeholder(c: char) -> char {
    if placeholder_index(c).is_some() { char::REPLACEMENT_CHARACTER } else { c }
}

fn placeholder_index(c: char) -> Option<usize> {
    let index = u32::from(c).checked_sub(FIRST_PLACEHOLDER)?;
    (index < MAX_PLACEHOLDERS).then(|| usize::try_from(index).ok()).flatten()
}

/// Makes the events of one answer safe and cheap to sanitize.
#[derive(Default)]
struct EventFilter {
    depth: usize,
    /// Tags in the answer's own HTML so far.
    tags: usize,
}

impl EventFilter {
    /// Drops elements below [`MAX_NESTING`], and turns images into links, and formulas, task list boxes and disallowed tags
    /// into text.
    fn apply<'a>(&mut self, event: Event<'a>) -> Option<Event<'a>> {
        match event {
            Event::Start(tag) => {
                self.depth += 1;
                (self.depth <= MAX_NESTING).then(|| Event::Start(link_for_image(tag)))
            }
            Event::End(tag) => {
                self.depth -= 1;
                let tag = if tag == TagEnd::Image { TagEnd::Link } else { tag };
                (self.depth < MAX_NESTING).then_some(Event::End(tag))
            }
            Event::InlineMath(formula) => Some(Event::Text(CowStr::from(format!("${formula}$")))),
            Event::DisplayMath(formula) => Some(Event::Text(CowStr::from(format!("$${formula}$$")))),
            Event::TaskListMarker(done) => Some(Event::Text(CowStr::from(if done { "☑ " } else { "☐ " }))),
            Event::Html(html) => Some(Event::Html(CowStr::from(self.escape_disallowed_tags(&html)))),
            Event::InlineHtml(html) => Some(Event::InlineHtml(CowStr::from(self.escape_disallowed_tags(&html)))),
            other => Some(other),
        }
    }

    /// Escapes disallowed tags, so that they show as text. The sanitizer would remove an unclosed one (an answer may be
    /// about `<script>`) together with everything after it.
    fn escape_disallowed_tags(&mut self, html: &str) -> String {
        let mut out = String::with_capacity(html.len());
        let mut rest = html;
        while let Some((before, tag)) = rest.split_once('<') {
            out.push_str(before);
            self.tags += 1;
            out.push_str(if self.tags <= MAX_TAGS && is_allowed(tag) { "<" } else { "&lt;" });
            rest = tag;
        }
        out.push_str(rest);
        out
    }
}

fn link_for_image(tag: Tag<'_>) -> Tag<'_> {
    match tag {
        Tag::Image { link_type, dest_url, title, id } => Tag::Link { link_type, dest_url, title, id },
        other => other,
    }
}

/// Whether the text after a `<` starts with a complete allowed tag or a complete comment.
fn is_allowed(tag: &str) -> bool {
    if let Some(comment) = tag.strip_prefix("!--") {
        return comment.contains("-->");
    }
    let Some((tag, _)) = tag.strip_prefix('/').unwrap_or(tag).split_once('>') else { return false };
    let name = tag.split([' ', '\t', '\n', '\r', '/']).next().unwrap_or_default();
    // An open quote would extend the tag past this `>`.
    let closed = ['"', '\''].into_iter().all(|quote| tag.matches(quote).count() % 2 == 0);
    closed && ALLOWED_TAGS.iter().any(|allowed| allowed.eq_ignore_ascii_case(name))
}

/// Replaces placeholders by links. Inside a tag, where none is expected, inserts the marker's text.
fn insert_links(clean: &str, answer: &str, marks: &[Swap], sources: &dyn Sources) -> String {
    let mut out = String::with_capacity(clean.len());
    let (mut in_tag, mut in_value) = (false, false);
    let mut rest = clean;
    while let Some(c) = rest.chars().next() {
        let placeholder = if c == BRACKETS[0] { parse_placeholder(rest, marks) } else { None };
        if let Some((mark, len)) = placeholder {
            if in_tag {
                out.push_str(&escaped(&original_text(answer, mark)))
            } else {
                write_links(mark, sources, &mut out)
            }
            rest = rest.get(len..).unwrap_or_default();
            continue;
        }
        match c {
            '<' if !in_value => in_tag = true,
            '>' if !in_value => in_tag = false,
            '"' if in_tag => in_value = !in_value,
            _ => {}
        }
        out.push(c);
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
    }
    out
}

/// Parses the placeholder at the start of `text`. Returns its marker and its length in bytes.
fn parse_placeholder<'m>(text: &str, marks: &'m [Swap]) -> Option<(&'m Swap, usize)> {
    let mut chars = text.char_indices().skip(1);
    let mark = marks.get(placeholder_index(chars.next()?.1)?)?;
    match chars.next()? {
        (at, end) if end == BRACKETS[1] => Some((mark, at + end.len_utf8())),
        _ => None,
    }
}

/// The marker as written in the answer.
fn original_text<'a>(answer: &'a str, mark: &Swap) -> Cow<'a, str> {
    let range = usize::try_from(mark.input.start).ok().zip(usize::try_from(mark.input.end).ok());
    Cow::Borrowed(range.and_then(|(start, end)| answer.get(start..end)).unwrap_or_default())
}

fn write_links(mark: &Swap, sources: &dyn Sources, out: &mut String) {
    for number in mark.numbers.iter().copied() {
        let Some(source) = sources.find(number) else {
            out.push_str(&format!("[{number}]"));
            continue;
        };
        let url =
            source.url.filter(|url| url.starts_with("http://") || url.starts_with("https://")).unwrap_or_default();
        let title = source.title.unwrap_or_default();
        let content = text::first_chars(source.content.unwrap_or_default(), SNIPPET);
        let data = serde_json::to_string(&LinkData { id: number, url, title, content }).unwrap_or_default();
        let sup = format!("<sup data-citation=\"{}\">{number}</sup>", escaped(&data));
        if url.is_empty() {
            out.push_str(&sup);
        } else {
            let (href, title) = (escaped(url), escaped(if title.is_empty() { url } else { title }));
            out.push_str(&format!(
                "<a class=\"citation\" href=\"{href}\" title=\"{title}\" target=\"_blank\" referrerpolicy=\"no-referrer\" rel=\"{REL}\">{sup}</a>"
            ));
        }
    }
}

#[cfg(test)]
#[path = "html_tests.rs"]
mod tests;

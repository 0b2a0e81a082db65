//! An answer as HTML that is safe to put into a page: its Markdown rendered, its markers as links that carry
//! what a hover card needs. Nothing in it is fetched by showing it.
//!
//! The text is a stranger's, and so is every title. Markers are taken out before the Markdown is read, the
//! result is cleaned, and only then ours are put in: nothing in the text can look like one of them.

use std::{borrow::Cow, sync::LazyLock};

use ammonia::{Builder, UrlRelative};
use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, TextMergeStream};
use serde::Serialize;

use crate::{
    citation::{export::escaped, text, url::is_absolute_http},
    marker::{self, Sources, Style, Swap},
};

/// One private character stands for each marker; so many can be told apart, further ones stay text.
const FIRST: u32 = 0xF_0000;
const MAX_MARKS: u32 = 0xFFFD;
/// What it stands between: punctuation, as a marker is, so that what may stand beside a marker in Markdown stands there
/// still; and no punctuation that Markdown knows, which `[` before `(` or `:` would be.
const EDGES: [char; 2] = ['⟦', '⟧'];
/// Bytes of such a character in its brackets.
const TOKEN: usize = EDGES[0].len_utf8() + 4 + EDGES[1].len_utf8();
/// What is read as Markdown beyond CommonMark.
pub(super) const OPTIONS: Options = Options::ENABLE_TABLES
    .union(Options::ENABLE_STRIKETHROUGH)
    .union(Options::ENABLE_TASKLISTS)
    .union(Options::ENABLE_MATH);
/// Characters of an excerpt in a link's data.
const SNIPPET: usize = 200;

/// What is kept of HTML, whether the Markdown made it or the answer had it.
#[rustfmt::skip]
const KEPT: &[&str] = &[
    "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "b", "kbd", "li",
    "ol", "p", "pre", "s", "strong", "sub", "sup", "table", "tbody", "td", "th", "thead", "tr", "u", "ul",
];
static CLEANER: LazyLock<Builder<'static>> = LazyLock::new(|| {
    let mut builder = Builder::empty();
    builder
        .add_tags(KEPT.iter().copied())
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

/// What a link of ours carries, as an attribute of JSON.
#[derive(Serialize)]
struct Data<'a> {
    id: u32,
    url: &'a str,
    title: &'a str,
    content: &'a str,
}

/// The answer as HTML, with the markers that have a source as links to it.
pub fn html(answer: &str, sources: &dyn Sources) -> String {
    with_marks(answer, &marker::swaps(answer, Style::Link, sources), sources)
}

/// The same, where it is known which markers there are.
pub(super) fn with_marks(answer: &str, marks: &[Swap], sources: &dyn Sources) -> String {
    let marked = tokens(answer, marks);
    let mut rendered = String::with_capacity(marked.len() * 2);
    let events = TextMergeStream::new(Parser::new_ext(&marked, OPTIONS)).map(inert);
    pulldown_cmark::html::push_html(&mut rendered, events);
    let clean = CLEANER.clean(&rendered).to_string();
    with_links(&clean, answer, marks, sources)
}

/// A private character in brackets for each marker.
pub(super) fn tokens(answer: &str, marks: &[Swap]) -> String {
    let mut out = String::with_capacity(answer.len());
    let mut from = 0;
    for (index, mark) in (0..MAX_MARKS).zip(marks) {
        let (Ok(start), Ok(end)) = (usize::try_from(mark.input.start), usize::try_from(mark.input.end)) else { break };
        out.extend(answer.get(from..start).unwrap_or_default().chars().map(not_private));
        out.push(EDGES[0]);
        out.extend(char::from_u32(FIRST + index));
        out.push(EDGES[1]);
        from = end;
    }
    out.extend(answer.get(from..).unwrap_or_default().chars().map(not_private));
    out
}

/// Where in the answer it is that stands at `at` in what [`tokens`] made of it.
pub(super) fn place(answer: &str, marks: &[Swap], at: usize) -> usize {
    let (mut seen, mut from) = (0, 0);
    let ends = (0..MAX_MARKS)
        .zip(marks)
        .filter_map(|(_, mark)| Some((usize::try_from(mark.input.start).ok()?, usize::try_from(mark.input.end).ok()?)));
    for (start, end) in ends.chain([(answer.len(), answer.len())]) {
        for (offset, c) in answer.get(from..start).unwrap_or_default().char_indices() {
            if seen >= at {
                return from + offset;
            }
            seen += not_private(c).len_utf8();
        }
        if seen >= at {
            return start;
        }
        seen += TOKEN;
        from = end;
    }
    answer.len()
}

fn not_private(c: char) -> char {
    if index_of(c).is_some() { char::REPLACEMENT_CHARACTER } else { c }
}

fn index_of(c: char) -> Option<usize> {
    let index = u32::from(c).checked_sub(FIRST)?;
    (index < MAX_MARKS).then(|| usize::try_from(index).ok()).flatten()
}

/// No image is loaded, no formula set, and no tag kept that could do something: their text stays.
fn inert(event: Event<'_>) -> Event<'_> {
    match event {
        Event::Start(Tag::Image { link_type, dest_url, title, id }) => {
            Event::Start(Tag::Link { link_type, dest_url, title, id })
        }
        Event::End(TagEnd::Image) => Event::End(TagEnd::Link),
        Event::InlineMath(formula) => Event::Text(CowStr::from(format!("${formula}$"))),
        Event::DisplayMath(formula) => Event::Text(CowStr::from(format!("$${formula}$$"))),
        Event::TaskListMarker(done) => Event::Text(CowStr::from(if done { "☑ " } else { "☐ " })),
        Event::Html(html) => Event::Html(CowStr::from(as_written(&html))),
        Event::InlineHtml(html) => Event::InlineHtml(CowStr::from(as_written(&html))),
        other => other,
    }
}

/// Tags that are not kept become text. Left to the cleaner, one that is not closed (an answer may be about
/// `<script>`) would take all that follows it along.
fn as_written(html: &str) -> String {
    let mut out = String::with_capacity(html.len());
    let mut rest = html;
    while let Some((before, tag)) = rest.split_once('<') {
        out.push_str(before);
        out.push_str(if is_kept(tag) { "<" } else { "&lt;" });
        rest = tag;
    }
    out.push_str(rest);
    out
}

/// Is it a tag that is kept, or a comment, and whole? `tag` is what follows the `<`.
fn is_kept(tag: &str) -> bool {
    if let Some(comment) = tag.strip_prefix("!--") {
        return comment.contains("-->");
    }
    let Some((tag, _)) = tag.strip_prefix('/').unwrap_or(tag).split_once('>') else { return false };
    let name = tag.split([' ', '\t', '\n', '\r', '/']).next().unwrap_or_default();
    // A quote that is open would go on behind the tag.
    let closed = ['"', '\''].into_iter().all(|quote| tag.matches(quote).count() % 2 == 0);
    closed && KEPT.iter().any(|kept| kept.eq_ignore_ascii_case(name))
}

/// Puts our links where their characters stand; inside a tag, where there should be none, the marker's text.
fn with_links(clean: &str, answer: &str, marks: &[Swap], sources: &dyn Sources) -> String {
    let mut out = String::with_capacity(clean.len());
    let (mut in_tag, mut in_value) = (false, false);
    let mut rest = clean;
    while let Some(c) = rest.chars().next() {
        let token = if c == EDGES[0] { token(rest, marks) } else { None };
        if let Some((mark, len)) = token {
            if in_tag {
                out.push_str(&escaped(&written(answer, mark)))
            } else {
                links(mark, sources, &mut out)
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

fn token<'m>(text: &str, marks: &'m [Swap]) -> Option<(&'m Swap, usize)> {
    let mut chars = text.char_indices().skip(1);
    let mark = marks.get(index_of(chars.next()?.1)?)?;
    match chars.next()? {
        (at, end) if end == EDGES[1] => Some((mark, at + end.len_utf8())),
        _ => None,
    }
}

/// The marker as the answer has it.
fn written<'a>(answer: &'a str, mark: &Swap) -> Cow<'a, str> {
    let range = usize::try_from(mark.input.start).ok().zip(usize::try_from(mark.input.end).ok());
    Cow::Borrowed(range.and_then(|(start, end)| answer.get(start..end)).unwrap_or_default())
}

fn links(mark: &Swap, sources: &dyn Sources, out: &mut String) {
    for number in mark.numbers.iter().copied() {
        let Some(source) = sources.find(number) else {
            out.push_str(&format!("[{number}]"));
            continue;
        };
        let url =
            source.url.filter(|url| url.starts_with("http://") || url.starts_with("https://")).unwrap_or_default();
        let title = source.title.unwrap_or_default();
        let content = text::first_chars(source.content.unwrap_or_default(), SNIPPET);
        let data = serde_json::to_string(&Data { id: number, url, title, content }).unwrap_or_default();
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

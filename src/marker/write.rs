//! How a citation is written into a text. Titles, excerpts and URLs are strangers' text: none of it can end the
//! attribute, the link or the table cell that it stands in, and only http and https become links.

use std::fmt::Write as _;

use serde::Serialize;

use super::Source;

/// Characters of an excerpt in the attribute.
const MAX_CONTENT: usize = 200;

/// `[[1]](url)`; without a URL, the bare `[1]`.
pub fn link(out: &mut String, number: u32, url: Option<&str>) {
    let _ = match url.and_then(destination) {
        Some(url) => write!(out, "[[{number}]]({url})"),
        None => write!(out, "[{number}]"),
    };
}

/// `[<sup data-citation='{json}'>1</sup>](url)`; without a URL, the bare `<sup>`. `url` is the link, if it is
/// another than the source's.
pub fn sup(out: &mut String, number: u32, source: &Source<'_>, url: Option<&str>) {
    #[derive(Serialize)]
    struct Data<'a> {
        id: u32,
        url: &'a str,
        title: &'a str,
        content: &'a str,
    }
    let content = source.content.unwrap_or_default();
    let cut = content.char_indices().nth(MAX_CONTENT).map_or(content.len(), |(at, _)| at);
    let data = Data {
        id: number,
        url: source.url.filter(|url| is_http(url)).unwrap_or_default(),
        title: source.title.unwrap_or_default(),
        content: content.get(..cut).unwrap_or_default(),
    };
    let json = serde_json::to_string(&data).unwrap_or_default();
    let destination = url.or(source.url).and_then(destination);
    if destination.is_some() {
        out.push('[');
    }
    out.push_str("<sup data-citation='");
    attribute(out, &json);
    let _ = write!(out, "'>{number}</sup>");
    if let Some(url) = destination {
        let _ = write!(out, "]({url})");
    }
}

/// `[^1]: [title](url)`.
pub fn definition(out: &mut String, number: u32, source: &Source<'_>) {
    let _ = write!(out, "[^{number}]: ");
    let title = source.title.map(str::trim).filter(|title| !title.is_empty());
    match (title, source.url.and_then(destination)) {
        (Some(title), Some(url)) => {
            out.push('[');
            prose(out, title);
            let _ = write!(out, "]({url})");
        }
        (Some(title), None) => prose(out, title),
        (None, Some(url)) => {
            let _ = write!(out, "<{url}>");
        }
        (None, None) => {
            let _ = write!(out, "{number}");
        }
    }
    out.push('\n');
}

pub fn is_http(url: &str) -> bool {
    let starts = |scheme: &str| url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    starts("http://") || starts("https://")
}

/// A URL as it stands between the parentheses of a link.
fn destination(url: &str) -> Option<String> {
    if !is_http(url) {
        return None;
    }
    // `&lt;` would be read as a character.
    let entities = url.contains(';');
    let mut out = String::with_capacity(url.len());
    for c in url.chars() {
        match c {
            '&' if entities => out.push_str("&amp;"),
            '(' | ')' | '|' | '<' | '>' | '[' | ']' | '\\' | '"' | '\'' | '`' | '$' => percent(&mut out, c),
            c if c.is_whitespace() || c.is_control() || is_bidi(c) => percent(&mut out, c),
            c => out.push(c),
        }
    }
    Some(out)
}

fn percent(out: &mut String, c: char) {
    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
        let _ = write!(out, "%{byte:02X}");
    }
}

/// Characters that reorder what stands around them.
fn is_bidi(c: char) -> bool {
    matches!(c, '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// For an attribute in single quotes. What Markdown would read before it reads the tag (backticks, cells, math) is
/// an entity as well, and brackets are, lest somebody takes a `[2]` in an excerpt for a marker.
fn attribute(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' | '`' | '|' | '$' | '[' | ']' | '【' | '\u{E200}'..='\u{E202}' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "&#{};", u32::from(c));
            }
            c => out.push(c),
        }
    }
}

/// Text that Markdown shows as it is, on one line.
fn prose(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            c if c.is_ascii_punctuation() && !matches!(c, ',' | '.' | ':' | ';' | '\'' | '"' | '/' | '%' | '?') => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => out.push(' '),
            c if is_bidi(c) => {}
            c => out.push(c),
        }
    }
}

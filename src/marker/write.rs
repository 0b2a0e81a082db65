//! Writes a citation as a link, a superscript or a footnote definition. Titles, excerpts and URLs are untrusted: all are
//! escaped so that they cannot end the attribute, link or table cell around them, and only http and https become links.

use std::fmt::Write as _;

use serde::Serialize;

use super::Source;

/// Characters of an excerpt in the attribute; the rest is cut.
const MAX_CONTENT: usize = 200;

/// Writes `[[1]](url)`; without a URL, `[1]`.
pub fn link(out: &mut String, number: u32, url: Option<&str>) {
    let _ = match url.and_then(destination) {
        Some(url) => write!(out, "[[{number}]]({url})"),
        None => write!(out, "[{number}]"),
    };
}

/// Writes `[<sup data-citation='{json}'>1</sup>](url)`; without a URL, only the `<sup>`. `url` overrides the link of the
/// source.
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
    escape_attribute(out, &json);
    let _ = write!(out, "'>{number}</sup>");
    if let Some(url) = destination {
        let _ = write!(out, "]({url})");
    }
}

/// Writes the footnote definition `[^1]: [title](url)`.
pub fn definition(out: &mut String, number: u32, source: &Source<'_>) {
    let _ = write!(out, "[^{number}]: ");
    let title = source.title.map(str::trim).filter(|title| !title.is_empty());
    match (title, source.url.and_then(destination)) {
        (Some(title), Some(url)) => {
            out.push('[');
            escape_markdown(out, title);
            let _ = write!(out, "]({url})");
        }
        (Some(title), None) => escape_markdown(out, title),
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

/// Returns a URL escaped for the parentheses of a link; `None` unless it is http or https.
fn destination(url: &str) -> Option<String> {
    if !is_http(url) {
        return None;
    }
    // With a `;`, `&` may begin an entity such as `&lt;`, which Markdown would decode.
    let may_have_entities = url.contains(';');
    let mut out = String::with_capacity(url.len());
    for c in url.chars() {
        match c {
            '&' if may_have_entities => out.push_str("&amp;"),
            '(' | ')' | '|' | '<' | '>' | '[' | ']' | '\\' | '"' | '\'' | '`' | '$' => percent_encode(&mut out, c),
            c if c.is_whitespace() || c.is_control() || is_bidi(c) => percent_encode(&mut out, c),
            c => out.push(c),
        }
    }
    Some(out)
}

fn percent_encode(out: &mut String, c: char) {
    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
        let _ = write!(out, "%{byte:02X}");
    }
}

/// True for characters that change the display order of the text around them.
fn is_bidi(c: char) -> bool {
    matches!(c, '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// Escapes text for an attribute in single quotes. Also escapes what Markdown parses before tags (backticks, cells, math),
/// and brackets, so that a `[2]` in an excerpt is not taken for a marker.
fn escape_attribute(out: &mut String, text: &str) {
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

/// Escapes text so that Markdown shows it unchanged, on one line.
fn escape_markdown(out: &mut String, text: &str) {
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

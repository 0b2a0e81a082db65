//! Exports CommonMark lists and footnotes.
//!
//! In titles, every character that could start markup gets a backslash; in URLs, every character that could end the link is
//! percent-encoded.

use super::source::{Source, plain_url};

/// Numbered list of links. CommonMark numbers the items of a list in sequence from its first number, so a gap in the numbers
/// starts a new list, which needs another delimiter (`3)` after `1.`).
pub fn list(sources: &[Source<'_>]) -> String {
    let (mut out, mut expected, mut delimiter) = (String::new(), None, '.');
    for source in sources {
        if expected.is_some_and(|expected| expected != source.number) {
            delimiter = if delimiter == '.' { ')' } else { '.' };
        }
        expected = source.number.checked_add(1);
        out += &format!("{}{delimiter} {}", source.number, item(source));
        if !source.aliases.is_empty() {
            let also: Vec<String> = source.aliases.iter().map(|alias| format!("\\[{alias}\\]")).collect();
            out += &format!(" (= {})", also.join(", "));
        }
        out.push('\n');
    }
    out
}

/// Footnote definitions, one for every number and alias.
pub fn footnotes(sources: &[Source<'_>]) -> String {
    let mut out = String::new();
    for source in sources {
        let item = item(source);
        for number in std::iter::once(&source.number).chain(source.aliases) {
            out += &format!("[^{number}]: {item}\n");
        }
    }
    out
}

fn item(source: &Source<'_>) -> String {
    let label = escaped(&source.label);
    let mut out = match &source.url {
        Some(url) => format!("[{label}]({})", destination(url)),
        None => at_line_start(label),
    };
    if let Some(site) = source.site.as_ref().filter(|site| **site != source.label) {
        out += &format!(" · {}", escaped(site));
    }
    if let Some(day) = source.published {
        out += &format!(" · {}", day.text());
    }
    out
}

/// Escapes only where needed, to keep text readable: `_` within a word is no emphasis, and without `;` there are no entities.
fn escaped(text: &str) -> String {
    let entities = text.contains(';');
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut in_word = false;
    while let Some(c) = chars.next() {
        let is_special = match c {
            '\\' | '`' | '*' | '{' | '}' | '[' | ']' | '<' | '>' | '|' | '~' | '$' | '^' => true,
            '_' => !(in_word && chars.peek().is_some_and(|next| next.is_alphanumeric())),
            '&' => entities,
            _ => false,
        };
        if is_special {
            out.push('\\');
        }
        out.push(c);
        in_word = c.is_alphanumeric();
    }
    out
}

/// Escapes the start of a line, where `#`, `-` or `1.` would start a heading or a list. Needed for text without a link.
fn at_line_start(text: String) -> String {
    if text.starts_with(['#', '+', '-', '=', ':']) {
        return format!("\\{text}");
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    match text.split_at_checked(digits) {
        Some((number, rest)) if digits > 0 && rest.starts_with(['.', ')']) => format!("{number}\\{rest}"),
        _ => text,
    }
}

fn destination(url: &str) -> String {
    let is_special = |c: char| {
        matches!(c, '(' | ')' | '<' | '>' | '[' | ']' | '|' | '\\' | '"' | '`' | '*' | '{' | '}' | '$')
            || c.is_whitespace()
    };
    let url = plain_url(url, is_special);
    // `&lt;` would be read as an entity.
    if url.contains(';') { url.replace('&', "\\&") } else { url }
}

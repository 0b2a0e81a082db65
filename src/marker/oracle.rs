//! Test oracle: finds markers with a Markdown parser of whole documents and regular expressions. Slow and simple, and
//! independent of the reader. Used by `property_tests` and by the fuzz target.

use std::sync::LazyLock;

use pulldown_cmark::{Event, LinkType, Options, Parser, Tag, TagEnd};
use regex::Regex;

/// A marker and its byte range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub start: usize,
    pub end: usize,
    pub numbers: Vec<u32>,
}

macro_rules! pattern {
    ($name:ident, $text:expr) => {
        static $name: LazyLock<Regex> = LazyLock::new(|| Regex::new($text).unwrap());
    };
}

const URL: &str = r#"[^\s<>"`|\\^$\[\]\x80-\x{10FFFF}]"#;
const LIST: &str = r"(?:\d{1,3}(?: *[,，、] *\d{1,3})*)";

pattern!(BRACKET, &format!(r"\A\[(?:citation:|ref_|ID:|\^)?{LIST}\]"));
pattern!(CARET, &format!(r"\A\^(?:\[{LIST}\])+\^"));
pattern!(LENS, r"\A【(?:\d{1,3}(?:[,，、] *\d{1,3})*|(?:\d{1,3}:)?\d{1,3}†[^】【\n`<$\\\[]*)】");
pattern!(
    ELEMENT,
    &format!(r#"\A<span\s[^<>`\n]*id=(?:"ai-qa-ref"|'ai-qa-ref')[^<>`\n]*>(?:\[{LIST}\]|{LIST})</span>"#)
);
pattern!(TOKEN, r"\A\x{E200}cite\x{E202}[a-z0-9\x{E202}]+\x{E201}");
pattern!(DOUBLE, r"\A\[\[\d{1,3}\]\]");
pattern!(LINKED, r"\A\[\[\d{1,3}\]\]\([^\s<>\\]*\)\z");
pattern!(REF, &format!(r"\A\[{LIST}\]\(@ref\)\z"));
pattern!(LINE_START, r"(?:\A|\n)[ \t>]*(?:(?:[-+*]|\d{1,9}[.)])[ \t][ \t>]*)*\z");
pattern!(
    NAME_BEFORE,
    r"(?:_[A-Za-z0-9]*|(?:\A|[^A-Za-z0-9_])(?:arr|argv|args|buf|cols|dp|elem|idx|nums|ptr|tmp|vec))\z"
);
pattern!(WORD_BEFORE, r"[A-Za-z0-9_]\z");
pattern!(CODE_AFTER, r"\A(?:\[\d+\])*(?: ?[-+*/%&|^]?=|\]|\.[a-z_]|\+\+)");
pattern!(
    URL_BEFORE,
    &format!(
        r"(?i:https?)://{URL}*(?:(?:\[(?:citation:|ref_|ID:|\^)?{LIST}\])+(?:[A-Za-z0-9/=&#%_~+@-]|[.,:;!?][A-Za-z0-9/]){URL}*)*\z"
    )
);
pattern!(URL_AFTER, r"\A(?:\[\d+\])*(?:[A-Za-z0-9/=&#%_~+@-]|[.,:;!?][A-Za-z0-9/])");
pattern!(UNDERLINED, r"(?m)\]:.*\n[ \t>]*[=-]+[ \t\r]*$");
pattern!(ROW, r"(?m)^[ \t>*+\-0-9.)]*\|");
pattern!(MARKS, r"\[\d+\]");
pattern!(DIGITS, r"\d+");
pattern!(OPENS, r"(?is)\A<(a|code|kbd|math|pre|samp|script|style|svg|var)(?:[\s/].*)?>\z");

/// Returns the markers of a text; `None` if the reader may differ by design, as for texts with reference links.
pub fn markers(text: &str) -> Option<Vec<Found>> {
    let page = Page::read(text)?;
    let mut found: Vec<Found> = Vec::new();
    let mut at = 0;
    while at < text.len() {
        match text
            .is_char_boundary(at)
            .then(|| page.marker(text, at, found.last().map_or(0, |last| last.end)))
            .flatten()
        {
            Some(marker) => {
                at = marker.end;
                found.push(marker);
            }
            None => at += 1,
        }
    }
    Some(found)
}

struct Page {
    /// For each byte: is it text, and not in a link, code or HTML?
    prose: Vec<bool>,
    /// For each byte: is it inside a construct that spans it? A line end that is not ends a paragraph.
    joined: Vec<bool>,
    /// Ranges of links and positions of tags that may be markers.
    links: Vec<(usize, usize)>,
    tags: Vec<usize>,
}

impl Page {
    fn read(text: &str) -> Option<Self> {
        let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_MATH;
        let mut page = Self {
            prose: vec![false; text.len()],
            joined: vec![false; text.len()],
            links: Vec::new(),
            tags: Vec::new(),
        };
        let (mut inside, mut element) = (0, None::<String>);
        let parser = Parser::new_ext(text, options);
        // The reader decides line by line, so it cannot handle a definition that spans lines.
        if parser
            .reference_definitions()
            .iter()
            .any(|(_, definition)| text[definition.span.clone()].trim().contains('\n'))
        {
            return None;
        }
        for (event, range) in parser.into_offset_iter() {
            if !matches!(event, Event::Start(_) | Event::End(_) | Event::Text(_)) {
                page.joined[range.clone()].fill(true);
            }
            match event {
                // The reader does not wait for a definition at the end of an answer.
                Event::Start(Tag::Link { link_type, .. } | Tag::Image { link_type, .. }) if is_reference(link_type) => {
                    return None;
                }
                Event::Start(Tag::Link { .. }) if inside == 0 && element.is_none() => {
                    page.links.push((range.start, range.end));
                    inside += 1;
                }
                Event::Start(Tag::Link { .. } | Tag::Image { .. } | Tag::CodeBlock(_) | Tag::HtmlBlock) => inside += 1,
                Event::End(TagEnd::Link | TagEnd::Image | TagEnd::CodeBlock | TagEnd::HtmlBlock) => inside -= 1,
                Event::End(TagEnd::Paragraph | TagEnd::Heading(_) | TagEnd::Item | TagEnd::TableCell) => element = None,
                Event::Start(Tag::Paragraph | Tag::Heading { .. } | Tag::Item | Tag::List(_)) => element = None,
                Event::Code(_) | Event::InlineMath(_) | Event::DisplayMath(_) => page.prose[range].fill(false),
                Event::InlineHtml(tag) if element.is_some() => {
                    let tag = tag.to_ascii_lowercase();
                    let name = tag.strip_prefix("</").map(|tag| tag.trim_end_matches(['>', ' ', '\n']));
                    element = element.filter(|open| name != Some(open));
                }
                Event::InlineHtml(tag) if inside == 0 => {
                    page.tags.push(range.start);
                    let opens = OPENS.captures(&tag).filter(|_| !tag.ends_with("/>"));
                    element = opens.map(|tag| tag[1].to_ascii_lowercase());
                }
                Event::Text(_) if inside == 0 && element.is_none() => page.prose[range].fill(true),
                _ => {}
            }
        }
        // The reader takes every line with `|` at the beginning for a table row, so allow only such lines in tables.
        let table = |block: &str| block.starts_with("| a [1] | b |\n|---|---|\n|") && block.lines().count() == 3;
        if text.split("\n\n").any(|block| ROW.is_match(block) && !table(block)) {
            return None;
        }
        // The parser reads a tab before `>` as three blanks, and takes an underline below definitions for text.
        if text.contains("\t>") || UNDERLINED.is_match(text) {
            return None;
        }
        page.latex(text)?;
        Some(page)
    }

    /// Removes `\(…\)` and `\[…\]` from the prose; the parser takes them for escaped brackets. `None` if it misread them.
    fn latex(&mut self, text: &str) -> Option<()> {
        let bytes = text.as_bytes();
        let mut at = 0;
        while at + 1 < bytes.len() {
            // An escaping backslash is no text event; in code it does not escape.
            let escapes = bytes[at] == b'\\' && !self.prose[at] && self.prose[at + 1];
            if !escapes {
                at += 1;
                continue;
            }
            let (open, close) = (bytes[at + 1], if bytes[at + 1] == b'(' { b')' } else { b']' });
            let end = (open == b'(' || open == b'[').then(|| self.latex_end(bytes, at + 2, open, close)).flatten();
            if let Some(end) = end {
                // The parser does not know this math, so a construct that begins or ends in it was misread.
                let inner = MARKS.replace_all(&text[at + 2..end - 2], "");
                if inner.contains(['`', '$', '<', '[', ']', '\\']) {
                    return None;
                }
                self.prose[at..end].fill(false);
                self.links.retain(|(start, _)| !(at..end).contains(start));
            }
            at = end.unwrap_or(at + 2);
        }
        Some(())
    }

    fn latex_end(&self, bytes: &[u8], mut at: usize, open: u8, close: u8) -> Option<usize> {
        let mut depth = 0;
        while at < bytes.len() {
            match bytes[at] {
                b'\\' if bytes.get(at + 1) == Some(&close) => return Some(at + 2),
                b'\\' => at += 1,
                b'\n' if !self.joined[at] => return None,
                byte if byte == open => depth += 1,
                byte if byte == close && depth == 0 => return None,
                byte if byte == close => depth -= 1,
                _ => {}
            }
            at += 1;
        }
        None
    }

    fn marker(&self, text: &str, at: usize, last: usize) -> Option<Found> {
        let rest = &text[at..];
        let before = &text[..at];
        // The second number of OpenAI's pairs, and RAGFlow's numbers, count from 0.
        let is_pair =
            rest.strip_prefix('【').and_then(|rest| rest.split('†').next()).is_some_and(|pair| pair.contains(':'));
        let allow_zero = rest.starts_with("[ID:") || is_pair;
        let found = |length: usize| {
            let raw = &text[at..at + length];
            let raw = raw.split(['†', '(']).next().unwrap();
            let raw = raw.split_once(':').filter(|_| raw.starts_with('【')).map_or(raw, |(_, second)| second);
            let raw = if raw.starts_with('\u{E200}') { "" } else { raw };
            let numbers: Vec<u32> = DIGITS.find_iter(raw).map(|n| n.as_str().parse().unwrap()).collect();
            let is_valid = allow_zero || !numbers.contains(&0);
            is_valid.then_some(Found { start: at, end: at + length, numbers })
        };
        if before.ends_with('\\') && !self.prose[at - 1] {
            return None;
        }
        let is_prose = |length: usize| self.prose[at..at + length].iter().all(|prose| *prose);
        if let Some((_, end)) = self.links.iter().find(|(start, _)| *start == at) {
            let link = &text[at..*end];
            return (LINKED.is_match(link) || REF.is_match(link)).then(|| found(end - at)).flatten();
        }
        if self.tags.contains(&at) {
            return ELEMENT.find(rest).and_then(|element| found(element.end()));
        }
        // For `【1†name】`, check only the first and the last byte: the name may contain emphasis.
        let ends_are_prose = |length: usize| self.prose[at] && self.prose[at + length - 1];
        for whole in [&*CARET, &*LENS, &*TOKEN, &*DOUBLE] {
            let is_text =
                |length: usize| if std::ptr::eq(whole, &*LENS) { ends_are_prose(length) } else { is_prose(length) };
            if let Some(matched) = whole.find(rest).filter(|matched| is_text(matched.end())) {
                let is_link = std::ptr::eq(whole, &*DOUBLE) && rest[matched.end()..].starts_with('(');
                if !is_link && let Some(found) = found(matched.end()) {
                    return Some(found);
                }
            }
        }
        let length = BRACKET.find(rest).filter(|matched| is_prose(matched.end()))?.end();
        let after = &rest[length..];
        let link = after.starts_with('(') || (before.ends_with(']') && last != at);
        let definition = after.starts_with(':')
            && LINE_START.find(before).is_some_and(|prefix| !self.prose[prefix.range()].contains(&true));
        let index = NAME_BEFORE.is_match(before) || (WORD_BEFORE.is_match(before) && CODE_AFTER.is_match(after));
        // A URL that begins in prose is prose: no construct begins in it, and an end of emphasis in it belongs to the URL.
        let in_prose = |url: regex::Match<'_>| self.prose[url.start()];
        let url = URL_BEFORE.find(before).is_some_and(in_prose) && URL_AFTER.is_match(after);
        if link || definition || index || url { None } else { found(length) }
    }
}

fn is_reference(link: LinkType) -> bool {
    !matches!(link, LinkType::Inline | LinkType::Autolink | LinkType::Email)
}

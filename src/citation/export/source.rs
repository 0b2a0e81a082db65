//! A citation as the formats see it: one-line texts, a checked link, dates, a key.

use std::collections::HashSet;

use crate::citation::{
    Citation, Record,
    record::{CitationStatus, CitationType},
    text,
    url::link,
};

/// A calendar day as `2025-10-29`, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Day<'a> {
    text: &'a str,
    pub ymd: [u16; 3],
}

impl<'a> Day<'a> {
    pub const fn text(&self) -> &'a str {
        self.text
    }

    pub fn year(&self) -> &'a str {
        self.text.get(..4).unwrap_or_default()
    }
}

/// One source, its texts on one line and without characters that act.
#[derive(Debug, Clone)]
pub struct Source<'a> {
    pub number: u32,
    pub aliases: &'a [u32],
    /// As the upstream named it; may be empty.
    pub title: String,
    /// What to call it where a title is needed: the title, else the site, the host, or its number.
    pub label: String,
    /// http or https.
    pub url: Option<String>,
    pub hostname: Option<String>,
    /// The site's name, else its host.
    pub site: Option<String>,
    pub published: Option<Day<'a>>,
    pub snippet: Option<String>,
    pub kind: &'static str,
    pub cited: bool,
    /// Unique in the record, and the same for the same source in every record.
    pub key: String,
    pub source_id: String,
}

/// The sources that no filter removed, by number.
pub fn sources(record: &Record, cited_only: bool) -> Vec<Source<'_>> {
    let kept = |citation: &&Citation| citation.status == CitationStatus::Ok && (citation.cited || !cited_only);
    let mut kept: Vec<&Citation> = record.citations.iter().filter(kept).collect();
    kept.sort_by_key(|citation| citation.number);
    let mut keys = HashSet::new();
    kept.into_iter().map(|citation| source(citation, &mut keys)).collect()
}

fn source<'a>(citation: &'a Citation, keys: &mut HashSet<String>) -> Source<'a> {
    // Looked at again: a record may come from elsewhere than our ledger.
    let link = citation.url.as_deref().and_then(|url| link(url, None));
    let hostname = link.as_ref().map(|link| link.hostname.clone());
    let named = |text: &Option<String>| text.as_deref().map(one_line).filter(|text| !text.is_empty());
    let title = named(&citation.title);
    let site = named(&citation.site_name).or_else(|| hostname.clone());
    let label = title.clone().or_else(|| site.clone()).unwrap_or_else(|| format!("[{}]", citation.number));
    let source_id: String = citation.source_id.chars().filter(char::is_ascii_alphanumeric).collect();
    Source {
        number: citation.number,
        aliases: &citation.aliases,
        title: title.unwrap_or_default(),
        label,
        url: link.map(|link| percent_encoded(&link.url, text::is_bidi)),
        key: key(hostname.as_deref(), &source_id, keys),
        hostname,
        site,
        published: citation.published_at.as_deref().and_then(date),
        snippet: named(&citation.content).or_else(|| citation.snippets.first().map(|text| one_line(text))),
        kind: match citation.kind {
            CitationType::Websearch => "websearch",
            CitationType::Knowledge => "knowledge",
            CitationType::Memory => "memory",
        },
        cited: citation.cited,
        source_id,
    }
}

/// Of the host and the source's id: letters, digits and hyphens, which every reader of keys takes.
fn key(hostname: Option<&str>, source_id: &str, taken: &mut HashSet<String>) -> String {
    let host = hostname.map_or("source", |host| host.strip_prefix("www.").unwrap_or(host));
    let mut base = String::new();
    for c in host.chars() {
        match c {
            c if c.is_ascii_alphanumeric() => base.push(c),
            _ if base.is_empty() || base.ends_with('-') => {}
            _ => base.push('-'),
        }
    }
    if !base.ends_with('-') {
        base.push('-');
    }
    base += text::first_chars(source_id, 8);
    let mut key = base.clone();
    let mut count = 1;
    while !taken.insert(key.clone()) {
        count += 1;
        key = format!("{base}-{count}");
    }
    key
}

/// The day at the beginning of an RFC 3339 time.
pub fn date(time: &str) -> Option<Day<'_>> {
    let text = time.get(..10)?;
    let day: jiff::civil::Date = text.parse().ok()?;
    let ymd = [day.year(), i16::from(day.month()), i16::from(day.day())].map(i16::unsigned_abs);
    Some(Day { text, ymd })
}

/// Without controls and direction marks; every run of blanks and line ends is one space.
fn one_line(raw: &str) -> String {
    let clean = text::single_line(raw, usize::MAX);
    let is_blank = |c: char| c.is_ascii_whitespace() || matches!(c, '\u{2028}' | '\u{2029}');
    let joined = clean.split(is_blank).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    // Readers take wider blanks away at the ends as well.
    joined.trim().to_owned()
}

/// The URL without characters that its surroundings would take for theirs. One that has such is first written
/// as a browser would, which knows for instance that a `\` in a path is a `/`.
pub fn plain_url(url: &str, acts: fn(char) -> bool) -> String {
    if !url.contains(acts) {
        return url.to_owned();
    }
    match url::Url::parse(url) {
        Ok(parsed) => percent_encoded(parsed.as_str(), acts),
        Err(_) => percent_encoded(url, acts),
    }
}

fn percent_encoded(url: &str, acts: fn(char) -> bool) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(url.len());
    for c in url.chars() {
        if acts(c) {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                let _ = write!(out, "%{byte:02X}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

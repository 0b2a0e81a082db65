//! Prepares citations for the export formats: texts on one line, validated URL, dates and citation key.

use std::collections::HashSet;

use crate::citation::{
    Citation, Record,
    record::{CitationStatus, CitationType},
    text,
    url::link,
};

/// A valid calendar day, written as `2025-10-29`.
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

/// One source. Its texts are on one line, without control, bidi and invisible characters.
#[derive(Debug, Clone)]
pub struct Source<'a> {
    pub number: u32,
    pub aliases: &'a [u32],
    /// The upstream's title; may be empty.
    pub title: String,
    /// Display name, never empty: the title, else the site, the host, or the number.
    pub label: String,
    /// Always http or https.
    pub url: Option<String>,
    pub hostname: Option<String>,
    /// Name of the site, else the host.
    pub site: Option<String>,
    pub published: Option<Day<'a>>,
    pub snippet: Option<String>,
    pub kind: &'static str,
    pub cited: bool,
    /// Citation key: unique in the record, and the same in every record that has the source.
    pub key: String,
    pub source_id: String,
}

/// The sources that no filter removed, sorted by number.
pub fn sources(record: &Record, cited_only: bool) -> Vec<Source<'_>> {
    let kept = |citation: &&Citation| citation.status == CitationStatus::Ok && (citation.cited || !cited_only);
    let mut kept: Vec<&Citation> = record.citations.iter().filter(kept).collect();
    kept.sort_by_key(|citation| citation.number);
    let mut keys = HashSet::new();
    kept.into_iter().map(|citation| source(citation, &mut keys)).collect()
}

fn source<'a>(citation: &'a Citation, keys: &mut HashSet<String>) -> Source<'a> {
    // Validated again, because a record may come from a file or request instead of the ledger.
    let link = citation.url.as_deref().and_then(|url| link(url, None));
    let hostname = link.as_ref().map(|link| link.hostname.clone());
    let non_empty = |text: &Option<String>| text.as_deref().map(one_line).filter(|text| !text.is_empty());
    let title = non_empty(&citation.title);
    let site = non_empty(&citation.site_name).or_else(|| hostname.clone());
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
        snippet: non_empty(&citation.content).or_else(|| citation.snippets.first().map(|text| one_line(text))),
        kind: match citation.kind {
            CitationType::Websearch => "websearch",
            CitationType::Knowledge => "knowledge",
            CitationType::Memory => "memory",
        },
        cited: citation.cited,
        source_id,
    }
}

/// Citation key from host and source id. It has letters, digits and hyphens only, which every bibliography tool accepts.
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

/// The day of an RFC 3339 time; `None` if it is not a valid date.
pub fn date(time: &str) -> Option<Day<'_>> {
    let text = time.get(..10)?;
    let day: jiff::civil::Date = text.parse().ok()?;
    let ymd = [day.year(), i16::from(day.month()), i16::from(day.day())].map(i16::unsigned_abs);
    Some(Day { text, ymd })
}

/// The cleaned text on one line: each run of white space and line ends becomes one space.
fn one_line(raw: &str) -> String {
    let clean = text::single_line(raw, usize::MAX);
    let is_blank = |c: char| c.is_ascii_whitespace() || matches!(c, '\u{2028}' | '\u{2029}');
    let joined = clean.split(is_blank).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    // Readers also trim wider spaces at the ends.
    joined.trim().to_owned()
}

/// Percent-encodes the characters that are special in the target format. A URL with such characters is normalized first as a
/// browser does, so that a `\` in a path becomes a `/`.
pub fn plain_url(url: &str, is_special: fn(char) -> bool) -> String {
    if !url.contains(is_special) {
        return url.to_owned();
    }
    match url::Url::parse(url) {
        Ok(parsed) => percent_encoded(parsed.as_str(), is_special),
        Err(_) => percent_encoded(url, is_special),
    }
}

fn percent_encoded(url: &str, is_special: fn(char) -> bool) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(url.len());
    for c in url.chars() {
        if is_special(c) {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                let _ = write!(out, "%{byte:02X}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

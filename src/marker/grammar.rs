//! Parser of the forms of a marker. The reader decides whether a marker counts where it is.

use super::lookahead::{Lookahead, ParseResult, Stop, slice};

/// Digits of a number: `[2024]` is a year.
const MAX_DIGITS: usize = 3;
/// Numbers in one marker; more do not fit into the lookahead.
const MAX_IN_MARKER: usize = 32;
/// Code points of `[[1]](url)`, the only marker that may exceed [`MAX_LOOKAHEAD`](super::MAX_LOOKAHEAD), because it ends
/// with a URL. A longer one is treated as an ordinary link.
pub const MAX_LINKED: usize = 1024;

/// Prefixes of a number in brackets.
const PREFIXES: [&str; 4] = ["citation:", "ref_", "ID:", "^"];
const SPAN: &str = "<span";
const SPAN_END: &str = "</span>";
const SPAN_IDS: [&str; 2] = ["id=\"ai-qa-ref\"", "id='ai-qa-ref'"];

/// A parsed marker.
#[derive(Debug, Clone, Copy)]
pub struct Marker {
    numbers: [u32; MAX_IN_MARKER],
    count: usize,
    pub form: Form,
    /// Length in bytes.
    pub length: usize,
}

/// How a marker is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `[1]`, `[1, 2]`, `[citation:1]`, `[^1]` and similar.
    Bracket,
    /// `[[1]]`, `^[1]^`: never a link, whatever follows.
    Standalone,
    /// `[3,6](@ref)`.
    Ref,
    /// `[[1]](url)`, with the byte range of the URL.
    Linked { from: usize, to: usize },
    /// `【1】`, `【8:1†source】`.
    Lenticular,
    /// `<span id="ai-qa-ref">1</span>`.
    Element,
    /// U+E200 `cite` U+E202 `turn0search0` U+E201: refers to a search result of the conversation and has no number.
    CiteToken,
}

impl Marker {
    fn new(form: Form) -> Self {
        Self { numbers: [0; MAX_IN_MARKER], count: 0, form, length: 0 }
    }

    pub fn numbers(&self) -> &[u32] {
        self.numbers.get(..self.count).unwrap_or_default()
    }

    /// Returns false if the marker is full.
    fn add(&mut self, number: u32) -> bool {
        let Some(slot) = self.numbers.get_mut(self.count) else { return false };
        *slot = number;
        self.count += 1;
        true
    }

    fn matched(mut self, length: usize) -> ParseResult<Self> {
        self.length = length;
        Ok(Some(self))
    }
}

/// True if a marker can begin at this byte.
pub fn can_begin(bytes: &[u8], at: usize) -> bool {
    match bytes.get(at) {
        Some(b'[' | b'^' | b'<') => true,
        Some(0xE3) => bytes.get(at + 1..at + 3) == Some(&[0x80, 0x90]),
        Some(0xEE) => bytes.get(at + 1..at + 3) == Some(&[0x88, 0x80]),
        _ => false,
    }
}

/// Parses the marker that begins here. `text` is the text ahead without the limit, for [`Form::Linked`].
pub fn parse(ahead: Lookahead<'_>, text: &str, ended: bool) -> ParseResult<Marker> {
    let verdict = match ahead.byte(0)? {
        b'[' if ahead.byte(1) == Ok(b'[') => double_bracket(ahead, text, ended),
        b'[' => bracket(ahead),
        b'^' => caret(ahead),
        b'<' => element(ahead),
        0xE3 => lenticular(ahead),
        0xEE => cite_token(ahead),
        _ => Ok(None),
    };
    // A marker longer than the lookahead is text.
    if verdict.as_ref().is_err_and(|stop| *stop == Stop::TooFar) { Ok(None) } else { verdict }
}

/// `[1]`, `[1, 2]`, `[citation:1]`, `[ref_1]`, `[^1]`, `[ID:0]`, `[3,6](@ref)`.
fn bracket(ahead: Lookahead<'_>) -> ParseResult<Marker> {
    let mut marker = Marker::new(Form::Bracket);
    let Some(end) = list(ahead, 0, &PREFIXES, &mut marker)? else { return Ok(None) };
    const REF: &str = "(@ref)";
    let has_no_prefix = ahead.byte(1)?.is_ascii_digit();
    match ahead.has(end, REF) {
        Ok(true) if has_no_prefix => {
            marker.form = Form::Ref;
            marker.matched(end + REF.len())
        }
        Ok(_) | Err(Stop::End) => marker.matched(end),
        Err(stop) => Err(stop),
    }
}

/// Parses a list of numbers in brackets at `at` and returns where it ends.
fn list(ahead: Lookahead<'_>, at: usize, prefixes: &[&'static str], marker: &mut Marker) -> ParseResult<usize> {
    if ahead.byte(at)? != b'[' {
        return Ok(None);
    }
    let mut at = at + 1;
    let mut prefix = "";
    loop {
        // The other items may repeat the prefix of the first.
        for &known in prefixes {
            if (marker.count == 0 || known == prefix) && ahead.has(at, known)? {
                prefix = known;
                at += known.len();
                break;
            }
        }
        // RAGFlow counts from 0.
        let Some((number, after)) = digits(ahead, at, prefix == "ID:")? else { return Ok(None) };
        if !marker.add(number) {
            return Ok(None);
        }
        at = after + ahead.run(after, |b| b == b' ')?;
        if ahead.byte(at)? == b']' {
            return Ok((at == after).then_some(at + 1));
        }
        let Some(separator) = separator(ahead, at)? else { return Ok(None) };
        at += separator;
        at += ahead.run(at, |b| b == b' ')?;
    }
}

fn separator(ahead: Lookahead<'_>, at: usize) -> ParseResult<usize> {
    for separator in [",", "，", "、"] {
        if ahead.has(at, separator)? {
            return Ok(Some(separator.len()));
        }
    }
    Ok(None)
}

/// Parses a number and returns it with its end.
fn digits(ahead: Lookahead<'_>, at: usize, allow_zero: bool) -> ParseResult<(u32, usize)> {
    let length = match ahead.run(at, |b| b.is_ascii_digit()) {
        Err(_) if ahead.bytes().len() - at.min(ahead.bytes().len()) > MAX_DIGITS => return Ok(None),
        other => other?,
    };
    if !(1..=MAX_DIGITS).contains(&length) {
        return Ok(None);
    }
    let number = slice(ahead.text, at, at + length).parse().ok();
    Ok(number.filter(|number| allow_zero || *number > 0).map(|number| (number, at + length)))
}

/// `[[1]](url)`, or `[[1]]` without `(` after it.
fn double_bracket(ahead: Lookahead<'_>, text: &str, ended: bool) -> ParseResult<Marker> {
    let mut marker = Marker::new(Form::Standalone);
    let Some(end) = list(ahead, 1, &[], &mut marker)? else { return Ok(None) };
    if marker.count != 1 || ahead.byte(end)? != b']' {
        return Ok(None);
    }
    let end = end + 1;
    match ahead.byte(end) {
        Err(Stop::End) => return marker.matched(end),
        Err(stop) => return Err(stop),
        Ok(b'(') => {}
        Ok(_) => return marker.matched(end),
    }
    let far = Lookahead::new(text, ended, MAX_LINKED);
    let from = end + 1;
    let mut depth = 0_usize;
    let mut at = from;
    loop {
        match far.byte(at)? {
            b')' if depth == 0 => break,
            b')' => depth -= 1,
            b'(' => depth += 1,
            b if b <= b' ' || matches!(b, b'<' | b'>' | b'\\') => return Ok(None),
            _ => {}
        }
        at += 1;
    }
    marker.form = Form::Linked { from, to: at };
    marker.matched(at + 1)
}

/// `^[1]^`, `^[1][2]^`.
fn caret(ahead: Lookahead<'_>) -> ParseResult<Marker> {
    let mut marker = Marker::new(Form::Standalone);
    let mut at = 1;
    loop {
        let Some(end) = list(ahead, at, &[], &mut marker)? else { return Ok(None) };
        if ahead.byte(end)? == b'^' {
            return marker.matched(end + 1);
        }
        at = end;
    }
}

/// `【1】`, `【1、2】`, `【1†source】`, `【8:1†source】`. A source name contains no character that may open code, HTML, math or
/// a link, because those bind tighter.
fn lenticular(ahead: Lookahead<'_>) -> ParseResult<Marker> {
    const OPEN: &str = "【";
    const CLOSE: &str = "】";
    const DAGGER: &str = "†";
    if !ahead.has(0, OPEN)? {
        return Ok(None);
    }
    let mut marker = Marker::new(Form::Lenticular);
    let mut at = OPEN.len();
    loop {
        let Some((mut number, after)) = digits(ahead, at, true)? else { return Ok(None) };
        at = after;
        let is_pair = marker.count == 0 && ahead.byte(at)? == b':';
        if is_pair {
            let Some((second, after)) = digits(ahead, at + 1, true)? else { return Ok(None) };
            (number, at) = (second, after);
        }
        let has_dagger = marker.count == 0 && ahead.has(at, DAGGER)?;
        if (!is_pair && number == 0) || (is_pair && !has_dagger) || !marker.add(number) {
            return Ok(None);
        }
        if has_dagger {
            break;
        }
        if ahead.has(at, CLOSE)? {
            return marker.matched(at + CLOSE.len());
        }
        let Some(separator) = separator(ahead, at)? else { return Ok(None) };
        at += separator;
        at += ahead.run(at, |b| b == b' ')?;
    }
    let rest = ahead.from(at).text;
    match rest.find(['】', '【', '\n', '`', '<', '$', '\\', '[']) {
        Some(length) if slice(rest, length, rest.len()).starts_with(CLOSE) => marker.matched(at + length + CLOSE.len()),
        Some(_) => Ok(None),
        None => Err(ahead.stop()),
    }
}

/// `<span id="ai-qa-ref">1</span>`, `<span id="ai-qa-ref">[1]</span>`.
fn element(ahead: Lookahead<'_>) -> ParseResult<Marker> {
    if !ahead.has(0, SPAN)? || !ahead.byte(SPAN.len())?.is_ascii_whitespace() {
        return Ok(None);
    }
    let length = ahead.run(SPAN.len(), |b| !matches!(b, b'>' | b'<' | b'\n' | b'`'))?;
    let mut at = SPAN.len() + length;
    let has_id = SPAN_IDS.iter().any(|id| slice(ahead.text, 0, at).contains(id));
    if !has_id || ahead.byte(at)? != b'>' {
        return Ok(None);
    }
    at += 1;
    let mut marker = Marker::new(Form::Element);
    if ahead.byte(at)? == b'[' {
        let Some(end) = list(ahead, at, &[], &mut marker)? else { return Ok(None) };
        at = end;
    } else {
        loop {
            let Some((number, after)) = digits(ahead, at, false)? else { return Ok(None) };
            at = after;
            if !marker.add(number) {
                return Ok(None);
            }
            let Some(separator) = separator(ahead, at)? else { break };
            at += separator;
            at += ahead.run(at, |b| b == b' ')?;
        }
    }
    if ahead.has(at, SPAN_END)? { marker.matched(at + SPAN_END.len()) } else { Ok(None) }
}

/// U+E200 `cite` (U+E202 token)+ U+E201.
fn cite_token(ahead: Lookahead<'_>) -> ParseResult<Marker> {
    const OPEN: &str = "\u{E200}cite\u{E202}";
    if !ahead.has(0, OPEN)? {
        return Ok(None);
    }
    let rest = ahead.from(OPEN.len()).text;
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '\u{E202}'));
    match end {
        Some(length) if slice(rest, length, rest.len()).starts_with('\u{E201}') => {
            Marker::new(Form::CiteToken).matched(OPEN.len() + length + '\u{E201}'.len_utf8())
        }
        Some(_) => Ok(None),
        None => Err(ahead.stop()),
    }
}

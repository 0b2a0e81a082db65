//! The forms of a marker. Which of them counts where is the reader's business.

use super::look::{Ahead, Stop, Verdict, slice};

/// `[2024]` is a year.
const MAX_DIGITS: usize = 3;
/// Numbers in one marker; no marker that is short enough to be one has more.
const MAX_IN_MARKER: usize = 32;
/// Code points of a `[[1]](url)`, the one marker that has to hold back more than others: it ends with a URL.
/// A longer one is a link like any other.
pub const MAX_LINKED: usize = 1024;

/// What stands around the number in brackets.
const PREFIXES: [&str; 4] = ["citation:", "ref_", "ID:", "^"];
const SPAN: &str = "<span";
const SPAN_END: &str = "</span>";
const SPAN_IDS: [&str; 2] = ["id=\"ai-qa-ref\"", "id='ai-qa-ref'"];

#[derive(Debug, Clone, Copy)]
pub struct Marker {
    numbers: [u32; MAX_IN_MARKER],
    count: usize,
    pub form: Form,
    /// Bytes.
    pub length: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `[1]` and its like.
    Bracket,
    /// `[[1]]`, `^[1]^`: brackets that nothing after them makes a link of.
    Whole,
    /// `[3,6](@ref)`.
    Ref,
    /// `[[1]](url)`: where the URL stands in it.
    Linked { from: usize, to: usize },
    /// `【1】`, `【8:1†source】`.
    Lens,
    /// `<span id="ai-qa-ref">1</span>`.
    Element,
    /// U+E200 `cite` U+E202 `turn0search0` U+E201: it names a search result of a conversation, no number.
    Token,
}

impl Marker {
    fn new(form: Form) -> Self {
        Self { numbers: [0; MAX_IN_MARKER], count: 0, form, length: 0 }
    }

    pub fn numbers(&self) -> &[u32] {
        self.numbers.get(..self.count).unwrap_or_default()
    }

    fn add(&mut self, number: u32) -> bool {
        let Some(slot) = self.numbers.get_mut(self.count) else { return false };
        *slot = number;
        self.count += 1;
        true
    }

    fn is(mut self, length: usize) -> Verdict<Self> {
        self.length = length;
        Ok(Some(self))
    }
}

/// Bytes that a marker can begin with.
pub fn begins(bytes: &[u8], at: usize) -> bool {
    match bytes.get(at) {
        Some(b'[' | b'^' | b'<') => true,
        Some(0xE3) => bytes.get(at + 1..at + 3) == Some(&[0x80, 0x90]),
        Some(0xEE) => bytes.get(at + 1..at + 3) == Some(&[0x88, 0x80]),
        _ => false,
    }
}

/// Reads the marker that begins here; `text` is all that there is of what is ahead.
pub fn read(ahead: Ahead<'_>, text: &str, ended: bool) -> Verdict<Marker> {
    let verdict = match ahead.byte(0)? {
        b'[' if ahead.byte(1) == Ok(b'[') => double(ahead, text, ended),
        b'[' => bracket(ahead),
        b'^' => caret(ahead),
        b'<' => element(ahead),
        0xE3 => lens(ahead),
        0xEE => token(ahead),
        _ => Ok(None),
    };
    // One that cannot be seen whole is none.
    if verdict.as_ref().is_err_and(|stop| *stop == Stop::Far) { Ok(None) } else { verdict }
}

/// `[1]`, `[1, 2]`, `[citation:1]`, `[ref_1]`, `[^1]`, `[ID:0]`, `[3,6](@ref)`.
fn bracket(ahead: Ahead<'_>) -> Verdict<Marker> {
    let mut marker = Marker::new(Form::Bracket);
    let Some(end) = list(ahead, 0, &PREFIXES, &mut marker)? else { return Ok(None) };
    const REF: &str = "(@ref)";
    let plain = ahead.byte(1)?.is_ascii_digit();
    match ahead.has(end, REF) {
        Ok(true) if plain => {
            marker.form = Form::Ref;
            marker.is(end + REF.len())
        }
        Ok(_) | Err(Stop::End) => marker.is(end),
        Err(stop) => Err(stop),
    }
}

/// A list in brackets from `at` on: where it ends.
fn list(ahead: Ahead<'_>, at: usize, prefixes: &[&'static str], marker: &mut Marker) -> Verdict<usize> {
    if ahead.byte(at)? != b'[' {
        return Ok(None);
    }
    let mut at = at + 1;
    let mut prefix = "";
    loop {
        // The prefix of the first item may stand before the others too.
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

fn separator(ahead: Ahead<'_>, at: usize) -> Verdict<usize> {
    for separator in [",", "，", "、"] {
        if ahead.has(at, separator)? {
            return Ok(Some(separator.len()));
        }
    }
    Ok(None)
}

/// A number, and where it ends.
fn digits(ahead: Ahead<'_>, at: usize, zero: bool) -> Verdict<(u32, usize)> {
    let length = match ahead.run(at, |b| b.is_ascii_digit()) {
        Err(_) if ahead.bytes().len() - at.min(ahead.bytes().len()) > MAX_DIGITS => return Ok(None),
        other => other?,
    };
    if !(1..=MAX_DIGITS).contains(&length) {
        return Ok(None);
    }
    let number = slice(ahead.text, at, at + length).parse().ok();
    Ok(number.filter(|number| zero || *number > 0).map(|number| (number, at + length)))
}

/// `[[1]](url)`, or `[[1]]` with no `(` after it.
fn double(ahead: Ahead<'_>, text: &str, ended: bool) -> Verdict<Marker> {
    let mut marker = Marker::new(Form::Whole);
    let Some(end) = list(ahead, 1, &[], &mut marker)? else { return Ok(None) };
    if marker.count != 1 || ahead.byte(end)? != b']' {
        return Ok(None);
    }
    let end = end + 1;
    match ahead.byte(end) {
        Err(Stop::End) => return marker.is(end),
        Err(stop) => return Err(stop),
        Ok(b'(') => {}
        Ok(_) => return marker.is(end),
    }
    let far = Ahead::new(text, ended, MAX_LINKED);
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
    marker.is(at + 1)
}

/// `^[1]^`, `^[1][2]^`.
fn caret(ahead: Ahead<'_>) -> Verdict<Marker> {
    let mut marker = Marker::new(Form::Whole);
    let mut at = 1;
    loop {
        let Some(end) = list(ahead, at, &[], &mut marker)? else { return Ok(None) };
        if ahead.byte(end)? == b'^' {
            return marker.is(end + 1);
        }
        at = end;
    }
}

/// `【1】`, `【1、2】`, `【1†source】`, `【8:1†source】`. What may open code, HTML, math or a link binds tighter: it is no source's name.
fn lens(ahead: Ahead<'_>) -> Verdict<Marker> {
    const OPEN: &str = "【";
    const CLOSE: &str = "】";
    const DAGGER: &str = "†";
    if !ahead.has(0, OPEN)? {
        return Ok(None);
    }
    let mut marker = Marker::new(Form::Lens);
    let mut at = OPEN.len();
    loop {
        let Some((mut number, after)) = digits(ahead, at, true)? else { return Ok(None) };
        at = after;
        let paired = marker.count == 0 && ahead.byte(at)? == b':';
        if paired {
            let Some((second, after)) = digits(ahead, at + 1, true)? else { return Ok(None) };
            (number, at) = (second, after);
        }
        let sourced = marker.count == 0 && ahead.has(at, DAGGER)?;
        if (!paired && number == 0) || (paired && !sourced) || !marker.add(number) {
            return Ok(None);
        }
        if sourced {
            break;
        }
        if ahead.has(at, CLOSE)? {
            return marker.is(at + CLOSE.len());
        }
        let Some(separator) = separator(ahead, at)? else { return Ok(None) };
        at += separator;
        at += ahead.run(at, |b| b == b' ')?;
    }
    let rest = ahead.from(at).text;
    match rest.find(['】', '【', '\n', '`', '<', '$', '\\', '[']) {
        Some(length) if slice(rest, length, rest.len()).starts_with(CLOSE) => marker.is(at + length + CLOSE.len()),
        Some(_) => Ok(None),
        None => Err(ahead.stop()),
    }
}

/// `<span id="ai-qa-ref">1</span>`, `<span id="ai-qa-ref">[1]</span>`.
fn element(ahead: Ahead<'_>) -> Verdict<Marker> {
    if !ahead.has(0, SPAN)? || !ahead.byte(SPAN.len())?.is_ascii_whitespace() {
        return Ok(None);
    }
    let length = ahead.run(SPAN.len(), |b| !matches!(b, b'>' | b'<' | b'\n' | b'`'))?;
    let mut at = SPAN.len() + length;
    let ours = SPAN_IDS.iter().any(|id| slice(ahead.text, 0, at).contains(id));
    if !ours || ahead.byte(at)? != b'>' {
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
    if ahead.has(at, SPAN_END)? { marker.is(at + SPAN_END.len()) } else { Ok(None) }
}

/// U+E200 `cite` (U+E202 token)+ U+E201.
fn token(ahead: Ahead<'_>) -> Verdict<Marker> {
    const OPEN: &str = "\u{E200}cite\u{E202}";
    if !ahead.has(0, OPEN)? {
        return Ok(None);
    }
    let rest = ahead.from(OPEN.len()).text;
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '\u{E202}'));
    match end {
        Some(length) if slice(rest, length, rest.len()).starts_with('\u{E201}') => {
            Marker::new(Form::Token).is(OPEN.len() + length + '\u{E201}'.len_utf8())
        }
        Some(_) => Ok(None),
        None => Err(ahead.stop()),
    }
}

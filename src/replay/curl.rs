//! What curl printed: `-i` puts the headers before the body, `-v` and the progress meter go to standard error,
//! which `2>&1` mixes in between. All of it is dropped, line by line; the body's own bytes are kept.

use memchr::{memmem, memrchr};

use super::capture::{BOM, Capture, CaptureError, Format, describe, is_sse};

/// The progress meter is redrawn in place: a CR and a row of this width, with no line end before the body goes on.
const METER_ROW: usize = 78;

/// How curl begins to speak when a transfer is over. A body that ends within a line has it glued to that line.
const FAREWELLS: [&[u8]; 5] =
    [b"* Connection #", b"* Closing connection", b"* transfer closed", b"* Recv failure", b"* HTTP/2 stream"];

enum Part {
    /// Nothing of the response yet.
    Before,
    Headers,
    /// A header block has ended: another one (after `100 Continue` or a redirect) or the body.
    Between,
    Body,
}

pub(super) fn is_curl(text: &[u8]) -> bool {
    let start = text.trim_ascii_start();
    is_status_line(start) || text.split(|b| *b == b'\n').find(|line| !line.trim_ascii().is_empty()).is_some_and(is_own)
}

pub(super) fn read(text: &[u8]) -> Result<Capture, CaptureError> {
    let mut body = Vec::with_capacity(text.len());
    let (mut part, mut skipped, mut status, mut encoded) = (Part::Before, 0, None, false);
    // Where the body ends if nothing of it comes behind the last progress row, which has a line end of its own.
    let mut end = None;
    for line in text.split_inclusive(|b| *b == b'\n') {
        let rest = without_meter(line);
        let line = rest.as_deref().unwrap_or(line);
        if is_own(line) {
            if let Some(header) = line.strip_prefix(b"< ") {
                status = status_of(header).or(status);
                encoded |= is_encoding(header);
            }
            skipped += 1;
            continue;
        }
        match part {
            Part::Before | Part::Between if is_status_line(line) => {
                status = status_of(line).or(status);
                part = Part::Headers;
                skipped += 1;
            }
            Part::Headers => {
                encoded |= is_encoding(line);
                if line.trim_ascii().is_empty() {
                    part = Part::Between;
                }
                skipped += 1;
            }
            Part::Before if line.trim_ascii().is_empty() => {}
            Part::Before | Part::Between | Part::Body => {
                part = Part::Body;
                end = (rest.is_some() && line == b"\n").then_some(body.len());
                body.extend_from_slice(line);
            }
        }
    }
    body.truncate(end.unwrap_or(body.len()));
    body.truncate(before_farewell(&body));
    let text = body.strip_prefix(BOM).unwrap_or(&body);
    if text.trim_ascii().is_empty() {
        return Err(CaptureError::NoBody { status });
    }
    if !is_sse(text) {
        let seen = describe(text.trim_ascii_start());
        let status = status.map_or_else(String::new, |status| format!(" (status {status})"));
        let hint = if encoded { ", compressed: repeat it with `curl --compressed`" } else { "" };
        let seen = format!("an HTTP response{status} whose body is no event stream but {seen}{hint}");
        return Err(CaptureError::NotRecognised { seen });
    }
    Ok(Capture { sse: body.into(), format: Format::Curl, skipped })
}

/// `HTTP/1.1 200 OK`, `HTTP/2 200`.
fn is_status_line(line: &[u8]) -> bool {
    line.strip_prefix(b"HTTP/").is_some_and(|rest| rest.first().is_some_and(u8::is_ascii_digit))
}

fn status_of(line: &[u8]) -> Option<u16> {
    if !is_status_line(line) {
        return None;
    }
    let code = line.split(|b| *b == b' ').nth(1)?.trim_ascii();
    std::str::from_utf8(code).ok()?.parse().ok()
}

fn is_encoding(header: &[u8]) -> bool {
    const NAME: &[u8] = b"content-encoding:";
    header.get(..NAME.len()).is_some_and(|name| name.eq_ignore_ascii_case(NAME))
        && !header[NAME.len()..].trim_ascii().eq_ignore_ascii_case(b"identity")
}

/// A line of curl's own. No SSE field begins like one of these, so none of the body's meaning can be lost.
fn is_own(line: &[u8]) -> bool {
    let line = line.trim_ascii_end();
    match line {
        b"*" | b"<" | b">" => true,
        [b'*' | b'<' | b'>', b' ', ..] => true,
        [b'{' | b'}', b' ', b'[', ..] => line.ends_with(b" data]"),
        _ => {
            line.starts_with(b"curl: (")
                || line.starts_with(b"  % Total ")
                || line.trim_ascii_start().starts_with(b"Dload  Upload")
        }
    }
}

/// The line without the progress rows in it; `None` if there are none.
fn without_meter(line: &[u8]) -> Option<Vec<u8>> {
    let is_row = |row: &[u8]| {
        row.iter().all(|b| b.is_ascii_digit() || b" -:.kMGTPdh".contains(b))
            && row.contains(&b':')
            && row.contains(&b' ')
    };
    let mut kept: Option<Vec<u8>> = None;
    let mut from = 0;
    // The very first row of a line may have lost its CR to the line end before it.
    let first = line.get(..METER_ROW).filter(|row| row.starts_with(b" ") && is_row(row)).map(|_| 0);
    let starts = memchr::memchr_iter(b'\r', line).map(|at| at + 1);
    for at in first.into_iter().chain(starts) {
        if at >= from && line.get(at..at + METER_ROW).is_some_and(is_row) {
            kept.get_or_insert_default().extend_from_slice(&line[from..at.saturating_sub(1).max(from)]);
            from = at + METER_ROW;
        }
    }
    kept.map(|mut kept| {
        kept.extend_from_slice(&line[from..]);
        kept
    })
}

/// The body's length without what curl said on its last line.
fn before_farewell(body: &[u8]) -> usize {
    let whole = body.strip_suffix(b"\n").unwrap_or(body);
    let line = memrchr(b'\n', whole).map_or(0, |at| at + 1);
    let said = FAREWELLS.iter().filter_map(|words| memmem::find(&body[line..], words)).min();
    said.map_or(body.len(), |at| line + at)
}

//! Extracts the response body from curl's output. `-i` prints headers before the body; `-v` and the progress meter
//! write to stderr, which `2>&1` mixes in. These are dropped line by line, and the body's bytes are kept.

use memchr::{memmem, memrchr};

use super::capture::{BOM, Capture, CaptureError, Format, describe, is_sse};

/// Length of a row of the progress meter. Each row starts with CR and has no line end before the body continues.
const PROGRESS_ROW_LEN: usize = 78;

/// Starts of curl's messages at the end of a transfer. They may follow an incomplete last line of the body directly.
const END_MESSAGES: [&[u8]; 5] =
    [b"* Connection #", b"* Closing connection", b"* transfer closed", b"* Recv failure", b"* HTTP/2 stream"];

enum ResponsePart {
    /// Before the response.
    Before,
    Headers,
    /// After a header block: another one follows (after `100 Continue` or a redirect), or the body.
    Between,
    Body,
}

pub(super) fn is_curl(text: &[u8]) -> bool {
    let start = text.trim_ascii_start();
    is_status_line(start)
        || text.split(|b| *b == b'\n').find(|line| !line.trim_ascii().is_empty()).is_some_and(is_curl_line)
}

pub(super) fn read(text: &[u8]) -> Result<Capture, CaptureError> {
    let mut body = Vec::with_capacity(text.len());
    let (mut part, mut skipped, mut status, mut encoded) = (ResponsePart::Before, 0, None, false);
    // Where the body ends if nothing follows the last progress row, whose line end is curl's.
    let mut end = None;
    for line in text.split_inclusive(|b| *b == b'\n') {
        let rest = without_progress_rows(line);
        let line = rest.as_deref().unwrap_or(line);
        if is_curl_line(line) {
            if let Some(header) = line.strip_prefix(b"< ") {
                status = status_of(header).or(status);
                encoded |= is_content_encoding(header);
            }
            skipped += 1;
            continue;
        }
        match part {
            ResponsePart::Before | ResponsePart::Between if is_status_line(line) => {
                status = status_of(line).or(status);
                part = ResponsePart::Headers;
                skipped += 1;
            }
            ResponsePart::Headers => {
                encoded |= is_content_encoding(line);
                if line.trim_ascii().is_empty() {
                    part = ResponsePart::Between;
                }
                skipped += 1;
            }
            ResponsePart::Before if line.trim_ascii().is_empty() => {}
            ResponsePart::Before | ResponsePart::Between | ResponsePart::Body => {
                part = ResponsePart::Body;
                end = (rest.is_some() && line == b"\n").then_some(body.len());
                body.extend_from_slice(line);
            }
        }
    }
    body.truncate(end.unwrap_or(body.len()));
    body.truncate(len_before_end_message(&body));
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

fn is_content_encoding(header: &[u8]) -> bool {
    const NAME: &[u8] = b"content-encoding:";
    header.get(..NAME.len()).is_some_and(|name| name.eq_ignore_ascii_case(NAME))
        && !header[NAME.len()..].trim_ascii().eq_ignore_ascii_case(b"identity")
}

/// True for a line written by curl itself. No SSE field starts like one, so the body loses nothing.
fn is_curl_line(line: &[u8]) -> bool {
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

/// The line without its progress rows; `None` if it has none.
fn without_progress_rows(line: &[u8]) -> Option<Vec<u8>> {
    let is_row = |row: &[u8]| {
        row.iter().all(|b| b.is_ascii_digit() || b" -:.kMGTPdh".contains(b))
            && row.contains(&b':')
            && row.contains(&b' ')
    };
    let mut kept: Option<Vec<u8>> = None;
    let mut from = 0;
    // The first row of a line may have lost its CR to the line end before.
    let first = line.get(..PROGRESS_ROW_LEN).filter(|row| row.starts_with(b" ") && is_row(row)).map(|_| 0);
    let starts = memchr::memchr_iter(b'\r', line).map(|at| at + 1);
    for at in first.into_iter().chain(starts) {
        if at >= from && line.get(at..at + PROGRESS_ROW_LEN).is_some_and(is_row) {
            kept.get_or_insert_default().extend_from_slice(&line[from..at.saturating_sub(1).max(from)]);
            from = at + PROGRESS_ROW_LEN;
        }
    }
    kept.map(|mut kept| {
        kept.extend_from_slice(&line[from..]);
        kept
    })
}

/// Length of the body without curl's message on its last line.
fn len_before_end_message(body: &[u8]) -> usize {
    let whole = body.strip_suffix(b"\n").unwrap_or(body);
    let line = memrchr(b'\n', whole).map_or(0, |at| at + 1);
    let message_at = END_MESSAGES.iter().filter_map(|words| memmem::find(&body[line..], words)).min();
    message_at.map_or(body.len(), |at| line + at)
}

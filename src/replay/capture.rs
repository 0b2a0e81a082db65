//! Reads saved responses (raw SSE, curl output, JSON lines or a HAR file) as SSE bytes, and recognizes whole JSON
//! documents.

use std::fmt;

use bytes::Bytes;
use memchr::{memchr_iter, memmem};
use serde::de::IgnoredAny;

use super::{curl, har};
use crate::provider::json;

/// Largest capture read; it is held in memory, sometimes twice.
pub const MAX_CAPTURE: usize = 64 * 1024 * 1024;

/// Most streams read from a HAR file; further ones are counted in `skipped`.
pub const MAX_STREAMS: usize = 256;

pub(super) const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Characters of an unknown file's first line that an error quotes.
const FIRST_LINE_CHARS: usize = 40;

/// Content of a capture file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CaptureFile {
    /// At least one stream; several only from a HAR file.
    Streams(Vec<Capture>),
    /// One JSON document, on one or several lines.
    Document(String),
}

/// One stream, as the upstream sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capture {
    pub sse: Bytes,
    pub format: Format,
    /// Number of parts left out: curl's lines and headers, lines that are not JSON; for the first stream of a HAR file,
    /// the entries that are not streams.
    pub skipped: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Raw SSE, kept byte for byte.
    Sse,
    /// Output of `curl -N`, `-i` or `-v`: the body is kept byte for byte, the rest dropped.
    Curl,
    /// One JSON payload per line; each became a `data:` frame.
    JsonLines,
    Har,
}

/// Why a file is not a capture, as a message for the user who named the file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaptureError {
    Empty,
    TooLarge {
        len: usize,
    },
    /// The HAR file has no event stream.
    HarWithoutStream {
        entries: usize,
    },
    /// The HAR file lists event streams, but without their bodies.
    HarWithoutBody {
        streams: usize,
    },
    HarBase64,
    /// HTTP headers without a body.
    NoBody {
        status: Option<u16>,
    },
    NotRecognised {
        seen: String,
    },
}

impl CaptureError {
    /// What the file contains instead, without the list of accepted formats.
    pub fn found(&self) -> String {
        match self {
            Self::Empty => "nothing".to_owned(),
            Self::NotRecognised { seen } => seen.clone(),
            other => other.to_string(),
        }
    }
}

/// Detects the format and reads the file.
pub fn read(bytes: &[u8]) -> Result<CaptureFile, CaptureError> {
    if bytes.len() > MAX_CAPTURE {
        return Err(CaptureError::TooLarge { len: bytes.len() });
    }
    let text = bytes.strip_prefix(BOM).unwrap_or(bytes);
    let start = text.trim_ascii_start();
    if start.is_empty() {
        return Err(CaptureError::Empty);
    }
    if bytes.starts_with(b"\xFF\xFE") || bytes.starts_with(b"\xFE\xFF") {
        let seen = "UTF-16 text (PowerShell's `>` writes it: let curl write the file, with `-o FILE`)".to_owned();
        return Err(CaptureError::NotRecognised { seen });
    }
    if curl::is_curl(text) {
        return curl::read(text).map(CaptureFile::one);
    }
    if start.starts_with(b"{") || start.starts_with(b"[") {
        if let Some(captures) = har::read(start)? {
            return Ok(CaptureFile::Streams(captures));
        }
        let document = String::from_utf8_lossy(start);
        return match json::with_parsed(document.trim(), |_| ()) {
            Some(()) => Ok(CaptureFile::Document(document.trim().to_owned())),
            None => json_lines(start).map(CaptureFile::one),
        };
    }
    if is_sse(text) {
        let sse = Bytes::copy_from_slice(bytes);
        return Ok(CaptureFile::one(Capture { sse, format: Format::Sse, skipped: 0 }));
    }
    Err(CaptureError::NotRecognised { seen: describe(start) })
}

impl CaptureFile {
    fn one(capture: Capture) -> Self {
        Self::Streams(vec![capture])
    }
}

/// True if the first non-blank line is an SSE field or comment, or if any line starts with `data:`.
pub(super) fn is_sse(bytes: &[u8]) -> bool {
    const FIELDS: [&[u8]; 5] = [b"data:", b"event:", b"id:", b"retry:", b":"];
    let bytes = bytes.strip_prefix(BOM).unwrap_or(bytes);
    let start = bytes.trim_ascii_start();
    FIELDS.iter().any(|field| start.starts_with(field))
        || memmem::find_iter(bytes, b"data:").any(|at| at > 0 && matches!(bytes[at - 1], b'\n' | b'\r'))
}

/// The first line, shortened, or a description of binary content.
pub(super) fn describe(bytes: &[u8]) -> String {
    let line = bytes.split(|b| matches!(b, b'\n' | b'\r')).next().unwrap_or_default();
    let text = String::from_utf8_lossy(line);
    if text.chars().take(FIRST_LINE_CHARS).any(|c| c == '\u{FFFD}' || (c.is_control() && c != '\t')) {
        return "bytes that are not text".to_owned();
    }
    let shown: String = text.chars().take(FIRST_LINE_CHARS).collect();
    let more = if text.chars().nth(FIRST_LINE_CHARS).is_some() { "…" } else { "" };
    format!("text that starts with `{shown}{more}`")
}

fn json_lines(text: &[u8]) -> Result<Capture, CaptureError> {
    let mut sse = Vec::with_capacity(text.len() + 8 * (1 + memchr_iter(b'\n', text).count()));
    let mut skipped = 0;
    for line in text.split(|b| *b == b'\n').map(<[u8]>::trim_ascii) {
        if line.is_empty() {
            continue;
        }
        if is_payload(line) {
            sse.extend_from_slice(b"data: ");
            sse.extend_from_slice(line);
            sse.extend_from_slice(b"\n\n");
        } else if sse.is_empty() {
            // The first line decides: without JSON there, this is broken or another format.
            return Err(CaptureError::NotRecognised { seen: describe_json(text) });
        } else {
            skipped += 1;
        }
    }
    Ok(Capture { sse: sse.into(), format: Format::JsonLines, skipped })
}

/// A JSON value, or `[DONE]`, with which many captures end.
fn is_payload(line: &[u8]) -> bool {
    line == b"[DONE]" || serde_json::from_slice::<IgnoredAny>(line).is_ok()
}

fn describe_json(text: &[u8]) -> String {
    match serde_json::from_slice::<IgnoredAny>(text) {
        Ok(_) => "one JSON document that is too deep".to_owned(),
        Err(err) if err.is_eof() => format!("JSON that breaks off at line {} column {}", err.line(), err.column()),
        Err(_) => describe(text),
    }
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ACCEPTED: &str = "raw SSE, the output of `curl -N` (also with `-i` or `-v`), one JSON payload per line, \
                                one JSON document, or a HAR file";
        match self {
            Self::Empty => write!(f, "the capture is empty; accepted are {ACCEPTED}"),
            Self::TooLarge { len } => {
                write!(f, "the capture has {len} bytes, more than the {} MiB that are read", MAX_CAPTURE >> 20)
            }
            Self::HarWithoutStream { entries } => write!(
                f,
                "the HAR file has no event stream: none of its {entries} entries is of type text/event-stream"
            ),
            Self::HarWithoutBody { streams } => write!(
                f,
                "the HAR file names {streams} event stream(s) without their bodies, which some browsers leave out; \
                 repeat the request with `curl -N` (\"Copy as cURL\") and use its output"
            ),
            Self::HarBase64 => f.write_str("the event stream in the HAR file says base64, and is not"),
            Self::NoBody { status: Some(status) } => {
                write!(f, "the HTTP response (status {status}) in the capture has no body")
            }
            Self::NoBody { status: None } => f.write_str("the curl output has no response body"),
            Self::NotRecognised { seen } => {
                write!(f, "not a capture: {seen}; accepted are {ACCEPTED}")
            }
        }
    }
}

impl std::error::Error for CaptureError {}

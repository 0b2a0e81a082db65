//! Saved streams: raw SSE, what curl printed, JSON payloads line by line, or a HAR file, all read as SSE bytes.

use std::fmt;

use bytes::Bytes;
use memchr::{memchr_iter, memmem};
use serde::de::IgnoredAny;

use super::{curl, har};

/// A longer capture is refused: it is held in memory, more than once while it is read.
pub const MAX_CAPTURE: usize = 64 * 1024 * 1024;

pub(super) const BOM: &[u8] = b"\xEF\xBB\xBF";

/// How much of an unknown file's first line an error repeats, in characters.
const SHOWN: usize = 40;

/// One stream, as the upstream sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capture {
    pub sse: Bytes,
    pub format: Format,
    /// What was left out: curl's own and header lines, lines that are no JSON, HAR entries that are not this stream.
    pub skipped: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Kept byte for byte.
    Sse,
    /// `curl -N`, `-i` or `-v`: the body is kept byte for byte, the rest is dropped.
    Curl,
    /// Each line became `data: <line>` and a blank line.
    JsonLines,
    Har,
}

/// Why a file is no capture; the text is for the person who named the file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaptureError {
    Empty,
    TooLarge {
        len: usize,
    },
    /// A HAR file of other traffic.
    HarWithoutStream {
        entries: usize,
    },
    /// A HAR file that names event streams and holds the body of none.
    HarWithoutBody {
        streams: usize,
    },
    HarBase64,
    /// HTTP headers and nothing behind them.
    NoBody {
        status: Option<u16>,
    },
    NotRecognised {
        seen: String,
    },
}

impl CaptureError {
    /// What is wrong, without what would be right.
    pub fn seen(&self) -> String {
        match self {
            Self::Empty => "nothing".to_owned(),
            Self::NotRecognised { seen } => seen.clone(),
            other => other.to_string(),
        }
    }
}

/// Reads the (first) stream of a capture. Further streams of a HAR file count as skipped: [`read_all`] gives them.
pub fn read(bytes: &[u8]) -> Result<Capture, CaptureError> {
    let mut all = read_all(bytes)?.into_iter();
    let mut first = all.next().ok_or(CaptureError::Empty)?;
    first.skipped += all.len();
    Ok(first)
}

/// Reads every stream of a capture: one, except for a HAR file, which may hold several. Never empty.
pub fn read_all(bytes: &[u8]) -> Result<Vec<Capture>, CaptureError> {
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
        return curl::read(text).map(|capture| vec![capture]);
    }
    if start.starts_with(b"{") || start.starts_with(b"[") {
        return match har::read(start)? {
            Some(captures) => Ok(captures),
            None => json_lines(start).map(|capture| vec![capture]),
        };
    }
    if is_sse(text) {
        let sse = Bytes::copy_from_slice(bytes);
        return Ok(vec![Capture { sse, format: Format::Sse, skipped: 0 }]);
    }
    Err(CaptureError::NotRecognised { seen: describe(start) })
}

/// True if the first line that says something is a field or a comment, or if any line is `data:`.
pub(super) fn is_sse(bytes: &[u8]) -> bool {
    const FIELDS: [&[u8]; 5] = [b"data:", b"event:", b"id:", b"retry:", b":"];
    let bytes = bytes.strip_prefix(BOM).unwrap_or(bytes);
    let start = bytes.trim_ascii_start();
    FIELDS.iter().any(|field| start.starts_with(field))
        || memmem::find_iter(bytes, b"data:").any(|at| at > 0 && matches!(bytes[at - 1], b'\n' | b'\r'))
}

/// The first line, shortened and escaped, or what kind of bytes these are.
pub(super) fn describe(bytes: &[u8]) -> String {
    let line = bytes.split(|b| matches!(b, b'\n' | b'\r')).next().unwrap_or_default();
    let text = String::from_utf8_lossy(line);
    if text.chars().take(SHOWN).any(|c| c == '\u{FFFD}' || (c.is_control() && c != '\t')) {
        return "bytes that are not text".to_owned();
    }
    let shown: String = text.chars().take(SHOWN).collect();
    let more = if text.chars().nth(SHOWN).is_some() { "…" } else { "" };
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
            // The first line decides: this is JSON over several lines, or none at all.
            return Err(CaptureError::NotRecognised { seen: describe_json(text) });
        } else {
            skipped += 1;
        }
    }
    Ok(Capture { sse: sse.into(), format: Format::JsonLines, skipped })
}

/// `[DONE]` is no JSON, and yet the last line of many captures.
fn is_payload(line: &[u8]) -> bool {
    line == b"[DONE]" || serde_json::from_slice::<IgnoredAny>(line).is_ok()
}

fn describe_json(text: &[u8]) -> String {
    match serde_json::from_slice::<IgnoredAny>(text) {
        Ok(_) => "one JSON document over several lines, which is no HAR file".to_owned(),
        Err(err) if err.is_eof() => format!("JSON that breaks off at line {} column {}", err.line(), err.column()),
        Err(_) => describe(text),
    }
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ACCEPTED: &str = "raw SSE, the output of `curl -N` (also with `-i` or `-v`), one JSON payload per line, \
                                or a HAR file";
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

//! Encodes our own frames: an event with one line of data, or a comment.

use bytes::Bytes;

/// The line ending of a stream, which our frames copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Eol {
    #[default]
    Lf,
    CrLf,
    Cr,
}

impl Eol {
    /// Detects the first line ending in `frame`. A blank line alone gives `None`, because the LF of its CR may follow in the
    /// next chunk.
    pub fn of(frame: &[u8]) -> Option<Self> {
        let frame = frame.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(frame);
        let at = memchr::memchr2(b'\n', b'\r', frame).filter(|at| *at > 0)?;
        Some(match (frame.get(at), frame.get(at + 1)) {
            (Some(b'\n'), _) => Self::Lf,
            (_, Some(b'\n')) => Self::CrLf,
            _ => Self::Cr,
        })
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lf => "\n",
            Self::CrLf => "\r\n",
            Self::Cr => "\r",
        }
    }
}

/// Comment that keeps idle connections open.
pub const HEARTBEAT: &str = ": citetap";

/// Encodes a named event. `json` must be one line, as compact JSON is.
pub fn event(name: &str, json: &str, eol: Eol) -> Bytes {
    let eol = eol.as_str();
    Bytes::from(["event: ", name, eol, "data: ", json, eol, eol].concat())
}

/// Encodes an unnamed event. `line` must be one line.
pub fn data(line: &str, eol: Eol) -> Bytes {
    let eol = eol.as_str();
    Bytes::from(["data: ", line, eol, eol].concat())
}

/// Encodes a heartbeat comment as a frame of its own.
pub fn heartbeat(eol: Eol) -> Bytes {
    let eol = eol.as_str();
    Bytes::from([HEARTBEAT, eol, eol].concat())
}

//! Our own frames: one line of compact JSON, or a comment.

use bytes::Bytes;

/// The line ending of a stream; ours copy it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Eol {
    #[default]
    Lf,
    CrLf,
    Cr,
}

impl Eol {
    /// The first line end in `frame`, if it has one. A blank line alone tells nothing: its CR may be half of a CRLF
    /// whose other half is still to come.
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

/// The comment that keeps idle connections open.
pub const HEARTBEAT: &str = ": citetap";

/// A named event with one data line. `json` must be one line, which compact JSON is.
pub fn event(name: &str, json: &str, eol: Eol) -> Bytes {
    let eol = eol.as_str();
    Bytes::from(["event: ", name, eol, "data: ", json, eol, eol].concat())
}

/// An unnamed event with one data line, which `line` must be.
pub fn data(line: &str, eol: Eol) -> Bytes {
    let eol = eol.as_str();
    Bytes::from(["data: ", line, eol, eol].concat())
}

/// A heartbeat comment, with the blank line that makes it a frame of its own.
pub fn heartbeat(eol: Eol) -> Bytes {
    let eol = eol.as_str();
    Bytes::from([HEARTBEAT, eol, eol].concat())
}

//! Splits a byte stream into frames, however it is chunked. Reads each byte once and buffers nothing: the caller does.

use memchr::memchr2;

/// The end of a piece of the stream, as an offset in the bytes given to [`Splitter::advance`]. The piece begins where the
/// previous one ended, which may be in an earlier chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// A complete frame with its blank line.
    Frame(usize),
    /// Bytes between frames: the leading BOM, or the LF of a CRLF whose CR has already ended the frame.
    Separator(usize),
}

/// State of the grammar between two bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// At the start of the stream, after this many bytes of a BOM.
    Start(u8),
    LineStart,
    InLine,
    /// After a line that ended in CR. An LF that follows belongs to that line end.
    AfterCr,
    /// After a frame that ended in CR at the end of a chunk. An LF that follows is a [`Cut::Separator`].
    AfterFrameCr,
}

const BOM: [u8; 3] = [0xEF, 0xBB, 0xBF];

/// Finds the ends of frames. One instance per stream.
#[derive(Debug, Clone, Copy)]
pub struct Splitter {
    state: State,
}

impl Default for Splitter {
    fn default() -> Self {
        Self { state: State::Start(0) }
    }
}

impl Splitter {
    /// True once a BOM can no longer follow.
    pub fn has_started(&self) -> bool {
        !matches!(self.state, State::Start(_))
    }

    /// True if the last frame ended in CR and its LF may still follow.
    pub fn awaits_lf(&self) -> bool {
        self.state == State::AfterFrameCr
    }

    /// Consumes `buf` up to the next cut. `None` means that all of it was consumed and the piece continues in the next chunk.
    /// A frame is cut as soon as it is complete: at the CR of its blank line, without waiting for a possible LF.
    pub fn advance(&mut self, buf: &[u8]) -> Option<Cut> {
        let mut i = 0;
        while let Some(&byte) = buf.get(i) {
            match self.state {
                State::Start(seen) => {
                    if BOM.get(usize::from(seen)) == Some(&byte) {
                        i += 1;
                        if usize::from(seen) + 1 == BOM.len() {
                            self.state = State::LineStart;
                            return Some(Cut::Separator(i));
                        }
                        self.state = State::Start(seen + 1);
                    } else if seen == 0 {
                        self.state = State::LineStart;
                    } else {
                        self.state = State::InLine;
                    }
                }
                State::AfterFrameCr => {
                    self.state = State::LineStart;
                    if byte == b'\n' {
                        return Some(Cut::Separator(i + 1));
                    }
                }
                State::AfterCr => {
                    self.state = State::LineStart;
                    if byte == b'\n' {
                        i += 1;
                    }
                }
                State::LineStart => match byte {
                    b'\n' => return Some(Cut::Frame(i + 1)),
                    b'\r' => {
                        return Some(Cut::Frame(match buf.get(i + 1) {
                            Some(b'\n') => i + 2,
                            Some(_) => i + 1,
                            None => {
                                self.state = State::AfterFrameCr;
                                i + 1
                            }
                        }));
                    }
                    _ => self.state = State::InLine,
                },
                State::InLine => match memchr2(b'\n', b'\r', buf.get(i..).unwrap_or_default()) {
                    None => return None,
                    Some(k) => {
                        self.state = if buf.get(i + k) == Some(&b'\n') { State::LineStart } else { State::AfterCr };
                        i += k + 1;
                    }
                },
            }
        }
        None
    }
}

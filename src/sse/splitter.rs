//! Finds where frames end, in any chunking, looking at each byte once.

use memchr::memchr2;

/// Where a piece of the stream ends, counted from the start of the bytes given to
/// [`Splitter::advance`]. The piece begins where the one before it ended, which may be
/// in an earlier chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// A whole frame, its blank line included.
    Frame(usize),
    /// Bytes between frames that no event owns: the leading BOM, or the LF of a CR|LF
    /// pair whose CR has ended the frame already.
    Separator(usize),
}

/// The grammar's state between two bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// Start of the stream, with so many bytes of a BOM seen.
    Start(u8),
    /// Start of a line.
    LineStart,
    InLine,
    /// A line ended in CR: an LF that follows belongs to that line end.
    AfterCr,
    /// A frame ended in CR at the end of a chunk: an LF that follows is glue.
    AfterFrameCr,
}

const BOM: [u8; 3] = [0xEF, 0xBB, 0xBF];

#[derive(Debug, Clone, Copy)]
pub struct Splitter {
    at: At,
}

impl Default for Splitter {
    fn default() -> Self {
        Self { at: At::Start(0) }
    }
}

impl Splitter {
    /// The stream has begun, and whether with a BOM is known.
    pub fn begun(&self) -> bool {
        !matches!(self.at, At::Start(_))
    }

    /// A frame has just ended in CR, and its LF may still come.
    pub fn awaits_lf(&self) -> bool {
        self.at == At::AfterFrameCr
    }

    /// Consumes `buf` up to the next cut; `None` means that all of it was consumed and the
    /// piece goes on in the next chunk. A frame is cut as soon as it is whole: a CR that ends
    /// a blank line is enough, without waiting for a possible LF.
    pub fn advance(&mut self, buf: &[u8]) -> Option<Cut> {
        let mut i = 0;
        while let Some(&byte) = buf.get(i) {
            match self.at {
                At::Start(seen) => {
                    if BOM.get(usize::from(seen)) == Some(&byte) {
                        i += 1;
                        if usize::from(seen) + 1 == BOM.len() {
                            self.at = At::LineStart;
                            return Some(Cut::Separator(i));
                        }
                        self.at = At::Start(seen + 1);
                    } else if seen == 0 {
                        self.at = At::LineStart;
                    } else {
                        self.at = At::InLine;
                    }
                }
                At::AfterFrameCr => {
                    self.at = At::LineStart;
                    if byte == b'\n' {
                        return Some(Cut::Separator(i + 1));
                    }
                }
                At::AfterCr => {
                    self.at = At::LineStart;
                    if byte == b'\n' {
                        i += 1;
                    }
                }
                At::LineStart => match byte {
                    b'\n' => return Some(Cut::Frame(i + 1)),
                    b'\r' => {
                        return Some(Cut::Frame(match buf.get(i + 1) {
                            Some(b'\n') => i + 2,
                            Some(_) => i + 1,
                            None => {
                                self.at = At::AfterFrameCr;
                                i + 1
                            }
                        }));
                    }
                    _ => self.at = At::InLine,
                },
                At::InLine => match memchr2(b'\n', b'\r', buf.get(i..).unwrap_or_default()) {
                    None => return None,
                    Some(k) => {
                        self.at = if buf.get(i + k) == Some(&b'\n') { At::LineStart } else { At::AfterCr };
                        i += k + 1;
                    }
                },
            }
        }
        None
    }
}

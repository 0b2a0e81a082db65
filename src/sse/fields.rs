//! The fields of one frame, as the WHATWG standard reads them.

use std::borrow::Cow;

/// One frame, read. Borrowed from the frame where the frame allows it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Event<'f> {
    /// The last `event:` value; empty when unset.
    pub name: Cow<'f, str>,
    /// The `data:` lines joined by LF; `None` when there was no data field, in which case
    /// clients dispatch nothing.
    pub data: Option<Cow<'f, str>>,
    /// The last `id:` value without a NUL.
    pub id: Option<Cow<'f, str>>,
    /// The last `retry:` value that was all digits, as it was written.
    pub retry: Option<&'f str>,
    /// A line was neither a comment nor any of these. Clients ignore it; one that looks for what it missed does not.
    pub foreign: bool,
}

impl<'f> Event<'f> {
    /// Reads a whole frame. Invalid UTF-8 becomes U+FFFD in what is read here; the frame itself
    /// is never changed.
    pub fn read(frame: &'f [u8]) -> Self {
        let mut event = Self::default();
        for line in Lines(frame) {
            event.line(line);
        }
        event
    }

    fn line(&mut self, line: &'f [u8]) {
        let (field, value) = field(line);
        match field {
            // "If the line starts with a U+003A COLON character (:): Ignore the line."
            b"" => {}
            b"data" => {
                let value = text(value);
                self.data = Some(match self.data.take() {
                    None => value,
                    Some(before) => {
                        let mut joined = before.into_owned();
                        joined.push('\n');
                        joined.push_str(&value);
                        Cow::Owned(joined)
                    }
                });
            }
            b"event" => self.name = text(value),
            // "If the field value does not contain U+0000 NULL, then set the last event ID buffer."
            b"id" if !value.contains(&0) => self.id = Some(text(value)),
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                self.retry = std::str::from_utf8(value).ok();
            }
            b"id" | b"retry" => {}
            _ => self.foreign = true,
        }
    }
}

/// The name and the value of a line that is not blank. A comment has no name.
pub fn field(line: &[u8]) -> (&[u8], &[u8]) {
    let Some(colon) = memchr::memchr(b':', line) else { return (line, b"") };
    let (field, rest) = line.split_at(colon);
    // "If value starts with a U+0020 SPACE character, remove it from value."
    let value = rest.get(1..).unwrap_or_default();
    (field, value.strip_prefix(b" ").unwrap_or(value))
}

/// Looking whether it is UTF-8 first is much faster than mending what need not be mended.
fn text(value: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(value).map_or_else(|_| String::from_utf8_lossy(value), Cow::Borrowed)
}

/// The lines of a frame, without their ends (LF, CR or CRLF), blank ones left out.
pub struct Lines<'f>(pub &'f [u8]);

impl<'f> Iterator for Lines<'f> {
    type Item = &'f [u8];

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.0.is_empty() {
                return None;
            }
            let end = memchr::memchr2(b'\n', b'\r', self.0).unwrap_or(self.0.len());
            let (line, rest) = self.0.split_at(end);
            self.0 = rest.get(1..).unwrap_or_default();
            if !line.is_empty() {
                return Some(line);
            }
        }
    }
}

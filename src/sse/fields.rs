//! Reads the fields of one frame as the WHATWG standard (Server-sent events, 9.2.6) defines them.

use std::borrow::Cow;

/// The fields of one frame, borrowed from it where possible.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Event<'f> {
    /// The last `event:` value; empty when unset.
    pub name: Cow<'f, str>,
    /// The `data:` lines joined by LF. `None` if there is no data field; clients then dispatch nothing.
    pub data: Option<Cow<'f, str>>,
    /// The last `id:` value without a NUL.
    pub id: Option<Cow<'f, str>>,
    /// The last `retry:` value that consists of digits.
    pub retry: Option<&'f str>,
    /// The frame has a field of another name, which clients ignore.
    pub has_unknown_field: bool,
}

impl<'f> Event<'f> {
    /// Reads a complete frame. Invalid UTF-8 becomes U+FFFD in the fields; the frame itself is not changed.
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
            _ => self.has_unknown_field = true,
        }
    }
}

/// Splits a line that is not blank into name and value. A comment has an empty name.
pub fn field(line: &[u8]) -> (&[u8], &[u8]) {
    let Some(colon) = memchr::memchr(b':', line) else { return (line, b"") };
    let (field, rest) = line.split_at(colon);
    // "If value starts with a U+0020 SPACE character, remove it from value."
    let value = rest.get(1..).unwrap_or_default();
    (field, value.strip_prefix(b" ").unwrap_or(value))
}

/// Checks for valid UTF-8 first, which is much faster than `from_utf8_lossy`.
fn text(value: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(value).map_or_else(|_| String::from_utf8_lossy(value), Cow::Borrowed)
}

/// Iterates over the lines of a frame that are not blank, without their ends (LF, CR or CRLF).
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

//! Text form of a list cursor: `<milliseconds>.<provider in hex>.<id in hex>`, safe in a query string.

use std::fmt::Write as _;

use super::Cursor;

/// Longer input is rejected without being parsed (an id has at most 128 characters).
const MAX_LEN: usize = 4096;

impl Cursor {
    pub fn encode(&self) -> String {
        let mut out = format!("{}.", self.created_ms);
        push_hex(&mut out, &self.provider);
        out.push('.');
        push_hex(&mut out, &self.id);
        out
    }

    /// Parses the output of [`encode`](Self::encode); anything else is `None`.
    pub fn decode(text: &str) -> Option<Self> {
        if text.len() > MAX_LEN {
            return None;
        }
        let mut parts = text.splitn(3, '.');
        let cursor = Self {
            created_ms: parts.next()?.parse().ok()?,
            provider: from_hex(parts.next()?)?,
            id: from_hex(parts.next()?)?,
        };
        // Accept the canonical form only: `+5`, `007`, `-0` and upper-case hex would parse too.
        (cursor.encode() == text).then_some(cursor)
    }
}

fn push_hex(out: &mut String, text: &str) {
    for byte in text.bytes() {
        // Writing to a String cannot fail.
        let _ = write!(out, "{byte:02x}");
    }
}

fn from_hex(text: &str) -> Option<String> {
    let digits = text.as_bytes();
    let (pairs, rest) = digits.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let bytes =
        pairs.iter().map(|[high, low]| Some(nibble(*high)? << 4 | nibble(*low)?)).collect::<Option<Vec<u8>>>()?;
    String::from_utf8(bytes).ok()
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_text_round_trips() {
        for (created_ms, provider, id) in [
            (0, "", ""),
            (-1, "doubao", "35730705466983426"),
            (i64::MIN, "a.b", "x.y:z-\0"),
            (i64::MAX, "豆包", "🦀'%_"),
        ] {
            let cursor = Cursor { created_ms, provider: provider.into(), id: id.into() };
            assert_eq!(Cursor::decode(&cursor.encode()), Some(cursor));
        }
    }

    #[test]
    fn cursor_malformed_text_is_none() {
        let long = format!("1.61.{}", "61".repeat(MAX_LEN));
        for text in [
            "",
            ".",
            "..",
            "1",
            "1.61",
            "1.61.6",
            "1.61.6g",
            "1.61.61.61",
            "+1.61.61",
            "01.61.61",
            "-0.61.61",
            " 1.61.61",
            "1.6A.61",
            "1.61.ff",
            "1.61.é9",
            "99999999999999999999.61.61",
            "1.61.61\0",
            "' OR 1=1 --",
            &long,
        ] {
            assert_eq!(Cursor::decode(text), None, "{text:?}");
        }
    }
}

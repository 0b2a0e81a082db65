//! Strangers' text made safe to keep: no controls, no bidi tricks, no more than a cap.

/// A title or a name: one line, at most `cap` bytes. The flag says whether the cap cut it.
pub fn line(raw: &str, cap: usize) -> (String, bool) {
    clean(raw, cap, false)
}

/// An excerpt: may have several lines.
pub fn lines(raw: &str, cap: usize) -> (String, bool) {
    clean(raw, cap, true)
}

fn clean(raw: &str, cap: usize, keep_newlines: bool) -> (String, bool) {
    // Cleaning shortens, so a little more than the cap is enough to read.
    let readable = floor(raw, cap.saturating_mul(2));
    let mut out = String::with_capacity(readable.len().min(cap));
    for c in readable.trim().chars() {
        match c {
            '\n' if keep_newlines => out.push(c),
            // PostgreSQL refuses NUL in text; the rest would move a reader's cursor.
            '\0' => {}
            c if is_bidi(c) => {}
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    let cut = out.len() > cap || readable.len() < raw.len();
    let keep = floor(&out, cap).len();
    out.truncate(keep);
    (out, cut)
}

/// Characters that reorder what stands around them.
pub fn is_bidi(c: char) -> bool {
    matches!(c, '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// The longest prefix of at most `cap` bytes that ends between characters.
pub fn floor(text: &str, cap: usize) -> &str {
    text.get(..text.floor_char_boundary(cap)).unwrap_or_default()
}

/// The first `count` characters.
pub fn first_chars(text: &str, count: usize) -> &str {
    text.char_indices().nth(count).and_then(|(at, _)| text.get(..at)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cap_cuts_between_characters() {
        assert_eq!(line("常州市", 9), ("常州市".to_owned(), false));
        assert_eq!(line("常州市", 8), ("常州".to_owned(), true));
    }

    #[test]
    fn controls_and_bidi_marks_go() {
        assert_eq!(line(" a\0b\r\nc\u{202E}d ", 64).0, "ab  cd");
        assert_eq!(lines("a\nb", 64).0, "a\nb");
    }
}

//! Strangers' text made safe to keep: no controls, no bidi tricks, no more than a cap.

use std::borrow::Cow;

/// A title or a name: one line, at most `cap` bytes. The flag says whether the cap cut it.
pub fn line(raw: &str, cap: usize) -> (String, bool) {
    let (text, cut) = one_line(raw, cap);
    (text.into_owned(), cut)
}

/// As [`line`], borrowed where there is nothing to clean.
pub fn one_line(raw: &str, cap: usize) -> (Cow<'_, str>, bool) {
    clean(raw, cap, false)
}

/// An excerpt: may have several lines.
pub fn lines(raw: &str, cap: usize) -> (Cow<'_, str>, bool) {
    clean(raw, cap, true)
}

fn clean(raw: &str, cap: usize, keep_newlines: bool) -> (Cow<'_, str>, bool) {
    // Cleaning shortens, so a little more than the cap is enough to read.
    let readable = floor(raw, cap.saturating_mul(2));
    let unread = readable.len() < raw.len();
    let trimmed = readable.trim();
    if is_clean(trimmed.as_bytes(), keep_newlines) {
        return (Cow::Borrowed(floor(trimmed, cap)), unread || trimmed.len() > cap);
    }
    let mut out = String::with_capacity(trimmed.len().min(cap));
    for c in trimmed.chars() {
        match c {
            '\n' if keep_newlines => out.push(c),
            // PostgreSQL refuses NUL in text; the rest would move a reader's cursor.
            '\0' => {}
            c if is_bidi(c) => {}
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    let cut = out.len() > cap || unread;
    let keep = floor(&out, cap).len();
    out.truncate(keep);
    (Cow::Owned(out), cut)
}

/// Is there nothing that cleaning would change? Most text is clean, and that is seen sixteen bytes at a time.
fn is_clean(text: &[u8], keep_newlines: bool) -> bool {
    const STEP: usize = 16;
    let (chunks, rest) = text.as_chunks::<STEP>();
    let mut from = 0;
    for chunk in chunks {
        // No branches, so that it becomes a few instructions for all of them.
        let odd = chunk.iter().fold(0, |odd, b| odd | u8::from(may_change(*b)));
        if odd != 0 && !is_clean_from(text, from, from + STEP, keep_newlines) {
            return false;
        }
        from += STEP;
    }
    !rest.iter().any(|b| may_change(*b)) || is_clean_from(text, from, text.len(), keep_newlines)
}

/// May a control or a bidi mark begin with this byte?
fn may_change(b: u8) -> bool {
    (b < 0x20) | (b == 0x7F) | (b == 0xC2) | (b == 0xD8) | (b == 0xE2)
}

/// Looks at the characters that begin in between.
fn is_clean_from(text: &[u8], from: usize, to: usize, keep_newlines: bool) -> bool {
    !(from..to).any(|at| match text.get(at..).unwrap_or_default() {
        [b'\n', ..] => !keep_newlines,
        // C0 and delete, C1.
        [0..0x20 | 0x7F, ..] | [0xC2, 0x80..=0x9F, ..] => true,
        // As in `is_bidi`.
        [0xD8, 0x9C, ..] | [0xE2, 0x80, 0x8E | 0x8F | 0xAA..=0xAE, ..] | [0xE2, 0x81, 0xA6..=0xA9, ..] => true,
        _ => false,
    })
}

/// Characters that reorder what stands around them.
pub fn is_bidi(c: char) -> bool {
    matches!(c, '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// Nothing that hides, or reorders what stands around it.
pub fn is_seen(c: char) -> bool {
    let hides = matches!(c, '\u{00AD}' | '\u{200B}'..='\u{200D}' | '\u{2060}' | '\u{FEFF}');
    !c.is_control() && !is_bidi(c) && !hides
}

/// The longest prefix of at most `cap` bytes that ends between characters.
pub fn floor(text: &str, cap: usize) -> &str {
    text.get(..text.floor_char_boundary(cap)).unwrap_or_default()
}

/// The first `count` characters.
pub fn first_chars(text: &str, count: usize) -> &str {
    text.char_indices().nth(count).and_then(|(at, _)| text.get(..at)).unwrap_or(text)
}

/// Does `word` occur in `text`? Both are lower-case. Letters of a spaced script make whole words only: `official`
/// is not in `unofficial`, while `官方声明` is wherever its characters are.
pub fn has_word(text: &str, word: &str) -> bool {
    let joins = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() && c < '\u{2E80}');
    let (first, last) = (word.chars().next(), word.chars().next_back());
    memchr::memmem::find_iter(text.as_bytes(), word).any(|at| {
        let before = text.get(..at).and_then(|rest| rest.chars().next_back());
        let after = text.get(at + word.len()..).and_then(|rest| rest.chars().next());
        let inside = (joins(first) && joins(before)) || (joins(last) && joins(after));
        !inside
    })
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
    fn latin_words_are_whole_and_chinese_ones_are_anywhere() {
        assert!(has_word("the official word", "official"));
        assert!(!has_word("an unofficial officially", "official"));
        assert!(has_word("公司发布官方声明称", "官方声明"));
        assert!(has_word("苹果vs安卓", "vs"));
        assert!(!has_word("nvs", "vs"));
        assert!(has_word("nvs vs", "vs"));
    }

    #[test]
    fn what_is_clean_is_seen_by_its_bytes_as_by_its_characters() {
        for c in '\0'..='\u{FFFF}' {
            for before in [0, 1, 14, 15, 16] {
                let text = format!("{}{c}a", "x".repeat(before));
                for keep_newlines in [false, true] {
                    let changes = (c.is_control() && !(c == '\n' && keep_newlines)) || is_bidi(c);
                    assert_eq!(is_clean(text.as_bytes(), keep_newlines), !changes, "{c:?} after {before}");
                }
            }
        }
    }

    #[test]
    fn controls_and_bidi_marks_go() {
        assert_eq!(line(" a\0b\r\nc\u{202E}d ", 64).0, "ab  cd");
        assert_eq!(lines("a\nb", 64).0, "a\nb");
    }
}

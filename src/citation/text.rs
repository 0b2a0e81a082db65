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
    fn controls_and_bidi_marks_go() {
        assert_eq!(line(" a\0b\r\nc\u{202E}d ", 64).0, "ab  cd");
        assert_eq!(lines("a\nb", 64).0, "a\nb");
    }
}

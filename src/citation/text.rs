//! Cleans untrusted text: removes control, bidi and invisible characters and cuts it to a cap. Also searches text for words.
//! Called wherever text of an upstream is stored or shown.

use std::{borrow::Cow, ops::Range};

use aho_corasick::AhoCorasick;

use super::joiner;

/// Cleans a title or a name into one line of at most `cap` bytes.
pub fn single_line(raw: &str, cap: usize) -> String {
    clean_line(raw, cap).0.into_owned()
}

/// As [`single_line`], borrowed if nothing has to be cleaned. The flag says whether the cap cut the text.
pub fn clean_line(raw: &str, cap: usize) -> (Cow<'_, str>, bool) {
    clean(raw, cap, false)
}

/// As [`clean_line`], but keeps line feeds, for snippets.
pub fn clean_lines(raw: &str, cap: usize) -> (Cow<'_, str>, bool) {
    clean(raw, cap, true)
}

fn clean(raw: &str, cap: usize, keep_newlines: bool) -> (Cow<'_, str>, bool) {
    // Bounds the work: text beyond twice the cap is never read, and counts as cut.
    let readable = first_bytes(raw, cap.saturating_mul(2));
    let unread = readable.len() < raw.len();
    let trimmed = readable.trim();
    if is_clean(trimmed.as_bytes(), keep_newlines) {
        return (Cow::Borrowed(first_bytes(trimmed, cap)), unread || trimmed.len() > cap);
    }
    let mut out = String::with_capacity(trimmed.len().min(cap));
    let mut chars = trimmed.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' if keep_newlines => out.push(c),
            // PostgreSQL refuses NUL in text. Other controls become spaces below: they could move a terminal's cursor.
            '\0' => {}
            c if is_bidi(c) => {}
            c if is_invisible(c) => {
                if joiner::joins(out.chars().next_back(), c, chars.peek().copied()) {
                    out.push(c);
                }
            }
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    // A removed character may have stood before or after white space.
    let blanks = out.len() - out.trim_start().len();
    out.drain(..blanks);
    out.truncate(out.trim_end().len());
    let cut = out.len() > cap || unread;
    let keep = first_bytes(&out, cap).len();
    out.truncate(keep);
    (Cow::Owned(out), cut)
}

/// True if cleaning would change nothing. Most text is clean, so it is tested 16 bytes at a time.
fn is_clean(text: &[u8], keep_newlines: bool) -> bool {
    const STEP: usize = 16;
    let (chunks, rest) = text.as_chunks::<STEP>();
    let mut from = 0;
    for chunk in chunks {
        // Free of branches so that the compiler vectorizes it.
        let suspect = chunk.iter().fold(0, |suspect, b| suspect | u8::from(may_change(*b)));
        if suspect != 0 && !is_clean_from(text, from, from + STEP, keep_newlines) {
            return false;
        }
        from += STEP;
    }
    !rest.iter().any(|b| may_change(*b)) || is_clean_from(text, from, text.len(), keep_newlines)
}

/// True if a control, bidi or invisible character can begin with this byte.
fn may_change(b: u8) -> bool {
    (b < 0x20) | (b == 0x7F) | (b == 0xC2) | (b == 0xD8) | (b == 0xE2) | (b == 0xEF) | (b == 0xF3)
}

/// True if no character that begins in `from..to` would be changed.
fn is_clean_from(text: &[u8], from: usize, to: usize, keep_newlines: bool) -> bool {
    !(from..to).any(|at| match text.get(at..).unwrap_or_default() {
        [b'\n', ..] => !keep_newlines,
        // C0 controls and DEL; C1 controls.
        [0..0x20 | 0x7F, ..] | [0xC2, 0x80..=0x9F, ..] => true,
        // The characters of `is_bidi`.
        [0xD8, 0x9C, ..] | [0xE2, 0x80, 0x8E | 0x8F | 0xAA..=0xAE, ..] | [0xE2, 0x81, 0xA6..=0xA9, ..] => true,
        // The characters of `is_invisible`.
        [0xC2, 0xAD, ..] | [0xE2, 0x80, 0x8B..=0x8D, ..] | [0xE2, 0x81, 0xA0..=0xA4, ..] => true,
        [0xEF, 0xBB, 0xBF, ..] | [0xF3, 0xA0, 0x80 | 0x81, ..] => true,
        _ => false,
    })
}

/// True for characters that change the direction of the text around them.
pub fn is_bidi(c: char) -> bool {
    matches!(c, '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// True for characters without width: soft hyphen, zero-width space, joiners, word joiner, invisible operators, byte order
/// mark, and tags, which can spell a text that only machines read.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{00AD}' | '\u{200B}'..='\u{200D}' | '\u{2060}'..='\u{2064}' | '\u{FEFF}' | '\u{E0000}'..='\u{E007F}')
}

/// True unless the character is a control, bidi or invisible character.
pub fn is_visible(c: char) -> bool {
    !c.is_control() && !is_bidi(c) && !is_invisible(c)
}

/// The longest prefix of at most `cap` bytes that ends between characters.
pub fn first_bytes(text: &str, cap: usize) -> &str {
    text.get(..text.floor_char_boundary(cap)).unwrap_or_default()
}

/// The first `count` characters.
pub fn first_chars(text: &str, count: usize) -> &str {
    text.char_indices().nth(count).and_then(|(at, _)| text.get(..at)).unwrap_or(text)
}

/// True if `word` occurs in `text`. Both are lower-case. Only whole words match: `official` is not in `unofficial`. CJK text
/// has no word boundaries, so `官方声明` matches wherever it occurs.
pub fn has_word(text: &str, word: &str) -> bool {
    let mut from = 0;
    // Occurrences may overlap.
    while let Some(at) = text.get(from..).and_then(|rest| rest.find(word)).map(|at| from + at) {
        if is_whole_word(text, at..at + word.len()) {
            return true;
        }
        from = at + word.chars().next().map_or(text.len(), char::len_utf8);
    }
    false
}

/// True if the range is not part of a longer word.
fn is_whole_word(text: &str, range: Range<usize>) -> bool {
    // CJK characters begin at U+2E80.
    let is_word_char = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() && c < '\u{2E80}');
    let [before, word, after] =
        [0..range.start, range.clone(), range.end..text.len()].map(|part| text.get(part).unwrap_or_default());
    let is_part = (is_word_char(word.chars().next()) && is_word_char(before.chars().next_back()))
        || (is_word_char(word.chars().next_back()) && is_word_char(after.chars().next()));
    !is_part
}

/// Lists of lower-case words, searched in one pass with the rules of [`has_word`].
#[derive(Debug, Clone)]
pub struct WordLists<const N: usize> {
    lists: [Vec<String>; N],
    /// `None` if the automaton would be too large; then the words are searched one by one.
    automaton: Option<AhoCorasick>,
}

impl<const N: usize> WordLists<N> {
    pub fn new(lists: [Vec<String>; N]) -> Self {
        let automaton = AhoCorasick::new(lists.iter().flatten()).ok();
        Self { lists, automaton }
    }

    pub const fn lists(&self) -> &[Vec<String>; N] {
        &self.lists
    }

    /// For each list, true if one of its words occurs in the text.
    pub fn matches(&self, text: &str) -> [bool; N] {
        let Some(automaton) = &self.automaton else {
            return self.lists.each_ref().map(|list| list.iter().any(|word| has_word(text, word)));
        };
        let mut found = [false; N];
        for hit in automaton.find_overlapping_iter(text) {
            // Patterns are numbered through all lists.
            let mut index = hit.pattern().as_usize();
            let list = self.lists.iter().position(|list| {
                let is_here = index < list.len();
                index = index.saturating_sub(list.len());
                is_here
            });
            if let Some(found) = list.and_then(|list| found.get_mut(list)) {
                *found = *found || is_whole_word(text, hit.range());
            }
        }
        found
    }
}

/// As `str::to_lowercase`, but faster for text in which only ASCII letters have upper case, such as Chinese.
pub fn lowercase(text: &str) -> String {
    // ASCII; punctuation; CJK scripts; full-width punctuation.
    let only_ascii_has_case = |c| matches!(c, '\0'..='\x7F' | '\u{2010}'..='\u{205E}' | '\u{2E80}'..='\u{A63F}' | '\u{FF01}'..='\u{FF20}' | '\u{FF3B}'..='\u{FF65}');
    if text.chars().all(only_ascii_has_case) { text.to_ascii_lowercase() } else { text.to_lowercase() }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    #[test]
    fn clean_line_over_cap_is_cut_between_characters() {
        assert_eq!(clean_line("常州市", 9), ("常州市".into(), false));
        assert_eq!(clean_line("常州市", 8), ("常州".into(), true));
    }

    #[test]
    fn has_word_matches_whole_words_and_any_chinese() {
        assert!(has_word("the official word", "official"));
        assert!(!has_word("an unofficial officially", "official"));
        assert!(has_word("公司发布官方声明称", "官方声明"));
        assert!(has_word("苹果vs安卓", "vs"));
        assert!(!has_word("nvs", "vs"));
        assert!(has_word("nvs vs", "vs"));
        assert!(has_word("na-a-a", "a-a"));
    }

    proptest! {
        #[test]
        fn word_lists_with_and_without_automaton_agree(
            lists in proptest::array::uniform3(vec("[ab官]{1,3}", 0..4)),
            text in "[ab 官方]{0,24}",
        ) {
            let words = WordLists::new(lists);
            let one_by_one = WordLists { automaton: None, ..words.clone() };
            prop_assert_eq!(words.matches(&text), one_by_one.matches(&text));
        }
    }

    #[test]
    fn lowercase_equals_str_to_lowercase() {
        for c in '\0'..=char::MAX {
            for text in [format!("{c}"), format!("A{c}中B"), format!("ΑΣ{c}")] {
                assert_eq!(lowercase(&text), text.to_lowercase());
            }
        }
        assert_eq!(lowercase("AI，“Deep” Ｓeek"), "ai，“deep” ｓeek");
    }

    #[test]
    fn is_clean_agrees_with_the_character_tests() {
        for c in ('\0'..='\u{FFFF}').chain('\u{E0000}'..='\u{E01FF}') {
            for before in [0, 1, 14, 15, 16] {
                let text = format!("{}{c}a", "x".repeat(before));
                for keep_newlines in [false, true] {
                    let would_change =
                        (c.is_control() && !(c == '\n' && keep_newlines)) || is_bidi(c) || is_invisible(c);
                    assert_eq!(is_clean(text.as_bytes(), keep_newlines), !would_change, "{c:?} after {before}");
                }
            }
        }
    }

    #[test]
    fn clean_line_removes_controls_and_bidi_marks() {
        assert_eq!(single_line(" a\0b\r\nc\u{202E}d ", 64), "ab  cd");
        assert_eq!(clean_lines("a\nb", 64).0, "a\nb");
    }

    #[test]
    fn clean_line_removes_invisible_characters() {
        for (raw, clean) in [
            ("\u{FEFF}Ti\u{200B}tle\u{2060}", "Title"),
            ("Dampf\u{AD}schiff", "Dampfschiff"),
            ("a\u{200C}b\u{200D}c\u{2062}d", "abcd"),
            ("官\u{200D}方\u{200B}声\u{FEFF}明", "官方声明"),
            ("\u{200B} \u{FEFF}", ""),
            ("\u{200B} a \u{200D}", "a"),
            ("a\u{E0001}\u{E0068}\u{E0069}\u{E007F}b", "ab"),
            // A joiner between an emoji and a letter, or after a last emoji, is removed.
            ("a\u{200D}👩", "a👩"),
            ("👩\u{200D}a 👩\u{200D}", "👩a 👩"),
            ("👩\u{200D}\u{200D}💻", "👩\u{200D}💻"),
            ("👩\u{200C}💻", "👩💻"),
        ] {
            assert_eq!(single_line(raw, 256), clean, "{raw:?}");
            assert_eq!(clean_lines(raw, 256).0, clean, "{raw:?}");
        }
    }

    #[test]
    fn clean_line_keeps_joiners_of_emoji_and_scripts() {
        for text in [
            "👩\u{200D}💻 👩🏽\u{200D}🚀 👨\u{200D}👩\u{200D}👧\u{200D}👦",
            "🏳\u{FE0F}\u{200D}🌈 ❤\u{FE0F}\u{200D}🔥 🐈\u{200D}⬛ 🏃🏽\u{200D}♀\u{FE0F}\u{200D}➡\u{FE0F}",
            "🏴\u{E0067}\u{E0062}\u{E0065}\u{E006E}\u{E0067}\u{E007F}",
            // Persian, Hindi, Bengali, Malayalam (a final chillu), Sinhala, Mongolian.
            "می\u{200C}خواهم خانه\u{200C}ها ه\u{200D}.ش",
            "क्\u{200D}ष क्\u{200C}ष",
            "র\u{200D}্যাব",
            "അവന്\u{200D} വന്നു",
            "ශ්\u{200D}රී",
            "ᠨᠢ\u{200D}",
        ] {
            assert_eq!(single_line(text, 256), text);
        }
        assert_eq!(single_line("می\u{200C}\u{200C}\u{200D}خ", 64), "می\u{200C}خ", "only the first joiner is kept");
    }

    #[test]
    fn clean_line_with_unread_text_reports_a_cut() {
        assert_eq!(clean_line(&("\u{200B}".repeat(2) + "abcd"), 4), ("ab".into(), true));
        assert_eq!(clean_line("\u{200B}abcd", 4), ("abcd".into(), false));
    }
}

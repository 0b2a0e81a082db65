//! Strangers' text made safe to keep: no controls, no bidi tricks, nothing hidden, no more than a cap.

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

/// As [`clean_line`] for an excerpt, which keeps its line feeds.
pub fn clean_lines(raw: &str, cap: usize) -> (Cow<'_, str>, bool) {
    clean(raw, cap, true)
}

fn clean(raw: &str, cap: usize, keep_newlines: bool) -> (Cow<'_, str>, bool) {
    // Cleaning shortens, so a little more than the cap is enough to read.
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
            // PostgreSQL refuses NUL in text; the rest would move a reader's cursor.
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
    // What was taken away may have stood before a blank.
    let blanks = out.len() - out.trim_start().len();
    out.drain(..blanks);
    out.truncate(out.trim_end().len());
    let cut = out.len() > cap || unread;
    let keep = first_bytes(&out, cap).len();
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

/// May a control, a bidi mark or a hidden character begin with this byte?
fn may_change(b: u8) -> bool {
    (b < 0x20) | (b == 0x7F) | (b == 0xC2) | (b == 0xD8) | (b == 0xE2) | (b == 0xEF) | (b == 0xF3)
}

/// Looks at the characters that begin in between.
fn is_clean_from(text: &[u8], from: usize, to: usize, keep_newlines: bool) -> bool {
    !(from..to).any(|at| match text.get(at..).unwrap_or_default() {
        [b'\n', ..] => !keep_newlines,
        // C0 and delete, C1.
        [0..0x20 | 0x7F, ..] | [0xC2, 0x80..=0x9F, ..] => true,
        // As in `is_bidi`.
        [0xD8, 0x9C, ..] | [0xE2, 0x80, 0x8E | 0x8F | 0xAA..=0xAE, ..] | [0xE2, 0x81, 0xA6..=0xA9, ..] => true,
        // As in `hides`.
        [0xC2, 0xAD, ..] | [0xE2, 0x80, 0x8B..=0x8D, ..] | [0xE2, 0x81, 0xA0..=0xA4, ..] => true,
        [0xEF, 0xBB, 0xBF, ..] | [0xF3, 0xA0, 0x80 | 0x81, ..] => true,
        _ => false,
    })
}

/// Characters that reorder what stands around them.
pub fn is_bidi(c: char) -> bool {
    matches!(c, '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// Characters without a width of their own: soft hyphen, zero-width space, joiners, word joiner, invisible operators, byte
/// order mark, and tags, which can spell a text that only machines read.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{00AD}' | '\u{200B}'..='\u{200D}' | '\u{2060}'..='\u{2064}' | '\u{FEFF}' | '\u{E0000}'..='\u{E007F}')
}

/// Nothing that hides, or reorders what stands around it.
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

/// Does `word` occur in `text`? Both are lower-case. Letters of a spaced script make whole words only: `official`
/// is not in `unofficial`, while `官方声明` is wherever its characters are.
pub fn has_word(text: &str, word: &str) -> bool {
    let mut from = 0;
    // One may begin within another.
    while let Some(at) = text.get(from..).and_then(|rest| rest.find(word)).map(|at| from + at) {
        if is_word(text, at..at + word.len()) {
            return true;
        }
        from = at + word.chars().next().map_or(text.len(), char::len_utf8);
    }
    false
}

/// Is what stands there a word, and no part of one?
fn is_word(text: &str, place: Range<usize>) -> bool {
    let joins = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() && c < '\u{2E80}');
    let [before, word, after] =
        [0..place.start, place.clone(), place.end..text.len()].map(|part| text.get(part).unwrap_or_default());
    let inside = (joins(word.chars().next()) && joins(before.chars().next_back()))
        || (joins(word.chars().next_back()) && joins(after.chars().next()));
    !inside
}

/// Lists of words that are looked for in one pass, as [`has_word`] does it for one. All are lower-case.
#[derive(Debug, Clone)]
pub struct WordLists<const N: usize> {
    lists: [Vec<String>; N],
    /// `None`: they are too many for that.
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

    /// Which of the lists have a word in the text?
    pub fn matches(&self, text: &str) -> [bool; N] {
        let Some(automaton) = &self.automaton else {
            return self.lists.each_ref().map(|list| list.iter().any(|word| has_word(text, word)));
        };
        let mut found = [false; N];
        for place in automaton.find_overlapping_iter(text) {
            let mut number = place.pattern().as_usize();
            let of = self.lists.iter().position(|list| {
                let here = number < list.len();
                number = number.saturating_sub(list.len());
                here
            });
            if let Some(found) = of.and_then(|of| found.get_mut(of)) {
                *found = *found || is_word(text, place.range());
            }
        }
        found
    }
}

/// As `str::to_lowercase`, and sooner where only ASCII has upper case, as in Chinese.
pub fn lowercase(text: &str) -> String {
    // Punctuation; kana, Han and their like; full-width signs.
    let has_none = |c| matches!(c, '\0'..='\x7F' | '\u{2010}'..='\u{205E}' | '\u{2E80}'..='\u{A63F}' | '\u{FF01}'..='\u{FF20}' | '\u{FF3B}'..='\u{FF65}');
    if text.chars().all(has_none) { text.to_ascii_lowercase() } else { text.to_lowercase() }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    #[test]
    fn a_cap_cuts_between_characters() {
        assert_eq!(clean_line("常州市", 9), ("常州市".into(), false));
        assert_eq!(clean_line("常州市", 8), ("常州".into(), true));
    }

    #[test]
    fn latin_words_are_whole_and_chinese_ones_are_anywhere() {
        assert!(has_word("the official word", "official"));
        assert!(!has_word("an unofficial officially", "official"));
        assert!(has_word("公司发布官方声明称", "官方声明"));
        assert!(has_word("苹果vs安卓", "vs"));
        assert!(!has_word("nvs", "vs"));
        assert!(has_word("nvs vs", "vs"));
        assert!(has_word("na-a-a", "a-a"));
    }

    proptest! {
        /// Also where one is part of another, and in the midst of others.
        #[test]
        fn words_are_found_together_as_they_are_one_by_one(
            lists in proptest::array::uniform3(vec("[ab官]{1,3}", 0..4)),
            text in "[ab 官方]{0,24}",
        ) {
            let words = WordLists::new(lists);
            let one_by_one = WordLists { automaton: None, ..words.clone() };
            prop_assert_eq!(words.matches(&text), one_by_one.matches(&text));
        }
    }

    #[test]
    fn lower_case_is_what_it_is_elsewhere() {
        for c in '\0'..=char::MAX {
            for text in [format!("{c}"), format!("A{c}中B"), format!("ΑΣ{c}")] {
                assert_eq!(lowercase(&text), text.to_lowercase());
            }
        }
        assert_eq!(lowercase("AI，“Deep” Ｓeek"), "ai，“deep” ｓeek");
    }

    #[test]
    fn what_is_clean_is_seen_by_its_bytes_as_by_its_characters() {
        for c in ('\0'..='\u{FFFF}').chain('\u{E0000}'..='\u{E01FF}') {
            for before in [0, 1, 14, 15, 16] {
                let text = format!("{}{c}a", "x".repeat(before));
                for keep_newlines in [false, true] {
                    let changes = (c.is_control() && !(c == '\n' && keep_newlines)) || is_bidi(c) || is_invisible(c);
                    assert_eq!(is_clean(text.as_bytes(), keep_newlines), !changes, "{c:?} after {before}");
                }
            }
        }
    }

    #[test]
    fn controls_and_bidi_marks_go() {
        assert_eq!(single_line(" a\0b\r\nc\u{202E}d ", 64), "ab  cd");
        assert_eq!(clean_lines("a\nb", 64).0, "a\nb");
    }

    #[test]
    fn hidden_characters_go() {
        for (raw, clean) in [
            ("\u{FEFF}Ti\u{200B}tle\u{2060}", "Title"),
            ("Dampf\u{AD}schiff", "Dampfschiff"),
            ("a\u{200C}b\u{200D}c\u{2062}d", "abcd"),
            ("官\u{200D}方\u{200B}声\u{FEFF}明", "官方声明"),
            ("\u{200B} \u{FEFF}", ""),
            ("\u{200B} a \u{200D}", "a"),
            ("a\u{E0001}\u{E0068}\u{E0069}\u{E007F}b", "ab"),
            // Emoji beside letters, or alone, join nothing.
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
    fn joiners_of_emoji_and_scripts_stay() {
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
        assert_eq!(single_line("می\u{200C}\u{200C}\u{200D}خ", 64), "می\u{200C}خ", "one joins");
    }

    #[test]
    fn cap_of_hidden_characters_is_told_as_a_cut() {
        assert_eq!(clean_line(&("\u{200B}".repeat(2) + "abcd"), 4), ("ab".into(), true));
        assert_eq!(clean_line("\u{200B}abcd", 4), ("abcd".into(), false));
    }
}

//! Decides which invisible characters affect visible text: in emoji sequences, and in scripts with joining letters. Called by
//! `text`, which removes all others.

const ZWNJ: char = '\u{200C}';
const ZWJ: char = '\u{200D}';
const BLACK_FLAG: char = '\u{1F3F4}';

/// True if the invisible character changes how its neighbors look. `before` is the last character that was kept.
pub(super) fn joins(before: Option<char>, invisible: char, after: Option<char>) -> bool {
    let Some(before) = before else { return false };
    match invisible {
        // Also at the end of a word: it makes a final form in Persian, a chillu in older Malayalam text.
        ZWNJ | ZWJ if has_joining_letters(before) => true,
        ZWJ => is_emoji(before) && after.is_some_and(is_emoji),
        // UTS 51: the flag of a subdivision, such as England, is a black flag followed by tags.
        tag => is_tag(tag) && (before == BLACK_FLAG || is_tag(before)),
    }
}

/// True for a tag character, including the cancel tag that ends a sequence.
fn is_tag(c: char) -> bool {
    matches!(c, '\u{E0020}'..='\u{E007F}')
}

/// True in the blocks of Arabic and related scripts, of the scripts of India and South-East Asia, and of Mongolian.
fn has_joining_letters(c: char) -> bool {
    matches!(c,
        '\u{0600}'..='\u{109F}'
        | '\u{1780}'..='\u{18AF}'
        | '\u{1900}'..='\u{1CFF}'
        | '\u{A800}'..='\u{ABFF}'
        | '\u{FB50}'..='\u{FDFF}'
        | '\u{FE70}'..='\u{FEFC}'
        | '\u{10A00}'..='\u{11FFF}'
        | '\u{1E900}'..='\u{1E95F}'
    )
}

/// True in the blocks of pictographs and skin tones, and for the variation selector.
fn is_emoji(c: char) -> bool {
    matches!(c,
        '\u{FE0F}'
        | '\u{2190}'..='\u{21FF}'
        | '\u{2300}'..='\u{23FF}'
        | '\u{25A0}'..='\u{27BF}'
        | '\u{2B00}'..='\u{2BFF}'
        | '\u{1F000}'..='\u{1FAFF}'
    )
}

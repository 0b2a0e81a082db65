//! Where a hidden character belongs to what is seen: in emoji sequences, and in scripts whose letters join.

const ZWNJ: char = '\u{200C}';
const ZWJ: char = '\u{200D}';
const BLACK_FLAG: char = '\u{1F3F4}';

/// Does the hidden character change how the kept one before it looks, or the one after it? `before` is what was kept.
pub(super) fn joins(before: Option<char>, hidden: char, after: Option<char>) -> bool {
    let Some(before) = before else { return false };
    match hidden {
        // Also at a word's end: a final form in Persian, a chillu in older Malayalam text.
        ZWNJ | ZWJ if has_joining_letters(before) => true,
        ZWJ => is_emoji(before) && after.is_some_and(is_emoji),
        // UTS 51: a flag of a region that is no country is a black flag and tags.
        tag => is_tag(tag) && (before == BLACK_FLAG || is_tag(before)),
    }
}

/// Also the end of the sequence.
fn is_tag(c: char) -> bool {
    matches!(c, '\u{E0020}'..='\u{E007F}')
}

/// Blocks of Arabic and its relatives, of the scripts of India and South-East Asia, and of Mongolian.
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

/// Blocks that hold pictographs, their variation selector and skin tones.
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

//! Checks of the text around a bracket: is it an array index, an image or part of a URL? Called by the reader.

use super::lookahead::{Lookahead, Stop};

/// Bytes examined before a marker.
const MAX_WORD: usize = 16;

/// Common array names: a bracket right after one is an index, whatever follows.
const ARRAY_NAMES: [&[u8]; 12] =
    [b"arr", b"argv", b"args", b"buf", b"cols", b"dp", b"elem", b"idx", b"nums", b"ptr", b"tmp", b"vec"];

/// Returns the first byte from `at` on that may begin a construct, or the end. `]` and `|` count only where a bracket or a
/// table cell is open. `at` is a character boundary.
pub fn next_special(bytes: &[u8], at: usize, open: bool) -> usize {
    let mut here = at;
    while let Some(byte) = bytes.get(here) {
        let step = usize::from(STEPS[usize::from(*byte)]);
        let is_special = step == 0
            && match byte {
                b']' | b'|' => open,
                b':' => bytes.get(here + 1).is_none_or(|next| *next == b'/'),
                // Most characters that begin with these bytes are ordinary text.
                0xE3 | 0xEE => super::grammar::can_begin(bytes, here),
                _ => true,
            };
        if is_special {
            return here;
        }
        here += step.max(1);
    }
    bytes.len()
}

/// Length of a character by its first byte; 0 if the character may begin a construct.
const STEPS: [u8; 256] = {
    let mut table = [1; 256];
    let mut lead = 0xC0;
    while lead < 256 {
        table[lead] = match lead {
            0xF0.. => 4,
            0xE0..0xF0 => 3,
            _ => 2,
        };
        lead += 1;
    }
    let bytes = b"\n\\`$<[]^:|\xE3\xEE";
    let mut i = 0;
    while i < bytes.len() {
        table[bytes[i] as usize] = 0;
        i += 1;
    }
    table
};

/// True if `before` ends with `http` or `https`.
pub fn ends_with_scheme(before: &[u8]) -> bool {
    let ends = |scheme: &[u8]| {
        let start = before.len().checked_sub(scheme.len());
        start.and_then(|start| before.get(start..)).is_some_and(|tail| tail.eq_ignore_ascii_case(scheme))
    };
    ends(b"http") || ends(b"https")
}

/// True if a bracket after `before` begins an image: an unescaped `!` precedes it.
pub fn opens_image(before: &[u8]) -> bool {
    let tail = before.get(before.len().saturating_sub(MAX_WORD)..).unwrap_or_default();
    let Some((b'!', before)) = tail.split_last() else { return false };
    before.iter().rev().take_while(|b| **b == b'\\').count() % 2 == 0
}

/// True if the byte can be part of a bare URL.
pub fn is_url_byte(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"<>\"`|\\^$[]".contains(&byte)
}

/// True if the bracket between `before` and `after` is an array index, as in `a_b[1]`, `x[1] = 2`, `rows[1].name`,
/// `a[b[1]]`, `n[1]++`. A word right before it is not enough: `the capital[1].` is a marker.
pub fn is_index(before: &[u8], after: Lookahead<'_>) -> Result<bool, Stop> {
    let tail = before.get(before.len().saturating_sub(MAX_WORD)..).unwrap_or_default();
    let length = tail.iter().rev().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
    let word = tail.get(tail.len() - length..).unwrap_or_default();
    if word.is_empty() {
        return Ok(false);
    }
    if word.contains(&b'_') || ARRAY_NAMES.contains(&word) {
        return Ok(true);
    }
    let at = bracket_run(after)?;
    let is = |at: usize, is: fn(u8) -> bool| false_if_unseen(after.byte(at).map(is));
    // `=`, `+=` and other assignments, with or without a space before.
    let from = at + usize::from(is(at, |b| b == b' ')?);
    let operator = usize::from(is(from, |b| b"+-*/%&|^".contains(&b))?);
    Ok(is(from + operator, |b| b == b'=')?
        || is(at, |b| b == b']')?
        || (is(at, |b| b == b'.')? && is(at + 1, |b| b.is_ascii_lowercase() || b == b'_')?)
        || (is(at, |b| b == b'+')? && is(at + 1, |b| b == b'+')?))
}

/// True if the URL before a bracket continues after it: `https://a.example/?x[1]=2`, but not `https://a.example[1].`.
pub fn url_continues(after: Lookahead<'_>) -> Result<bool, Stop> {
    let at = bracket_run(after)?;
    match after.byte(at) {
        Ok(b) if b.is_ascii_alphanumeric() || b"/=&#%_-~+@".contains(&b) => Ok(true),
        Ok(b'.' | b',' | b':' | b';' | b'!' | b'?') => {
            false_if_unseen(after.byte(at + 1).map(|b| b.is_ascii_alphanumeric() || b == b'/'))
        }
        Ok(_) | Err(Stop::End | Stop::TooFar) => Ok(false),
        Err(stop) => Err(stop),
    }
}

/// The length of the brackets that follow at once, such as `[1][2]`.
fn bracket_run(after: Lookahead<'_>) -> Result<usize, Stop> {
    let mut at = 0;
    loop {
        let bracket = |at: usize| -> Result<usize, Stop> {
            if after.byte(at)? != b'[' {
                return Ok(0);
            }
            let digits = after.run(at + 1, |b| b.is_ascii_digit())?;
            let closed = after.byte(at + 1 + digits)? == b']';
            Ok(if digits > 0 && closed { digits + 2 } else { 0 })
        };
        match bracket(at) {
            Ok(0) | Err(Stop::End | Stop::TooFar) => return Ok(at),
            Ok(length) => at += length,
            Err(stop) => return Err(stop),
        }
    }
}

/// What the lookahead does not reach is absent.
fn false_if_unseen(verdict: Result<bool, Stop>) -> Result<bool, Stop> {
    match verdict {
        Err(Stop::End | Stop::TooFar) => Ok(false),
        other => other,
    }
}

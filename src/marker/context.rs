//! What stands before and after a marker: is it prose there, or an index, or a part of a URL?

use super::look::{Ahead, Stop};

/// Bytes looked at before a marker.
const WORD: usize = 16;

/// Names that are no words: a bracket after one of them is an index, whatever follows.
const NAMES: [&[u8]; 12] =
    [b"arr", b"argv", b"args", b"buf", b"cols", b"dp", b"elem", b"idx", b"nums", b"ptr", b"tmp", b"vec"];

/// Where the first byte stands that could mean something, from `at` on. `]` and `|` only do where brackets or
/// cells are open. `at` is the beginning of a character.
pub fn plain(bytes: &[u8], at: usize, open: bool) -> usize {
    let mut here = at;
    while let Some(byte) = bytes.get(here) {
        let step = usize::from(STEPS[usize::from(*byte)]);
        let means = step == 0
            && match byte {
                b']' | b'|' => open,
                b':' => bytes.get(here + 1).is_none_or(|next| *next == b'/'),
                // Most of the characters that begin with these bytes are not the ones that matter.
                0xE3 | 0xEE => super::grammar::begins(bytes, here),
                _ => true,
            };
        if means {
            return here;
        }
        here += step.max(1);
    }
    bytes.len()
}

/// How far the next character is by the first byte of this one; 0: it could mean something.
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

/// Does a URL's scheme end here?
pub fn scheme(before: &[u8]) -> bool {
    let ends = |scheme: &[u8]| {
        let start = before.len().checked_sub(scheme.len());
        start.and_then(|start| before.get(start..)).is_some_and(|tail| tail.eq_ignore_ascii_case(scheme))
    };
    ends(b"http") || ends(b"https")
}

/// Does a bracket after `before` begin an image?
pub fn image(before: &[u8]) -> bool {
    let seen = before.get(before.len().saturating_sub(WORD)..).unwrap_or_default();
    let Some((b'!', before)) = seen.split_last() else { return false };
    before.iter().rev().take_while(|b| **b == b'\\').count() % 2 == 0
}

/// Is a byte part of a URL that stands in the text as it is?
pub fn in_url(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"<>\"`|\\^$[]".contains(&byte)
}

/// Is the bracket between `before` and `after` an index, as in `a_b[1]`, `x[1] = 2`, `rows[1].name`, `a[b[1]]`,
/// `n[1]++`? A word right before it is not enough: `the capital[1].` is a marker.
pub fn index(before: &[u8], after: Ahead<'_>) -> Result<bool, Stop> {
    let seen = before.get(before.len().saturating_sub(WORD)..).unwrap_or_default();
    let length = seen.iter().rev().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
    let word = seen.get(seen.len() - length..).unwrap_or_default();
    if word.is_empty() {
        return Ok(false);
    }
    if word.contains(&b'_') || NAMES.contains(&word) {
        return Ok(true);
    }
    let at = chain(after)?;
    let is = |at: usize, is: fn(u8) -> bool| no_at_end(after.byte(at).map(is));
    // `=`, `+=` and their like, with or without a blank before them.
    let from = at + usize::from(is(at, |b| b == b' ')?);
    let operator = usize::from(is(from, |b| b"+-*/%&|^".contains(&b))?);
    Ok(is(from + operator, |b| b == b'=')?
        || is(at, |b| b == b']')?
        || (is(at, |b| b == b'.')? && is(at + 1, |b| b.is_ascii_lowercase() || b == b'_')?)
        || (is(at, |b| b == b'+')? && is(at + 1, |b| b == b'+')?))
}

/// Does the URL before a bracket go on after it? `https://a.example/?x[1]=2` does, `https://a.example[1].` does not.
pub fn url_goes_on(after: Ahead<'_>) -> Result<bool, Stop> {
    let at = chain(after)?;
    match after.byte(at) {
        Ok(b) if b.is_ascii_alphanumeric() || b"/=&#%_-~+@".contains(&b) => Ok(true),
        Ok(b'.' | b',' | b':' | b';' | b'!' | b'?') => {
            no_at_end(after.byte(at + 1).map(|b| b.is_ascii_alphanumeric() || b == b'/'))
        }
        Ok(_) | Err(Stop::End | Stop::Far) => Ok(false),
        Err(stop) => Err(stop),
    }
}

/// The length of the `[1][2]` that follow.
fn chain(after: Ahead<'_>) -> Result<usize, Stop> {
    let mut at = 0;
    loop {
        let link = |at: usize| -> Result<usize, Stop> {
            if after.byte(at)? != b'[' {
                return Ok(0);
            }
            let digits = after.run(at + 1, |b| b.is_ascii_digit())?;
            let closed = after.byte(at + 1 + digits)? == b']';
            Ok(if digits > 0 && closed { digits + 2 } else { 0 })
        };
        match link(at) {
            Ok(0) | Err(Stop::End | Stop::Far) => return Ok(at),
            Ok(length) => at += length,
            Err(stop) => return Err(stop),
        }
    }
}

fn no_at_end(verdict: Result<bool, Stop>) -> Result<bool, Stop> {
    match verdict {
        Err(Stop::End | Stop::Far) => Ok(false),
        other => other,
    }
}

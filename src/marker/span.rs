//! Parsers of code spans and math, called by the reader at a backtick, `$` or backslash in prose.

use super::{
    block::Blocks,
    lookahead::{Lookahead, ParseResult, Stop},
    walk::{Next, Walk},
};

/// Returns the length of the code span that begins here; `None` if no run of as many backticks ends it.
pub fn code(ahead: Lookahead<'_>, blocks: &Blocks, cells: bool) -> ParseResult<usize> {
    let length = ahead.run(0, |b| b == b'`')?;
    let mut walk = Walk::new(ahead, blocks, cells, length);
    loop {
        match walk.step()? {
            Next::End => return Ok(None),
            Next::Byte(at, b'`') => {
                let run = match ahead.run(at, |b| b == b'`') {
                    Err(Stop::End) => ahead.bytes().len() - at,
                    other => other?,
                };
                walk.at = at + run;
                if run == length {
                    return Ok(Some(walk.at));
                }
            }
            Next::Byte(..) => {}
        }
    }
}

/// Returns the length of `$…$` or `$$…$$`. Only the next `$` counts; with a blank before it, it does not end math, so
/// amounts of money are text.
pub fn dollars(ahead: Lookahead<'_>, blocks: &Blocks, cells: bool) -> ParseResult<usize> {
    let next = ahead.byte(1)?;
    if next.is_ascii_whitespace() {
        return Ok(None);
    }
    let display = next == b'$';
    let mut walk = Walk::new(ahead, blocks, cells, 1 + usize::from(display));
    let (mut braces, mut last) = (0_i32, b'$');
    loop {
        let Next::Byte(_, byte) = walk.step()? else { return Ok(None) };
        match byte {
            b'\\' => walk.escaped()?,
            b'{' => braces += 1,
            b'}' => braces -= 1,
            b'$' if braces == 0 && display => {
                return Ok((ahead.byte(walk.at)? == b'$').then_some(walk.at + 1));
            }
            b'$' if braces == 0 => return Ok((!last.is_ascii_whitespace()).then_some(walk.at)),
            _ => {}
        }
        if braces < 0 {
            return Ok(None);
        }
        last = byte;
    }
}

/// Returns the length of `\(…\)` or `\[…\]`; `None` for an escaped bracket, whose partner has no backslash.
pub fn latex(ahead: Lookahead<'_>, blocks: &Blocks, cells: bool) -> ParseResult<usize> {
    let open = ahead.byte(1)?;
    let close = if open == b'(' { b')' } else { b']' };
    let mut walk = Walk::new(ahead, blocks, cells, 2);
    let mut depth = 0_usize;
    loop {
        let Next::Byte(_, byte) = walk.step()? else { return Ok(None) };
        match byte {
            b'\\' => {
                let escaped = ahead.byte(walk.at)?;
                walk.escaped()?;
                if escaped == close {
                    return Ok(Some(walk.at));
                }
            }
            _ if byte == open => depth += 1,
            _ if byte == close && depth == 0 => return Ok(None),
            _ if byte == close => depth -= 1,
            _ => {}
        }
    }
}

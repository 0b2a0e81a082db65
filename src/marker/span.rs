//! Code spans and math.

use super::{
    block::Blocks,
    look::{Ahead, Stop, Verdict},
    walk::{Step, Walk},
};

/// A code span, from its backticks on: its length, or nothing if no such run of backticks ends it.
pub fn code(ahead: Ahead<'_>, blocks: &Blocks, cells: bool) -> Verdict<usize> {
    let length = ahead.run(0, |b| b == b'`')?;
    let mut walk = Walk::new(ahead, blocks, cells, length);
    loop {
        match walk.step()? {
            Step::End => return Ok(None),
            Step::Byte(at, b'`') => {
                let run = match ahead.run(at, |b| b == b'`') {
                    Err(Stop::End) => ahead.bytes().len() - at,
                    other => other?,
                };
                walk.at = at + run;
                if run == length {
                    return Ok(Some(walk.at));
                }
            }
            Step::Byte(..) => {}
        }
    }
}

/// `$…$` or `$$…$$`: its length. The next dollar sign decides: money is not math, for a sign with a blank before
/// it ends nothing.
pub fn dollars(ahead: Ahead<'_>, blocks: &Blocks, cells: bool) -> Verdict<usize> {
    let next = ahead.byte(1)?;
    if next.is_ascii_whitespace() {
        return Ok(None);
    }
    let display = next == b'$';
    let mut walk = Walk::new(ahead, blocks, cells, 1 + usize::from(display));
    let (mut braces, mut last) = (0_i32, b'$');
    loop {
        let Step::Byte(_, byte) = walk.step()? else { return Ok(None) };
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

/// `\(…\)` or `\[…\]`: its length. A bracket that is only escaped has a partner without a backslash.
pub fn latex(ahead: Ahead<'_>, blocks: &Blocks, cells: bool) -> Verdict<usize> {
    let open = ahead.byte(1)?;
    let close = if open == b'(' { b')' } else { b']' };
    let mut walk = Walk::new(ahead, blocks, cells, 2);
    let mut depth = 0_usize;
    loop {
        let Step::Byte(_, byte) = walk.step()? else { return Ok(None) };
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

//! Iterates over the bytes of the paragraph ahead, across its line ends. Used by the parsers of inline constructs.

use super::{
    block::Blocks,
    lookahead::{Lookahead, Stop},
};

/// An iterator over the bytes of a paragraph, or of a table cell.
pub struct Walk<'a> {
    ahead: Lookahead<'a>,
    blocks: &'a Blocks,
    /// The text is a table row: `|` ends a cell.
    cells: bool,
    /// Byte offset of the next byte; line prefixes count too.
    pub at: usize,
}

/// What [`Walk::step`] found.
pub enum Next {
    /// A byte and its offset.
    Byte(usize, u8),
    /// The end of the paragraph or of the cell.
    End,
}

impl<'a> Walk<'a> {
    pub fn new(ahead: Lookahead<'a>, blocks: &'a Blocks, cells: bool, at: usize) -> Self {
        Self { ahead, blocks, cells, at }
    }

    /// Returns the next byte; a line end is one if the paragraph continues after it.
    pub fn step(&mut self) -> Result<Next, Stop> {
        let at = self.at;
        match self.ahead.byte(at) {
            Err(Stop::End) => Ok(Next::End),
            Err(stop) => Err(stop),
            Ok(b'|') if self.cells => Ok(Next::End),
            // In a table row, `\|` is a plain `|` everywhere, in code too.
            Ok(b'\\') if self.cells && self.ahead.byte(at + 1) == Ok(b'|') => {
                self.at += 2;
                Ok(Next::Byte(at, b'|'))
            }
            Ok(b'\n') => {
                let line = self.blocks.parse_line(self.ahead.from(at + 1))?;
                if !line.continues {
                    return Ok(Next::End);
                }
                self.at += 1 + line.prefix;
                Ok(Next::Byte(at, b'\n'))
            }
            Ok(byte) => {
                self.at += 1;
                Ok(Next::Byte(at, byte))
            }
        }
    }

    /// Skips the byte after a backslash if it is punctuation, which the backslash escapes.
    pub fn escaped(&mut self) -> Result<(), Stop> {
        match self.ahead.byte(self.at) {
            Ok(byte) if byte.is_ascii_punctuation() => self.at += 1,
            Ok(_) | Err(Stop::End) => {}
            Err(stop) => return Err(stop),
        }
        Ok(())
    }
}

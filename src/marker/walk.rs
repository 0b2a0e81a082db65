//! Walks the text of a paragraph ahead, over its line ends.

use super::{
    block::Blocks,
    look::{Ahead, Stop},
};

pub struct Walk<'a> {
    ahead: Ahead<'a>,
    blocks: &'a Blocks,
    cells: bool,
    /// Bytes walked, with the beginnings of lines.
    pub at: usize,
}

pub enum Step {
    /// A byte, and where it stands.
    Byte(usize, u8),
    /// The paragraph, or the cell, ends.
    End,
}

impl<'a> Walk<'a> {
    pub fn new(ahead: Ahead<'a>, blocks: &'a Blocks, cells: bool, at: usize) -> Self {
        Self { ahead, blocks, cells, at }
    }

    /// The next byte; a line end is one, if the paragraph goes on after it.
    pub fn step(&mut self) -> Result<Step, Stop> {
        let at = self.at;
        match self.ahead.byte(at) {
            Err(Stop::End) => Ok(Step::End),
            Err(stop) => Err(stop),
            Ok(b'|') if self.cells => Ok(Step::End),
            // In a row, `\|` is a plain `|` wherever it stands, in code too.
            Ok(b'\\') if self.cells && self.ahead.byte(at + 1) == Ok(b'|') => {
                self.at += 2;
                Ok(Step::Byte(at, b'|'))
            }
            Ok(b'\n') => {
                let line = self.blocks.line(self.ahead.from(at + 1))?;
                if !line.goes_on {
                    return Ok(Step::End);
                }
                self.at += 1 + line.prefix;
                Ok(Step::Byte(at, b'\n'))
            }
            Ok(byte) => {
                self.at += 1;
                Ok(Step::Byte(at, byte))
            }
        }
    }

    /// A byte after a backslash that loses its meaning.
    pub fn escaped(&mut self) -> Result<(), Stop> {
        match self.ahead.byte(self.at) {
            Ok(byte) if byte.is_ascii_punctuation() => self.at += 1,
            Ok(_) | Err(Stop::End) => {}
            Err(stop) => return Err(stop),
        }
        Ok(())
    }
}

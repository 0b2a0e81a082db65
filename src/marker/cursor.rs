//! Reads the beginning of a line.

use super::look::{Ahead, Stop};

/// A place in a line, in bytes and in columns: a tab reaches to the next multiple of four.
#[derive(Clone, Copy)]
pub struct Cursor<'a> {
    ahead: Ahead<'a>,
    pub at: usize,
    column: usize,
    /// Columns of the last tab that are not taken yet.
    spare: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(ahead: Ahead<'a>) -> Self {
        Self { ahead, at: 0, column: 0, spare: 0 }
    }

    /// The next byte; none at the end of the text.
    pub fn peek(&self) -> Result<Option<u8>, Stop> {
        if self.spare > 0 {
            return Ok(Some(b' '));
        }
        match self.ahead.byte(self.at) {
            Ok(byte) => Ok(Some(byte)),
            Err(Stop::End) => Ok(None),
            Err(stop) => Err(stop),
        }
    }

    pub fn bump(&mut self) {
        if self.spare > 0 {
            self.spare -= 1;
        } else {
            self.at += 1;
        }
        self.column += 1;
    }

    /// Takes at most `limit` columns of blanks.
    pub fn spaces(&mut self, limit: usize) -> Result<usize, Stop> {
        let mut taken = 0;
        while taken < limit {
            match self.peek()? {
                Some(b' ') => self.bump(),
                Some(b'\t') => {
                    self.at += 1;
                    self.spare = 3 - self.column % 4;
                    self.column += 1;
                }
                _ => break,
            }
            taken += 1;
        }
        Ok(taken)
    }

    /// Takes `>` and a blank after it.
    pub fn quote(&mut self) -> Result<bool, Stop> {
        if self.peek()? != Some(b'>') {
            return Ok(false);
        }
        self.bump();
        self.spaces(1)?;
        Ok(true)
    }

    pub fn run(&mut self, of: u8) -> Result<usize, Stop> {
        let start = self.at;
        while self.peek()? == Some(of) {
            self.bump();
        }
        Ok(self.at - start)
    }

    /// Is there nothing more on the line?
    pub fn blank(&self) -> Result<bool, Stop> {
        let mut rest = *self;
        rest.spaces(usize::MAX)?;
        Ok(matches!(rest.peek()?, None | Some(b'\n' | b'\r')))
    }

    /// Is the rest of the line a run of `mark`?
    pub fn only(&self, mark: u8) -> Result<bool, Stop> {
        let mut rest = *self;
        rest.run(mark)?;
        rest.blank()
    }

    pub fn line_has(&self, wanted: u8) -> Result<bool, Stop> {
        let mut rest = *self;
        loop {
            match rest.peek()? {
                None | Some(b'\n') => return Ok(false),
                Some(byte) if byte == wanted => return Ok(true),
                Some(_) => rest.bump(),
            }
        }
    }

    pub fn rest(&self) -> Ahead<'a> {
        self.ahead.from(self.at)
    }
}

//! A cursor over the beginning of a line, for the block parser.

use super::lookahead::{Lookahead, Stop};

/// A position in a line, in bytes and in columns: a tab advances to the next multiple of four columns.
#[derive(Clone, Copy)]
pub struct Cursor<'a> {
    ahead: Lookahead<'a>,
    pub at: usize,
    column: usize,
    /// Columns of the last tab that are not taken yet.
    tab_rest: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(ahead: Lookahead<'a>) -> Self {
        Self { ahead, at: 0, column: 0, tab_rest: 0 }
    }

    /// The next byte, `None` at the end of the text. A tab that is partly taken counts as spaces.
    pub fn peek(&self) -> Result<Option<u8>, Stop> {
        if self.tab_rest > 0 {
            return Ok(Some(b' '));
        }
        match self.ahead.byte(self.at) {
            Ok(byte) => Ok(Some(byte)),
            Err(Stop::End) => Ok(None),
            Err(stop) => Err(stop),
        }
    }

    pub fn bump(&mut self) {
        if self.tab_rest > 0 {
            self.tab_rest -= 1;
        } else {
            self.at += 1;
        }
        self.column += 1;
    }

    /// Takes at most `limit` columns of blanks and returns how many.
    pub fn take_blanks(&mut self, limit: usize) -> Result<usize, Stop> {
        let mut taken = 0;
        while taken < limit {
            match self.peek()? {
                Some(b' ') => self.bump(),
                Some(b'\t') => {
                    self.at += 1;
                    self.tab_rest = 3 - self.column % 4;
                    self.column += 1;
                }
                _ => break,
            }
            taken += 1;
        }
        Ok(taken)
    }

    /// Takes `>` and one blank after it; false if there is no `>`.
    pub fn take_quote(&mut self) -> Result<bool, Stop> {
        if self.peek()? != Some(b'>') {
            return Ok(false);
        }
        self.bump();
        self.take_blanks(1)?;
        Ok(true)
    }

    /// Takes all `byte`s that follow and returns how many.
    pub fn take_run(&mut self, byte: u8) -> Result<usize, Stop> {
        let start = self.at;
        while self.peek()? == Some(byte) {
            self.bump();
        }
        Ok(self.at - start)
    }

    /// True if only blanks are left on the line.
    pub fn is_blank(&self) -> Result<bool, Stop> {
        let mut rest = *self;
        rest.take_blanks(usize::MAX)?;
        Ok(matches!(rest.peek()?, None | Some(b'\n' | b'\r')))
    }

    /// True if the rest of the line is a run of `mark` and blanks.
    pub fn rest_is_run(&self, mark: u8) -> Result<bool, Stop> {
        let mut rest = *self;
        rest.take_run(mark)?;
        rest.is_blank()
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

    pub fn rest(&self) -> Lookahead<'a> {
        self.ahead.from(self.at)
    }
}

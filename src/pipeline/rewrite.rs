//! Markers rewritten inside the upstream's own frames: only the string that holds the text changes.
//!
//! A frame whose text ends in what may become a marker waits for the next one, and whatever follows it waits
//! behind it, so that the order stays. A marker goes where it began. A frame in which nothing was rewritten,
//! or that cannot be edited, goes out as it came.

use std::{collections::VecDeque, ops::Range};

use bytes::Bytes;

use super::{Output, frame_signals::FrameSignal};
use crate::{
    marker::{self, Mark, Rewriter, Sources, Style, Swap},
    profile::Positions,
    provider::{json_path::Step, splice},
    sse::Event,
};

/// Bytes that wait for an open marker; beyond, the first of them goes out as it came.
pub const MAX_WAITING: usize = 64 * 1024;

pub struct Rewrite {
    style: Style,
    rewriter: Rewriter,
    /// Bytes of answer text so far.
    fed: u64,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    pub positions: Positions,
    pub rewritten: u64,
}

struct Waiting {
    out: Output,
    /// The answer's text in it.
    pieces: Vec<Piece>,
    /// What replaces strings that stand on their own.
    wholes: Vec<(Vec<Step>, String)>,
}

/// A piece of the answer's text.
struct Piece {
    at: Vec<Step>,
    text: String,
    /// Where it stands in the answer.
    range: Range<u64>,
    /// In order, and apart: what becomes of parts of it.
    swaps: Vec<(Range<usize>, String)>,
}

impl Rewrite {
    pub fn new(style: Style) -> Self {
        Self {
            style,
            rewriter: Rewriter::in_place(style),
            fed: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            positions: Positions::of_style(style),
            rewritten: 0,
        }
    }

    /// Something without answer text: it keeps its place.
    pub fn pass(&mut self, out: Output) {
        self.wait(Waiting { out, pieces: Vec::new(), wholes: Vec::new() });
    }

    /// A frame, and what it said.
    pub fn frame(&mut self, frame: Bytes, heard: Vec<FrameSignal>, sources: &dyn Sources) {
        let mut waiting = Waiting { out: Output::Bytes(frame), pieces: Vec::new(), wholes: Vec::new() };
        let mut marks = Vec::new();
        let mut text_out = String::new();
        for heard in heard {
            match heard {
                FrameSignal::Text { text, at } => {
                    let range = self.fed..self.fed + text.len() as u64;
                    self.fed = range.end;
                    self.rewriter.push(&text, sources, &mut text_out, &mut marks);
                    waiting.pieces.push(Piece { at, text, range, swaps: Vec::new() });
                }
                FrameSignal::FullText { text, at } => {
                    // All of it is here, and with it what a style owes at the end.
                    let whole = marker::rewritten(&text, self.style, sources);
                    if whole != text {
                        waiting.wholes.push((at, whole));
                    }
                }
                _ => {}
            }
        }
        self.wait(waiting);
        self.mark(&marks);
    }

    /// No more text comes: nothing need wait.
    pub fn finish(&mut self, sources: &dyn Sources) {
        let mut marks = Vec::new();
        self.rewriter.finish(sources, &mut String::new(), &mut marks);
        self.mark(&marks);
        self.fed = u64::MAX;
    }

    /// The next thing that waits for nothing.
    pub fn take(&mut self) -> Option<Output> {
        let decided = if self.fed == u64::MAX { self.fed } else { self.rewriter.decided() };
        let first = self.waiting.front()?;
        let over = self.waiting_bytes > MAX_WAITING;
        if !over && first.pieces.iter().any(|piece| piece.range.end > decided) {
            return None;
        }
        let first = self.waiting.pop_front()?;
        self.waiting_bytes -= first.out.len();
        Some(first.edited())
    }

    /// A document that is one JSON value, edited.
    pub fn document(&mut self, json: Bytes, heard: Vec<FrameSignal>, sources: &dyn Sources) -> Bytes {
        self.frame(Bytes::new(), heard, sources);
        self.finish(sources);
        let edited = self.waiting.pop_front().and_then(|waiting| {
            let json = std::str::from_utf8(&json).ok()?;
            splice::replace(json, waiting.edits()?.iter().map(|(at, text)| (&**at, &**text)))
        });
        edited.map_or(json, Bytes::from)
    }

    fn wait(&mut self, waiting: Waiting) {
        self.waiting_bytes += waiting.out.len();
        self.waiting.push_back(waiting);
    }

    fn mark(&mut self, marks: &[Mark]) {
        marks.iter().for_each(|mark| self.positions.note(mark));
        for swap in self.rewriter.swaps() {
            if self.swap(&swap) {
                self.rewritten += u64::from(!swap.numbers.is_empty());
            }
        }
    }

    /// Puts a marker where it began, and takes its rest out of what follows. Where its beginning has gone out
    /// already, it stays as it is.
    fn swap(&mut self, mark: &Swap) -> bool {
        let mut pieces = self.waiting.iter_mut().flat_map(|waiting| &mut waiting.pieces).peekable();
        let touches = |piece: &Piece| piece.range.start < mark.input.end && piece.range.end > mark.input.start;
        while pieces.next_if(|piece| !touches(piece)).is_some() {}
        if pieces.peek().is_none_or(|piece| piece.range.start > mark.input.start) {
            return false;
        }
        let mut text = mark.text.clone();
        for piece in pieces.take_while(|piece| touches(piece)) {
            let from = mark.input.start.max(piece.range.start) - piece.range.start;
            let to = mark.input.end.min(piece.range.end) - piece.range.start;
            let (Ok(from), Ok(to)) = (usize::try_from(from), usize::try_from(to)) else { return false };
            // A space is decided after the marker that follows it.
            let place = piece.swaps.partition_point(|(range, _)| range.start < from);
            piece.swaps.insert(place, (from..to, std::mem::take(&mut text)));
        }
        true
    }
}

impl Waiting {
    /// The strings that change, `None` when there are none.
    fn edits(&self) -> Option<Vec<(Vec<Step>, String)>> {
        let pieces = self.pieces.iter().filter(|piece| !piece.swaps.is_empty());
        let mut edits: Vec<_> = pieces.map(|piece| (piece.at.clone(), piece.swapped())).collect();
        edits.extend(self.wholes.iter().cloned());
        (!edits.is_empty()).then_some(edits)
    }

    fn edited(self) -> Output {
        let Output::Bytes(frame) = &self.out else { return self.out };
        match self.edits().and_then(|edits| edit(frame, &edits)) {
            Some(frame) => Output::Bytes(frame),
            None => self.out,
        }
    }
}

impl Piece {
    fn swapped(&self) -> String {
        let mut out = String::with_capacity(self.text.len());
        let mut from = 0;
        for (range, text) in &self.swaps {
            out.push_str(self.text.get(from..range.start).unwrap_or_default());
            out.push_str(text);
            from = range.end;
        }
        out.push_str(self.text.get(from..).unwrap_or_default());
        out
    }
}

/// The frame with other strings in its one data line.
fn edit(frame: &Bytes, edits: &[(Vec<Step>, String)]) -> Option<Bytes> {
    let event = Event::read(frame);
    // Several data lines, or bytes that are no UTF-8, were copied in reading: such a frame stays as it is.
    let std::borrow::Cow::Borrowed(data) = event.data? else { return None };
    let start = (data.as_ptr() as usize).checked_sub(frame.as_ptr() as usize)?;
    let json = splice::replace(data, edits.iter().map(|(at, text)| (&**at, &**text)))?;
    let (head, tail) = (frame.get(..start)?, frame.get(start + data.len()..)?);
    Some(Bytes::from([head, json.as_bytes(), tail].concat()))
}

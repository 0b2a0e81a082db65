//! Rewrites markers inside the upstream's frames: only the JSON string that holds the text changes.
//!
//! A frame whose text ends in a possible marker waits for the next frame, and later output waits behind it to keep the
//! order. A marker is written where it began. A frame without rewritten markers, or one that cannot be edited, is emitted
//! unchanged.

use std::{collections::VecDeque, ops::Range};

use bytes::Bytes;

use super::{Output, frame_signals::FrameSignal};
use crate::{
    marker::{self, Mark, Rewriter, Sources, Style, Swap},
    profile::Positions,
    provider::{json_path::Step, splice},
    sse::Event,
};

/// Bytes that may wait for an open marker. Beyond it the first frame is emitted as it is.
const MAX_WAITING: usize = 64 * 1024;

/// Rewrites the markers of one answer and holds frames whose markers are undecided.
pub struct FrameRewriter {
    style: Style,
    rewriter: Rewriter,
    /// Bytes of answer text so far, `u64::MAX` once no more text follows.
    text_len: u64,
    waiting: VecDeque<WaitingOutput>,
    waiting_bytes: usize,
    pub positions: Positions,
    /// Rewritten markers.
    pub rewritten: u64,
}

/// A frame or an event in the queue.
struct WaitingOutput {
    output: Output,
    /// Pieces of streamed answer text in the frame.
    pieces: Vec<TextPiece>,
    /// New values of strings that hold a whole answer.
    replacements: Vec<(Vec<Step>, String)>,
}

/// One string of the answer's text.
struct TextPiece {
    path: Vec<Step>,
    text: String,
    /// Byte range of the string in the answer.
    range: Range<u64>,
    /// Replacements within the string, ordered and disjoint.
    edits: Vec<(Range<usize>, String)>,
}

impl FrameRewriter {
    pub fn new(style: Style) -> Self {
        Self {
            style,
            rewriter: Rewriter::in_place(style),
            text_len: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            positions: Positions::of_style(style),
            rewritten: 0,
        }
    }

    /// Queues output without answer text.
    pub fn pass(&mut self, output: Output) {
        self.enqueue(WaitingOutput { output, pieces: Vec::new(), replacements: Vec::new() });
    }

    /// Queues a frame and rewrites the markers in its text.
    pub fn frame(&mut self, frame: Bytes, signals: Vec<FrameSignal>, sources: &dyn Sources) {
        let mut waiting = WaitingOutput { output: Output::Bytes(frame), pieces: Vec::new(), replacements: Vec::new() };
        let mut marks = Vec::new();
        let mut text_out = String::new();
        for signal in signals {
            match signal {
                FrameSignal::Text { text, path } => {
                    let range = self.text_len..self.text_len + text.len() as u64;
                    self.text_len = range.end;
                    self.rewriter.push(&text, sources, &mut text_out, &mut marks);
                    waiting.pieces.push(TextPiece { path, text, range, edits: Vec::new() });
                }
                FrameSignal::FullText { text, path } => {
                    // A whole answer also gets what the style appends at the end.
                    let rewritten = marker::rewritten(&text, self.style, sources);
                    if rewritten != text {
                        waiting.replacements.push((path, rewritten));
                    }
                }
                _ => {}
            }
        }
        self.enqueue(waiting);
        self.apply(&marks);
    }

    /// Decides the open marker, if any. No more text follows.
    pub fn finish(&mut self, sources: &dyn Sources) {
        let mut marks = Vec::new();
        self.rewriter.finish(sources, &mut String::new(), &mut marks);
        self.apply(&marks);
        self.text_len = u64::MAX;
    }

    /// Takes the next output that no open marker affects.
    pub fn take(&mut self) -> Option<Output> {
        let decided = if self.text_len == u64::MAX { u64::MAX } else { self.rewriter.decided() };
        let over = self.waiting_bytes > MAX_WAITING;
        let first =
            self.waiting.pop_front_if(|first| over || first.pieces.iter().all(|piece| piece.range.end <= decided))?;
        self.waiting_bytes -= first.output.len();
        Some(first.edited())
    }

    /// Returns a JSON document with its markers rewritten.
    pub fn document(&mut self, json: Bytes, signals: Vec<FrameSignal>, sources: &dyn Sources) -> Bytes {
        self.frame(Bytes::new(), signals, sources);
        self.finish(sources);
        let edited = self.waiting.pop_front().and_then(|waiting| {
            let json = std::str::from_utf8(&json).ok()?;
            splice::replace(json, waiting.edits()?.iter().map(|(path, text)| (&**path, &**text)))
        });
        edited.map_or(json, Bytes::from)
    }

    fn enqueue(&mut self, waiting: WaitingOutput) {
        self.waiting_bytes += waiting.output.len();
        self.waiting.push_back(waiting);
    }

    fn apply(&mut self, marks: &[Mark]) {
        marks.iter().for_each(|mark| self.positions.note(mark));
        for swap in self.rewriter.swaps() {
            if self.write(&swap) {
                self.rewritten += u64::from(!swap.numbers.is_empty());
            }
        }
    }

    /// Writes a marker where it began and removes the rest of it from later strings. Returns false and leaves the marker as
    /// it is if its beginning was already emitted.
    fn write(&mut self, swap: &Swap) -> bool {
        let mut pieces = self.waiting.iter_mut().flat_map(|waiting| &mut waiting.pieces).peekable();
        let overlaps = |piece: &TextPiece| piece.range.start < swap.input.end && piece.range.end > swap.input.start;
        while pieces.next_if(|piece| !overlaps(piece)).is_some() {}
        if pieces.peek().is_none_or(|piece| piece.range.start > swap.input.start) {
            return false;
        }
        let mut text = swap.text.clone();
        for piece in pieces.take_while(|piece| overlaps(piece)) {
            let from = swap.input.start.max(piece.range.start) - piece.range.start;
            let to = swap.input.end.min(piece.range.end) - piece.range.start;
            let (Ok(from), Ok(to)) = (usize::try_from(from), usize::try_from(to)) else { return false };
            // Edits are not made in order: a space is decided after the marker that follows it.
            let index = piece.edits.partition_point(|(range, _)| range.start < from);
            piece.edits.insert(index, (from..to, std::mem::take(&mut text)));
        }
        true
    }
}

impl WaitingOutput {
    /// The strings that change; `None` if there are none.
    fn edits(&self) -> Option<Vec<(Vec<Step>, String)>> {
        let pieces = self.pieces.iter().filter(|piece| !piece.edits.is_empty());
        let mut edits: Vec<_> = pieces.map(|piece| (piece.path.clone(), piece.edited())).collect();
        edits.extend(self.replacements.iter().cloned());
        (!edits.is_empty()).then_some(edits)
    }

    fn edited(self) -> Output {
        let Output::Bytes(frame) = &self.output else { return self.output };
        self.edits().and_then(|edits| edit(frame, &edits)).map_or(self.output, Output::Bytes)
    }
}

impl TextPiece {
    fn edited(&self) -> String {
        let mut out = String::with_capacity(self.text.len());
        let mut from = 0;
        for (range, text) in &self.edits {
            out.push_str(self.text.get(from..range.start).unwrap_or_default());
            out.push_str(text);
            from = range.end;
        }
        out.push_str(self.text.get(from..).unwrap_or_default());
        out
    }
}

/// Replaces strings in the frame's data line. `None` if the frame cannot be edited.
fn edit(frame: &Bytes, edits: &[(Vec<Step>, String)]) -> Option<Bytes> {
    let event = Event::read(frame);
    // Owned data comes from several data lines or invalid UTF-8, so it is no slice of the frame.
    let std::borrow::Cow::Borrowed(data) = event.data? else { return None };
    let start = (data.as_ptr() as usize).checked_sub(frame.as_ptr() as usize)?;
    let json = splice::replace(data, edits.iter().map(|(path, text)| (&**path, &**text)))?;
    let (head, tail) = (frame.get(..start)?, frame.get(start + data.len()..)?);
    Some(Bytes::from([head, json.as_bytes(), tail].concat()))
}

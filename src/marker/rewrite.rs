//! Rewrites the markers of a text while it streams. All other text stays as it is, byte for byte, except the space before a
//! stripped marker.

use std::{collections::BTreeSet, ops::Range};

use super::{
    Mark, Source, Sources, Style,
    grammar::{Form, Marker},
    lookahead::slice,
    reader::{Reader, Segment},
    write,
};

/// Rewrites the markers of one text in a [`Style`].
#[derive(Debug, Clone, Default)]
pub struct Rewriter {
    reader: Reader,
    output: Output,
}

/// A replacement of a part of the text, for callers that edit the text in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swap {
    /// Byte range in the whole text.
    pub input: Range<u64>,
    /// The replacement.
    pub text: String,
    /// The marker's numbers, with and without a source; empty for a space removed with a marker.
    pub numbers: Vec<u32>,
}

/// State of the output.
#[derive(Debug, Clone, Default)]
struct Output {
    style: Style,
    /// Code points of the output.
    length: u64,
    /// Bytes of the input that are decided.
    decided: u64,
    /// Changes since [`Rewriter::swaps`] was last called; `None` if not recorded.
    swaps: Option<Vec<Swap>>,
    /// Numbers with a source, and without. At most 999, because numbers have three digits.
    used: BTreeSet<u32>,
    unresolved: BTreeSet<u32>,
    space: Space,
    /// Byte offset of that space in the input.
    space_at: u64,
    /// The last character of the output is not whitespace.
    ends_with_word: bool,
}

/// The space that may precede a stripped marker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Space {
    #[default]
    None,
    /// Held back: a marker may follow.
    Held,
    /// A marker after it was stripped. The next character decides whether the space still separates two words.
    Dangling,
}

impl Rewriter {
    pub fn new(style: Style) -> Self {
        Self { reader: Reader::default(), output: Output { style, ..Output::default() } }
    }

    /// Takes the next piece of the text and appends the decided output to `out`. In [`Style::Keep`] that is the piece
    /// itself, and only its marks may follow later.
    pub fn push(&mut self, piece: &str, sources: &dyn Sources, out: &mut String, marks: &mut Vec<Mark>) {
        let output = &mut self.output;
        if output.style == Style::Keep {
            out.push_str(piece);
        }
        self.reader.push(piece, &mut |segment| output.segment(segment, sources, out, marks));
    }

    /// Decides and appends what was held back. No more text follows.
    pub fn finish(&mut self, sources: &dyn Sources, out: &mut String, marks: &mut Vec<Mark>) {
        let output = &mut self.output;
        self.reader.finish(&mut |segment| output.segment(segment, sources, out, marks));
        output.release_space(None, out);
    }

    /// A rewriter that records [`Self::swaps`], for callers that edit the text in place.
    pub fn in_place(style: Style) -> Self {
        let mut rewriter = Self::new(style);
        rewriter.output.swaps = Some(Vec::new());
        rewriter
    }

    /// A rewriter that records [`Self::swaps`] and [`Self::split_points`].
    pub fn with_split_points(style: Style) -> Self {
        Self { reader: Reader::with_split_points(), ..Self::in_place(style) }
    }

    /// Byte offsets in the whole text at which it can be split, ascending: all markers before are decided, and markers
    /// after do not depend on the text before.
    pub fn split_points(&self) -> Vec<u64> {
        self.reader.split_points()
    }

    /// Takes the changes since the last call, in the order of the decisions. Always empty in [`Style::Keep`].
    pub fn swaps(&mut self) -> Vec<Swap> {
        self.output.swaps.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The byte of the whole text from which on nothing is decided.
    pub fn decided(&self) -> u64 {
        if self.output.space == Space::None { self.output.decided } else { self.output.space_at }
    }

    /// Length of the output in code points.
    pub fn length(&self) -> u64 {
        self.output.length
    }

    /// True if text is held back.
    pub fn holds(&self) -> bool {
        self.output.style != Style::Keep && (self.reader.holds() || self.output.space != Space::None)
    }

    /// The numbers of markers with a source, ascending.
    pub fn used(&self) -> impl Iterator<Item = u32> {
        self.output.used.iter().copied()
    }

    /// The numbers of markers that had no source when they were decided, ascending.
    pub fn unresolved(&self) -> impl Iterator<Item = u32> {
        self.output.unresolved.iter().copied()
    }

    /// The footnote definitions to append at the end of the answer in [`Style::Footnote`], without those that the text
    /// already has. Empty in every other style.
    pub fn definitions(&self, sources: &dyn Sources) -> String {
        let mut out = String::new();
        if self.output.style != Style::Footnote {
            return out;
        }
        for number in self.used().filter(|number| !self.reader.defines_footnote(*number)) {
            if let Some(source) = sources.find(number) {
                if out.is_empty() {
                    out.push_str("\n\n");
                }
                write::definition(&mut out, number, &source);
            }
        }
        out
    }
}

/// Rewrites a whole text.
pub fn rewrite(text: &str, style: Style, sources: &dyn Sources) -> (String, Vec<Mark>) {
    let mut rewriter = Rewriter::new(style);
    let (mut out, mut marks) = (String::with_capacity(text.len()), Vec::new());
    rewriter.push(text, sources, &mut out, &mut marks);
    rewriter.finish(sources, &mut out, &mut marks);
    (out, marks)
}

/// Rewrites a whole text and appends the definitions that its style needs.
pub fn rewritten(text: &str, style: Style, sources: &dyn Sources) -> String {
    let mut rewriter = Rewriter::new(style);
    let (mut out, mut marks) = (String::with_capacity(text.len()), Vec::new());
    rewriter.push(text, sources, &mut out, &mut marks);
    rewriter.finish(sources, &mut out, &mut marks);
    out + &rewriter.definitions(sources)
}

/// Returns the changes that rewriting makes to a whole text.
pub fn swaps(text: &str, style: Style, sources: &dyn Sources) -> Vec<Swap> {
    let mut rewriter = Rewriter::in_place(style);
    rewriter.push(text, sources, &mut String::new(), &mut Vec::new());
    rewriter.finish(sources, &mut String::new(), &mut Vec::new());
    rewriter.swaps()
}

impl Output {
    fn segment(&mut self, segment: Segment<'_>, sources: &dyn Sources, out: &mut String, marks: &mut Vec<Mark>) {
        match segment {
            Segment::Text(text) => {
                self.text(text, out);
                self.decided += text.len() as u64;
            }
            Segment::Marker(marker, raw) => {
                self.marker(marker, raw, sources, out, marks);
                self.decided += raw.len() as u64;
            }
        }
    }

    fn text(&mut self, text: &str, out: &mut String) {
        match self.style {
            Style::Keep => self.length += count(text),
            Style::Strip => self.text_holding_space(text, out),
            _ => self.put(text, out),
        }
    }

    /// Appends to the output.
    fn put(&mut self, text: &str, out: &mut String) {
        out.push_str(text);
        self.length += count(text);
    }

    /// Writes the text, but holds back a single space at its end: it is removed with a stripped marker.
    fn text_holding_space(&mut self, text: &str, out: &mut String) {
        let Some(first) = text.chars().next() else { return };
        self.release_space(Some(first), out);
        let mut last = text.chars().rev();
        let is_held =
            last.next() == Some(' ') && last.next().map_or(self.ends_with_word, |before| !before.is_whitespace());
        let shown = if is_held { slice(text, 0, text.len() - 1) } else { text };
        self.put(shown, out);
        if let Some(last) = shown.chars().next_back() {
            self.ends_with_word = !last.is_whitespace();
        }
        if is_held {
            self.space = Space::Held;
            self.space_at = self.decided + text.len() as u64 - 1;
        }
    }

    /// Writes the held space, or drops it if a marker was stripped after it and `next` begins no word.
    fn release_space(&mut self, next: Option<char>, out: &mut String) {
        let is_kept = match std::mem::take(&mut self.space) {
            Space::None => return,
            Space::Held => true,
            Space::Dangling => {
                next.is_some_and(|next| next.is_alphanumeric() || matches!(next, '(' | '[' | '`' | '*' | '_'))
            }
        };
        if is_kept {
            self.put(" ", out);
            self.ends_with_word = false;
        } else {
            self.record_swap(self.space_at..self.space_at + 1, "", &[]);
        }
    }

    /// Records a change, if the caller edits in place.
    fn record_swap(&mut self, input: Range<u64>, text: &str, numbers: &[u32]) {
        if let Some(swaps) = &mut self.swaps {
            swaps.push(Swap { input, text: text.to_owned(), numbers: numbers.to_vec() });
        }
    }

    fn marker(&mut self, marker: &Marker, raw: &str, sources: &dyn Sources, out: &mut String, marks: &mut Vec<Mark>) {
        let numbers = marker.numbers();
        let mut has_source = false;
        for number in numbers {
            let is_known = sources.find(*number).is_some();
            has_source |= is_known;
            let list = if is_known { &mut self.used } else { &mut self.unresolved };
            list.insert(*number);
        }
        if self.style == Style::Keep {
            let start = self.length;
            self.length += count(raw);
            let found = numbers.iter().filter(|number| sources.find(**number).is_some());
            marks.extend(found.map(|number| Mark { number: *number, start, end: self.length }));
            return;
        }
        // Only the service that wrote a cite token can resolve it, so strip it without a source.
        let is_stripped_token = self.style == Style::Strip && marker.form == Form::CiteToken;
        if !has_source && !is_stripped_token {
            return self.text(raw, out);
        }
        if self.space != Space::None {
            self.space = Space::Dangling;
        }
        let url = match marker.form {
            Form::Linked { from, to } => Some(slice(raw, from, to)).filter(|url| write::is_http(url)),
            _ => None,
        };
        let (mut text, mut replacement) = (String::new(), String::new());
        for number in numbers {
            let source = sources.find(*number);
            text.clear();
            match &source {
                Some(source) => self.style.write(&mut text, *number, source, url),
                None => write::link(&mut text, *number, None),
            }
            if !text.is_empty() {
                self.release_space(Some('['), out);
                self.ends_with_word = true;
            }
            let start = self.length;
            self.put(&text, out);
            replacement.push_str(&text);
            if source.is_some() {
                marks.push(Mark { number: *number, start, end: self.length });
            }
        }
        self.record_swap(self.decided..self.decided + raw.len() as u64, &replacement, numbers);
    }
}

impl Style {
    fn write(self, out: &mut String, number: u32, source: &Source<'_>, url: Option<&str>) {
        match self {
            Self::Keep | Self::Strip => {}
            Self::Link => write::link(out, number, url.or(source.url)),
            Self::Sup => write::sup(out, number, source, url),
            Self::Footnote => {
                out.push_str("[^");
                out.push_str(&number.to_string());
                out.push(']');
            }
        }
    }
}

fn count(text: &str) -> u64 {
    text.chars().count() as u64
}

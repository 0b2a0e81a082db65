//! Rewrites the markers of a text as it comes.

use std::{collections::BTreeSet, ops::Range};

use super::{
    Mark, Source, Sources, Style,
    grammar::{Form, Marker},
    look::slice,
    reader::{Read, Reader},
    write,
};

#[derive(Debug, Clone, Default)]
pub struct Rewriter {
    reader: Reader,
    written: Written,
}

/// What became of a part of the text: for those who edit the text where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swap {
    /// Bytes of the whole text so far.
    pub input: Range<u64>,
    /// What stands there now.
    pub text: String,
    /// The marker's numbers, with and without a source; none for a space that went with one.
    pub numbers: Vec<u32>,
}

/// What went out, and how.
#[derive(Debug, Clone, Default)]
struct Written {
    style: Style,
    /// Code points.
    length: u64,
    /// Bytes of the text that are decided.
    read: u64,
    /// What was changed since it was last asked for, where somebody asks.
    swaps: Option<Vec<Swap>>,
    /// Numbers that a source was found for, and those that none was; a marker's number is at most 999.
    used: BTreeSet<u32>,
    unresolved: BTreeSet<u32>,
    space: Space,
    /// Where that space stands in the text.
    space_at: u64,
    /// The last character is one that a single space may follow.
    word: bool,
}

/// The space before a marker that goes away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Space {
    #[default]
    None,
    /// Held back: a marker may follow.
    Held,
    /// A marker went away after it; what follows decides whether it still parts two words.
    Loose,
}

impl Rewriter {
    pub fn new(style: Style) -> Self {
        Self { reader: Reader::default(), written: Written { style, ..Written::default() } }
    }

    /// Takes the next piece of the text and appends to `out` what is decided. In [`Style::Keep`] that is the piece
    /// itself, and only its marks may come later.
    pub fn push(&mut self, piece: &str, sources: &dyn Sources, out: &mut String, marks: &mut Vec<Mark>) {
        let written = &mut self.written;
        if written.style == Style::Keep {
            out.push_str(piece);
        }
        self.reader.push(piece, &mut |read| written.take(read, sources, out, marks));
    }

    /// Nothing more comes: what was held back goes out, as text or as the marker that it is.
    pub fn finish(&mut self, sources: &dyn Sources, out: &mut String, marks: &mut Vec<Mark>) {
        let written = &mut self.written;
        self.reader.finish(&mut |read| written.take(read, sources, out, marks));
        written.settle(None, out);
    }

    /// As [`Self::new`], for somebody who edits the text where it stands and asks for [`Self::swaps`].
    pub fn in_place(style: Style) -> Self {
        let mut rewriter = Self::new(style);
        rewriter.written.swaps = Some(Vec::new());
        rewriter
    }

    /// As [`Self::in_place`], for somebody who asks for [`Self::seams`] as well.
    pub fn in_parts(style: Style) -> Self {
        Self { reader: Reader::with_seams(), ..Self::in_place(style) }
    }

    /// Up to which bytes of the whole text it could be taken away: all markers before are decided, and those that
    /// follow do not depend on it. Ascending.
    pub fn seams(&self) -> Vec<u64> {
        self.reader.seams()
    }

    /// What became of parts of the text since this was last asked, in the order of the decisions. Nothing changes
    /// in [`Style::Keep`].
    pub fn swaps(&mut self) -> Vec<Swap> {
        self.written.swaps.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// From which byte of the whole text on nothing is decided.
    pub fn decided(&self) -> u64 {
        if self.written.space == Space::None { self.written.read } else { self.written.space_at }
    }

    /// How much went out, in code points.
    pub fn length(&self) -> u64 {
        self.written.length
    }

    /// Is something held back?
    pub fn holds(&self) -> bool {
        self.written.style != Style::Keep && (self.reader.holds() || self.written.space != Space::None)
    }

    /// The numbers of the markers that went out with a source, ascending.
    pub fn used(&self) -> impl Iterator<Item = u32> {
        self.written.used.iter().copied()
    }

    /// The numbers of markers that no source was found for when they came, ascending.
    pub fn unresolved(&self) -> impl Iterator<Item = u32> {
        self.written.unresolved.iter().copied()
    }

    /// The definitions that [`Style::Footnote`] owes: to be appended at the end of the answer, as they are. What
    /// the text defines itself is not defined again; empty in every other style.
    pub fn definitions(&self, sources: &dyn Sources) -> String {
        let mut out = String::new();
        if self.written.style != Style::Footnote {
            return out;
        }
        for number in self.used().filter(|number| !self.reader.defines(*number)) {
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

/// A whole text at once.
pub fn rewrite(text: &str, style: Style, sources: &dyn Sources) -> (String, Vec<Mark>) {
    let mut rewriter = Rewriter::new(style);
    let (mut out, mut marks) = (String::with_capacity(text.len()), Vec::new());
    rewriter.push(text, sources, &mut out, &mut marks);
    rewriter.finish(sources, &mut out, &mut marks);
    (out, marks)
}

/// A whole text at once, with what its style owes at the end.
pub fn rewritten(text: &str, style: Style, sources: &dyn Sources) -> String {
    let mut rewriter = Rewriter::new(style);
    let (mut out, mut marks) = (String::with_capacity(text.len()), Vec::new());
    rewriter.push(text, sources, &mut out, &mut marks);
    rewriter.finish(sources, &mut out, &mut marks);
    out + &rewriter.definitions(sources)
}

/// What becomes of the parts of a whole text.
pub fn swaps(text: &str, style: Style, sources: &dyn Sources) -> Vec<Swap> {
    let mut rewriter = Rewriter::in_place(style);
    rewriter.push(text, sources, &mut String::new(), &mut Vec::new());
    rewriter.finish(sources, &mut String::new(), &mut Vec::new());
    rewriter.swaps()
}

impl Written {
    fn take(&mut self, read: Read<'_>, sources: &dyn Sources, out: &mut String, marks: &mut Vec<Mark>) {
        match read {
            Read::Text(text) => {
                self.text(text, out);
                self.read += text.len() as u64;
            }
            Read::Marker(marker, raw) => {
                self.marker(marker, raw, sources, out, marks);
                self.read += raw.len() as u64;
            }
        }
    }

    fn text(&mut self, text: &str, out: &mut String) {
        match self.style {
            Style::Keep => self.length += count(text),
            Style::Strip => self.text_before_a_gap(text, out),
            _ => self.put(text, out),
        }
    }

    fn put(&mut self, text: &str, out: &mut String) {
        out.push_str(text);
        self.length += count(text);
    }

    /// Holds back a single space at the end: it goes with a marker that goes.
    fn text_before_a_gap(&mut self, text: &str, out: &mut String) {
        let Some(first) = text.chars().next() else { return };
        self.settle(Some(first), out);
        let mut last = text.chars().rev();
        let held = last.next() == Some(' ') && last.next().map_or(self.word, |before| !before.is_whitespace());
        let shown = if held { slice(text, 0, text.len() - 1) } else { text };
        self.put(shown, out);
        if let Some(last) = shown.chars().next_back() {
            self.word = !last.is_whitespace();
        }
        if held {
            self.space = Space::Held;
            self.space_at = self.read + text.len() as u64 - 1;
        }
    }

    /// A space that was held back goes out, unless a marker went away after it and no word follows.
    fn settle(&mut self, next: Option<char>, out: &mut String) {
        let parts = match std::mem::take(&mut self.space) {
            Space::None => return,
            Space::Held => true,
            Space::Loose => {
                next.is_some_and(|next| next.is_alphanumeric() || matches!(next, '(' | '[' | '`' | '*' | '_'))
            }
        };
        if parts {
            self.put(" ", out);
            self.word = false;
        } else {
            self.swap(self.space_at..self.space_at + 1, "", &[]);
        }
    }

    fn swap(&mut self, input: Range<u64>, text: &str, numbers: &[u32]) {
        if let Some(swaps) = &mut self.swaps {
            swaps.push(Swap { input, text: text.to_owned(), numbers: numbers.to_vec() });
        }
    }

    fn marker(&mut self, marker: &Marker, raw: &str, sources: &dyn Sources, out: &mut String, marks: &mut Vec<Mark>) {
        let numbers = marker.numbers();
        let mut any = false;
        for number in numbers {
            let known = sources.find(*number).is_some();
            any |= known;
            let list = if known { &mut self.used } else { &mut self.unresolved };
            list.insert(*number);
        }
        if self.style == Style::Keep {
            let start = self.length;
            self.length += count(raw);
            let found = numbers.iter().filter(|number| sources.find(**number).is_some());
            marks.extend(found.map(|number| Mark { number: *number, start, end: self.length }));
            return;
        }
        // A cite token means nothing to anybody but the service that wrote it.
        let goes = self.style == Style::Strip && marker.form == Form::Token;
        if !any && !goes {
            return self.text(raw, out);
        }
        if self.space != Space::None {
            self.space = Space::Loose;
        }
        let url = match marker.form {
            Form::Linked { from, to } => Some(slice(raw, from, to)).filter(|url| write::is_http(url)),
            _ => None,
        };
        let (mut text, mut whole) = (String::new(), String::new());
        for number in numbers {
            let source = sources.find(*number);
            text.clear();
            match &source {
                Some(source) => self.style.write(&mut text, *number, source, url),
                None => write::link(&mut text, *number, None),
            }
            if !text.is_empty() {
                self.settle(Some('['), out);
                self.word = true;
            }
            let start = self.length;
            self.put(&text, out);
            whole.push_str(&text);
            if source.is_some() {
                marks.push(Mark { number: *number, start, end: self.length });
            }
        }
        self.swap(self.read..self.read + raw.len() as u64, &whole, numbers);
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

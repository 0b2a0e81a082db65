//! Target `marker`: inline markers are the same in every chunking and as found by a CommonMark parser, and rewriting them
//! changes nothing else.

use citetap::marker::{
    MAX_LINKED, MAX_LOOKAHEAD, Mark, Rewriter, Scanner, Source, Sources, Style, Swap, rewrite, swaps,
};

use crate::input::{choose, pieces, split};

/// Finds markers with a CommonMark parser and regular expressions, as the unit tests do.
#[path = "../../../src/marker/oracle.rs"]
mod oracle;

const STYLES: &[Style] = &[Style::Link, Style::Sup, Style::Footnote, Style::Strip, Style::Keep];

/// Knows every number.
struct All;

impl Sources for All {
    fn find(&self, number: u32) -> Option<Source<'_>> {
        Some(Source { number, url: Some("https://a.example/x"), title: Some("标题"), content: None })
    }
}

/// Knows odd numbers only.
struct Odd;

impl Sources for Odd {
    fn find(&self, number: u32) -> Option<Source<'_>> {
        All.find(number).filter(|_| number % 2 == 1)
    }
}

pub fn run(data: &[u8]) {
    let Some((head, body)) = split(data) else { return };
    let text = String::from_utf8_lossy(body);
    let style = choose(STYLES, head[0]);
    let sources: &dyn Sources = if head[1] % 2 == 0 { &All } else { &Odd };

    let whole = rewrite(&text, style, sources);
    assert_eq!(streamed(pieces(&text, head[3]), style, sources), whole, "another chunking");
    let characters: Vec<&str> = text.split_inclusive(|_: char| true).collect();
    assert_eq!(streamed(characters, style, sources), whole, "character by character");
    if style == Style::Keep {
        assert_eq!(whole.0, text);
    }
    check_edits(&text, style, sources, &whole.0);
    check_scanner(&text);
    check_against_commonmark(&text);
}

fn streamed<'a>(pieces: impl IntoIterator<Item = &'a str>, style: Style, sources: &dyn Sources) -> (String, Vec<Mark>) {
    let mut rewriter = Rewriter::new(style);
    let (mut out, mut marks, mut given) = (String::new(), Vec::new(), String::new());
    for piece in pieces {
        given.push_str(piece);
        let before = out.len();
        rewriter.push(piece, sources, &mut out, &mut marks);
        if style == Style::Keep {
            assert_eq!(&out[before..], piece, "text is never held if markers are kept");
            continue;
        }
        let decided = usize::try_from(rewriter.decided()).unwrap();
        let held = given[decided..].chars().count();
        // With `Strip` a space is held together with the removed markers after it.
        let most = if given[decided..].contains("](") { MAX_LINKED } else { MAX_LOOKAHEAD };
        assert!(held <= most || style == Style::Strip, "{held} held");
        assert_eq!(rewriter.holds(), held > 0);
    }
    rewriter.finish(sources, &mut out, &mut marks);
    (out, marks)
}

/// Edits change only markers, or the space before a removed one. They are disjoint and in the order of the text.
fn check_edits(text: &str, style: Style, sources: &dyn Sources, rewritten: &str) {
    let mut edits: Vec<Swap> = swaps(text, style, sources);
    edits.sort_by_key(|swap| swap.input.start);
    let (mut out, mut from) = (String::new(), 0);
    for swap in &edits {
        let (start, end) = (usize::try_from(swap.input.start).unwrap(), usize::try_from(swap.input.end).unwrap());
        assert!(from <= start && start < end);
        out.push_str(&text[from..start]);
        out.push_str(&swap.text);
        let raw = &text[start..end];
        if swap.numbers.is_empty() {
            assert!(style == Style::Strip && (raw == " " || raw.starts_with('\u{E200}')), "{raw:?} was removed");
        } else {
            assert!(swap.numbers.iter().all(|number| raw.contains(&number.to_string())), "{raw:?}");
            assert!(swap.numbers.iter().any(|number| sources.find(*number).is_some()));
        }
        from = end;
    }
    out.push_str(&text[from..]);
    assert_eq!(out, rewritten);
}

/// The scanner finds the same markers as the rewriter.
fn check_scanner(text: &str) {
    let mut scanner = Scanner::default();
    scanner.feed(text);
    let (_, marks) = rewrite(text, Style::Keep, &All);
    let (seen, length) = scanner.marks();
    assert_eq!(length, text.chars().count() as u64);
    for mark in seen {
        assert_eq!(marks.iter().find(|other| other.number == mark.number), Some(&mark));
    }
}

/// Markers are those of CommonMark, in texts whose paragraphs fit into the rewriter's lookahead.
fn check_against_commonmark(text: &str) {
    let short = text.split("\n\n").all(|paragraph| paragraph.chars().count() <= 44) && text.ends_with("\n\n");
    // For CommonMark a lone CR is a line end, and there are many kinds of blanks. For us both are text.
    let odd = |c: char| c != '\n' && c != ' ' && (c.is_control() || c.is_whitespace());
    // Lexiang's element is identified by its id alone. CommonMark checks the other attributes too.
    let spans = ["<span id=\"ai-qa-ref\">", "<span id='ai-qa-ref'>"];
    let plain = spans.iter().fold(text.replace("\r\n", "\n"), |text, span| text.replace(span, ""));
    if !short || plain.contains(odd) || plain.contains("<span") {
        return;
    }
    let Some(expected) = oracle::markers(text) else { return };
    let expected: Vec<_> = expected.into_iter().filter(|found| !found.numbers.is_empty()).collect();
    let ours: Vec<oracle::Found> = swaps(text, Style::Link, &All)
        .into_iter()
        .map(|swap| oracle::Found {
            start: usize::try_from(swap.input.start).unwrap(),
            end: usize::try_from(swap.input.end).unwrap(),
            numbers: swap.numbers,
        })
        .collect();
    assert_eq!(ours, expected, "{text:?}");
}

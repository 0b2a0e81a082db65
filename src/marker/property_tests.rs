//! Property tests: the reader and the rewriter against generated texts in every split, and against the oracle.

use proptest::{prelude::*, sample::select};

use super::{oracle, *};

/// Has every number.
struct All;

impl Sources for All {
    fn find(&self, number: u32) -> Option<Source<'_>> {
        Some(Source { number, url: Some("https://a.example/x"), title: Some("标题"), content: None })
    }
}

/// Has odd numbers only.
struct Odd;

impl Sources for Odd {
    fn find(&self, number: u32) -> Option<Source<'_>> {
        All.find(number).filter(|_| number % 2 == 1)
    }
}

struct NoSources;

impl Sources for NoSources {
    fn find(&self, _: u32) -> Option<Source<'_>> {
        None
    }
}

const STYLES: [Style; 5] = [Style::Keep, Style::Link, Style::Sup, Style::Footnote, Style::Strip];

#[rustfmt::skip]
const MARKERS: &[&str] = &[
    "[1]", "[2]", "[12]", "[1][2]", "[1,2]", "[1, 3]", "[1、2]", "[3,6](@ref)", "[citation:1]", "[citation:2]",
    "[ref_1]", "[^1]", "^[1]^", "^[1][2]^", "【1】", "【1†source】", "【2†来源】", "【8:1†source】", "[ID:1]", "[ID:0]",
    "[[1]](https://a.example/1)", "[[1]]", "<span id=\"ai-qa-ref\">1</span>", "<span id='ai-qa-ref'>[2]</span>",
    "\u{E200}cite\u{E202}turn0search0\u{E201}",
];

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "火灾", "据报道，", "。", "：", "word", "a", "x", "arr", "a_b", "2024", "🔥", "é", " ", " ", "  ", ".", ",", ";", ":", "=",
    " = ", ".name", ".The", "++", "!", "?", "-", "(", ")", "（", "）", "*", "**", "_", "~~", "https://a.example/b",
    "http://a.example",
];

#[rustfmt::skip]
const MARKDOWN: &[&str] = &[
    "`", "``", "```", "$", "$$", "\\", "\\\\", "\\[", "\\]", "\\(", "\\)", "\\$", "\\`", "<", ">", "<b>", "</b>",
    "<a href=\"u\">", "</a>", "<code>", "</code>", "<!--", "-->", "<https://a.example/[1]>", "[", "]", "](", "[x](",
    "![", "](u)", "[x](u)", "[text]", "\"", "'", "|", "{", "}", "^", "【", "】", "†", "@", "&amp;", "<br/>", "<br>",
    "<a title='[1]' href=u>", "/", "[1](u)", "[x][1]", "[](@mark_underline=1)", "[reference:0]", "x[1]", "[1", "1]",
    "(u \"[1]\")",
];

#[rustfmt::skip]
const LINES: &[&str] = &[
    "\n", "\n", "\n\n", "\n\n", "\n- ", "\n* ", "\n1. ", "\n2) ", "\n> ", "\n> > ", "\n# ", "\n## ", "\n```\n",
    "\n```py\n", "\n~~~\n", "\n    ", "\n  ", "\n   ", "\n---\n", "\n===\n", "\n<div>\n", "\n</div>\n", "\n<!-- ",
    "\n| a | b |\n|---|---|\n| ", "\n[1]: u\n", "\n[x]: u [1]\n", "\n[^1]: ", "\n\t", "\n- - ", "\n\n    ",
    "\n> ```\n> ", "\n  - ", "\n   - ", "\n    - ", "\n  1. ", "\n      ", "\n-\n", "\n>\n", "\n<pre>", "\n</pre>\n",
    "\n<script>\n", "\r\n", "\r\n\r\n", "\n* * *\n", "\n<b>\n", "\n10. ", "\n-     ", "\n- [ ] ", "\n  ```\n",
    "\n####### ", "\n<?", "\n<!X ", "\n|", "\n>[1]: ",
];

/// Random sequences of markers, words and Markdown.
fn soup(max: usize) -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => select(MARKERS),
        4 => select(WORDS),
        4 => select(MARKDOWN),
        2 => select(LINES),
    ];
    prop::collection::vec(piece, 1..max).prop_map(|pieces| pieces.concat())
}

/// Random texts whose paragraphs fit into the lookahead.
fn short_paragraphs() -> impl Strategy<Value = String> {
    let line = soup(9).prop_map(|text| {
        let mut text: String = text.chars().take(44).collect();
        text.push_str("\n\n");
        text
    });
    prop::collection::vec(line, 1..4).prop_map(|lines| lines.concat())
}

/// Well-formed texts like those of models: constructs are closed, and some are longer than the lookahead.
fn answers() -> impl Strategy<Value = String> {
    let long = "一个很长的句子，里面没有任何标记，只是为了让下文离得足够远，远到看不见，再加上一些英文 words so that it is long enough, really long.";
    let inline = prop_oneof![
        6 => select(MARKERS).prop_map(str::to_owned),
        4 => select(&["火灾", "据报道，", "The capital", " of ", "**", "🔥", " $6 billion ", " at $24 ", "50% ", "。", ". ", ", ", "(2024)", "[ ", "] "][..])
            .prop_map(str::to_owned),
        2 => Just(long.to_owned()),
        1 => select(&[
            " `arr[1]` ", " ``a ` [2]`` ", " $x[1]$", " $$ y[2] $$", "\\(x[1]\\)", "\\[ y[1] \\]", "[text [1]](https://a.example)", "![alt [1]](u)",
            "<https://a.example/[1]>", "<a href=\"https://a.example/[1]\">t [1]</a>", "<br/>", "\\[1]", "[text][1]", "[1](https://a.example)",
            "a_b[1]", "x[1] = 2", "https://a.example/?q[1]=2 ", "https://a.example/b ",
        ][..])
        .prop_map(str::to_owned),
        1 => Just(format!(" `{long}[1]` ")),
        1 => Just(format!("[{long}[1]](https://a.example)")),
        1 => Just(format!("<a href=\"https://a.example/{}[1]\" title=\"[2]\">t [1]</a>", "x".repeat(70))),
        1 => Just(format!("[t](https://a.example/{}[1])", "x".repeat(70))),
        1 => Just(format!(" $$ {long} [1] $$")),
        1 => Just(format!("\\[ {long} [1] \\]")),
    ];
    let text = prop::collection::vec(inline, 1..12).prop_map(|parts| parts.concat());
    let block = prop_oneof![
        4 => text.clone(),
        1 => text.clone().prop_map(|text| format!("- {text}\n- {text}")),
        1 => text.clone().prop_map(|text| format!("1. {text}\n\n   {text}\n2. x")),
        1 => text.clone().prop_map(|text| format!("> {text}\n> {text}")),
        1 => text.clone().prop_map(|text| format!("## {text}")),
        1 => text.clone().prop_map(|text| format!("```py\n{text}\na[1]\n```")),
        1 => text.clone().prop_map(|text| format!("- x\n  ~~~\n  {text}\n  ~~~\n  {text}")),
        1 => text.clone().prop_map(|text| format!("    {text}")),
        1 => text.prop_map(|text| format!("| a [1] | b |\n|---|---|\n| {} [2] | c[3] |", text.replace('|', " "))),
    ];
    prop::collection::vec(block, 1..5).prop_map(|blocks| blocks.join("\n\n"))
}

/// Splits a text into pieces of 1 to 7 bytes, rounded up to whole characters.
fn split(text: &str, seed: u64) -> Vec<&str> {
    let mut state = seed | 1;
    let mut pieces = Vec::new();
    let mut from = 0;
    while from < text.len() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let to = text.ceil_char_boundary((from + 1 + (state >> 33) as usize % 7).min(text.len()));
        pieces.push(&text[from..to]);
        from = to;
    }
    pieces
}

fn rewrite_pieces<'a>(
    pieces: impl IntoIterator<Item = &'a str>,
    style: Style,
    sources: &dyn Sources,
) -> (String, Vec<Mark>) {
    let mut rewriter = Rewriter::new(style);
    let (mut out, mut marks) = (String::new(), Vec::new());
    for piece in pieces {
        rewriter.push(piece, sources, &mut out, &mut marks);
    }
    rewriter.finish(sources, &mut out, &mut marks);
    (out, marks)
}

/// The markers that the reader finds.
fn find_markers(text: &str) -> Vec<oracle::Found> {
    let mut reader = reader::Reader::default();
    let (mut at, mut found) = (0, Vec::new());
    let mut take = |segment: reader::Segment<'_>| match segment {
        reader::Segment::Text(text) => at += text.len(),
        reader::Segment::Marker(marker, raw) => {
            found.push(oracle::Found { start: at, end: at + raw.len(), numbers: marker.numbers().to_vec() });
            at += raw.len();
        }
    };
    reader.push(text, &mut take);
    reader.finish(&mut take);
    assert_eq!(at, text.len());
    found
}

/// A bare URL includes characters that would end emphasis, as in GitHub Flavored Markdown. A URL in a link does not.
#[test]
fn bare_url_includes_the_end_of_emphasis() {
    let none = ["~~https://a.example~~[3]~~\n\n", "*https://a.example*[1]b\n\n", "**https://a.example**b[1]/c\n\n"];
    for text in none {
        assert_eq!(find_markers(text), [], "{text:?}");
        assert_eq!(oracle::markers(text), Some(Vec::new()), "{text:?}");
    }
    for (text, start) in [("**https://a.example**[1]。\n\n", 21), ("[x](https://a.example)[1]b\n\n", 22)] {
        let found = vec![oracle::Found { start, end: start + 3, numbers: vec![1] }];
        assert_eq!(find_markers(text), found, "{text:?}");
        assert_eq!(oracle::markers(text), Some(found), "{text:?}");
    }
}

#[test]
fn tag_includes_an_angle_bracket_in_quotes() {
    let text = "<a href=\">t [1]</a\">t [1]</a> [2]\n\n";
    let found = vec![oracle::Found { start: 30, end: 33, numbers: vec![2] }];
    assert_eq!(find_markers(text), found);
    assert_eq!(oracle::markers(text), Some(found));
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn output_is_the_same_for_every_split(text in soup(40), seed: u64, style in select(&STYLES[..])) {
        let whole = rewrite(&text, style, &Odd);
        prop_assert_eq!(&rewrite_pieces(split(&text, seed), style, &Odd), &whole);
        let chars: Vec<String> = text.chars().map(String::from).collect();
        prop_assert_eq!(&rewrite_pieces(chars.iter().map(String::as_str), style, &Odd), &whole);
    }

    #[test]
    fn kept_and_unknown_markers_are_unchanged(text in soup(40), seed: u64, style in select(&STYLES[..])) {
        let mut rewriter = Rewriter::new(Style::Keep);
        let (mut out, mut marks) = (String::new(), Vec::new());
        for piece in split(&text, seed) {
            let before = out.len();
            rewriter.push(piece, &All, &mut out, &mut marks);
            prop_assert_eq!(&out[before..], piece, "kept text is not held back");
            prop_assert!(!rewriter.holds());
        }
        let (out, marks) = rewrite_pieces(split(&text, seed), style, &NoSources);
        prop_assert!(marks.is_empty());
        if style == Style::Strip {
            // Except for cite tokens and the space before one.
            let rest = |text: &str| text.replace("\u{E200}cite\u{E202}turn0search0\u{E201}", "").replace(' ', "");
            prop_assert_eq!(rest(&out), rest(&text));
        } else {
            prop_assert_eq!(out, text);
        }
    }

    #[test]
    fn marks_cover_the_written_markers(text in soup(40), seed: u64, style in select(&STYLES[..])) {
        let (out, marks) = rewrite_pieces(split(&text, seed), style, &Odd);
        let chars: Vec<char> = out.chars().collect();
        let mut last = 0;
        for mark in marks {
            let (start, end) = (mark.start as usize, mark.end as usize);
            prop_assert!(mark.number % 2 == 1 && last <= start && start <= end && end <= chars.len());
            last = start;
            let written: String = chars[start..end].iter().collect();
            let n = mark.number;
            let is_valid = match style {
                Style::Keep => written.contains(&n.to_string()),
                Style::Link => written == format!("[[{n}]](https://a.example/x)") || written == format!("[[{n}]](https://a.example/1)"),
                Style::Sup => written.starts_with("[<sup data-citation='{") && written.contains(&format!("'>{n}</sup>](https://a.example/")),
                Style::Footnote => written == format!("[^{n}]"),
                Style::Strip => written.is_empty(),
            };
            prop_assert!(is_valid, "{:?} {:?}", mark, written);
        }
    }

    #[test]
    fn held_text_fits_into_the_lookahead(text in soup(60)) {
        let mut reader = reader::Reader::default();
        let (mut pushed, mut emitted) = (0, 0);
        for c in text.chars() {
            pushed += 1;
            reader.push(c.encode_utf8(&mut [0; 4]), &mut |segment| {
                let (reader::Segment::Text(text) | reader::Segment::Marker(_, text)) = segment;
                emitted += text.chars().count();
            });
            prop_assert!(pushed - emitted <= MAX_LOOKAHEAD, "{} held", pushed - emitted);
            prop_assert_eq!(reader.holds(), pushed > emitted);
        }
    }

    #[test]
    fn short_paragraphs_match_the_oracle(text in short_paragraphs()) {
        if let Some(expected) = oracle::markers(&text) {
            prop_assert_eq!(find_markers(&text), expected);
        }
    }

    #[test]
    fn answers_match_the_oracle(text in answers()) {
        if let Some(expected) = oracle::markers(&text) {
            prop_assert_eq!(find_markers(&text), expected);
        }
    }
}

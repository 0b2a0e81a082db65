use proptest::{prelude::*, sample::select};

use super::*;

/// Has a source for every odd number.
struct OddNumbers;

impl Sources for OddNumbers {
    fn find(&self, number: u32) -> Option<Source<'_>> {
        (number % 2 == 1).then_some(Source {
            number,
            url: Some("https://a.example/"),
            title: Some("标题"),
            content: None,
        })
    }
}

/// Models a page: it keeps the settled HTML and renders only the remaining text again.
#[derive(Default)]
struct Page {
    settled: String,
    open: String,
    rest: String,
}

impl Page {
    fn push(&mut self, more: &str) {
        self.rest.push_str(more);
        let PartialHtml { settled, open, settled_len } = partial_html(&self.rest, &OddNumbers);
        self.settled += &settled;
        self.open = open;
        self.rest.drain(..settled_len);
    }

    fn html(&self) -> String {
        format!("{}{}", self.settled, self.open)
    }
}

fn full_html(text: &str) -> String {
    html(text, &PendingSources(&OddNumbers))
}

/// Checks where the settled part ends; `¦` marks the expected position.
#[track_caller]
fn assert_settled(text: &str) {
    let plain = text.replacen('¦', "", 1);
    let at = partial_html(&plain, &OddNumbers).settled_len;
    assert_eq!(format!("{}¦{}", &plain[..at], &plain[at..]), text);
}

#[test]
fn all_blocks_but_the_last_are_settled() {
    assert_settled("¦");
    assert_settled("¦One");
    assert_settled("¦One\n");
    assert_settled("¦One\nstill one");
    assert_settled("One\n\n¦");
    assert_settled("One\n\n¦Two");
    assert_settled("# One\n¦Two\n");
    assert_settled("# One\n\n¦- a\n- b\n\n");
    assert_settled("- a\n\n- b\n\n¦Then\n");
    assert_settled("| a |\n|---|\n| b |\n\n¦Then");
    assert_settled("> 引文[1]\n\n¦后文");
    assert_settled("One\n\n---\n\n¦Two");
    assert_settled("一[1]。\n\n二[2]。\n\n¦三");
}

/// A line that looks like a new block may continue the previous one.
#[test]
fn incomplete_line_settles_nothing() {
    assert_settled("¦1. a\n\n2");
    assert_settled("¦1. a\n\n2. b");
    assert_settled("¦- a\n\n  b");
    assert_settled("¦One\n#");
    assert_settled("¦One\n***");
    assert_settled("¦```\ncode\n\n");
    assert_settled("¦```\ncode\n```");
    assert_settled("¦    code\n\n");
    assert_settled("One\n\n¦    code\n");
    assert_settled("¦<div>\n\n");
}

/// The marker reader takes long inline code, whose end it cannot see, for a fence, and finds no markers after it.
#[test]
fn block_open_for_the_marker_reader_is_not_settled() {
    let far = "x".repeat(80);
    for code in [format!("```{far}```"), "`".repeat(70) + "x`"] {
        assert_settled(&format!("前[1]\n\n¦{code}\n\n后[1]\n\n末[1]\n"));
        let text = format!("前[1]\n\n{code}\n\n后[1]\n\n末[1]\n");
        let (mut page, mut sent) = (Page::default(), String::new());
        for line in text.split_inclusive('\n') {
            page.push(line);
            sent.push_str(line);
            assert_eq!(page.html(), full_html(&sent), "{sent:?}");
        }
    }
}

#[test]
fn placeholder_characters_do_not_shift_offsets() {
    let text = "\u{F0000}\u{F0001} [1] <span id=\"ai-qa-ref\">3</span>\n\n下文[1]\n";
    let PartialHtml { settled_len, .. } = partial_html(text, &OddNumbers);
    assert_eq!(&text[settled_len..], "下文[1]\n");
}

#[test]
fn unknown_number_becomes_an_empty_source() {
    let PartialHtml { open, .. } = partial_html("事实[1][2]，又[4", &OddNumbers);
    let awaited = "<sup data-citation=\"{&quot;id&quot;:2,&quot;url&quot;:&quot;&quot;,&quot;title&quot;:&quot;&quot;,\
                   &quot;content&quot;:&quot;&quot;}\">2</sup>，又[4</p>";
    assert!(open.contains("<a class=\"citation\" href=\"https://a.example/\"") && open.contains(awaited), "{open}");
    assert_eq!(partial_html("`x[2]` [2024]", &OddNumbers).open, "<p><code>x[2]</code> [2024]</p>\n");
}

#[test]
fn letter_by_letter_output_equals_full_rendering() {
    let text = "# 结论[1]\n\n热泵在零下也能用[1][2]。\n\n1. **输出**：见表[3]。\n\n2. 备用热源[4]\n   - 电\n   - 气\n\n\
                | a | b |\n|---|---|\n| x[1] | y |\n\n```rust\nlet a = b[1];\n```\n\n> 引用[5]\n> 续\n\n最后**一**句[1]。\n";
    let mut page = Page::default();
    for (at, letter) in text.char_indices() {
        page.push(letter.encode_utf8(&mut [0; 4]));
        assert_eq!(page.html(), full_html(&text[..at + letter.len_utf8()]), "{:?}", &text[..at]);
    }
    assert_eq!(page.rest, "最后**一**句[1]。\n");
}

#[rustfmt::skip]
const PIECES: &[&str] = &[
    "火灾", "word", "。", " ", "  ", "1", "2", ".", ")", "-", "*", "**", "_", "~~", "#", "|", "[1]", "[2]", "[1,2]", "【3】", "[^4]", "[",
    "](", "[x](https://a.example/)", "`", "```", "$", "$$", "\\", ">", "+", "=", "---", "===", "&amp;", "- [ ] x", "\n", "\n", "\n\n", "\n\n", "\n- ",
    "\n* ", "\n1. ", "\n2. ", "\n\n3. ", "\n> ", "\n# ", "\n```\n", "\n~~~\n", "\n\n    ", "\n  ", "\n| a | b |\n|---|---|\n| c | d |\n", "\r\n",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// After every piece, the page shows the same HTML as a rendering of the full text.
    #[test]
    fn settled_and_open_parts_equal_full_rendering(pieces in prop::collection::vec(select(PIECES), 0..40)) {
        let text = pieces.concat();
        // A link definition changes text before it.
        prop_assume!(!text.contains("]:"));
        let (mut page, mut sent) = (Page::default(), String::new());
        for piece in pieces {
            page.push(piece);
            sent.push_str(piece);
            prop_assert_eq!(page.html(), full_html(&sent), "{:?}", sent);
        }
    }
}

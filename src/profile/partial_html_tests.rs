use proptest::{prelude::*, sample::select};

use super::*;

struct Odd;

impl Sources for Odd {
    fn find(&self, number: u32) -> Option<Source<'_>> {
        (number % 2 == 1).then_some(Source {
            number,
            url: Some("https://a.example/"),
            title: Some("标题"),
            content: None,
        })
    }
}

/// As a page does it: what is settled stays, and only the rest is sent again.
#[derive(Default)]
struct Page {
    settled: String,
    open: String,
    rest: String,
}

impl Page {
    fn push(&mut self, more: &str) {
        self.rest.push_str(more);
        let PartialHtml { settled, open, settled_len } = partial_html(&self.rest, &Odd);
        self.settled += &settled;
        self.open = open;
        self.rest.drain(..settled_len);
    }

    fn html(&self) -> String {
        format!("{}{}", self.settled, self.open)
    }
}

fn whole(text: &str) -> String {
    html(text, &Awaited(&Odd))
}

/// `¦` stands where the settled part ends.
#[track_caller]
fn settles(text: &str) {
    let plain = text.replacen('¦', "", 1);
    let at = partial_html(&plain, &Odd).settled_len;
    assert_eq!(format!("{}¦{}", &plain[..at], &plain[at..]), text);
}

#[test]
fn all_but_the_last_block_is_settled() {
    settles("¦");
    settles("¦One");
    settles("¦One\n");
    settles("¦One\nstill one");
    settles("One\n\n¦");
    settles("One\n\n¦Two");
    settles("# One\n¦Two\n");
    settles("# One\n\n¦- a\n- b\n\n");
    settles("- a\n\n- b\n\n¦Then\n");
    settles("| a |\n|---|\n| b |\n\n¦Then");
    settles("> 引文[1]\n\n¦后文");
    settles("One\n\n---\n\n¦Two");
    settles("一[1]。\n\n二[2]。\n\n¦三");
}

/// What looks like a new block may go on with the one before.
#[test]
fn a_line_that_is_not_whole_settles_nothing() {
    settles("¦1. a\n\n2");
    settles("¦1. a\n\n2. b");
    settles("¦- a\n\n  b");
    settles("¦One\n#");
    settles("¦One\n***");
    settles("¦```\ncode\n\n");
    settles("¦```\ncode\n```");
    settles("¦    code\n\n");
    settles("One\n\n¦    code\n");
    settles("¦<div>\n\n");
}

/// A line of code whose end is far looks like a fence to who reads for markers: none is found behind it, at any moment.
#[test]
fn nothing_settles_where_markers_are_read_otherwise() {
    let far = "x".repeat(80);
    for code in [format!("```{far}```"), "`".repeat(70) + "x`"] {
        settles(&format!("前[1]\n\n¦{code}\n\n后[1]\n\n末[1]\n"));
        let text = format!("前[1]\n\n{code}\n\n后[1]\n\n末[1]\n");
        let (mut page, mut sent) = (Page::default(), String::new());
        for line in text.split_inclusive('\n') {
            page.push(line);
            sent.push_str(line);
            assert_eq!(page.html(), whole(&sent), "{sent:?}");
        }
    }
}

#[test]
fn private_characters_do_not_shift_it() {
    let text = "\u{F0000}\u{F0001} [1] <span id=\"ai-qa-ref\">3</span>\n\n下文[1]\n";
    let PartialHtml { settled_len, .. } = partial_html(text, &Odd);
    assert_eq!(&text[settled_len..], "下文[1]\n");
}

#[test]
fn a_number_that_is_not_known_yet_is_there_to_be_filled_in() {
    let PartialHtml { open, .. } = partial_html("事实[1][2]，又[4", &Odd);
    let awaited = "<sup data-citation=\"{&quot;id&quot;:2,&quot;url&quot;:&quot;&quot;,&quot;title&quot;:&quot;&quot;,\
                   &quot;content&quot;:&quot;&quot;}\">2</sup>，又[4</p>";
    assert!(open.contains("<a class=\"citation\" href=\"https://a.example/\"") && open.contains(awaited), "{open}");
    assert_eq!(partial_html("`x[2]` [2024]", &Odd).open, "<p><code>x[2]</code> [2024]</p>\n");
}

#[test]
fn a_capture_that_is_written_letter_by_letter() {
    let text = "# 结论[1]\n\n热泵在零下也能用[1][2]。\n\n1. **输出**：见表[3]。\n\n2. 备用热源[4]\n   - 电\n   - 气\n\n\
                | a | b |\n|---|---|\n| x[1] | y |\n\n```rust\nlet a = b[1];\n```\n\n> 引用[5]\n> 续\n\n最后**一**句[1]。\n";
    let mut page = Page::default();
    for (at, letter) in text.char_indices() {
        page.push(letter.encode_utf8(&mut [0; 4]));
        assert_eq!(page.html(), whole(&text[..at + letter.len_utf8()]), "{:?}", &text[..at]);
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

    /// However a text comes, and at every moment, the page shows what the whole would.
    #[test]
    fn what_is_settled_and_what_is_open_are_the_whole(pieces in prop::collection::vec(select(PIECES), 0..40)) {
        let text = pieces.concat();
        // Definitions of links change what came before them.
        prop_assume!(!text.contains("]:"));
        let (mut page, mut sent) = (Page::default(), String::new());
        for piece in pieces {
            page.push(piece);
            sent.push_str(piece);
            prop_assert_eq!(page.html(), whole(&sent), "{:?}", sent);
        }
    }
}

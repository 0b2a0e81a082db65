//! Every form, in every style, cut at every place; and what stays as it is.

use super::*;

/// Sources 1 to 6 and 12 have a URL, 7 has none, 8 has one that is no link, 5 is an alias of 1.
struct Sample;

impl Sources for Sample {
    fn find(&self, number: u32) -> Option<Source<'_>> {
        let url = match number {
            1 | 5 => Some("https://1.example/"),
            2 => Some("https://2.example/"),
            3 => Some("https://3.example/"),
            4 => Some("https://4.example/"),
            6 => Some("https://6.example/"),
            12 => Some("https://12.example/"),
            7 => None,
            8 => Some("javascript:alert(1)"),
            _ => return None,
        };
        Some(Source {
            number: if number == 5 { 1 } else { number }, url, title: Some("标题"), content: Some("摘要")
        })
    }
}

const STYLES: [Style; 5] = [Style::Keep, Style::Link, Style::Sup, Style::Footnote, Style::Strip];

fn written(style: Style, number: u32) -> String {
    let source = Sample.find(number).unwrap();
    let url = source.url.filter(|url| url.starts_with("https:"));
    match (style, url) {
        (Style::Keep, _) => unreachable!(),
        (Style::Link, Some(url)) => format!("[[{number}]]({url})"),
        (Style::Link, None) => format!("[{number}]"),
        (Style::Sup, url) => {
            let json = format!(
                "{{&quot;id&quot;:{number},&quot;url&quot;:&quot;{}&quot;,&quot;title&quot;:&quot;标题&quot;,&quot;content&quot;:&quot;摘要&quot;}}",
                url.unwrap_or_default()
            );
            match url {
                Some(url) => format!("[<sup data-citation='{json}'>{number}</sup>]({url})"),
                None => format!("<sup data-citation='{json}'>{number}</sup>"),
            }
        }
        (Style::Footnote, _) => format!("[^{number}]"),
        (Style::Strip, _) => String::new(),
    }
}

/// `{1}` in a pattern is the marker of source 1, as a style writes it.
fn expected(pattern: &str, style: Style) -> String {
    let mut out = String::new();
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('{') {
        let (number, after) = after.split_once('}').unwrap();
        out += before;
        out += &written(style, number.parse().unwrap());
        rest = after;
    }
    out + rest
}

/// The whole, and every way to cut it in two, and every character alone.
fn every_cut(text: &str, style: Style) -> String {
    let whole = rewrite(text, style, &Sample);
    let pieces = |pieces: &[&str]| {
        let mut rewriter = Rewriter::new(style);
        let (mut out, mut marks) = (String::new(), Vec::new());
        for piece in pieces {
            rewriter.push(piece, &Sample, &mut out, &mut marks);
        }
        rewriter.finish(&Sample, &mut out, &mut marks);
        assert!(!rewriter.holds());
        (out, marks)
    };
    for (at, _) in text.char_indices() {
        assert_eq!(pieces(&[&text[..at], &text[at..]]), whole, "{style:?} cut at {at}: {text:?}");
    }
    let letters: Vec<String> = text.chars().map(String::from).collect();
    let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
    assert_eq!(pieces(&letters), whole, "{style:?} letter by letter: {text:?}");
    whole.0
}

#[test]
fn every_form_in_every_style() {
    for (text, pattern) in [
        ("香港宏福苑发生严重火灾[2]", "香港宏福苑发生严重火灾{2}"),
        ("火灾[1][2]。", "火灾{1}{2}。"),
        ("火灾[1,2]。", "火灾{1}{2}。"),
        ("火灾[1, 2，3、4]。", "火灾{1}{2}{3}{4}。"),
        ("火灾[3,6](@ref)。", "火灾{3}{6}。"),
        ("火灾[1](@ref)。", "火灾{1}。"),
        ("火灾[citation:1]。", "火灾{1}。"),
        ("火灾[citation:1, citation:2]。", "火灾{1}{2}。"),
        ("火灾[ref_1]。", "火灾{1}。"),
        ("火灾[^1]。", "火灾{1}。"),
        ("火灾^[1]^。", "火灾{1}。"),
        ("火灾^[1][2]^。", "火灾{1}{2}。"),
        ("火灾【1】。", "火灾{1}。"),
        ("火灾【1】【2】。", "火灾{1}{2}。"),
        ("火灾【1、2】。", "火灾{1}{2}。"),
        ("火灾【1†source】。", "火灾{1}。"),
        ("火灾【1†来源】【2†源】。", "火灾{1}{2}。"),
        ("火灾【8:1†source】。", "火灾{1}。"),
        ("火灾【12†L5-L9】。", "火灾{12}。"),
        ("火灾【1†my_*file*.pdf】。", "火灾{1}。"),
        // What may open code, HTML, math or a link is no source's name.
        ("火灾【1†<b>】【1†`a】`【1†\\】【1†$x】$【1†[2]】。", "火灾【1†<b>】【1†`a】`【1†\\】【1†$x】$【1†{2}】。"),
        ("火灾[ID:1]。", "火灾{1}。"),
        ("火灾[[1]](https://1.example/)。", "火灾{1}。"),
        ("火灾[[1]]。", "火灾{1}。"),
        ("火灾<span id=\"ai-qa-ref\">1</span>。", "火灾{1}。"),
        ("火灾<span class='x' id='ai-qa-ref'>[1]</span>。", "火灾{1}。"),
        ("火灾<span id=\"ai-qa-ref\">1,2</span>。", "火灾{1}{2}。"),
        // A source under another number of its own, and sources without a link.
        ("火灾[5][7][8]。", "火灾{5}{7}{8}。"),
        // Two digits count as the number that they are.
        ("火灾[01]。", "火灾{1}。"),
        // A number that no source has stays, also beside one that has.
        ("火灾[9][1]。", "火灾[9]{1}。"),
        ("火灾[1,9]。", "火灾{1}[9]。"),
        ("火灾^[9][1]^。", "火灾[9]{1}。"),
        // Prose, whatever stands around it.
        ("The current population of **[2][3]", "The current population of **{2}{3}"),
        ("Paris is the capital[1].", "Paris is the capital{1}."),
        (
            "**bold[1]** and (2024)[2], \"quoted\"[3]; `code`[4].",
            "**bold{1}** and (2024){2}, \"quoted\"{3}; `code`{4}.",
        ),
        ("raised $6 billion[1] at $24 billion[2].", "raised $6 billion{1} at $24 billion{2}."),
        ("- 一[1]\n- 二[2]\n\n> 三[3]\n\n## 四[4]\n", "- 一{1}\n- 二{2}\n\n> 三{3}\n\n## 四{4}\n"),
        ("| a[1] | b |\n|---|---|\n| c[2] | d[3] |\n", "| a{1} | b |\n|---|---|\n| c{2} | d{3} |\n"),
        ("[text](https://a.example)[1]", "[text](https://a.example){1}"),
        ("see https://a.example/b[1].", "see https://a.example/b{1}."),
        ("参见[1]：https://a.example", "参见{1}：https://a.example"),
        ("a<b[1]>c", "a<b{1}>c"),
        // A scheme has two letters at least.
        ("a <p:x/[1]>", "a <p:x/{1}>"),
        ("[参见[1]] x", "[参见{1}] x"),
        ("\\\\[1]", "\\\\{1}"),
        ("emoji🔥[1]🔥", "emoji🔥{1}🔥"),
        ("<b>x[1]</b>", "<b>x{1}</b>"),
        ("<sup>[1]</sup>", "<sup>{1}</sup>"),
    ] {
        assert_eq!(every_cut(text, Style::Keep), text);
        for style in &STYLES[1..] {
            assert_eq!(every_cut(text, *style), expected(pattern, *style), "{style:?}: {text}");
        }
    }
}

#[test]
fn what_is_no_marker_stays() {
    for text in [
        // Code.
        "`a[1]`",
        "``x ` [1]``",
        "```\na[1]\n```",
        "~~~py\na[1]\n~~~",
        "    a [1]",
        "- x\n\n      a [1]",
        "> ```\n> [1]\n> ```",
        "```\n[1]",
        "```\n``` x\n[1]\n```",
        "````\n```\n[1]\n````",
        "<code>a [1]</code>",
        "<pre>\n[1]\n</pre>",
        "<div>\n[1]\n</div>",
        "<!-- [1] -->",
        "<script>\nx [1]\n\n[1]</script>",
        // Links and URLs.
        "[1](https://a.example)",
        "[text][1]",
        "[text [1] text](https://a.example)",
        "![alt [1]](u)",
        "![[1]](u)",
        "<https://a.example/[1]>",
        "<a+b:[1]>",
        "<ab:[1]>",
        "<a href=\"/[1]\">t [1]</a>",
        "[t](/[1])",
        "[t](</[1]>)",
        "[t](/u \"[1]\")",
        "https://a.example/?q[1]=2",
        "https://a.example/b[1].html",
        "[1]: https://a.example/ \"[1]\"",
        "[^1]: https://a.example/[1]",
        "[1](not a link)",
        "[1]: note",
        // Math.
        "$x[1]$",
        "$$ x[1] $$",
        "\\(x[1]\\)",
        "\\[ x[1] \\]",
        "$$\nx[1]\n$$",
        // Escaped.
        "\\[1]",
        "\\[1\\]",
        "\\^[9]",
        // Indexes.
        "arr[1]",
        "use arr[1] here",
        "my_list[1] is",
        "x[1] = 2",
        "x[1]=2",
        "rows[1].name",
        "a[b[1]]",
        "grid[1][2] = 0",
        "n[1]++",
        "n[1] += 1",
        "n[1]*=2",
        // Other things in brackets.
        "[9]",
        "[0]",
        "[2024]",
        "[+1]",
        "[-1]",
        "[1-3]",
        "[ 1 ]",
        "[1,]",
        "[,1]",
        "[a]",
        "[]",
        "[ ]",
        "[x]",
        "[1",
        "1]",
        "【9】",
        "【a】",
        "【1",
        "[](@mark_underline=1)",
        "[reference:0]",
        "[text](@ref)",
        "[ID:0]",
        "[Citation:1]",
        "^[9]^",
        "<span id=\"ai-qa-ref\">x</span>",
        "<span id=\"ai-qa-ref\">1</b>",
        "<span>1</span>",
        "\u{E200}cite\u{E202}turn0search0",
        "\u{E200}x\u{E201}",
        "citeturn0search5",
        "",
    ] {
        for style in STYLES {
            assert_eq!(every_cut(text, style), text, "{style:?}");
        }
    }
}

#[test]
fn a_cite_token_has_no_number_and_goes_only_where_markers_go() {
    let text = "火灾 \u{E200}cite\u{E202}turn0search0\u{E202}turn0news1\u{E201}。";
    for style in STYLES {
        let expected = if style == Style::Strip { "火灾。" } else { text };
        assert_eq!(every_cut(text, style), expected, "{style:?}");
    }
}

#[test]
fn a_stripped_marker_takes_a_space_with_it_that_parts_no_words() {
    for (text, expected) in [
        ("text [1].", "text."),
        ("text [1] more", "text more"),
        ("text [1][2] more", "text more"),
        ("text [1] [2].", "text."),
        ("text [1]more", "text more"),
        ("text  [1].", "text  ."),
        ("text [1]", "text"),
        ("text [1]\nmore", "text\nmore"),
        ("text [1] (more)", "text (more)"),
        ("text [1](more)", "text [1](more)"),
        ("text [9] [1].", "text [9]."),
        ("text [1] [9].", "text [9]."),
        ("text [1,9].", "text [9]."),
        ("[1] text", " text"),
        ("- [1] text", "- text"),
        ("火灾 [1]，火灾 [2]然后", "火灾，火灾 然后"),
        ("text ", "text "),
        ("text  ", "text  "),
        (" ", " "),
    ] {
        assert_eq!(every_cut(text, Style::Strip), expected, "{text}");
    }
}

#[test]
fn a_link_of_the_upstream_keeps_its_url() {
    let text = "x[[1]](https://other.example/a_(b)?c)。";
    assert_eq!(every_cut(text, Style::Link), "x[[1]](https://other.example/a_%28b%29?c)。");
    assert!(every_cut(text, Style::Sup).ends_with(">1</sup>](https://other.example/a_%28b%29?c)。"));
    assert_eq!(every_cut(text, Style::Footnote), "x[^1]。");
    assert_eq!(every_cut(text, Style::Strip), "x。");
    assert_eq!(every_cut("x[[1]](javascript:a)", Style::Link), "x[[1]](https://1.example/)");
    assert_eq!(every_cut("x[[9]](https://a.example/)", Style::Link), "x[[9]](https://a.example/)");
}

#[test]
fn what_opened_too_far_back_has_its_rule() {
    let far = "一".repeat(HOLD);
    let long = |text: &str| text.replace('…', &far);
    for (text, pattern) in [
        // Closed, however far.
        ("`…[1]` [2]", "`…[1]` {2}"),
        ("[…[1]](https://a.example) [2]", "[…[1]](https://a.example) {2}"),
        ("[…`]`[a]](u) [2]", "[…`]`[a]](u) {2}"),
        ("[t](https://a.example/…[1]) [2]", "[t](https://a.example/…[1]) {2}"),
        ("<a title=\"…[1]\">[1]</a> [2]", "<a title=\"…[1]\">[1]</a> {2}"),
        ("<!-- …[1] --> [2]", "<!-- …[1] --> [2]"),
        ("x <!-- …[1] --> [2]", "x <!-- …[1] --> {2}"),
        ("$$…[1]$$ [2]", "$$…[1]$$ {2}"),
        ("\\[…[1]\\] [2]", "\\[…[1]\\] {2}"),
        ("\\(…[1]\\) [2]", "\\(…[1]\\) {2}"),
        // Never closed: backticks and `$$` last until the paragraph ends, a dollar sign and a bracket do not.
        ("`…[1]\n[1]\n\n[2]", "`…[1]\n[1]\n\n{2}"),
        ("$$…[1]\n\n[2]", "$$…[1]\n\n{2}"),
        ("$x…[1]$", "$x…{1}$"),
        ("[…[1]…](https://a.example)", "[…{1}…](https://a.example)"),
        ("[…[1]\n\n[2]", "[…{1}\n\n{2}"),
        ("[…] [1]", "[…] {1}"),
        ("[…[x [1]] [2](u)", "[…[x {1}] [2](u)"),
        // Never closed, and seen at once.
        ("`[1]\n\n[2]", "`{1}\n\n{2}"),
        ("`[1]", "`{1}"),
    ] {
        assert_eq!(every_cut(&long(text), Style::Footnote), long(&expected(pattern, Style::Footnote)), "{text}");
    }
}

#[test]
fn at_the_cap_a_marker_is_one_and_beyond_it_is_text() {
    let lens = |length: usize| format!("【1†{}】", "x".repeat(length - 4));
    assert_eq!(every_cut(&lens(HOLD), Style::Footnote), "[^1]");
    assert_eq!(every_cut(&lens(HOLD + 1), Style::Footnote), lens(HOLD + 1));
    let linked = |length: usize| format!("[[1]](https://{})", "x".repeat(length - 15));
    assert_eq!(rewrite(&linked(MAX_LINKED), Style::Footnote, &Sample).0, "[^1]");
    assert_eq!(rewrite(&linked(MAX_LINKED + 1), Style::Footnote, &Sample).0, linked(MAX_LINKED + 1));
}

#[test]
fn a_reader_keeps_little_whatever_comes() {
    for endless in [
        "[",
        "]",
        "`",
        "$",
        "<",
        "<a ",
        "\\",
        "(",
        "[[1]](",
        "[x](",
        "^",
        "\n",
        "> ",
        "- ",
        " ",
        "\t",
        "```\n",
        "| ",
        "1",
        "a",
        "https://a",
        "[1]",
        "{",
    ] {
        for lead in ["", "[1]", "`x ", "[[1]](https://"] {
            let mut reader = reader::Reader::default();
            reader.push(lead, &mut |_| {});
            for _ in 0..2_000 {
                reader.push(endless, &mut |_| {});
                assert!(reader.kept() < 4 * MAX_LINKED, "{lead} {endless}");
            }
            let mut held = 0;
            reader.finish(&mut |read| match read {
                reader::Read::Text(text) | reader::Read::Marker(_, text) => held += text.chars().count(),
            });
            let linked = lead.starts_with("[[") || endless.starts_with("[[");
            assert!(held <= if linked { MAX_LINKED } else { HOLD }, "{lead} {endless}: {held}");
        }
    }
}

#[test]
fn definitions_come_for_what_was_used_and_not_defined() {
    let mut rewriter = Rewriter::new(Style::Footnote);
    let (mut out, mut marks) = (String::new(), Vec::new());
    rewriter.push("一[2]，二[5][9]，三[7][^3]。\n\n[^3]: 自己的\n", &Sample, &mut out, &mut marks);
    rewriter.finish(&Sample, &mut out, &mut marks);
    assert_eq!(out, "一[^2]，二[^5][9]，三[^7][^3]。\n\n[^3]: 自己的\n");
    assert_eq!(rewriter.used().collect::<Vec<_>>(), [2, 3, 5, 7]);
    assert_eq!(rewriter.unresolved().collect::<Vec<_>>(), [9]);
    assert_eq!(
        rewriter.definitions(&Sample),
        "\n\n[^2]: [标题](https://2.example/)\n[^5]: [标题](https://1.example/)\n[^7]: 标题\n"
    );
    assert_eq!(Rewriter::new(Style::Link).definitions(&Sample), "");
}

#[test]
fn marks_count_code_points_of_what_went_out() {
    let (out, marks) = rewrite("🔥火[1, 2][9]。", Style::Footnote, &Sample);
    assert_eq!(out, "🔥火[^1][^2][9]。");
    assert_eq!(marks, [Mark { number: 1, start: 2, end: 6 }, Mark { number: 2, start: 6, end: 10 }]);
    let (_, marks) = rewrite("🔥火[1, 2]。", Style::Keep, &Sample);
    assert_eq!(marks, [Mark { number: 1, start: 2, end: 8 }, Mark { number: 2, start: 2, end: 8 }]);
    let (_, marks) = rewrite("🔥火 [1]。", Style::Strip, &Sample);
    assert_eq!(marks, [Mark { number: 1, start: 2, end: 2 }]);
}

#[test]
fn a_source_that_comes_later_changes_nothing_that_went_out() {
    struct Nobody;
    impl Sources for Nobody {
        fn find(&self, _: u32) -> Option<Source<'_>> {
            None
        }
    }
    let mut rewriter = Rewriter::new(Style::Footnote);
    let (mut out, mut marks) = (String::new(), Vec::new());
    rewriter.push("一[1]，", &Nobody, &mut out, &mut marks);
    assert_eq!(out, "一[1]，", "not waited for");
    rewriter.push("二[1]。", &Sample, &mut out, &mut marks);
    rewriter.finish(&Sample, &mut out, &mut marks);
    assert_eq!(out, "一[1]，二[^1]。");
}

#[test]
fn styles_have_names() {
    for (style, name) in STYLES.into_iter().zip(Style::NAMES) {
        assert_eq!((style.as_str(), name.parse()), (*name, Ok(style)));
    }
    assert_eq!("Link".parse::<Style>(), Err(()));
}

//! Every form of a marker in every style, split at every position, and text that is no marker.

use super::*;

/// Sources 1 to 6 and 12 have a URL, 7 has none, 8 has one that is not http. 5 is an alias of 1.
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

/// The marker of source `number` in `style`.
fn written_marker(style: Style, number: u32) -> String {
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

/// Replaces `{1}` in a pattern with the marker of source 1 in `style`.
fn expected(pattern: &str, style: Style) -> String {
    let mut out = String::new();
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('{') {
        let (number, after) = after.split_once('}').unwrap();
        out += before;
        out += &written_marker(style, number.parse().unwrap());
        rest = after;
    }
    out + rest
}

/// Rewrites the text as a whole, in two pieces at every position and by character, and checks that the results are equal.
fn every_split(text: &str, style: Style) -> String {
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
        assert_eq!(pieces(&[&text[..at], &text[at..]]), whole, "{style:?} split at {at}: {text:?}");
    }
    let chars: Vec<String> = text.chars().map(String::from).collect();
    let chars: Vec<&str> = chars.iter().map(String::as_str).collect();
    assert_eq!(pieces(&chars), whole, "{style:?} by character: {text:?}");
    whole.0
}

#[test]
fn every_form_is_rewritten_in_every_style() {
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
        // A source name contains nothing that may open code, HTML, math or a link.
        ("火灾【1†<b>】【1†`a】`【1†\\】【1†$x】$【1†[2]】。", "火灾【1†<b>】【1†`a】`【1†\\】【1†$x】$【1†{2}】。"),
        ("火灾[ID:1]。", "火灾{1}。"),
        ("火灾[[1]](https://1.example/)。", "火灾{1}。"),
        ("火灾[[1]]。", "火灾{1}。"),
        ("火灾<span id=\"ai-qa-ref\">1</span>。", "火灾{1}。"),
        ("火灾<span class='x' id='ai-qa-ref'>[1]</span>。", "火灾{1}。"),
        ("火灾<span id=\"ai-qa-ref\">1,2</span>。", "火灾{1}{2}。"),
        // An alias, and sources without a link.
        ("火灾[5][7][8]。", "火灾{5}{7}{8}。"),
        // Leading zeros are ignored.
        ("火灾[01]。", "火灾{1}。"),
        // A number without a source is kept, also next to one with a source.
        ("火灾[9][1]。", "火灾[9]{1}。"),
        ("火灾[1,9]。", "火灾{1}[9]。"),
        ("火灾^[9][1]^。", "火灾[9]{1}。"),
        // Prose in all contexts.
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
        // The scheme of an autolink has at least two letters, so this is none.
        ("a <p:x/[1]>", "a <p:x/{1}>"),
        ("[参见[1]] x", "[参见{1}] x"),
        ("\\\\[1]", "\\\\{1}"),
        ("emoji🔥[1]🔥", "emoji🔥{1}🔥"),
        ("<b>x[1]</b>", "<b>x{1}</b>"),
        ("<sup>[1]</sup>", "<sup>{1}</sup>"),
    ] {
        assert_eq!(every_split(text, Style::Keep), text);
        for style in &STYLES[1..] {
            assert_eq!(every_split(text, *style), expected(pattern, *style), "{style:?}: {text}");
        }
    }
}

#[test]
fn non_markers_are_kept() {
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
            assert_eq!(every_split(text, style), text, "{style:?}");
        }
    }
}

#[test]
fn cite_token_is_removed_only_by_strip() {
    let text = "火灾 \u{E200}cite\u{E202}turn0search0\u{E202}turn0news1\u{E201}。";
    for style in STYLES {
        let expected = if style == Style::Strip { "火灾。" } else { text };
        assert_eq!(every_split(text, style), expected, "{style:?}");
    }
}

#[test]
fn stripped_marker_removes_a_space_that_separates_no_words() {
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
        assert_eq!(every_split(text, Style::Strip), expected, "{text}");
    }
}

#[test]
fn linked_marker_keeps_the_url_of_the_upstream() {
    let text = "x[[1]](https://other.example/a_(b)?c)。";
    assert_eq!(every_split(text, Style::Link), "x[[1]](https://other.example/a_%28b%29?c)。");
    assert!(every_split(text, Style::Sup).ends_with(">1</sup>](https://other.example/a_%28b%29?c)。"));
    assert_eq!(every_split(text, Style::Footnote), "x[^1]。");
    assert_eq!(every_split(text, Style::Strip), "x。");
    assert_eq!(every_split("x[[1]](javascript:a)", Style::Link), "x[[1]](https://1.example/)");
    assert_eq!(every_split("x[[9]](https://a.example/)", Style::Link), "x[[9]](https://a.example/)");
}

#[test]
fn constructs_beyond_the_lookahead_follow_their_rules() {
    let far = "一".repeat(MAX_LOOKAHEAD);
    let long = |text: &str| text.replace('…', &far);
    for (text, pattern) in [
        // Closed beyond the lookahead.
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
        // Unclosed: backticks and `$$` last until the paragraph ends, a `$` and a bracket do not.
        ("`…[1]\n[1]\n\n[2]", "`…[1]\n[1]\n\n{2}"),
        ("$$…[1]\n\n[2]", "$$…[1]\n\n{2}"),
        ("$x…[1]$", "$x…{1}$"),
        ("[…[1]…](https://a.example)", "[…{1}…](https://a.example)"),
        ("[…[1]\n\n[2]", "[…{1}\n\n{2}"),
        ("[…] [1]", "[…] {1}"),
        ("[…[x [1]] [2](u)", "[…[x {1}] [2](u)"),
        // Unclosed within the lookahead.
        ("`[1]\n\n[2]", "`{1}\n\n{2}"),
        ("`[1]", "`{1}"),
    ] {
        assert_eq!(every_split(&long(text), Style::Footnote), long(&expected(pattern, Style::Footnote)), "{text}");
    }
}

#[test]
fn marker_at_the_cap_is_parsed_and_a_longer_one_is_text() {
    let lenticular = |length: usize| format!("【1†{}】", "x".repeat(length - 4));
    assert_eq!(every_split(&lenticular(MAX_LOOKAHEAD), Style::Footnote), "[^1]");
    assert_eq!(every_split(&lenticular(MAX_LOOKAHEAD + 1), Style::Footnote), lenticular(MAX_LOOKAHEAD + 1));
    let linked = |length: usize| format!("[[1]](https://{})", "x".repeat(length - 15));
    assert_eq!(rewrite(&linked(MAX_LINKED), Style::Footnote, &Sample).0, "[^1]");
    assert_eq!(rewrite(&linked(MAX_LINKED + 1), Style::Footnote, &Sample).0, linked(MAX_LINKED + 1));
}

#[test]
fn reader_buffer_is_bounded() {
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
            reader.finish(&mut |segment| match segment {
                reader::Segment::Text(text) | reader::Segment::Marker(_, text) => held += text.chars().count(),
            });
            let linked = lead.starts_with("[[") || endless.starts_with("[[");
            assert!(held <= if linked { MAX_LINKED } else { MAX_LOOKAHEAD }, "{lead} {endless}: {held}");
        }
    }
}

#[test]
fn footnotes_are_defined_if_used_and_undefined() {
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
fn mark_ranges_are_code_points_of_the_output() {
    let (out, marks) = rewrite("🔥火[1, 2][9]。", Style::Footnote, &Sample);
    assert_eq!(out, "🔥火[^1][^2][9]。");
    assert_eq!(marks, [Mark { number: 1, start: 2, end: 6 }, Mark { number: 2, start: 6, end: 10 }]);
    let (_, marks) = rewrite("🔥火[1, 2]。", Style::Keep, &Sample);
    assert_eq!(marks, [Mark { number: 1, start: 2, end: 8 }, Mark { number: 2, start: 2, end: 8 }]);
    let (_, marks) = rewrite("🔥火 [1]。", Style::Strip, &Sample);
    assert_eq!(marks, [Mark { number: 1, start: 2, end: 2 }]);
}

#[test]
fn later_source_does_not_change_earlier_output() {
    struct NoSources;
    impl Sources for NoSources {
        fn find(&self, _: u32) -> Option<Source<'_>> {
            None
        }
    }
    let mut rewriter = Rewriter::new(Style::Footnote);
    let (mut out, mut marks) = (String::new(), Vec::new());
    rewriter.push("一[1]，", &NoSources, &mut out, &mut marks);
    assert_eq!(out, "一[1]，", "not held back");
    rewriter.push("二[1]。", &Sample, &mut out, &mut marks);
    rewriter.finish(&Sample, &mut out, &mut marks);
    assert_eq!(out, "一[1]，二[^1]。");
}

#[test]
fn style_names_round_trip() {
    for (style, name) in STYLES.into_iter().zip(Style::NAMES) {
        assert_eq!((style.as_str(), name.parse()), (*name, Ok(style)));
    }
    assert_eq!("Link".parse::<Style>(), Err(()));
}

//! Tests that untrusted titles, excerpts and URLs cannot break the markup around them, and that markers are written as
//! frontends write them.

use proptest::{prelude::*, sample::select};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::*;

/// Source 1 only.
struct One<'a>(Source<'a>);

impl Sources for One<'_> {
    fn find(&self, number: u32) -> Option<Source<'_>> {
        (number == 1).then_some(self.0)
    }
}

fn source<'a>(url: &'a str, title: &'a str, content: &'a str) -> One<'a> {
    One(Source { number: 1, url: Some(url), title: Some(title), content: Some(content) })
}

fn events(text: &str) -> Vec<Event<'_>> {
    Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_MATH | Options::ENABLE_FOOTNOTES).collect()
}

/// The URL and the content of the first link of a text.
fn link(text: &str) -> (String, Vec<Event<'_>>) {
    let events = events(text);
    let start = events.iter().position(|event| matches!(event, Event::Start(Tag::Link { .. }))).expect(text);
    let end = events.iter().position(|event| matches!(event, Event::End(TagEnd::Link))).expect(text);
    let Event::Start(Tag::Link { dest_url, .. }) = &events[start] else { unreachable!() };
    (dest_url.to_string(), events[start + 1..end].to_vec())
}

/// Decodes the entities of an attribute.
fn decode_entities(attribute: &str) -> String {
    let mut out = String::new();
    let mut rest = attribute;
    while let Some((before, after)) = rest.split_once('&') {
        let (entity, after) = after.split_once(';').unwrap();
        out += before;
        out.push(match entity {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            other => char::from_u32(other.strip_prefix('#').unwrap().parse().unwrap()).unwrap(),
        });
        rest = after;
    }
    out + rest
}

/// Text around a marker. Nothing in it may pair with something in the marker.
const AROUND: &[(&str, &str)] = &[
    ("火灾", "。"),
    ("a ` b", " c"),
    ("a $x", " c"),
    ("a [b", " c] d"),
    ("| h |\n|---|\n| x", " |"),
    ("a **b", "** c"),
    ("a \\\\", ""),
];

/// Random sequences of special characters.
fn special_chars() -> impl Strategy<Value = String> {
    let bits = [
        "'",
        "\"",
        "<",
        ">",
        "&",
        "&lt;",
        "`",
        "``",
        "$",
        "$$",
        "|",
        "[",
        "]",
        "(",
        ")",
        "[2]",
        "](x)",
        "\\",
        "\n",
        "\n\n",
        "\r",
        "\t",
        " ",
        "'><script>",
        "</sup>",
        "-->",
        "*",
        "_",
        "#",
        "标题",
        "🔥",
        "\u{202E}",
        "\u{2028}",
        "\0",
        "http://",
        "%",
        ";",
        "^",
        "{",
        "}",
        "~",
        "!",
        "=",
        "1.",
    ];
    prop::collection::vec(select(bits.to_vec()), 0..8).prop_map(|bits| bits.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn untrusted_text_cannot_break_the_markup(
        title in special_chars(), content in special_chars(), path in special_chars(), around in select(AROUND),
    ) {
        let url = format!("https://a.example/{path}");
        let sources = source(&url, &title, &content);
        let text = format!("{}[1]{}", around.0, around.1);
        let (sup, marks) = rewrite(&text, Style::Sup, &sources);
        prop_assert_eq!(marks.len(), 1);
        let (destination, inside) = link(&sup);
        let [Event::InlineHtml(open), Event::Text(number), Event::InlineHtml(close)] = &inside[..] else {
            return Err(TestCaseError::fail(format!("{sup:?} {inside:?}")));
        };
        prop_assert_eq!((&**number, &**close), ("1", "</sup>"));
        let attribute = open.strip_prefix("<sup data-citation='").unwrap().strip_suffix("'>").unwrap();
        prop_assert!(!attribute.contains(['\'', '"', '<', '>', '`', '|', '$', '[', ']', '\n']));
        let data: serde_json::Value = serde_json::from_str(&decode_entities(attribute)).unwrap();
        let content: String = content.chars().take(200).collect();
        prop_assert_eq!(data, serde_json::json!({ "id": 1, "url": url, "title": title, "content": content }));

        let (linked, _) = rewrite(&text, Style::Link, &sources);
        let (same, inside) = link(&linked);
        prop_assert_eq!(&same, &destination);
        prop_assert!(same.starts_with("https://a.example/") && !same.contains(['(', ')', '|', '<', '>', ' ', '\n']));
        let inside: String = inside.iter().map(|event| if let Event::Text(text) = event { text } else { "?" }).collect();
        prop_assert_eq!(inside, "[1]");
        // A written marker is not rewritten again.
        prop_assert_eq!(rewrite(&sup, Style::Strip, &sources).0, sup);
    }

    #[test]
    fn footnote_definition_is_one_link_on_one_line(title in special_chars(), path in special_chars()) {
        let url = format!("https://a.example/{path}");
        let sources = source(&url, &title, "");
        let mut rewriter = Rewriter::new(Style::Footnote);
        let (mut out, mut marks) = (String::new(), Vec::new());
        rewriter.push("x[1]", &sources, &mut out, &mut marks);
        rewriter.finish(&sources, &mut out, &mut marks);
        out += &rewriter.definitions(&sources);
        prop_assert_eq!(out.lines().count(), 3);
        let events = events(&out);
        let count = |is: fn(&Event<'_>) -> bool| events.iter().filter(|event| is(event)).count();
        prop_assert_eq!(count(|event| matches!(event, Event::Start(Tag::Link { .. }))), 1, "{}", out);
        prop_assert_eq!(count(|event| matches!(event, Event::FootnoteReference(_))), 1);
        let other = |event: &Event<'_>| {
            matches!(event, Event::Html(_) | Event::InlineHtml(_) | Event::Code(_) | Event::InlineMath(_) | Event::SoftBreak)
        };
        prop_assert_eq!(count(other), 0, "{}", out);
    }
}

#[test]
fn urls_are_escaped_for_links() {
    for (url, expected) in [
        ("https://a.example/b_(c)?d=1&e=2#f", "[[1]](https://a.example/b_%28c%29?d=1&e=2#f)"),
        ("https://a.example/a|b c<d>", "[[1]](https://a.example/a%7Cb%20c%3Cd%3E)"),
        ("https://a.example/%20火", "[[1]](https://a.example/%20火)"),
        ("https://a.example/?a&lt;b", "[[1]](https://a.example/?a&amp;lt;b)"),
        ("HTTP://A.example/", "[[1]](HTTP://A.example/)"),
        ("javascript:alert(1)", "[1]"),
        ("//a.example", "[1]"),
        ("httpx://a.example", "[1]"),
        ("", "[1]"),
    ] {
        assert_eq!(rewrite("[1]", Style::Link, &source(url, "", "")).0, expected);
    }
}

/// The character after the marker decides whether the space is removed.
#[test]
fn space_before_a_stripped_marker_is_held() {
    let mut rewriter = Rewriter::new(Style::Strip);
    let (mut out, sources) = (String::new(), source("https://a.example/", "", ""));
    rewriter.push("a <span id=\"ai-qa-ref\">1</span>", &sources, &mut out, &mut Vec::new());
    assert_eq!((&*out, rewriter.holds(), rewriter.decided()), ("a", true, 1));
    rewriter.push("b", &sources, &mut out, &mut Vec::new());
    assert_eq!((&*out, rewriter.holds()), ("a b", false));
}

#[test]
fn excerpt_is_cut_at_a_character_boundary() {
    let content = "火".repeat(201);
    let (out, _) = rewrite("[1]", Style::Sup, &source("https://a.example/", "", &content));
    assert_eq!(out.matches('火').count(), 200);
}

/// A port of `withCitationTags` of frontends: `/(?<!\])\[(\d{1,2})\](?!\()/`, with sources looked up by position.
fn with_citation_tags(text: &str, citations: &[[&str; 3]]) -> String {
    let expression = regex::Regex::new(r"\[(\d{1,2})\]").unwrap();
    let mut out = String::new();
    let mut at = 0;
    for found in expression.captures_iter(text) {
        let (whole, number) = (found.get(0).unwrap(), found[1].parse::<usize>().unwrap());
        out += &text[at..whole.start()];
        at = whole.end();
        let lookaround = !text[..whole.start()].ends_with(']') && !text[at..].starts_with('(');
        match number.checked_sub(1).and_then(|index| citations.get(index)).filter(|_| lookaround) {
            Some([url, title, content]) => {
                let content: String = content.chars().take(200).collect();
                let json = format!("{{\"id\":{number},\"url\":{url:?},\"title\":{title:?},\"content\":{content:?}}}");
                let json = json
                    .replace('&', "&amp;")
                    .replace('<', "&lt;")
                    .replace('>', "&gt;")
                    .replace('"', "&quot;")
                    .replace('\'', "&#39;");
                out += &format!("[<sup data-citation='{json}'>{number}</sup>]({url})");
            }
            None => out += whole.as_str(),
        }
    }
    out + &text[at..]
}

const CITATIONS: &[[&str; 3]] = &[
    ["https://a.example/1", "香港宏福苑火灾", "据报道"],
    ["https://b.example/2?x=1&y=2", "It's <b>bold</b> & 'quoted'", ""],
    ["http://c.example/", "", "a \"quoted\" word"],
];

/// [`CITATIONS`] by position, from 1.
struct Positions;

impl Sources for Positions {
    fn find(&self, number: u32) -> Option<Source<'_>> {
        let [url, title, content] = CITATIONS.get((number as usize).checked_sub(1)?)?;
        Some(Source { number, url: Some(url), title: Some(title), content: Some(content) })
    }
}

#[test]
fn superscript_equals_that_of_frontends() {
    let text = "香港宏福苑发生严重火灾[2]";
    let expected = "香港宏福苑发生严重火灾[<sup data-citation='{&quot;id&quot;:2,&quot;url&quot;:&quot;https://b.example/2?x=1&amp;y=2&quot;,\
                    &quot;title&quot;:&quot;It&#39;s &lt;b&gt;bold&lt;/b&gt; &amp; &#39;quoted&#39;&quot;,&quot;content&quot;:&quot;&quot;}'>2</sup>]\
                    (https://b.example/2?x=1&y=2)";
    assert_eq!(with_citation_tags(text, CITATIONS), expected);
    assert_eq!(rewrite(text, Style::Sup, &Positions).0, expected);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// Except for `[1][2]`: two markers here, but one for that expression.
    #[test]
    fn plain_markers_equal_those_of_frontends(parts in prop::collection::vec((
        select(vec!["[1]", "[2]", "[3]", "[4]", "[12]", "[0]", "[123]", "[x][1]", "[1](u)", "[1](a b)", "[x]", "[x [2]", "[01]"]),
        select(vec!["火灾", "。", " word ", ".", ", ", "\n", "\n\n", "\n- ", " (2024)", "**", "：", "🔥", "[ ", "] ", "!"]),
    ), 0..20)) {
        let text: String = parts.iter().flat_map(|(marker, word)| [*word, *marker]).collect();
        let text = text.replace("[01]", "[1] ");
        prop_assert_eq!(rewrite(&text, Style::Sup, &Positions).0, with_citation_tags(&text, CITATIONS));
    }
}

/// Compares the best of five interleaved rounds, so that a machine that becomes slower does not fail the test.
#[test]
fn time_per_delta_does_not_grow_with_the_answer() {
    const SENTENCE: &str = "据多家媒体报道，香港宏福苑发生严重火灾，The capital was informed of it on Monday[1][2]。";
    let deltas = |sentences: usize| {
        let chars: Vec<char> = SENTENCE.repeat(sentences).chars().collect();
        chars.chunks(4).map(|delta| delta.iter().collect::<String>()).collect::<Vec<_>>()
    };
    let per_delta = |deltas: &[String], style: Style| {
        let (mut rewriter, mut out, mut marks) = (Rewriter::new(style), String::new(), Vec::new());
        let began = std::time::Instant::now();
        for delta in deltas {
            rewriter.push(delta, &Positions, &mut out, &mut marks);
        }
        rewriter.finish(&Positions, &mut out, &mut marks);
        began.elapsed() / deltas.len() as u32
    };
    let (short, long) = (deltas(50), deltas(1_000));
    for style in [Style::Keep, Style::Link, Style::Sup, Style::Strip] {
        let rounds: Vec<_> = (0..5).map(|_| (per_delta(&short, style), per_delta(&long, style))).collect();
        let best_short = rounds.iter().map(|(short, _)| *short).min().unwrap();
        let best_long = rounds.iter().map(|(_, long)| *long).min().unwrap();
        // Time that grows with the answer would be 20 times as long.
        assert!(best_long < best_short * 5, "{}: {best_short:?} became {best_long:?}", style.as_str());
    }
}

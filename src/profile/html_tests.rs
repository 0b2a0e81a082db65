use super::*;
use crate::marker::Source;

struct FixedSources(Vec<(u32, &'static str, &'static str, &'static str)>);

impl Sources for FixedSources {
    fn find(&self, number: u32) -> Option<Source<'_>> {
        let (number, url, title, content) = *self.0.iter().find(|source| source.0 == number)?;
        Some(Source {
            number,
            url: Some(url).filter(|url| !url.is_empty()),
            title: Some(title),
            content: Some(content),
        })
    }
}

fn sample_sources() -> FixedSources {
    FixedSources(vec![
        (1, "https://a.example/?x=1&y=2", "A \"title\"", "An excerpt"),
        (2, "https://b.example/", "B", ""),
        (3, "", "Doc", ""),
    ])
}

fn render(text: &str) -> String {
    html(text, &sample_sources())
}

/// Parses every tag of `html` with its attributes, in the form that the serializer writes.
fn tags(html: &str) -> Vec<(String, Vec<(String, String)>)> {
    let mut tags = Vec::new();
    let mut rest = html;
    while let Some(start) = rest.find('<') {
        rest = &rest[start + 1..];
        let (mut in_value, mut end) = (false, rest.len());
        for (at, c) in rest.char_indices() {
            match c {
                '"' => in_value = !in_value,
                '>' if !in_value => {
                    end = at;
                    break;
                }
                _ => {}
            }
        }
        let tag = &rest[..end];
        rest = &rest[end..];
        let name = tag.split([' ', '/']).find(|part| !part.is_empty()).unwrap_or_default().to_owned();
        let parts: Vec<&str> = tag.split('"').collect();
        let key = |part: &str| part.trim().strip_suffix('=').and_then(|key| key.rsplit(' ').next()).map(str::to_owned);
        tags.push((name, parts.chunks_exact(2).filter_map(|pair| Some((key(pair[0])?, pair[1].to_owned()))).collect()));
    }
    tags
}

#[test]
fn marker_becomes_a_link_with_source_data() {
    let html = render("Fact[1], and more [1,2].");
    let link = "<a class=\"citation\" href=\"https://a.example/?x=1&amp;y=2\" title=\"A &quot;title&quot;\" target=\"_blank\" \
                referrerpolicy=\"no-referrer\" rel=\"noopener noreferrer nofollow\"><sup data-citation=\"{&quot;id&quot;:1,\
                &quot;url&quot;:&quot;https://a.example/?x=1&amp;y=2&quot;,&quot;title&quot;:&quot;A \\&quot;title\\&quot;&quot;,\
                &quot;content&quot;:&quot;An excerpt&quot;}\">1</sup></a>";
    assert!(
        html.starts_with(&format!("<p>Fact{link}, and more {link}<a class=\"citation\" href=\"https://b.example/\"")),
        "{html}"
    );
}

#[test]
fn source_without_url_becomes_a_bare_number() {
    assert!(render("x [3]").contains("<p>x <sup data-citation=\"{&quot;id&quot;:3"), "{}", render("x [3]"));
    assert!(!render("x [3]").contains("<a"));
}

#[test]
fn unknown_numbers_and_markers_in_code_stay_text() {
    assert_eq!(render("x [7] `a[1]`"), "<p>x [7] <code>a[1]</code></p>\n");
    assert_eq!(render("```\nx[1]\n```"), "<pre><code>x[1]\n</code></pre>\n");
}

#[test]
fn markdown_around_markers_is_rendered() {
    assert!(
        render("**粗体：**[1]后文").starts_with("<p><strong>粗体：</strong><a class"),
        "{}",
        render("**粗体：**[1]后文")
    );
    let table = render("| a | b |\n|---|:-:|\n| x [1] | y |");
    assert!(table.contains("<td>x <a class=\"citation\"") && table.contains("<td>y</td>"), "{table}");
    assert!(render("- a [1]\n- b [2]").matches("<li>").count() == 2);
}

#[test]
fn images_and_formulas_load_nothing() {
    let html = render("![alt](https://t.example/pixel.png) <img src=https://t.example/x> $a_1$ $$b$$ - [ ] x");
    assert!(html.contains("<a href=\"https://t.example/pixel.png\"") && !html.contains("<img"), "{html}");
    assert!(html.contains("$a_1$") && html.contains("$$b$$"), "{html}");
}

#[test]
fn disallowed_tags_become_text_and_hide_nothing() {
    for tag in
        ["script", "style", "textarea", "title", "noscript", "iframe", "math", "svg", "plaintext", "template", "xmp"]
    {
        for text in
            [format!("Use the <{tag}> tag. More [1]."), format!("<{tag}>\nalone\n\nMore [1]."), format!("<{tag} a=\"b")]
        {
            let html = render(&format!("{text}\n\nLast words."));
            assert!(html.contains(&format!("&lt;{tag}")), "{text}: {html}");
            assert!(html.contains("Last words."), "{text}: {html}");
        }
    }
    for (text, html) in [
        ("a<b>bold</b> <i title=\"x y\">i</i>", "<p>a<b>bold</b> <i title=\"x y\">i</i></p>\n"),
        ("a <!-- not shown --> b", "<p>a  b</p>\n"),
        ("<!-- open\n\nLast words.", "&lt;!-- open\n\nLast words."),
        ("<p title=\"open>\n\nLast words.", "&lt;p title=\"open&gt;\n<p>Last words.</p>\n"),
        ("<p open\n\nLast words.", "&lt;p open\n<p>Last words.</p>\n"),
        ("x < y and <a-b> stay", "<p>x &lt; y and &lt;a-b&gt; stay</p>\n"),
    ] {
        assert_eq!(render(text), html, "{text}");
    }
}

#[test]
fn placeholder_characters_in_the_text_are_replaced() {
    let forged = format!("[{}] x [1]", char::from_u32(FIRST_PLACEHOLDER).unwrap());
    let html = render(&forged);
    assert_eq!(html.matches("<a class=\"citation\"").count(), 1, "{html}");
    assert!(html.starts_with("<p>[\u{fffd}] x <a"), "{html}");
}

/// Hostile answers, titles and URLs give only allowed tags and attributes.
#[test]
fn hostile_input_gives_only_allowed_tags() {
    let texts = [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "<svg onload=alert(1)>",
        "<svg><script>alert(1)</script></svg>",
        "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
        "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
        "<a href=\"javascript:alert(1)\">x</a>",
        "<a href=' javascript:alert(1)'>x</a>",
        "<a href='JaVaScRiPt:alert(1)'>x</a>",
        "<a href='data:text/html,<script>alert(1)</script>'>x</a>",
        "<a href='//evil.example'>x</a>",
        "[x](javascript:alert(1))",
        "[x](https:logout) [x](https:/logout) <a href=\"HTTPS:logout\">x</a>",
        "[x](java&#x0A;script:alert(1))",
        "[x](vbscript:msgbox(1))",
        "[x](data:text/html;base64,PHNjcmlwdD4=)",
        "![x](javascript:alert(1))",
        "![\" onerror=alert(1) x=\"](https://a.example)",
        "<javascript:alert(1)>",
        "[x]: javascript:alert(1)\n\n[x]",
        "<p onclick=alert(1) style='position:fixed'>x</p>",
        "<base href=https://evil.example><meta http-equiv=refresh content=0>",
        "<form action=https://evil.example><input type=submit></form>",
        "<object data=x></object><embed src=x><link rel=stylesheet href=x>",
        "<sup data-citation='{\"url\":\"javascript:alert(1)\"}'>1</sup>",
        "<a class=citation href=https://evil.example><sup data-citation='{}'>1</sup></a>",
        "<noscript><p title=\"</noscript><img src=x onerror=alert(1)>\">",
        "<!--<img src=\"--><img src=x onerror=alert(1)//\">",
        "<template><script>alert(1)</script></template>",
        "<style>@import 'https://evil.example';</style>",
        "\u{202e}<b>rtl</b>\0",
        "`</code><script>alert(1)</script>`",
        "```html\n</code></pre><script>alert(1)</script>\n```",
        "&lt;script&gt;alert(1)&lt;/script&gt;",
        "<details open ontoggle=alert(1)><summary>x",
        "<video><source onerror=alert(1)></video>",
        "<a href=\"https://a.example\" onmouseover=alert(1)>x [1]</a>",
        "[[1]](javascript:alert(1)) [1](javascript:alert(1))",
        "<a title=\"[1]\" href=https://a.example>x</a> [1]",
    ];
    let allowed = [
        "a",
        "b",
        "blockquote",
        "br",
        "code",
        "del",
        "em",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "hr",
        "i",
        "kbd",
        "li",
        "ol",
        "p",
        "pre",
        "s",
        "strong",
        "sub",
        "sup",
        "table",
        "tbody",
        "td",
        "th",
        "thead",
        "tr",
        "u",
        "ul",
    ];
    let attributes = ["href", "title", "class", "rel", "target", "referrerpolicy", "data-citation", "start"];
    for (hostile, evil_source) in texts.iter().flat_map(|text| [(text, false), (text, true)]) {
        let text = if evil_source { "fact [1] [2]".to_owned() } else { format!("{hostile} [2]") };
        let injected: &'static str = hostile;
        let sources = FixedSources(vec![
            (1, injected, injected, injected),
            (2, "https://b.example/'\"><script>", injected, injected),
        ]);
        let html = html(&text, &sources);
        for (name, attrs) in tags(&html) {
            assert!(allowed.contains(&&*name), "{name} in {html}");
            for (attr, value) in attrs {
                assert!(attributes.contains(&&*attr), "{attr} in {html}");
                let web = value.starts_with("http://") || value.starts_with("https://");
                assert!(attr != "href" || web, "{value} in {html}");
            }
        }
        let citations = html.matches("class=\"citation\"").count();
        assert!(citations <= 2 && (evil_source || citations <= 1), "{html}");
    }
}

/// Placeholders in Markdown's own brackets would be parsed as links or link definitions.
#[test]
fn marker_is_not_parsed_as_a_markdown_link() {
    let link = |text: &str| render(text).replace(&render("【2】").replace("<p>", "").replace("</p>\n", ""), "‹2›");
    assert_eq!(link("x【2】(see below)"), "<p>x‹2›(see below)</p>\n");
    assert_eq!(link("【2】: https://c.example/"), "<p>‹2›: https://c.example/</p>\n");
    assert_eq!(link("x^[2]^(1) y"), "<p>x‹2›(1) y</p>\n");
    assert_eq!(link("[a]【2】\n\n[a]: https://c.example/").matches("<a ").count(), 1);
    assert_eq!(link("**x【2】** y"), "<p><strong>x‹2›</strong> y</p>\n");
}

/// The sanitizer's time grows with the square of the depth, so depth is limited in Markdown and in HTML.
#[test]
fn nesting_is_capped_at_the_limit() {
    let depth = |text: &str| {
        let (mut depth, mut deepest) = (0_usize, 0);
        for tag in render(text).split('<').skip(1) {
            depth = if tag.starts_with('/') { depth - 1 } else { depth + 1 };
            deepest = deepest.max(depth);
        }
        deepest
    };
    let quotes = |count: usize| format!("{}x", "> ".repeat(count));
    assert_eq!(depth(&quotes(MAX_NESTING - 1)), MAX_NESTING, "with its paragraph");
    assert_eq!(depth(&quotes(MAX_NESTING)), MAX_NESTING);
    assert!(render(&quotes(MAX_NESTING * 400)).contains('x'), "the text stays");
    let tags = |count: usize| "<ul>".repeat(count);
    assert_eq!(render(&tags(MAX_TAGS)).matches("<ul>").count(), MAX_TAGS);
    assert_eq!(render(&tags(MAX_TAGS + 1)).matches("<ul>").count(), MAX_TAGS);
    assert_eq!(render(&tags(MAX_TAGS + 1)).matches("&lt;ul&gt;").count(), 1);
}

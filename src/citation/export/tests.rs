//! Renders hostile records in every format. `tests/exports/check.py` reads the results with real tools.

use proptest::prelude::*;

use super::*;
use crate::citation::Citation;

const SEED: &str = include_str!("../../../tests/fixtures/doubao/seed.citations.json");

const HOSTILE: [&str; 16] = [
    "plain",
    "",
    "\"quotes\" 'single' “curly” ``ticks`` ''",
    "{open } close}} {{ \\{ \\} \\",
    "C:\\new\\textbf{x} $x_1^2$ 100% #1 & ~ -- ---",
    "</script><script>alert(1)</script><img src=x onerror=alert(1)>",
    "two\r\nlines\nER  - \nTY  - JOUR\n@misc{x,}",
    "a | b | c",
    "](javascript:alert(1)) [x](http://evil.example.com)",
    "![img](http://evil.example.com/x.png) `code` *em* _em_ ~~x~~ <b>",
    "\u{202e}gpj.exe \u{2066}x\u{2069} שלום مرحبا",
    "表情 👩‍👩‍👧 emoji \u{1f600}",
    "=HYPERLINK(\"http://evil.example.com\",\"x\")",
    "+1-2@3",
    "# heading 1. - * > ~~~",
    "\u{2028}line\u{2029}para\u{85}next\u{b}tab\ttab\0nul",
];

fn seed() -> Record {
    serde_json::from_str(SEED).unwrap()
}

/// Two sources: the first with this title and URL, the second from the seed.
fn record_with(title: &str, url: Option<&str>) -> Record {
    let mut record = seed();
    record.citations.truncate(2);
    let first = &mut record.citations[0];
    first.title = Some(title.to_owned());
    first.content = Some(title.to_owned());
    first.site_name = Some(title.to_owned());
    first.url = url.map(str::to_owned);
    record
}

fn rendered(record: &Record, format: Format) -> String {
    render(record, format, Options::default())
}

/// The label of the first source.
fn label(record: &Record) -> String {
    source::sources(record, false).remove(0).label
}

#[test]
fn format_names_round_trip() {
    for format in Format::ALL {
        assert_eq!(Format::from_name(format.name()), Some(format));
    }
    assert_eq!(Format::from_name("yaml"), None);
}

#[test]
fn markdown_list_has_no_needless_escapes() {
    let text = rendered(&seed(), Format::Markdown);
    let first = text.lines().next().unwrap();
    assert!(first.starts_with("1. [") && first.contains("](http://www.fiaoo.com/)"), "{first}");
    assert_eq!(text.lines().count(), 10);
    assert!(first.starts_with("1. [常州做小程序_微信小程序定制开发_APP"), "no needless escapes: {first}");
    let notes = rendered(&seed(), Format::Footnotes);
    assert!(notes.starts_with("[^1]: [") && notes.lines().count() == 10, "{notes}");
}

/// A gap in the numbers starts a new Markdown list; an alias has a footnote of its own.
#[test]
fn export_keeps_numbers_and_aliases_of_the_answer() {
    let mut record = record_with("a", Some("https://a.example.com/"));
    record.citations[1].number = 7;
    record.citations[1].aliases = vec![9];
    let text = rendered(&record, Format::Markdown);
    let starts: Vec<&str> = text.lines().map(|line| &line[..3]).collect();
    assert_eq!(starts, ["1. ", "7) "]);
    assert!(text.ends_with(" (= \\[9\\])\n"), "{text}");
    let notes = rendered(&record, Format::Footnotes);
    let starts: Vec<&str> = notes.lines().map(|line| &line[..5]).collect();
    assert_eq!(starts, ["[^1]:", "[^7]:", "[^9]:"]);
    assert!(rendered(&record, Format::Html).contains("<li value=\"7\""));
    assert!(rendered(&record, Format::Prompt).contains("\n[7] "));
}

#[test]
fn filtered_and_uncited_sources_are_not_exported() {
    let mut record = record_with("gone-title", Some("https://a.example.com/"));
    record.citations[0].status = crate::citation::record::CitationStatus::Filtered;
    record.citations[1].cited = false;
    for format in Format::ALL {
        assert!(!rendered(&record, format).contains("gone-title"), "{}", format.name());
        let none = render(&record, format, Options { cited: true, lang: None });
        assert!(!none.contains("http://") && !none.contains("https://"), "{}", none);
    }
    assert_eq!(render(&record, Format::Csl, Options { cited: true, lang: None }), "[]\n");
}

#[test]
fn prompt_has_the_form_of_the_contract() {
    let mut record = seed();
    record.citations[0].content = Some("字".repeat(151));
    let text = rendered(&record, Format::Prompt);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "搜索完成，找到 10 个结果：");
    assert!(lines[1].starts_with("[1] ") && lines[1].ends_with(&format!(": {}", "字".repeat(150))), "{text}");
    assert_eq!(lines.len(), 13);
    assert_eq!(lines[12], "请基于以上搜索结果回答用户问题，使用 [1]、[2] 等格式引用来源。");

    let mut eleventh = record.citations[9].clone();
    eleventh.number = 11;
    record.citations.push(eleventh);
    let text = render(&record, Format::Prompt, Options { lang: Some(Lang::En), cited: false });
    assert!(text.starts_with("Search finished, 11 results found:\n"), "{text}");
    assert!(text.contains("\n[10] ") && !text.contains("\n[11] "), "{text}");
    record.citations.clear();
    assert_eq!(rendered(&record, Format::Prompt), "搜索完成，找到 0 个结果。\n");
}

#[test]
fn language_is_that_of_the_text() {
    let lang_of = |title: &str| {
        let mut record = record_with(title, None);
        (record.summary, record.queries) = (None, Vec::new());
        record.citations.truncate(1);
        Lang::of(&record)
    };
    assert_eq!(lang_of("Heat pumps in cold climates"), Lang::En);
    assert_eq!(lang_of("用 Rust 和 SQLite 写一个代理"), Lang::Zh);
    assert_eq!(lang_of("Tea houses of Hangzhou and Suzhou (杭州)"), Lang::En);
    assert_eq!(lang_of(""), Lang::En);
}

#[test]
fn html_links_to_http_only_and_escapes_text() {
    for url in ["javascript:alert(1)", "data:text/html,x", "https://a.example.com/?a=\"><b>&c='d'"] {
        let page = rendered(&record_with("</script>", Some(url)), Format::Html);
        assert!(!page.contains("javascript:") && !page.contains("data:text") && !page.contains("<b>"), "{page}");
        assert!(!page.contains("script>") && page.contains("&lt;/script&gt;"), "{page}");
        assert_eq!(page.matches("<a href=\"http").count(), page.matches("<a ").count(), "{page}");
        assert_eq!(page.matches(" rel=\"noopener noreferrer nofollow\"").count(), page.matches("<a ").count());
    }
}

#[test]
fn csv_cell_is_never_a_formula() {
    for title in ["=1+1", "+1", "-1", "@SUM(A1)", "＝1", "\t=1", "\r=1"] {
        let rows = read_csv(&rendered(&record_with(title, None), Format::Csv));
        let cell = &rows[1][2];
        assert!(cell.starts_with('\''), "{title:?}: {cell:?}");
    }
    assert_eq!(read_csv(&rendered(&record_with("a=1", None), Format::Csv))[1][2], "a=1");
}

#[test]
fn keys_are_stable_and_unique() {
    let mut record = seed();
    let duplicate = record.citations[0].clone();
    record.citations.push(Citation { number: 99, ..duplicate });
    let keys: Vec<String> = source::sources(&record, false).into_iter().map(|source| source.key).collect();
    assert!(keys[0].starts_with("fiaoo-com-"), "{keys:?}");
    assert_eq!(keys[10], format!("{}-2", keys[0]));
    let fewer: Vec<String> = source::sources(&record_with("other title", Some("http://www.fiaoo.com/")), false)
        .into_iter()
        .map(|source| source.key)
        .collect();
    assert_eq!(fewer, keys[..2]);
}

#[test]
fn url_cannot_end_its_link_or_field() {
    let url = "https://a.example.com/a)b{c}d\\e|f?x=<y>&z=\"1\"&lt;#^";
    let record = record_with("t", Some(url));
    let text = rendered(&record, Format::Markdown);
    let first = text.lines().next().unwrap();
    assert!(first.starts_with("1. [t](https://a.example.com/a%29b%7Bc%7Dd/e"), "{first}");
    assert_eq!((first.matches('(').count(), first.matches(')').count()), (1, 1), "{first}");
    let bib = rendered(&record, Format::Bibtex);
    assert!(has_balanced_braces(&bib), "{bib}");
}

#[test]
fn hostile_texts_break_no_format() {
    for title in HOSTILE {
        for url in [None, Some("https://a.example.com/x?a=1&b=(2)")] {
            assert_formats_intact(&record_with(title, url));
        }
    }
}

proptest! {
    #[test]
    fn any_title_breaks_no_format(title in any::<String>(), url in any::<Option<String>>()) {
        assert_formats_intact(&record_with(&title, url.as_deref()));
    }

    #[test]
    fn any_special_characters_break_no_format(title in "[\\\\{}\"'`<>&|\\[\\]()#$%^_~*=+@,;:!/ \\r\\n\\t\u{202e}a1中-]{0,40}") {
        assert_formats_intact(&record_with(&title, Some(&format!("https://a.example.com/{title}"))));
    }
}

/// Checks the structure of every format, whatever the record contains.
fn assert_formats_intact(record: &Record) {
    let label = label(record);
    assert!(!label.chars().any(char::is_control), "{label:?}");

    let bib = rendered(record, Format::Bibtex);
    assert!(has_balanced_braces(&bib), "{bib}");
    assert_eq!(bib.lines().filter(|line| line.starts_with('@')).count(), 2, "{bib}");

    let rows = read_csv(&rendered(record, Format::Csv));
    assert_eq!(rows.len(), 3, "{rows:?}");
    assert!(rows.iter().all(|row| row.len() == 11), "{rows:?}");
    let title = source::sources(record, false).remove(0).title;
    let is_formula = title.starts_with(['=', '+', '-', '@', '＝', '＋', '－', '＠']);
    assert_eq!(rows[1][2], format!("{}{title}", if is_formula { "'" } else { "" }));

    let page = rendered(record, Format::Html);
    let harmless = rendered(&record_with("x", record.citations[0].url.as_deref()), Format::Html);
    // As many tags as with a harmless title. A blank title omits its lines.
    let tags = |page: &str| page.matches('<').count();
    if !title.is_empty() {
        assert_eq!(tags(&page), tags(&harmless), "{page}");
    }

    let ris = rendered(record, Format::Ris);
    assert_eq!(ris.matches("\r\nER  - ").count(), 2, "{ris}");
    let tagged = |line: &str| line.get(2..6) == Some("  - ");
    assert!(ris.split_terminator("\r\n").all(tagged), "{ris}");
    assert!(!ris.replace("\r\n", "").contains(['\r', '\n']), "{ris}");

    let csl: serde_json::Value = serde_json::from_str(&rendered(record, Format::Csl)).unwrap();
    assert_eq!(csl[0]["title"], label);
    assert!(!rendered(record, Format::Csl).contains('<'));

    let list = rendered(record, Format::Markdown);
    assert_eq!(list.lines().count(), 2, "{list}");
    assert_eq!(rendered(record, Format::Footnotes).lines().count(), 2);
    assert_eq!(rendered(record, Format::Prompt).lines().count(), 5);
}

/// True if braces are balanced as BibTeX counts them, which ignores backslashes.
fn has_balanced_braces(text: &str) -> bool {
    let mut depth = 0_i64;
    for c in text.chars() {
        depth += i64::from(c == '{') - i64::from(c == '}');
        if depth < 0 {
            return false;
        }
    }
    depth == 0
}

/// Parses CSV (RFC 4180) in which every cell is quoted.
fn read_csv(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut rest) = (Vec::new(), Vec::new(), text);
    while let Some(quoted) = rest.strip_prefix('"') {
        let (mut cell, mut from) = (String::new(), quoted);
        loop {
            let (before, after) = from.split_once('"').unwrap();
            cell += before;
            match after.strip_prefix('"') {
                Some(more) => {
                    cell.push('"');
                    from = more;
                }
                None => {
                    rest = after;
                    break;
                }
            }
        }
        row.push(cell);
        if let Some(next) = rest.strip_prefix(',') {
            rest = next;
        } else {
            rest = rest.strip_prefix("\r\n").unwrap();
            rows.push(std::mem::take(&mut row));
        }
    }
    assert_eq!(rest, "");
    rows
}

//! Target `render`: pages and exported files contain nothing active, and a page rendered in parts equals the whole one.

use citetap::{
    citation::{
        Record,
        export::{self, Format, Lang, Options},
    },
    marker::{Source, Sources},
    pipeline::offline,
    profile::{
        html::html,
        partial_html::{PartialHtml, partial_html},
    },
};
use serde_json::{Value, json};

use crate::{
    input::{pieces, split},
    stream::context,
};

/// Maximum number of times that a growing text is rendered.
const MAX_STEPS: usize = 16;

/// Sources whose texts and URLs are the untrusted input.
struct Hostile<'a>(&'a str);

impl Sources for Hostile<'_> {
    fn find(&self, number: u32) -> Option<Source<'_>> {
        // Even numbers have a source without data yet, as in a streaming answer.
        let known = number % 2 == 1;
        Some(Source {
            number,
            url: known.then_some(if number.is_multiple_of(3) { self.0 } else { "https://a.example/" }),
            title: known.then_some(self.0),
            content: known.then_some(self.0),
        })
    }
}

pub fn run(data: &[u8]) {
    let Some((head, body)) = split(data) else { return };
    let text = String::from_utf8_lossy(body);
    let sources = Hostile(&text);
    let whole = html(&text, &sources);
    check_inert(&whole);
    check_partial_rendering(&text, &sources, head[3], &whole);
    check_exports(&text, head[0]);
}

fn check_partial_rendering(text: &str, sources: &Hostile<'_>, seed: u8, whole: &str) {
    // Link definitions change earlier text, unclosed tags change later text, and a lone CR is a line end for Markdown only.
    // The length is limited because this is quadratic.
    let lone_cr = text.replace("\r\n", "").contains('\r');
    if text.contains("]:") || text.contains('<') || lone_cr || text.len() > 400 {
        return;
    }
    let (mut page, mut rest, mut shown) = (String::new(), String::new(), String::new());
    let pieces = pieces(text, seed.max(1));
    for group in pieces.chunks(pieces.len() / MAX_STEPS + 1) {
        group.iter().for_each(|piece| rest.push_str(piece));
        let PartialHtml { settled, open, settled_len } = partial_html(&rest, sources);
        page += &settled;
        rest.drain(..settled_len);
        shown = format!("{page}{open}");
        check_inert(&shown);
    }
    if !text.is_empty() {
        assert_eq!(shown, whole, "{text:?}");
    }
}

/// Exports a record whose texts are all untrusted, once as the ledger keeps them and once unchanged.
fn check_exports(text: &str, options: u8) {
    let parts: Vec<&str> = text.split('\n').collect();
    let part = |at: usize| parts.get(at % parts.len()).copied().unwrap_or_default();
    let result = |at: usize| json!({"title": part(at), "url": format!("https://a.example/{}", part(at + 1)), "content": text, "published_date": part(at + 2)});
    let results: Vec<Value> =
        (0..parts.len().min(4)).map(result).chain([json!({"title": text, "url": part(0)})]).collect();
    let document = json!({"query": part(1), "answer": part(2), "results": results}).to_string();
    let Some(kept) = offline::document_record(context(citetap::provider::tavily::PROVIDER), document.into()) else {
        return;
    };
    crate::record::check(&kept);
    let mut raw = kept.clone();
    raw.summary = Some(text.to_owned());
    for citation in &mut raw.citations {
        citation.title = Some(text.to_owned());
        citation.content = Some(text.to_owned());
        citation.site_name = Some(part(3).to_owned());
        citation.url = Some(part(0).to_owned());
        citation.published_at = Some(part(1).to_owned());
    }
    let lang = [None, Some(Lang::Zh), Some(Lang::En)][usize::from(options) % 3];
    let options = Options { cited: options & 4 != 0, lang };
    for record in [&*kept, &*raw] {
        for format in Format::ALL {
            check_export(record, format, options);
        }
    }
}

fn check_export(record: &Record, format: Format, options: Options) {
    let out = export::render(record, format, options);
    match format {
        Format::Html => check_inert(&out),
        Format::Csl => assert!(serde_json::from_str::<Value>(&out).expect("JSON").is_array()),
        Format::Csv => check_csv(&out),
        Format::Ris => {
            for line in out.lines().filter(|line| !line.is_empty()) {
                assert!(line.as_bytes().get(2..6) == Some(b"  - "), "{line:?}");
            }
        }
        Format::Bibtex => {
            let depth = out.bytes().fold(0_i64, |depth, byte| match byte {
                b'{' => depth + 1,
                b'}' => depth - 1,
                _ => depth,
            });
            assert_eq!(depth, 0, "{out}");
        }
        Format::Markdown | Format::Footnotes | Format::Prompt => {}
    }
}

/// All rows have the same number of fields, and no field is a formula for a spreadsheet.
fn check_csv(out: &str) {
    let (mut fields, mut field, mut quoted, mut rows) = (Vec::new(), String::new(), false, Vec::new());
    let mut chars = out.trim_start_matches('\u{FEFF}').chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.next_if_eq(&'"').is_some() => field.push('"'),
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(std::mem::take(&mut field)),
            '\r' if !quoted => {}
            '\n' if !quoted => {
                fields.push(std::mem::take(&mut field));
                rows.push(std::mem::take(&mut fields));
            }
            c => field.push(c),
        }
    }
    assert!(!quoted && field.is_empty() && fields.is_empty(), "{out:?}");
    for row in &rows {
        assert_eq!(row.len(), rows[0].len(), "{out:?}");
        assert!(!row.iter().any(|field| field.starts_with(['=', '+', '-', '@', '\t', '\r'])), "{row:?}");
    }
}

#[rustfmt::skip]
const TAGS: &[&str] = &[
    "a", "b", "bdi", "blockquote", "body", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "head", "hr",
    "html", "i", "kbd", "li", "meta", "ol", "p", "pre", "s", "strong", "style", "sub", "sup", "table", "tbody", "td",
    "th", "thead", "time", "title", "tr", "u", "ul",
];
#[rustfmt::skip]
const ATTRIBUTES: &[&str] = &[
    "charset", "class", "content", "data-citation", "dir", "href", "http-equiv", "id", "lang", "name", "referrerpolicy",
    "rel", "start", "target", "title", "value",
];

/// Only tags and attributes of the lists occur, and every link is http or https.
fn check_inert(page: &str) {
    let mut rest = page;
    while let Some((_, tag)) = rest.split_once('<') {
        if let Some(comment) = tag.strip_prefix("!doctype html>") {
            rest = comment;
            continue;
        }
        let tag = tag.strip_prefix('/').unwrap_or(tag);
        let name = tag.find(|c: char| !c.is_ascii_alphanumeric()).map_or(tag, |end| &tag[..end]);
        assert!(TAGS.contains(&name), "<{name}> in {page:?}");
        rest = &tag[name.len()..];
        // Attributes up to the end of the tag, every value in double quotes.
        loop {
            rest = rest.trim_start();
            if let Some(after) = rest.strip_prefix("/>").or_else(|| rest.strip_prefix('>')) {
                rest = after;
                break;
            }
            let (key, value) = rest.split_once("=\"").unwrap_or_else(|| panic!("a tag does not end: {page:?}"));
            assert!(ATTRIBUTES.contains(&key), "{key:?} in {page:?}");
            let (value, after) = value.split_once('"').unwrap_or_else(|| panic!("a value does not end: {page:?}"));
            if key == "href" {
                let value = value.to_ascii_lowercase();
                assert!(value.starts_with("http://") || value.starts_with("https://"), "{value:?}");
            }
            rest = after;
        }
    }
}

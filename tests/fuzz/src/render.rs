//! Answers and records as pages and files: nothing in them acts, and what grows is what the whole would be.

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

/// So often a page that grows is made anew.
const MAX_STEPS: usize = 16;

/// Sources whose texts are the stranger's own.
struct Hostile<'a>(&'a str);

impl Sources for Hostile<'_> {
    fn find(&self, number: u32) -> Option<Source<'_>> {
        // Numbers without a source have one that is to come, as in a page that grows.
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
    inert(&whole);
    grows(&text, &sources, head[3], &whole);
    exports(&text, head[0]);
}

fn grows(text: &str, sources: &Hostile<'_>, seed: u8, whole: &str) {
    // Definitions of links change what came before them, tags that do not end what comes after, and a CR alone is a line
    // end for Markdown only. And this is quadratic.
    let lone_cr = text.replace("\r\n", "").contains('\r');
    if text.contains("]:") || text.contains('<') || lone_cr || text.len() > 400 {
        return;
    }
    let (mut page, mut rest, mut shown) = (String::new(), String::new(), String::new());
    let pieces = pieces(text, seed.max(1));
    for some in pieces.chunks(pieces.len() / MAX_STEPS + 1) {
        some.iter().for_each(|piece| rest.push_str(piece));
        let PartialHtml { settled, open, settled_len } = partial_html(&rest, sources);
        page += &settled;
        rest.drain(..settled_len);
        shown = format!("{page}{open}");
        inert(&shown);
    }
    if !text.is_empty() {
        assert_eq!(shown, whole, "{text:?}");
    }
}

/// A record whose every text is a stranger's, once as the ledger keeps it and once as it is.
fn exports(text: &str, options: u8) {
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
            exported(record, format, options);
        }
    }
}

fn exported(record: &Record, format: Format, options: Options) {
    let out = export::render(record, format, options);
    match format {
        Format::Html => inert(&out),
        Format::Csl => assert!(serde_json::from_str::<Value>(&out).expect("JSON").is_array()),
        Format::Csv => csv(&out),
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

/// Rows of as many fields as the first, none of which a spreadsheet takes for a formula.
fn csv(out: &str) {
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

/// Every tag and attribute is one of few, every link leads to http or https.
fn inert(page: &str) {
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

//! Exports BibTeX and BibLaTeX: `@online` for sources with a URL, `@misc` for the others.

use super::{
    latex::escaped,
    source::{Day, Source, plain_url},
};

pub fn entries(sources: &[Source<'_>], accessed: Option<Day<'_>>) -> String {
    let entries: Vec<String> = sources.iter().map(|source| entry(source, accessed)).collect();
    entries.join("\n")
}

fn entry(source: &Source<'_>, accessed: Option<Day<'_>>) -> String {
    let kind = if source.url.is_some() { "online" } else { "misc" };
    let mut out = format!("@{kind}{{{},\n", source.key);
    let mut field = |name: &str, value: &str| out += &format!("  {name:<12} = {{{value}}},\n");
    // The second pair of braces keeps styles from lower-casing the title.
    field("title", &format!("{{{}}}", escaped(&source.label)));
    if let Some(site) = source.site.as_ref().filter(|site| **site != source.label) {
        field("organization", &format!("{{{}}}", escaped(site)));
    }
    if let Some(day) = source.published {
        field("date", day.text());
        // Classic BibTeX styles know `year` only.
        field("year", day.year());
    }
    if let Some(url) = &source.url {
        field("url", &plain_url(url, |c| !c.is_ascii_graphic() || matches!(c, '{' | '}' | '\\' | '"' | '^' | '|')));
        if let Some(day) = accessed {
            field("urldate", day.text());
        }
    }
    out + "}\n"
}

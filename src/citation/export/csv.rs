//! RFC 4180 in UTF-8 without a byte order mark: a header row, every cell quoted, CRLF.
//!
//! A spreadsheet takes a cell that begins with `=` for a formula, also a quoted one. A cell that begins with
//! such a character gets an apostrophe before it, which spreadsheets do not show.

use super::source::Source;

const HEADER: [&str; 11] =
    ["number", "aliases", "title", "url", "site", "hostname", "type", "published", "cited", "snippet", "source_id"];

pub fn table(sources: &[Source<'_>]) -> String {
    let mut out = String::new();
    row(&mut out, HEADER);
    for source in sources {
        let aliases: Vec<String> = source.aliases.iter().map(u32::to_string).collect();
        let (number, aliases) = (source.number.to_string(), aliases.join(" "));
        let cells = [
            number.as_str(),
            aliases.as_str(),
            source.title.as_str(),
            source.url.as_deref().unwrap_or_default(),
            source.site.as_deref().unwrap_or_default(),
            source.hostname.as_deref().unwrap_or_default(),
            source.kind,
            source.published.map(|day| day.text()).unwrap_or_default(),
            if source.cited { "true" } else { "false" },
            source.snippet.as_deref().unwrap_or_default(),
            source.source_id.as_str(),
        ];
        row(&mut out, cells);
    }
    out
}

/// Adds one row of any table.
pub fn row<const N: usize>(out: &mut String, cells: [&str; N]) {
    for (place, cell) in cells.into_iter().enumerate() {
        if place > 0 {
            out.push(',');
        }
        out.push('"');
        // The full-width ones count in East Asian locales.
        if cell.starts_with(['=', '+', '-', '@', '\t', '\r', '＝', '＋', '－', '＠']) {
            out.push('\'');
        }
        *out += &cell.replace('"', "\"\"");
        out.push('"');
    }
    *out += "\r\n";
}

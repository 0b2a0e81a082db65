//! Exports CSV (RFC 4180) in UTF-8 without a byte order mark: a header row, every cell quoted, lines end with CRLF.
//!
//! Spreadsheets run a cell that begins with `=` or a similar character as a formula, even if it is quoted. Such a cell gets an
//! apostrophe in front, which spreadsheets hide.

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

/// Appends one row. Also used for other tables of the API.
pub fn row<const N: usize>(out: &mut String, cells: [&str; N]) {
    for (column, cell) in cells.into_iter().enumerate() {
        if column > 0 {
            out.push(',');
        }
        out.push('"');
        // In East Asian locales the full-width characters start a formula too.
        if cell.starts_with(['=', '+', '-', '@', '\t', '\r', '＝', '＋', '－', '＠']) {
            out.push('\'');
        }
        *out += &cell.replace('"', "\"\"");
        out.push('"');
    }
    *out += "\r\n";
}

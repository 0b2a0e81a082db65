//! Exports RIS: one tag with a one-line value per line. Lines end with CRLF, as the format requires.

use super::source::{Day, Source, plain_url};

pub fn entries(sources: &[Source<'_>], accessed: Option<Day<'_>>) -> String {
    let mut out = String::new();
    for source in sources {
        let mut tag = |name: &str, value: &str| out += &format!("{name}  - {value}\r\n");
        tag("TY", if source.url.is_some() { "ELEC" } else { "GEN" });
        tag("ID", &source.key);
        tag("TI", &source.label);
        if let Some(site) = source.site.as_ref().filter(|site| **site != source.label) {
            tag("PB", site);
        }
        if let Some(day) = source.published {
            tag("PY", day.year());
            tag("DA", &with_slashes(day));
        }
        if let Some(url) = &source.url {
            // Readers split the value at `;` into several URLs.
            tag("UR", &plain_url(url, |c| c == ';' || c.is_whitespace()));
            if let Some(day) = accessed {
                tag("Y2", &with_slashes(day));
            }
        }
        if let Some(snippet) = &source.snippet {
            tag("AB", snippet);
        }
        tag("ER", "");
    }
    out
}

fn with_slashes(day: Day<'_>) -> String {
    day.text().replace('-', "/")
}

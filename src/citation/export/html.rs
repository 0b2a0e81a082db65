//! Exports a self-contained HTML page: no script, no image, no font, and a Content-Security-Policy that forbids them.

use super::{Lang, Source};
use crate::citation::{Record, text};

/// Text colors have a contrast of at least 4.5:1 (WCAG AA) in light and dark mode.
const STYLE: &str = "\
:root{color-scheme:light dark}\
body{max-width:44rem;margin:2rem auto;padding:0 1rem;font:1rem/1.6 system-ui,sans-serif;color:#1a1a1a;background:#fff}\
h1{font-size:1.25rem}h2{font-size:1rem}li{margin:0 0 1rem}p{margin:.1rem 0}\
a{color:#0b57d0;overflow-wrap:anywhere}.from,.note{color:#595959;font-size:.875rem}\
@media(prefers-color-scheme:dark){body{color:#e8e8e8;background:#161616}a{color:#8ab4f8}.from,.note{color:#a8a8a8}}\
@media print{body{margin:0}a::after{content:\" (\" attr(href) \")\";font-size:.75em}}";

/// Content-Security-Policy: allows only the style above, by its hash. The page repeats it, which protects a saved copy.
pub const POLICY: &str = "default-src 'none'; style-src 'sha256-27zG3nG0PuuM2cIsxyXTOECwthy0IHFzdVghDKDFg8s='; base-uri 'none'; form-action 'none'";

/// Fixed text of the page in one language.
struct Labels {
    lang: &'static str,
    heading: &'static str,
    uncited: &'static str,
    none: &'static str,
    also: &'static str,
}

const ZH: Labels =
    Labels {
        lang: "zh", heading: "参考来源", uncited: "检索到但未引用", none: "没有来源。", also: "亦作"
    };
const EN: Labels =
    Labels { lang: "en", heading: "Sources", uncited: "Found, not cited", none: "No sources.", also: "also" };

/// Renders the page. Sources that were found but not cited follow under a heading of their own.
pub fn page(record: &Record, sources: &[Source<'_>], lang: Lang) -> String {
    let labels = match lang {
        Lang::Zh => ZH,
        Lang::En => EN,
    };
    let Labels { lang, heading, .. } = labels;
    let mut out = format!(
        "<!doctype html>\n<html lang=\"{lang}\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n<meta name=\"robots\" content=\"noindex\">\n\
         <title>{heading}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{heading}</h1>\n"
    );
    if let Some(summary) = &record.summary {
        out += &format!("<p class=\"note\">{}</p>\n", escaped(&text::single_line(summary, usize::MAX)));
    }
    let (cited, uncited): (Vec<&Source<'_>>, Vec<&Source<'_>>) = sources.iter().partition(|source| source.cited);
    if sources.is_empty() {
        out += &format!("<p>{}</p>\n", labels.none);
    } else if cited.is_empty() {
        list(&mut out, &uncited, &labels);
    } else {
        list(&mut out, &cited, &labels);
        if !uncited.is_empty() {
            out += &format!("<h2>{}</h2>\n", labels.uncited);
            list(&mut out, &uncited, &labels);
        }
    }
    out + "</body>\n</html>\n"
}

fn list(out: &mut String, sources: &[&Source<'_>], labels: &Labels) {
    *out += "<ol>\n";
    for source in sources {
        let label = escaped(&source.label);
        *out += &format!("<li value=\"{0}\" id=\"source-{0}\">", source.number);
        *out += &match &source.url {
            Some(url) => format!(
                "<a href=\"{}\" rel=\"noopener noreferrer nofollow\" referrerpolicy=\"no-referrer\"><bdi>{label}</bdi></a>",
                escaped(url)
            ),
            None => format!("<bdi>{label}</bdi>"),
        };
        let site = source.site.as_ref().filter(|site| **site != source.label);
        let mut details: Vec<String> = site.map(|site| format!("<bdi>{}</bdi>", escaped(site))).into_iter().collect();
        details.extend(source.published.map(|day| format!("<time>{}</time>", day.text())));
        if !source.aliases.is_empty() {
            let also: Vec<String> = source.aliases.iter().map(|alias| format!("[{alias}]")).collect();
            details.push(format!("{} {}", labels.also, also.join(" ")));
        }
        if !details.is_empty() {
            *out += &format!("<p class=\"from\">{}</p>", details.join(" · "));
        }
        if let Some(snippet) = &source.snippet {
            *out += &format!("<p class=\"note\" dir=\"auto\">{}</p>", escaped(snippet));
        }
        *out += "</li>\n";
    }
    *out += "</ol>\n";
}

/// Escapes text for element content and for quoted attribute values.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn policy_has_the_hash_of_the_style() {
        let hash = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(STYLE));
        assert!(POLICY.contains(&format!("'sha256-{hash}'")), "the hash is {hash}");
    }
}

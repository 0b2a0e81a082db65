//! A page that needs nothing else: no script, no image, no font, and a policy that allows none.

use super::{Lang, Source};
use crate::citation::{Record, text};

/// Colours of at least 4.5:1 in both schemes.
const STYLE: &str = "\
:root{color-scheme:light dark}\
body{max-width:44rem;margin:2rem auto;padding:0 1rem;font:1rem/1.6 system-ui,sans-serif;color:#1a1a1a;background:#fff}\
h1{font-size:1.25rem}h2{font-size:1rem}li{margin:0 0 1rem}p{margin:.1rem 0}\
a{color:#0b57d0;overflow-wrap:anywhere}.from,.note{color:#595959;font-size:.875rem}\
@media(prefers-color-scheme:dark){body{color:#e8e8e8;background:#161616}a{color:#8ab4f8}.from,.note{color:#a8a8a8}}\
@media print{body{margin:0}a::after{content:\" (\" attr(href) \")\";font-size:.75em}}";

/// Allows that style and nothing else; also in the page itself, for when it is saved.
pub const POLICY: &str = "default-src 'none'; style-src 'sha256-27zG3nG0PuuM2cIsxyXTOECwthy0IHFzdVghDKDFg8s='; base-uri 'none'; form-action 'none'";

struct Words {
    lang: &'static str,
    heading: &'static str,
    uncited: &'static str,
    none: &'static str,
    also: &'static str,
}

const ZH: Words =
    Words {
        lang: "zh", heading: "参考来源", uncited: "检索到但未引用", none: "没有来源。", also: "亦作"
    };
const EN: Words =
    Words { lang: "en", heading: "Sources", uncited: "Found, not cited", none: "No sources.", also: "also" };

/// Sources that were found and not cited stand apart.
pub fn page(record: &Record, sources: &[Source<'_>], lang: Lang) -> String {
    let words = match lang {
        Lang::Zh => ZH,
        Lang::En => EN,
    };
    let Words { lang, heading, .. } = words;
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
        out += &format!("<p>{}</p>\n", words.none);
    } else if cited.is_empty() {
        list(&mut out, &uncited, &words);
    } else {
        list(&mut out, &cited, &words);
        if !uncited.is_empty() {
            out += &format!("<h2>{}</h2>\n", words.uncited);
            list(&mut out, &uncited, &words);
        }
    }
    out + "</body>\n</html>\n"
}

fn list(out: &mut String, sources: &[&Source<'_>], words: &Words) {
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
        let mut from: Vec<String> = site.map(|site| format!("<bdi>{}</bdi>", escaped(site))).into_iter().collect();
        from.extend(source.published.map(|day| format!("<time>{}</time>", day.text())));
        if !source.aliases.is_empty() {
            let also: Vec<String> = source.aliases.iter().map(|alias| format!("[{alias}]")).collect();
            from.push(format!("{} {}", words.also, also.join(" ")));
        }
        if !from.is_empty() {
            *out += &format!("<p class=\"from\">{}</p>", from.join(" · "));
        }
        if let Some(snippet) = &source.snippet {
            *out += &format!("<p class=\"note\" dir=\"auto\">{}</p>", escaped(snippet));
        }
        *out += "</li>\n";
    }
    *out += "</ol>\n";
}

/// For text and for attributes in double quotes.
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
    fn the_policy_names_the_style() {
        let hash = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(STYLE));
        assert!(POLICY.contains(&format!("'sha256-{hash}'")), "it is {hash}");
    }
}

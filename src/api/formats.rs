//! In which format a record is asked for, and the answer in it.

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    app::{negotiate, problem::Problem},
    citation::{
        Record, Rules,
        bundle::{self, SearchResultBundle},
        export::{self, Format, HTML_POLICY, Lang, Options},
        url::source_id,
    },
};

/// What JSON there is of a record.
#[derive(ToSchema)]
#[schema(as = RecordOrBundles)]
#[serde(untagged)]
#[expect(dead_code, reason = "it describes what is written one by one")]
pub enum Shown {
    Record(Box<Record>),
    Bundles(Bundles),
}

/// `{"bundles": […]}`
#[derive(Serialize, ToSchema)]
pub struct Bundles {
    bundles: Vec<SearchResultBundle>,
}

/// What `?format=` takes besides the exports.
const JSON: &str = "json";
const BUNDLE: &str = "bundle";

/// How a record is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// The record itself.
    Json,
    /// Its searches, as bundles for an evidence pipeline.
    Bundle,
    Export(Format, Options),
}

/// `?format=` decides, else `Accept`; who asks for nothing that we have gets the record.
pub fn wanted(
    format: Option<&str>,
    cited: Option<bool>,
    lang: Option<&str>,
    headers: &HeaderMap,
) -> Result<Wanted, Problem> {
    let bundle = format == Some(BUNDLE);
    let format = match format {
        Some(JSON | BUNDLE) => None,
        Some(name) => Some(Format::from_name(name).ok_or_else(unknown_format)?),
        None => accepted(headers),
    };
    let lang = match lang {
        Some(name) => Some(Lang::from_name(name).ok_or_else(|| Problem::bad_request("lang is zh or en"))?),
        None => None,
    };
    match format {
        Some(format) => Ok(Wanted::Export(format, Options { cited: cited.unwrap_or_default(), lang })),
        None if cited == Some(true) => {
            Err(Problem::bad_request("cited=true is for exports; the record as JSON is always whole, name a format"))
        }
        None if bundle => Ok(Wanted::Bundle),
        None => Ok(Wanted::Json),
    }
}

fn unknown_format() -> Problem {
    let names: Vec<&str> = [JSON, BUNDLE].into_iter().chain(Format::ALL.map(Format::name)).collect();
    Problem::bad_request(format!("format is one of {}", names.join(", ")))
}

/// What each media type asks for. Of two that are asked for alike, the earlier one is given.
const TYPES: [(&str, Option<Format>); 9] = [
    ("application/json", None),
    ("text/html", Some(Format::Html)),
    ("text/markdown", Some(Format::Markdown)),
    ("text/csv", Some(Format::Csv)),
    ("application/vnd.citationstyles.csl+json", Some(Format::Csl)),
    ("application/x-bibtex", Some(Format::Bibtex)),
    ("text/x-bibtex", Some(Format::Bibtex)),
    ("application/x-research-info-systems", Some(Format::Ris)),
    // Last: clients that take JSON often say that they take text as well.
    ("text/plain", Some(Format::Prompt)),
];

/// RFC 9110 12.5.1: the weight of a type is that of the most specific range that fits it. Of equal weights, a
/// type that was named wins over one that `*/*` covers.
fn accepted(headers: &HeaderMap) -> Option<Format> {
    let ranges: Vec<(String, u16)> = negotiate::weighed(headers, header::ACCEPT)
        .map(|(range, weight)| (range.to_ascii_lowercase(), weight))
        .collect();
    let mut best = (0, 0, None);
    for (media, format) in TYPES {
        let fitting = ranges.iter().filter_map(|(range, weight)| Some((specificity(range, media)?, *weight)));
        let Some((specificity, weight)) = fitting.max_by_key(|(specificity, _)| *specificity) else { continue };
        if weight > 0 && (weight, specificity) > (best.0, best.1) {
            best = (weight, specificity, format);
        }
    }
    best.2
}

fn specificity(range: &str, media: &str) -> Option<u8> {
    if range == media {
        return Some(3);
    }
    if range == "*/*" {
        return Some(1);
    }
    let kind = range.strip_suffix('*')?;
    (kind.ends_with('/') && media.starts_with(kind)).then_some(2)
}

/// The record as asked for, or 304 where the asker has it.
pub fn answer(record: &Record, wanted: Wanted, rules: &Rules, asked: &HeaderMap) -> Response {
    let body = body(record, wanted, rules);
    let tag = format!("\"{}\"", source_id(&body));
    let unchanged = negotiate::is_known(asked, &tag);
    let mut response = if unchanged { StatusCode::NOT_MODIFIED.into_response() } else { body.into_response() };
    describe(response.headers_mut(), record, wanted, "private, no-cache");
    if unchanged {
        response.headers_mut().remove(header::CONTENT_TYPE);
    }
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

/// 202: the message is known, its list is not final.
pub fn in_flight(record: &Record, wanted: Wanted, rules: &Rules) -> Response {
    let mut response = (StatusCode::ACCEPTED, body(record, wanted, rules)).into_response();
    describe(response.headers_mut(), record, wanted, "no-store");
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

fn body(record: &Record, wanted: Wanted, rules: &Rules) -> String {
    match wanted {
        Wanted::Json => serde_json::to_string(record).unwrap_or_default(),
        Wanted::Bundle => {
            serde_json::to_string(&Bundles { bundles: bundle::bundles(record, rules) }).unwrap_or_default()
        }
        Wanted::Export(format, options) => export::render(record, format, options),
    }
}

fn describe(headers: &mut HeaderMap, record: &Record, wanted: Wanted, cache: &'static str) {
    let mut set = |name, value| headers.insert(name, HeaderValue::from_static(value));
    set(header::CONTENT_TYPE, content_type(wanted));
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::CACHE_CONTROL, cache);
    set(header::VARY, "accept");
    let Wanted::Export(format, _) = wanted else { return };
    if format == Format::Html {
        let policy =
            format!("{HTML_POLICY}; frame-ancestors 'none'; sandbox allow-popups allow-popups-to-escape-sandbox");
        if let Ok(policy) = HeaderValue::from_str(&policy) {
            headers.insert(header::CONTENT_SECURITY_POLICY, policy);
        }
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        return;
    }
    // For who saves it. Ids of our alphabet only: others could leave the quotes.
    let id: String =
        record.message_id.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')).collect();
    let name = format!("inline; filename=\"{id}.{}\"", format.extension());
    if let Ok(name) = HeaderValue::from_str(&name) {
        headers.insert(header::CONTENT_DISPOSITION, name);
    }
}

const fn content_type(wanted: Wanted) -> &'static str {
    let Wanted::Export(format, _) = wanted else { return "application/json" };
    match format {
        Format::Markdown | Format::Footnotes => "text/markdown; charset=utf-8",
        Format::Html => "text/html; charset=utf-8",
        Format::Csv => "text/csv; charset=utf-8; header=present",
        Format::Bibtex => "application/x-bibtex; charset=utf-8",
        Format::Ris => "application/x-research-info-systems; charset=utf-8",
        Format::Csl => "application/vnd.citationstyles.csl+json",
        Format::Prompt => "text/plain; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(accept: &str) -> &'static str {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_str(accept).unwrap());
        accepted(&headers).map_or("json", Format::name)
    }

    #[test]
    fn accept_as_clients_send_it() {
        for (accept, format) in [
            ("*/*", "json"),
            ("application/json", "json"),
            ("application/*", "json"),
            ("application/json, text/plain, */*", "json"),
            ("text/plain, application/json", "json"),
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "html"),
            ("text/markdown", "markdown"),
            ("Text/Markdown; charset=utf-8", "markdown"),
            ("text/csv;q=0.5, application/x-bibtex;q=0.9, */*;q=0.1", "bibtex"),
            ("application/x-research-info-systems, */*", "ris"),
            ("application/vnd.citationstyles.csl+json", "csl"),
            ("text/plain", "prompt"),
            ("text/*", "html"),
            ("text/html;q=0, text/*", "markdown"),
            ("application/json;q=0, */*;q=0.1", "html"),
            ("text/csv; q=nonsense, text/html;q=0.2", "html"),
            ("text/csv; q=7", "json"),
            ("image/png", "json"),
            ("text/html;q=0", "json"),
            ("text/event-stream", "json"),
            (",,;q=1, ", "json"),
            ("", "json"),
        ] {
            assert_eq!(asked(accept), format, "{accept}");
        }
        assert_eq!(accepted(&HeaderMap::new()), None);
    }
}

//! The formats of a record in `/citations`: content negotiation, and the response in the chosen format.

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
pub enum RecordOrBundles {
    Record(Box<Record>),
    Bundles(Bundles),
}

/// `{"bundles": […]}`
#[derive(Serialize, ToSchema)]
pub struct Bundles {
    bundles: Vec<SearchResultBundle>,
}

/// Values of `?format=` besides the exports.
const JSON: &str = "json";
const BUNDLE: &str = "bundle";

/// The format of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordFormat {
    /// The record itself.
    Json,
    /// Its searches, as bundles for an evidence pipeline.
    Bundle,
    Export(Format, Options),
}

/// The format that a request asks for in `?format=`, else in `Accept`. JSON if neither names a known one.
pub fn requested_format(
    format: Option<&str>,
    cited: Option<bool>,
    lang: Option<&str>,
    headers: &HeaderMap,
) -> Result<RecordFormat, Problem> {
    let is_bundle = format == Some(BUNDLE);
    let format = match format {
        Some(JSON | BUNDLE) => None,
        Some(name) => Some(Format::from_name(name).ok_or_else(unknown_format)?),
        None => accepted_format(headers),
    };
    let lang = match lang {
        Some(name) => Some(Lang::from_name(name).ok_or_else(|| Problem::bad_request("lang is zh or en"))?),
        None => None,
    };
    match format {
        Some(format) => Ok(RecordFormat::Export(format, Options { cited: cited.unwrap_or_default(), lang })),
        None if cited == Some(true) => {
            Err(Problem::bad_request("cited=true is for exports; the record as JSON is always whole, name a format"))
        }
        None if is_bundle => Ok(RecordFormat::Bundle),
        None => Ok(RecordFormat::Json),
    }
}

fn unknown_format() -> Problem {
    let names: Vec<&str> = [JSON, BUNDLE].into_iter().chain(Format::ALL.map(Format::name)).collect();
    Problem::bad_request(format!("format is one of {}", names.join(", ")))
}

/// Media types and their formats (`None` is the record as JSON), in order of preference among equal weights.
const MEDIA_TYPES: [(&str, Option<Format>); 9] = [
    ("application/json", None),
    ("text/html", Some(Format::Html)),
    ("text/markdown", Some(Format::Markdown)),
    ("text/csv", Some(Format::Csv)),
    ("application/vnd.citationstyles.csl+json", Some(Format::Csl)),
    ("application/x-bibtex", Some(Format::Bibtex)),
    ("text/x-bibtex", Some(Format::Bibtex)),
    ("application/x-research-info-systems", Some(Format::Ris)),
    // Last, because clients that accept JSON often accept text as well.
    ("text/plain", Some(Format::Prompt)),
];

/// The export with the highest weight in `Accept`. The most specific range that matches a type gives its weight (RFC 9110
/// section 12.5.1). Of equal weights, a type that is named wins over one that `*/*` matches.
fn accepted_format(headers: &HeaderMap) -> Option<Format> {
    let ranges: Vec<(String, u16)> = negotiate::weighed(headers, header::ACCEPT)
        .map(|(range, weight)| (range.to_ascii_lowercase(), weight))
        .collect();
    let mut best = (0, 0, None);
    for (media, format) in MEDIA_TYPES {
        let matching = ranges.iter().filter_map(|(range, weight)| Some((specificity(range, media)?, *weight)));
        let Some((specificity, weight)) = matching.max_by_key(|(specificity, _)| *specificity) else { continue };
        if weight > 0 && (weight, specificity) > (best.0, best.1) {
            best = (weight, specificity, format);
        }
    }
    best.2
}

/// How specific a range that matches the media type is: 3 exact, 2 `type/*`, 1 `*/*`.
fn specificity(range: &str, media: &str) -> Option<u8> {
    if range == media {
        return Some(3);
    }
    if range == "*/*" {
        return Some(1);
    }
    let prefix = range.strip_suffix('*')?;
    (prefix.ends_with('/') && media.starts_with(prefix)).then_some(2)
}

/// Responds with a final record, or 304 if the client has it.
pub fn respond(record: &Record, format: RecordFormat, rules: &Rules, request_headers: &HeaderMap) -> Response {
    let body = body(record, format, rules);
    let tag = format!("\"{}\"", source_id(&body));
    let is_known = negotiate::is_known(request_headers, &tag);
    let mut response = if is_known { StatusCode::NOT_MODIFIED.into_response() } else { body.into_response() };
    set_headers(response.headers_mut(), record, format, "private, no-cache");
    if is_known {
        response.headers_mut().remove(header::CONTENT_TYPE);
    }
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

/// Responds with 202 and the record so far of a message in flight.
pub fn in_flight(record: &Record, format: RecordFormat, rules: &Rules) -> Response {
    let mut response = (StatusCode::ACCEPTED, body(record, format, rules)).into_response();
    set_headers(response.headers_mut(), record, format, "no-store");
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

fn body(record: &Record, format: RecordFormat, rules: &Rules) -> String {
    match format {
        RecordFormat::Json => serde_json::to_string(record).unwrap_or_default(),
        RecordFormat::Bundle => {
            serde_json::to_string(&Bundles { bundles: bundle::bundles(record, rules) }).unwrap_or_default()
        }
        RecordFormat::Export(export, options) => export::render(record, export, options),
    }
}

fn set_headers(headers: &mut HeaderMap, record: &Record, format: RecordFormat, cache: &'static str) {
    let mut set = |name, value| headers.insert(name, HeaderValue::from_static(value));
    set(header::CONTENT_TYPE, content_type(format));
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::CACHE_CONTROL, cache);
    set(header::VARY, "accept");
    let RecordFormat::Export(export, _) = format else { return };
    if export == Format::Html {
        let policy =
            format!("{HTML_POLICY}; frame-ancestors 'none'; sandbox allow-popups allow-popups-to-escape-sandbox");
        if let Ok(policy) = HeaderValue::from_str(&policy) {
            headers.insert(header::CONTENT_SECURITY_POLICY, policy);
        }
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        return;
    }
    // A name for saving the file. Other characters of an id could end the quoted string.
    let id: String =
        record.message_id.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')).collect();
    let name = format!("inline; filename=\"{id}.{}\"", export.extension());
    if let Ok(name) = HeaderValue::from_str(&name) {
        headers.insert(header::CONTENT_DISPOSITION, name);
    }
}

const fn content_type(format: RecordFormat) -> &'static str {
    let RecordFormat::Export(export, _) = format else { return "application/json" };
    match export {
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

    fn format_name(accept: &str) -> &'static str {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_str(accept).unwrap());
        accepted_format(&headers).map_or("json", Format::name)
    }

    #[test]
    fn accept_header_selects_the_format() {
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
            assert_eq!(format_name(accept), format, "{accept}");
        }
        assert_eq!(accepted_format(&HeaderMap::new()), None);
    }
}

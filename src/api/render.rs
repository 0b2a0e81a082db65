//! `POST /render`: rewrites the markers of an answer's text, or renders it as safe HTML, so that frontends need no renderer
//! of their own. Stores nothing.

use std::sync::Arc;

use axum::{
    Extension,
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, StatusCode, header};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    citations::{TenantName, current_record, plain_json},
    normalize::read_body,
    openapi::only,
};
use crate::{
    app::{
        App,
        problem::{Problem, ProblemJson, unquoted},
    },
    citation::{
        Record,
        export::HTML_POLICY,
        ledger::{MAX_SNIPPET, MAX_TITLE},
        record::CitationStatus,
        text,
        url::link,
    },
    marker::{self, Source, Sources, Style},
    profile::{
        html,
        partial_html::{PartialHtml, partial_html},
    },
};

/// Maximum bytes of a request: a text and a record.
const MAX_BODY: u64 = 2 * 1024 * 1024;
/// Maximum sources of a request; further ones are ignored.
const MAX_SOURCES: usize = 1000;
/// Maximum bytes of sources in a result. Each marker repeats its source, so a small request could ask for gigabytes.
const MAX_REPEATED: usize = 8 * 1024 * 1024;
/// Bytes of an excerpt that one marker repeats at most: 200 code points.
const MAX_EXCERPT: usize = 800;

pub fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(only(routes!(render)))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(as = RenderAsk)]
struct RenderRequest {
    text: String,
    message_id: Option<String>,
    provider: Option<String>,
    record: Option<RenderRecord>,
    /// `html`, or one of the styles of markers.
    #[serde(default = "html_style")]
    #[schema(pattern = "^(html|keep|link|sup|footnote|strip)$")]
    style: String,
    /// More of the text comes; for `html` only.
    #[serde(default)]
    partial: bool,
}

fn html_style() -> String {
    "html".to_owned()
}

/// A record, or as much of one as somebody has.
#[derive(Deserialize, ToSchema)]
#[schema(as = RenderRecord)]
struct RenderRecord {
    citations: Vec<RenderSource>,
}

#[derive(Deserialize, ToSchema)]
#[schema(as = RenderSource)]
struct RenderSource {
    number: u32,
    #[serde(default)]
    aliases: Vec<u32>,
    url: Option<String>,
    title: Option<String>,
    content: Option<String>,
    status: Option<CitationStatus>,
}

#[derive(Serialize, ToSchema)]
struct Rendered {
    style: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    html: Option<String>,
    /// Of a text of which more comes: what may still change, as HTML and as it was written. `html` is the rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    open: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rest: Option<String>,
    /// Numbers in the text that have a source.
    cited: Vec<u32>,
}

/// A text with its markers rewritten, or as safe HTML
///
/// Either `record` or `messageId` says what the markers mean. Nothing is kept.
#[utoipa::path(
    post, path = "/render", tag = "tools", request_body = RenderRequest,
    responses(
        (status = 200, description = "The text", content((Rendered = "application/json"), (String = "text/html"), (String = "text/plain"))),
        (status = 404, description = "There is no record of this message", body = ProblemJson, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = ProblemJson, content_type = "application/problem+json"),
    ),
)]
async fn render(
    State(app): State<Arc<App>>,
    Extension(TenantName(tenant)): Extension<TenantName>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let body = read_body(&app, body, MAX_BODY).await?.take();
    let request: RenderRequest = serde_json::from_slice(&body).map_err(|error| {
        let example = r#"{"text":"… [1]","messageId":"…"} or {"text":"… [1]","record":{"citations":[…]}}"#;
        Problem::bad_request(format!("expected JSON such as {example}: {}", unquoted(&error)))
    })?;
    let style = match &*request.style {
        "html" => None,
        name => Some(
            name.parse::<Style>()
                .map_err(|()| Problem::bad_request(format!("style is html, {}", Style::NAMES.join(", "))))?,
        ),
    };
    if request.partial && style.is_some() {
        return Err(Problem::bad_request("partial is for style html"));
    }
    let sources = match (request.record, request.message_id) {
        (Some(record), None) => SourceList::of_request(record),
        (None, Some(id)) => SourceList::of(&current_record(&app, &tenant, &id, request.provider.as_deref()).await?),
        _ => return Err(Problem::bad_request("either record or messageId says what the markers mean")),
    };
    let permit = app.normalizing.acquire().await.map_err(|_| Problem::draining())?;
    let task = tokio::task::spawn_blocking(move || render_text(&request.text, style, request.partial, &sources));
    let result = task.await;
    drop(permit);
    let rendered = result.map_err(|_| Problem::bad_request("the text could not be rendered"))?;
    let too_large =
        || Problem::bad_request("the text cites its sources too often: the result would have over 8 MiB of sources");
    let rendered = rendered.ok_or_else(too_large)?;
    Ok(respond(rendered, &headers))
}

/// Renders with a style of markers, or as HTML without one. `None` if the result would be too large.
fn render_text(text: &str, style: Option<Style>, partial: bool, sources: &SourceList) -> Option<Rendered> {
    let (_, marks) = marker::rewrite(text, Style::Keep, sources);
    let mut cited: Vec<u32> = marks.iter().map(|mark| mark.number).collect();
    if cited.iter().map(|number| sources.len_of(*number)).sum::<usize>() > MAX_REPEATED {
        return None;
    }
    cited.sort_unstable();
    cited.dedup();
    let empty = Rendered { style: "html", text: None, html: None, open: None, rest: None, cited };
    Some(match style {
        Some(style) => {
            let text = marker::rewritten(text, style, sources);
            Rendered { style: style.as_str(), text: Some(text), ..empty }
        }
        None if partial => {
            let PartialHtml { settled, open, settled_len } = partial_html(text, sources);
            let rest = text.get(settled_len..).unwrap_or_default().to_owned();
            Rendered { html: Some(settled), open: Some(open), rest: Some(rest), ..empty }
        }
        None => Rendered { html: Some(html::html(text, sources)), ..empty },
    })
}

/// Responds with JSON, or with plain HTML or text if the client accepts that.
fn respond(rendered: Rendered, headers: &HeaderMap) -> Response {
    let accepts = |kind: &str| {
        let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        accept.split(',').any(|one| one.split(';').next().is_some_and(|one| one.trim().eq_ignore_ascii_case(kind)))
    };
    match rendered {
        Rendered { html: Some(html), open: None, .. } if accepts("text/html") => {
            let kind = [
                (header::CONTENT_TYPE, "text/html; charset=utf-8"),
                (header::CONTENT_SECURITY_POLICY, HTML_POLICY),
                (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
                (header::CACHE_CONTROL, "no-store"),
            ];
            (kind, html).into_response()
        }
        Rendered { text: Some(text), .. } if accepts("text/markdown") || accepts("text/plain") => {
            let kind = [
                (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
                (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
                (header::CACHE_CONTROL, "no-store"),
            ];
            (kind, text).into_response()
        }
        rendered => plain_json(StatusCode::OK, serde_json::to_vec(&rendered).unwrap_or_default()),
    }
}

/// The sources that markers may refer to.
struct SourceList(Vec<RenderSource>);

impl SourceList {
    /// Untrusted sources of a request: removes unsafe links, and cleans titles and excerpts.
    fn of_request(record: RenderRecord) -> Self {
        let mut sources = record.citations;
        sources.truncate(MAX_SOURCES);
        for source in &mut sources {
            source.url = source.url.take().and_then(|url| link(&url, None)).map(|link| link.url);
            clean(source);
        }
        Self(sources)
    }

    fn of(record: &Record) -> Self {
        let source = |citation: &crate::citation::record::Citation| RenderSource {
            number: citation.number,
            aliases: citation.aliases.clone(),
            url: citation.url.clone(),
            title: citation.title.clone(),
            content: citation.content.clone(),
            status: Some(citation.status),
        };
        Self(record.citations.iter().map(source).collect())
    }

    /// Bytes that one marker with this number adds at most, before they are escaped.
    fn len_of(&self, number: u32) -> usize {
        let len = |text: Option<&str>| text.map_or(0, str::len);
        self.find(number)
            .map_or(0, |source| 2 * len(source.url) + 2 * len(source.title) + len(source.content).min(MAX_EXCERPT))
    }
}

/// Removes control characters from title and excerpt and cuts them, as in a record.
fn clean(source: &mut RenderSource) {
    source.title = source.title.take().map(|title| text::single_line(&title, MAX_TITLE));
    source.content = source.content.take().map(|content| text::clean_lines(&content, MAX_SNIPPET).0.into_owned());
}

impl Sources for SourceList {
    fn find(&self, number: u32) -> Option<Source<'_>> {
        let usable = || self.0.iter().filter(|source| source.status.is_none_or(|status| status == CitationStatus::Ok));
        let source = usable()
            .find(|source| source.number == number)
            .or_else(|| usable().find(|source| source.aliases.contains(&number)))?;
        Some(Source {
            number: source.number,
            url: source.url.as_deref(),
            title: source.title.as_deref(),
            content: source.content.as_deref(),
        })
    }
}

//! `POST /render`: an answer's text with its markers rewritten, or as safe HTML. One renderer for all who show
//! answers. Nothing is kept.

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
    citations::{Asker, known, plain_json},
    normalize::collect,
    openapi::only,
};
use crate::{
    app::{
        App,
        problem::{Json, Problem, unquoted},
    },
    citation::{Record, export::HTML_POLICY, record::CitationStatus, text, url::link},
    marker::{self, Source, Sources, Style},
    profile::{
        html,
        partial_html::{PartialHtml, partial_html},
    },
};

/// A text and a record.
const MAX_BODY: u64 = 2 * 1024 * 1024;
/// Sources that are looked at, where a request brings its own.
const MAX_GIVEN: usize = 1000;

pub fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(only(routes!(render)))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(as = RenderAsk)]
struct Ask {
    text: String,
    message_id: Option<String>,
    provider: Option<String>,
    record: Option<Given>,
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
struct Given {
    citations: Vec<GivenSource>,
}

#[derive(Deserialize, ToSchema)]
#[schema(as = RenderSource)]
struct GivenSource {
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
    post, path = "/render", tag = "tools", request_body = Ask,
    responses(
        (status = 200, description = "The text", content((Rendered = "application/json"), (String = "text/html"), (String = "text/plain"))),
        (status = 404, description = "There is no record of this message", body = Json, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = Json, content_type = "application/problem+json"),
    ),
)]
async fn render(
    State(app): State<Arc<App>>,
    Extension(Asker(tenant)): Extension<Asker>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let body = collect(&app, body, MAX_BODY).await?.take();
    let ask: Ask = serde_json::from_slice(&body).map_err(|error| {
        let such = r#"{"text":"… [1]","messageId":"…"} or {"text":"… [1]","record":{"citations":[…]}}"#;
        Problem::bad_request(format!("expected JSON such as {such}: {}", unquoted(&error)))
    })?;
    let style = match &*ask.style {
        "html" => None,
        name => Some(
            name.parse::<Style>()
                .map_err(|()| Problem::bad_request(format!("style is html, {}", Style::NAMES.join(", "))))?,
        ),
    };
    if ask.partial && style.is_some() {
        return Err(Problem::bad_request("partial is for style html"));
    }
    let list = match (ask.record, ask.message_id) {
        (Some(given), None) => List::given(given),
        (None, Some(id)) => List::of(&known(&app, &tenant, &id, ask.provider.as_deref()).await?),
        _ => return Err(Problem::bad_request("either record or messageId says what the markers mean")),
    };
    let turn = app.normalizing.acquire().await.map_err(|_| Problem::draining())?;
    let worked = tokio::task::spawn_blocking(move || rendered(&ask.text, style, ask.partial, &list)).await;
    drop(turn);
    let rendered = worked.map_err(|_| Problem::bad_request("the text could not be rendered"))?;
    Ok(answer(rendered, &headers))
}

fn rendered(text: &str, style: Option<Style>, partial: bool, list: &List) -> Rendered {
    let (_, marks) = marker::rewrite(text, Style::Keep, list);
    let mut cited: Vec<u32> = marks.iter().map(|mark| mark.number).collect();
    cited.sort_unstable();
    cited.dedup();
    let nothing = Rendered { style: "html", text: None, html: None, open: None, rest: None, cited };
    match style {
        Some(style) => {
            let text = marker::rewritten(text, style, list);
            Rendered { style: style.as_str(), text: Some(text), ..nothing }
        }
        None if partial => {
            let PartialHtml { settled, open, settled_len } = partial_html(text, list);
            let rest = text.get(settled_len..).unwrap_or_default().to_owned();
            Rendered { html: Some(settled), open: Some(open), rest: Some(rest), ..nothing }
        }
        None => Rendered { html: Some(html::html(text, list)), ..nothing },
    }
}

/// JSON, or the bare HTML or text where that is asked for.
fn answer(rendered: Rendered, headers: &HeaderMap) -> Response {
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

/// The sources that markers may lead to.
struct List(Vec<GivenSource>);

impl List {
    fn given(given: Given) -> Self {
        let mut sources = given.citations;
        sources.truncate(MAX_GIVEN);
        for source in &mut sources {
            source.url = source.url.take().and_then(|url| link(&url, None)).map(|link| link.url);
            clean(source);
        }
        Self(sources)
    }

    fn of(record: &Record) -> Self {
        let source = |citation: &crate::citation::record::Citation| GivenSource {
            number: citation.number,
            aliases: citation.aliases.clone(),
            url: citation.url.clone(),
            title: citation.title.clone(),
            content: citation.content.clone(),
            status: Some(citation.status),
        };
        Self(record.citations.iter().map(source).collect())
    }
}

/// As a record's own texts are.
fn clean(source: &mut GivenSource) {
    source.title = source.title.take().map(|title| text::single_line(&title, usize::MAX));
    source.content = source.content.take().map(|content| text::clean_lines(&content, usize::MAX).0.into_owned());
}

impl Sources for List {
    fn find(&self, number: u32) -> Option<Source<'_>> {
        let kept = || self.0.iter().filter(|source| source.status.is_none_or(|status| status == CitationStatus::Ok));
        let source = kept()
            .find(|source| source.number == number)
            .or_else(|| kept().find(|source| source.aliases.contains(&number)))?;
        Some(Source {
            number: source.number,
            url: source.url.as_deref(),
            title: source.title.as_deref(),
            content: source.content.as_deref(),
        })
    }
}

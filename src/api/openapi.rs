//! `/openapi.json`: the OpenAPI document, generated from the handlers. Called by `server`, and by `cli` to print it.
//! Served without a key, so it must not contain anything of the configuration.

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock},
};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use utoipa::{
    OpenApi,
    openapi::{
        self, ContentBuilder, Ref, RefOr, ResponseBuilder,
        path::{Operation, PathItem},
        security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
    },
};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};

use super::{citations, console, normalize, render, search, stats, tasks};
use crate::{
    app::{App, negotiate, problem::Problem},
    citation::url::source_id,
    ops,
};

pub const PATH: &str = "/openapi.json";

const KEY: &str = "key";
const BEARER: &str = "bearer";

/// Tags of operations that need no key.
const OPEN_TAGS: [&str; 2] = ["operators", "console"];
/// Prefix of the console's operations that need a key although their tag is open.
const KEYED_PREFIX: &str = "/console/";

/// Responses that every operation with a key may give, besides those that its handler declares.
const COMMON: [(&str, &str); 4] = [
    ("400", "Something in the request is not as it should be"),
    ("401", "A key is needed"),
    ("429", "More requests than the tenant may make; see retry-after"),
    ("503", "Draining, crowded, or the store does not answer; see retry-after"),
];

#[derive(OpenApi)]
#[openapi(
    info(
        title = "citetap",
        description = "What the answers of AI chats rest on. Relayed requests are not described here: they are the upstream's.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    servers((url = "/")),
    paths(document),
    tags(
        (name = "citations", description = "Records of messages"),
        (name = "tasks", description = "The evidence of all messages of a task"),
        (name = "tools", description = "Nothing is kept"),
        (name = "console", description = "The console and the component"),
        (name = "operators", description = "No key is needed; with `admin_listen` only there, but for /healthz and /readyz"),
    ),
)]
struct Base;

/// All handlers that need a key, with their descriptions.
pub fn router() -> OpenApiRouter<Arc<App>> {
    citations::router()
        .merge(console::status_api::router())
        .merge(normalize::router())
        .merge(render::router())
        .merge(search::router())
        .merge(stats::router())
        .merge(tasks::router())
}

/// Answers other methods on the path of these handlers with a problem (405).
pub fn only<S>((schemas, paths, methods): UtoipaMethodRouter<S>) -> UtoipaMethodRouter<S>
where
    S: Clone + Send + Sync + 'static,
{
    (schemas, paths, methods.fallback(|| async { Problem::method_not_allowed() }))
}

/// The document as it is served.
pub static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    let json = document_model().to_pretty_json().unwrap_or_default();
    // utoipa writes `u-int32`; the OpenAPI format registry has `uint32`.
    json.replace("\"format\": \"u-int", "\"format\": \"uint") + "\n"
});

fn document_model() -> openapi::OpenApi {
    let mut api = Base::openapi();
    for part in [router().into_openapi(), ops::openapi(), console::openapi()] {
        api.merge(part);
    }
    let components = api.components.get_or_insert_default();
    let key = SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("x-citetap-key")));
    let bearer = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
    components.add_security_scheme(KEY, key);
    components.add_security_scheme(BEARER, bearer);
    for (path, item) in &mut api.paths.paths {
        for operation in operations(item) {
            let is_open = operation.tags.iter().flatten().any(|tag| OPEN_TAGS.contains(&tag.as_str()));
            if !is_open || path.starts_with(KEYED_PREFIX) {
                add_key_and_errors(operation);
            }
        }
    }
    api
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.put, &mut item.post, &mut item.delete].into_iter().flatten()
}

/// Adds the security schemes and the [`COMMON`] responses.
fn add_key_and_errors(operation: &mut Operation) {
    operation.security = Some([KEY, BEARER].map(|name| SecurityRequirement::new(name, [""; 0])).to_vec());
    let known: BTreeSet<String> = operation.responses.responses.keys().cloned().collect();
    for (status, description) in COMMON.iter().filter(|(status, _)| !known.contains(*status)) {
        let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
        let response = ResponseBuilder::new().description(*description).content("application/problem+json", problem);
        operation.responses.responses.insert((*status).to_owned(), RefOr::T(response.build()));
    }
}

/// This document
#[utoipa::path(
    get, path = "/openapi.json", tag = "operators",
    responses(
        (status = 200, description = "OpenAPI 3.1", body = Object),
        (status = 304, description = "As the etag says"),
    ),
)]
fn document() -> &'static str {
    &DOCUMENT
}

/// Serves the path of the document; `None` for any other.
pub fn respond<B>(request: &Request<B>) -> Option<Response<Body>> {
    if request.uri().path() != PATH {
        return None;
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused: Response<Body> = Problem::method_not_allowed().response();
        refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET,HEAD"));
        return Some(refused);
    }
    static TAG: LazyLock<String> = LazyLock::new(|| format!("\"{}\"", source_id(document())));
    let is_known = negotiate::is_known(request.headers(), &TAG);
    let body = if is_known { Bytes::new() } else { Bytes::from_static(document().as_bytes()) };
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(&TAG) {
        headers.insert(header::ETAG, tag);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    Some(response)
}

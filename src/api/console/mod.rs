//! The console and the drop-in component: files embedded by `build.rs`, and the console's own API. Called by `server`.

mod coding;
pub mod status_api;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use utoipa::OpenApi;

use self::coding::Coding;
use crate::{
    app::{App, negotiate, problem::Problem},
    relay,
};

/// Content security policy: all resources come from this origin, so that untrusted text in a page can neither load nor
/// send anything.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
pub const COMPONENT: &str = "/component.js";
const PREFIX: &str = "/console/";
const ROUTES: &str = "/console/routes";
const STATUS: &str = "/console/status";

/// An embedded file, plain and compressed. A compressed form is empty if it would not be smaller.
struct File {
    path: &'static str,
    kind: &'static str,
    /// Hash of the content in hex.
    tag: &'static str,
    plain: &'static [u8],
    gzip: &'static [u8],
    brotli: &'static [u8],
}

static FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/web.rs"));

/// True for the paths of the console's own API, which need a key.
pub fn is_status_api(app: &App, path: &str) -> bool {
    app.config.console && matches!(path, ROUTES | STATUS)
}

/// True for the paths of the console's files.
pub fn is_file(path: &str) -> bool {
    [page(), component()].contains(&path) || path.starts_with(PREFIX)
}

/// The console
#[utoipa::path(
    get, path = "/", tag = "console",
    responses(
        (status = 200, description = "A page", body = String, content_type = "text/html"),
        (status = 304, description = "As the etag says"),
    ),
)]
fn page() -> &'static str {
    "/"
}

/// The drop-in component
#[utoipa::path(
    get, path = "/component.js", tag = "console",
    responses(
        (status = 200, description = "A module", body = String, content_type = "text/javascript"),
        (status = 304, description = "As the etag says"),
    ),
)]
fn component() -> &'static str {
    COMPONENT
}

/// OpenAPI description of the console and the component.
pub fn openapi() -> utoipa::openapi::OpenApi {
    #[derive(OpenApi)]
    #[openapi(paths(page, component))]
    struct Files;
    Files::openapi()
}

/// Serves a file of the console; `None` for any other path. Needs no key, because the files are public.
pub fn respond<B>(app: &App, request: &Request<B>) -> Option<Response<Body>> {
    let path = request.uri().path();
    if !app.config.console || !is_file(path) {
        return None;
    }
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    // Leave other methods on `/` to a route with that prefix: chat requests are POST.
    if path == "/" && !is_read && relay::find(&app.routes(), path).is_some() {
        return None;
    }
    let Some(file) = FILES.iter().find(|file| file.path == path) else {
        return Some(Problem::no_such_endpoint().response());
    };
    if !is_read {
        let mut refused: Response<Body> = Problem::method_not_allowed().response();
        refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET,HEAD"));
        return Some(refused);
    }
    Some(serve_file(file, request.method(), request.headers()))
}

fn serve_file(file: &File, method: &Method, request_headers: &HeaderMap) -> Response<Body> {
    let has = |coding: Coding| !file.bytes(coding).is_empty();
    let coding = coding::negotiate(request_headers, has);
    let bytes = file.bytes(coding);
    let tag = format!("\"{}{}\"", file.tag, coding.suffix());
    let is_known = negotiate::is_known(request_headers, &tag);
    let body = if is_known || *method == Method::HEAD { Bytes::new() } else { Bytes::from_static(bytes) };
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    for (name, value) in [
        (header::VARY, "accept-encoding"),
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if file.path == COMPONENT {
        // Pages of other origins load the component.
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        headers.insert("cross-origin-resource-policy", HeaderValue::from_static("cross-origin"));
    }
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return response;
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.kind));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    if let Some(name) = coding.name() {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(name));
    }
    response
}

impl File {
    fn bytes(&self, coding: Coding) -> &'static [u8] {
        match coding {
            Coding::Brotli => self.brotli,
            Coding::Gzip => self.gzip,
            Coding::Identity => self.plain,
        }
    }
}

#[cfg(test)]
mod tests;

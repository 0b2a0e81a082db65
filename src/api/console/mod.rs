//! The console and the drop-in component: files that were built in, and what the console asks beside the API.

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

/// Everything comes from here, and nothing from anywhere else: whatever a stranger's text were to become in the
/// page, it could load nothing and tell nobody.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
pub const COMPONENT: &str = "/component.js";
const BELOW: &str = "/console/";
const ROUTES: &str = "/console/routes";
const STATUS: &str = "/console/status";

/// One file, as it is and compressed; empty where that would not make it smaller.
struct File {
    path: &'static str,
    kind: &'static str,
    /// Hex, of what it holds.
    tag: &'static str,
    plain: &'static [u8],
    gzip: &'static [u8],
    brotli: &'static [u8],
}

static FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/web.rs"));

/// Is it what the console asks of us, as a tenant?
pub fn is_asked(app: &App, path: &str) -> bool {
    app.config.console && matches!(path, ROUTES | STATUS)
}

/// True for the paths of the console's files.
pub fn is_file(path: &str) -> bool {
    [page(), component()].contains(&path) || path.starts_with(BELOW)
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

/// Both, for the document of the API.
pub fn described() -> utoipa::openapi::OpenApi {
    #[derive(OpenApi)]
    #[openapi(paths(page, component))]
    struct Files;
    Files::openapi()
}

/// Answers a path of the console's; `None` for any other. No key is needed for what anybody can read in our sources.
pub fn answer<B>(app: &App, request: &Request<B>) -> Option<Response<Body>> {
    let path = request.uri().path();
    if !app.config.console || !is_file(path) {
        return None;
    }
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    // An upstream may be asked at its root, and is nearly always asked by POST.
    if path == "/" && !reads && relay::find(&app.routes(), path).is_some() {
        return None;
    }
    let Some(file) = FILES.iter().find(|file| file.path == path) else {
        return Some(Problem::no_such_endpoint().response());
    };
    if !reads {
        let mut refused: Response<Body> = Problem::method_not_allowed().response();
        refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET,HEAD"));
        return Some(refused);
    }
    Some(served(file, request.method(), request.headers()))
}

fn served(file: &File, method: &Method, asked: &HeaderMap) -> Response<Body> {
    let has = |coding: Coding| !file.bytes(coding).is_empty();
    let coding = coding::chosen(asked, has);
    let bytes = file.bytes(coding);
    let tag = format!("\"{}{}\"", file.tag, coding.suffix());
    let known = negotiate::is_known(asked, &tag);
    let body = if known || *method == Method::HEAD { Bytes::new() } else { Bytes::from_static(bytes) };
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
        // It is loaded into pages of other origins: that is what it is for.
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        headers.insert("cross-origin-resource-policy", HeaderValue::from_static("cross-origin"));
    }
    if known {
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

//! Pages of other origins: which of them may read our answers. Keys travel in headers that a page sets itself, so
//! credentials are never allowed: a browser adds nothing of its own.

use axum::body::Body;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{self, HeaderName},
};

use crate::config::Cors;

const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
/// What a page may read besides the few headers that it always may.
const EXPOSED: &str = "x-citetap-nonce, x-citetap-request, etag, content-type, retry-after";
/// Seconds for which a browser does not ask again.
const MAX_AGE: &str = "600";
const PREFLIGHT_VARY: &str = "origin, access-control-request-method, access-control-request-headers";

/// What one request's origin may, for its answer.
pub struct Grant {
    /// `*`, or the origin itself; `None` for one that may not, and for none.
    to: Option<HeaderValue>,
    /// Another origin gets another answer.
    varies: bool,
}

impl Grant {
    pub fn of(cors: &Cors, headers: &HeaderMap) -> Self {
        let origin = headers.get(header::ORIGIN);
        let to = match origin {
            Some(_) if cors.any => Some(HeaderValue::from_static("*")),
            Some(origin) => cors.origins.contains(origin).then(|| origin.clone()),
            None => None,
        };
        Self { to, varies: !cors.any && !cors.origins.is_empty() }
    }

    /// Answers a browser's question whether a page may ask; an upstream does not know who may ask us.
    pub fn preflight<B>(&self, request: &Request<B>) -> Option<Response<Body>> {
        let asks =
            *request.method() == Method::OPTIONS && request.headers().contains_key("access-control-request-method");
        let to = self.to.as_ref().filter(|_| asks)?;
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, to.clone());
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
        headers.insert(header::VARY, HeaderValue::from_static(PREFLIGHT_VARY));
        for asked in request.headers().get_all(header::ACCESS_CONTROL_REQUEST_HEADERS) {
            headers.append(header::ACCESS_CONTROL_ALLOW_HEADERS, asked.clone());
        }
        Some(response)
    }

    /// Says it on an answer, instead of what the upstream said of itself.
    pub fn put_on(self, headers: &mut HeaderMap) {
        if let Some(to) = self.to {
            let theirs: Vec<HeaderName> =
                headers.keys().filter(|name| name.as_str().starts_with("access-control-")).cloned().collect();
            theirs.iter().for_each(|name| drop(headers.remove(name)));
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, to);
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
        }
        if self.varies {
            headers.append(header::VARY, HeaderValue::from_static("origin"));
        }
    }
}

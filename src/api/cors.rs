//! CORS: which pages of other origins may read responses. Called by `server` for every request. Keys travel in headers
//! that a page sets itself, so credentials, which a browser would add, are never allowed.

use axum::body::Body;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};

use crate::{app::problem::Problem, config::Cors};

const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
/// Response headers that a page may read besides the safelisted ones.
const EXPOSED: &str = "x-citetap-nonce, x-citetap-request, etag, content-type, retry-after";
/// Seconds for which a browser caches a preflight.
const MAX_AGE: &str = "600";
const PREFLIGHT_VARY: &str = "origin, access-control-request-method, access-control-request-headers";

/// Permission of a request's origin to read the response.
pub struct Grant {
    /// `*` or the origin; `None` without permission or origin.
    to: Option<HeaderValue>,
    /// The response depends on the origin.
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

    /// True if pages of the request's origin may call citetap.
    pub fn is_given(&self) -> bool {
        self.to.is_some()
    }

    /// Answers a preflight: 204 if the origin is allowed, else 403. Preflights are never relayed, because an upstream does
    /// not know which pages may call citetap.
    pub fn preflight<B>(&self, request: &Request<B>) -> Option<Response<Body>> {
        let headers = request.headers();
        if *request.method() != Method::OPTIONS || !headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD) {
            return None;
        }
        let Some(to) = &self.to else {
            let mut refused = Problem::cross_site().response();
            refused.headers_mut().insert(header::VARY, HeaderValue::from_static(PREFLIGHT_VARY));
            return Some(refused);
        };
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, to.clone());
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
        headers.insert(header::VARY, HeaderValue::from_static(PREFLIGHT_VARY));
        for requested in request.headers().get_all(header::ACCESS_CONTROL_REQUEST_HEADERS) {
            headers.append(header::ACCESS_CONTROL_ALLOW_HEADERS, requested.clone());
        }
        Some(response)
    }

    /// Adds the grant to a response, unless the response has one of its own: the component's, or the upstream's where the
    /// route relays it.
    pub fn add_to(self, headers: &mut HeaderMap) {
        if let Some(to) = self.to.filter(|_| !headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN)) {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, to);
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
        }
        if self.varies {
            headers.append(header::VARY, HeaderValue::from_static("origin"));
        }
    }
}

//! Options of one request, from `x-citetap-` headers that are not relayed.

use std::str::FromStr;

use http::{HeaderMap, header::HeaderName};

use crate::{
    app::problem::Problem,
    config::{Inject, OutputFormat, Profile, Route},
};

const INJECT: HeaderName = HeaderName::from_static("x-citetap-inject");
const PROFILE: HeaderName = HeaderName::from_static("x-citetap-profile");
const MARKERS: HeaderName = HeaderName::from_static("x-citetap-markers");

/// How the client gets its response: the route's settings, overridden by the request's headers.
#[derive(Debug, Clone, Copy)]
pub struct RequestOptions {
    pub inject: Inject,
    pub output_format: OutputFormat,
    /// The request itself asks for the upstream's dialect.
    pub native: bool,
}

impl RequestOptions {
    pub fn of(headers: &HeaderMap, route: &Route) -> Result<Self, Problem> {
        let Route { inject, output_format, .. } = route;
        let profile = parse_header(
            headers,
            &PROFILE,
            output_format.profile,
            "x-citetap-profile is native, openai, ai-sdk or open-webui",
        )?;
        let markers = parse_header(
            headers,
            &MARKERS,
            output_format.markers,
            "x-citetap-markers is keep, link, sup, footnote or strip",
        )?;
        Ok(Self {
            inject: parse_header(headers, &INJECT, *inject, "x-citetap-inject is final, live or off")?,
            output_format: OutputFormat { profile, markers, ..*output_format },
            native: profile == Profile::Native && headers.contains_key(&PROFILE),
        })
    }
}

/// Parses a header; without it, returns the default. `expected` is the text of the problem for any other value.
fn parse_header<T: FromStr>(headers: &HeaderMap, name: &HeaderName, default: T, expected: &str) -> Result<T, Problem> {
    let Some(value) = headers.get(name) else { return Ok(default) };
    let value = value.to_str().ok().and_then(|value| value.trim().parse().ok());
    value.ok_or_else(|| Problem::bad_request(expected))
}

//! What a request asks of us, in headers that end here.

use std::str::FromStr;

use http::{HeaderMap, header::HeaderName};

use crate::{
    app::problem::Problem,
    config::{Inject, OutputFormat, Profile, Route},
};

const INJECT: HeaderName = HeaderName::from_static("x-citetap-inject");
const PROFILE: HeaderName = HeaderName::from_static("x-citetap-profile");
const MARKERS: HeaderName = HeaderName::from_static("x-citetap-markers");

/// What the client gets: as the route says, or as the request asks.
#[derive(Debug, Clone, Copy)]
pub struct RequestOptions {
    pub inject: Inject,
    pub output_format: OutputFormat,
    /// The request says itself that it wants the upstream's own dialect.
    pub native: bool,
}

impl RequestOptions {
    pub fn of(headers: &HeaderMap, route: &Route) -> Result<Self, Problem> {
        let Route { inject, output_format, .. } = route;
        let profile = asked(
            headers,
            &PROFILE,
            output_format.profile,
            "x-citetap-profile is native, openai, ai-sdk or open-webui",
        )?;
        let markers =
            asked(headers, &MARKERS, output_format.markers, "x-citetap-markers is keep, link, sup, footnote or strip")?;
        Ok(Self {
            inject: asked(headers, &INJECT, *inject, "x-citetap-inject is final, live or off")?,
            output_format: OutputFormat { profile, markers, ..*output_format },
            native: profile == Profile::Native && headers.contains_key(&PROFILE),
        })
    }
}

fn asked<T: FromStr>(headers: &HeaderMap, name: &HeaderName, otherwise: T, what: &str) -> Result<T, Problem> {
    let Some(asked) = headers.get(name) else { return Ok(otherwise) };
    let asked = asked.to_str().ok().and_then(|asked| asked.trim().parse().ok());
    asked.ok_or_else(|| Problem::bad_request(what))
}

//! What a request asks of us, in headers that end here.

use std::str::FromStr;

use http::{HeaderMap, header::HeaderName};

use crate::{
    app::problem::Problem,
    config::{Inject, Manner, Profile, Route},
};

const INJECT: HeaderName = HeaderName::from_static("x-citetap-inject");
const PROFILE: HeaderName = HeaderName::from_static("x-citetap-profile");
const MARKERS: HeaderName = HeaderName::from_static("x-citetap-markers");

/// What the client gets: as the route says, or as the request asks.
#[derive(Debug, Clone, Copy)]
pub struct Wants {
    pub inject: Inject,
    pub manner: Manner,
    /// The request says itself that it wants the upstream's own dialect.
    pub native: bool,
}

impl Wants {
    pub fn of(headers: &HeaderMap, route: &Route) -> Result<Self, Problem> {
        let Route { inject, manner, .. } = route;
        let profile =
            asked(headers, &PROFILE, manner.profile, "x-citetap-profile is native, openai, ai-sdk or open-webui")?;
        let markers =
            asked(headers, &MARKERS, manner.markers, "x-citetap-markers is keep, link, sup, footnote or strip")?;
        Ok(Self {
            inject: asked(headers, &INJECT, *inject, "x-citetap-inject is final, live or off")?,
            manner: Manner { profile, markers, ..*manner },
            native: profile == Profile::Native && headers.contains_key(&PROFILE),
        })
    }
}

fn asked<T: FromStr>(headers: &HeaderMap, name: &HeaderName, otherwise: T, what: &str) -> Result<T, Problem> {
    let Some(asked) = headers.get(name) else { return Ok(otherwise) };
    let asked = asked.to_str().ok().and_then(|asked| asked.trim().parse().ok());
    asked.ok_or_else(|| Problem::bad_request(what))
}

//! What the console asks beside the API: which routes there are.

use std::sync::Weak;

use axum::{Extension, Router, extract::State, response::Response, routing::get};
use http::StatusCode;
use serde::Serialize;

use super::ROUTES;
use crate::{
    config::{Auth, Route},
    server::{
        App,
        citations::{Asker, app, plain_json},
        problem::Problem,
    },
};

pub fn router(app: Weak<App>) -> Router {
    Router::new().route(ROUTES, get(routes).fallback(|| async { Problem::method_not_allowed() })).with_state(app)
}

#[derive(Serialize)]
struct Routes<'a> {
    tenant: &'a str,
    /// Is a key needed?
    keys: bool,
    routes: Vec<Told<'a>>,
}

/// A route as its users may know it: where it leads to is the operator's.
#[derive(Serialize)]
struct Told<'a> {
    name: &'a str,
    prefix: &'a str,
    provider: &'static str,
    profile: &'static str,
    markers: &'static str,
    inject: &'static str,
    models: &'a [String],
    questions: &'a [String],
}

impl<'a> Told<'a> {
    fn of(route: &'a Route) -> Self {
        Self {
            name: &route.name,
            prefix: &route.prefix,
            provider: route.provider.as_str(),
            profile: route.manner.profile.as_str(),
            markers: route.manner.markers.as_str(),
            inject: route.inject.as_str(),
            models: route.mapping.as_ref().map_or(&[], |mapping| &mapping.models),
            questions: &route.questions,
        }
    }
}

async fn routes(
    State(state): State<Weak<App>>,
    Extension(Asker(tenant)): Extension<Asker>,
) -> Result<Response, Problem> {
    let app = app(&state)?;
    let routes = app.routes();
    let told =
        Routes { tenant: &tenant, keys: app.config.auth == Auth::Keys, routes: routes.iter().map(Told::of).collect() };
    Ok(plain_json(StatusCode::OK, serde_json::to_vec(&told).unwrap_or_default()))
}

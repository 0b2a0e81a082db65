//! What operators ask: is it up, is it ready, what is it, how is it doing.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, header};
use serde_json::json;

use super::{AnyBody, App, door::Side, negotiate::weighed, problem::Problem};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers an operator's path; `None` for any other. Whoever balances the load of a door asks at that door whether it is
/// open; the rest is nobody's who chats.
pub fn answer(app: &App, side: Side, path: &str, method: &Method, headers: &HeaderMap) -> Option<Response<AnyBody>> {
    match path {
        "/healthz" | "/readyz" => {}
        "/metrics" | "/version" if side == Side::Whole => {}
        _ => return None,
    }
    if !matches!(*method, Method::GET | Method::HEAD) {
        let mut refused: Response<AnyBody> = Problem::method_not_allowed().response();
        refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET,HEAD"));
        return Some(refused);
    }
    Some(match path {
        "/healthz" => text("text/plain; charset=utf-8", "ok\n".to_owned()),
        "/readyz" => {
            ready(app).map_or_else(Problem::response, |()| text("text/plain; charset=utf-8", "ready\n".to_owned()))
        }
        "/metrics" => {
            app.metrics.ready.set(i64::from(ready(app).is_ok()));
            if wants_open_metrics(headers) {
                text(OPEN_METRICS, app.metrics.open_metrics())
            } else {
                text(CLASSIC, app.metrics.classic())
            }
        }
        _ => {
            let version = json!({ "name": "citetap", "version": crate::VERSION, "commit": crate::COMMIT });
            text("application/json", version.to_string())
        }
    })
}

/// Only who names it gets it: everybody reads the older format.
fn wants_open_metrics(headers: &HeaderMap) -> bool {
    let weight = |names: &[&str]| {
        let asked = weighed(headers, header::ACCEPT).filter(|(name, _)| names.contains(name));
        asked.map(|(_, weight)| weight).max().unwrap_or_default()
    };
    let open = weight(&["application/openmetrics-text"]);
    open > 0 && open >= weight(&["text/plain"])
}

fn ready(app: &App) -> Result<(), Problem> {
    if app.is_draining() {
        return Err(Problem::draining());
    }
    if let Some(why) = app.writer.trouble() {
        return Err(Problem::store(format!("{why}; chats go on, their records are kept for a later try")));
    }
    Ok(())
}

fn text(kind: &'static str, body: String) -> Response<AnyBody> {
    let mut response = Response::new(AnyBody::from(Bytes::from(body)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

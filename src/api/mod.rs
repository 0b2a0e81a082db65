//! The HTTP API: endpoints that citetap serves itself, the OpenAI facade, the console, and the OpenAPI document. Called by
//! `server`.

pub mod citations;
pub mod console;
pub mod cors;
pub mod cross_site;
pub mod facade;
mod formats;
pub mod host_check;
mod normalize;
pub mod openapi;
mod render;
mod search;
mod stats;
mod tasks;

/// True for the paths of the API. They take precedence over a route with prefix `/`.
pub fn is_api(path: &str) -> bool {
    matches!(path, "/citations" | "/normalize" | "/render" | "/search" | "/stats" | "/tasks")
        || path.starts_with("/citations/")
        || path.starts_with("/tasks/")
}

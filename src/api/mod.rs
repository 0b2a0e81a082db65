//! The HTTP API: what tenants ask of citetap itself, the OpenAI facade, the console, and the description of it all.

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

/// Paths of the API; they win over a route with prefix `/`.
pub fn is_api(path: &str) -> bool {
    matches!(path, "/citations" | "/normalize" | "/render" | "/search" | "/stats" | "/tasks")
        || path.starts_with("/citations/")
        || path.starts_with("/tasks/")
}

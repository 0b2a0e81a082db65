//! HTTP transport: listeners, the hyper server, the pooled hyper client, the client for citetap's own calls, header
//! hygiene, timeouts and caps.
//!
//! Reads, writes, chunked coding and pooling are hyper's. This module must not parse or write HTTP, and knows nothing of
//! routes, records or streams' contents.

pub mod client;
mod client_io;
mod fd_guard;
pub mod fd_limit;
mod h2_header_progress;
pub mod headers;
pub mod incoming;
pub mod listener;
mod response_check;
pub mod server;
pub mod service_client;
pub mod tls;
pub mod trailers;
mod workers;

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

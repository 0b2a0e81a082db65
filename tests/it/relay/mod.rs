//! The relay over sockets: a client, the server, and a scripted upstream.

mod connections;
mod dialect_faults;
mod dialects;
mod drain;
pub mod ends;
mod framing;
mod heads;
mod heartbeat;
mod inject;
mod limits;
mod markers;
pub mod memory;
mod paths;
mod rates;
mod refused;
mod requests;
mod resets;
pub mod responses;
mod slow_store;
mod smuggling;
mod split_requests;
mod streams;
pub mod timeouts;
pub mod tls;
mod unstreamed;
mod upstream_requests;

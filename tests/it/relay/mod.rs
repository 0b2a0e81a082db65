//! The relay over sockets: a client, the server, a scripted upstream.

mod connections;
mod cuts;
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
mod sending;
mod slow_store;
mod smuggling;
mod streams;
pub mod timeouts;
pub mod tls;
mod whole;

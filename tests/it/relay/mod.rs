//! The relay over sockets: a client, the server, a scripted upstream.

mod dialect_faults;
mod dialects;
mod drain;
mod ends;
mod heartbeat;
mod inject;
mod limits;
mod markers;
mod memory;
mod refused;
mod requests;
mod responses;
mod slow_store;
mod streams;
mod timeouts;
mod tls;
mod whole;

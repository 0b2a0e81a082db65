//! Faults around a proxy: links, store, other clients.
//!
//! `table` lists the expectations for every link fault; `matrix` and `requests` run each of its lines with the real
//! binary, and `link` is the faulty relay. `store` does the same for the database file, `isolation` for one stalled
//! client among others.

mod isolation;
mod link;
mod matrix;
mod requests;
mod store;
mod table;

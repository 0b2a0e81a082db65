//! What breaks around a proxy: its links, its store, its neighbours.
//!
//! `table` says what holds for every fault of a link; `matrix` and `requests` drive each of its lines with the real
//! binary, and `link` is the relay that breaks. `store` does the same for the file that records are kept in, `neighbours`
//! for a client among others that takes nothing.

mod link;
mod matrix;
mod neighbours;
mod requests;
mod store;
mod table;

//! The console: its files, and what it asks.

mod files;
mod routes;
mod status;
